"""All of it in one run, printed as it comes."""

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

from attrs import frozen

from benchmarks.speed import listings, starting, works
from benchmarks.speed.clients import Client, clients
from benchmarks.speed.figures import Figure, Row, judge, number
from benchmarks.speed.rounds import Failures

Work = Callable[[Mapping[str, Client], Failures, int], Awaitable[list[Figure]]]

WORKS: Mapping[str, tuple[Work, int]] = {
    "stdio": (works.stdio_echo, 5),
    "large": (works.stdio_echo_of_64_kb, 5),
    "http": (works.http_echo, 5),
    "startup": (starting.startup, 4),
    "import": (starting.imports, 9),
    "listings": (listings.listings, 5),
}
"""By name, each with its rounds."""
WANTED = {
    "stdio": works.WANTED_STDIO,
    "http": works.WANTED_HTTP,
    "startup": starting.WANTED_STARTUP,
    "import": starting.WANTED_IMPORT,
    "listings": listings.WANTED,
}


@frozen
class Measured:
    """One run."""

    versions: Mapping[str, str]
    left_out: Mapping[str, str]
    """Clients, or clients and a work, with the reason."""
    figures: Sequence[Figure]
    rows: Sequence[Row]


async def measure(names: Sequence[str] = ()) -> Measured:
    """Run the works of these names, or all."""
    found, missing = clients()
    failures = Failures()
    figures: list[Figure] = []
    rows: list[Row] = []
    for name in names or WORKS:
        work, rounds = WORKS[name]
        part = await work(found, failures, rounds)
        for line in table(part):
            print(line, file=sys.stderr, flush=True)

        figures += part
        rows += judge(part, WANTED.get(name, ()))

    left_out = missing | failures.reasons
    for what, reason in left_out.items():
        print(f"left out: {what}: {reason}", file=sys.stderr)

    versions = {name: client.versions for name, client in found.items()}
    return Measured(versions, left_out, figures, rows)


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
