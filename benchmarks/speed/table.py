"""Figures as lines of a table: one for each work, a line for each client, a column for each figure. Pure."""

from collections.abc import Iterator, Sequence

from benchmarks.speed.figures import Figure, number


def table(figures: Sequence[Figure]) -> Iterator[str]:
    """A table for each work: a line for each client, a column for each figure."""
    for work, part in by_work(figures).items():
        yield f"\n{work:24s}" + "".join(f"{one.heading:>28s}" for one in part)
        for client in columns(part):
            yield f"{client:24s}" + "".join(f"{cell(one, client):>28s}" for one in part)


def by_work(figures: Sequence[Figure]) -> dict[str, list[Figure]]:
    works: dict[str, list[Figure]] = {}
    for one in figures:
        works.setdefault(one.work, []).append(one)

    return works


def columns(figures: Sequence[Figure]) -> list[str]:
    """Every client that one of them has."""
    return list(dict.fromkeys(client for one in figures for client in one.samples))


def cell(figure: Figure, client: str) -> str:
    """The median, the rounds' range, and the ratio to the baseline."""
    if client not in figure.samples:
        return "–"

    low, high = figure.spread(client)
    text = f"{number(figure.median(client))} ({number(low)}–{number(high)})"
    return text + (f" {figure.ratio(client):.2f} x" if figure.has_ratios else "")
