"""The plot beside the page: bars of ratios to the bare SDK, as an SVG of plain lines and words. Pure."""

from collections.abc import Iterator, Sequence
from html import escape

from benchmarks.speed.figures import Figure

SHOWN = (
    ("stdio echo", "p50"),
    ("stdio echo", "CPU"),
    ("stdio echo", "calls/s at 128"),
    ("HTTP echo, JSON", "CPU"),
    ("HTTP echo, SSE", "CPU"),
    ("startup", "50 servers"),
    ("import", "CPU"),
)
"""Work and figure of each panel."""

WIDTH, LABELS, LINE, GAP = 760, 190, 18, 34
NUMBERS = 60
MOST = 4.0
"""A longer bar is cut and says so."""
COLOURS = {"deputy_mcp": "#1f77b4", "bare SDK": "#555555", "floor": "#bbbbbb"}
OTHERS = "#d9a441"


def svg(figures: Sequence[Figure]) -> str:
    """One panel under the other."""
    by_name = {(one.work, one.name): one for one in figures}
    panels = [by_name[key] for key in SHOWN if key in by_name and by_name[key].has_ratios]
    body: list[str] = []
    y = 0
    for figure in panels:
        body += _panel(figure, y)
        y += GAP + LINE * len(figure.samples)

    y += LINE
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{y}" fill="white"/>', *body, "</svg>"]) + "\n"


def _panel(figure: Figure, top: int) -> Iterator[str]:
    better = "more" if figure.name.startswith("calls/s") else "less"
    title = f"{figure.work}: {figure.name}, {better} is better"
    yield f'<text x="{LABELS}" y="{top + GAP - 10}" font-weight="bold">{escape(title)}</text>'
    scale = (WIDTH - LABELS - NUMBERS) / MOST
    for number, client in enumerate(figure.samples):
        ratio = figure.ratio(client)
        y = top + GAP + LINE * number
        length = min(ratio, MOST) * scale
        text = f"{ratio:.2f} x" + (" (cut)" if ratio > MOST else "")
        yield f'<text x="{LABELS - 6}" y="{y + 11}" text-anchor="end">{escape(client)}</text>'
        yield f'<rect x="{LABELS}" y="{y}" width="{length:.0f}" height="14" fill="{COLOURS.get(client, OTHERS)}"/>'
        inside = ratio > MOST
        x = LABELS + length + (-4 if inside else 4)
        yield f'<text x="{x:.0f}" y="{y + 11}"{_INSIDE if inside else ""}>{text}</text>'

    x = LABELS + scale
    bottom = top + GAP + LINE * len(figure.samples)
    yield f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{top + GAP - 4}" y2="{bottom}" stroke="#555555" stroke-dasharray="3"/>'


_INSIDE = ' text-anchor="end" fill="white"'
