"""What was measured, as values: samples by round, medians, spreads, ratios paired within a round, verdicts. Pure."""

import statistics
from collections.abc import Iterator, Mapping, Sequence

from attrs import field, frozen

Row = tuple[str, str, bool]
"""What was measured, the figure, and whether it holds."""


@frozen
class Figure:
    """One figure of one work, of every client that was measured."""

    work: str
    name: str
    unit: str
    baseline: str
    """The client that the others are compared with."""
    samples: Mapping[str, Sequence[float]]
    """By client, one a round; the same number for each."""

    def median(self, client: str) -> float:
        return statistics.median(self.samples[client])

    def spread(self, client: str) -> tuple[float, float]:
        """The lowest and the highest round."""
        return min(self.samples[client]), max(self.samples[client])

    def ratio(self, client: str) -> float:
        """The median of the ratios to the baseline, each within one round: what disturbed one disturbed both."""
        pairs = zip(self.samples[client], self.samples[self.baseline], strict=True)
        return statistics.median(one / other if other else float("inf") for one, other in pairs)

    @property
    def heading(self) -> str:
        """Its name, with the unit if it has one."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    @property
    def has_ratios(self) -> bool:
        return self.baseline in self.samples and self.median(self.baseline) > 0


@frozen
class Wanted:
    """A bound on a ratio, or without a ratio on the median itself."""

    work: str
    figure: str
    client: str
    most: float | None = None
    least: float | None = field(default=None, kw_only=True)
    absolute: bool = field(default=False, kw_only=True)


def judge(figures: Sequence[Figure], wanted: Sequence[Wanted]) -> Iterator[Row]:
    """A row for each wish; one that was not measured is a miss."""
    by_name = {(one.work, one.name): one for one in figures}
    for wish in wanted:
        what = f"{wish.work}, {wish.figure}"
        figure = by_name.get((wish.work, wish.figure))
        if figure is None or wish.client not in figure.samples or not (wish.absolute or figure.has_ratios):
            yield what, "not measured", False
            continue

        value = figure.median(wish.client) if wish.absolute else figure.ratio(wish.client)
        bound = f"<= {wish.most:g}" if wish.most is not None else f">= {wish.least:g}"
        holds = (wish.most is None or value <= wish.most) and (wish.least is None or value >= wish.least)
        text = f"{number(value)} {figure.unit}".rstrip() if wish.absolute else f"{value:.2f} x the {figure.baseline}'s"
        text += f" (wanted {bound})"
        if not wish.absolute:
            text += f": {number(figure.median(wish.client))} and {number(figure.median(figure.baseline))} {figure.unit}"

        yield what, text.rstrip(), holds


def number(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
