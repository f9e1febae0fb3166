"""All of it in one run, printed as it comes."""

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence

from attrs import frozen

from benchmarks.speed import listings, lives, parts, starting, works
from benchmarks.speed.clients import Client, clients
from benchmarks.speed.figures import Figure, Row, Wanted, judge
from benchmarks.speed.rounds import Failures
from benchmarks.speed.table import table


@frozen
class Work:
    """What all clients do."""

    run: Callable[[Mapping[str, Client], Failures, int], Awaitable[list[Figure]]]
    rounds: int
    wanted: Sequence[Wanted] = ()


WORKS = {
    "stdio": Work(works.stdio_echo, 4, works.WANTED_STDIO),
    "large": Work(works.stdio_echo_of_64_kb, 3),
    "http": Work(works.http_echo, 4, works.WANTED_HTTP),
    "startup": Work(starting.startup, 3, starting.WANTED_STARTUP),
    "import": Work(starting.imports, 4, starting.WANTED_IMPORT),
    "listings": Work(listings.listings, 3, listings.WANTED),
}
OURS_ALONE: Mapping[str, Callable[[], Awaitable[list[Row]]]] = {"parts": parts.rows, "lives": lives.rows}
"""What has no counterpart elsewhere."""
NAMES = (*WORKS, *OURS_ALONE)


@frozen
class Measured:
    """One run."""

    versions: Mapping[str, str]
    left_out: Mapping[str, str]
    """Clients, or clients and a work, with the reason."""
    figures: Sequence[Figure]
    rows: Sequence[Row]


async def measure(names: Sequence[str] = NAMES) -> Measured:
    """Run these."""
    found, left_out = clients()
    failures = Failures()
    figures: list[Figure] = []
    rows: list[Row] = []
    for name in names:
        if name in OURS_ALONE:
            rows += await OURS_ALONE[name]()
            continue

        work = WORKS[name]
        part = await work.run(found, failures, work.rounds)
        for line in table(part):
            print(line, flush=True)

        figures += part
        rows += judge(part, work.wanted)

    left_out |= failures.reasons
    for what, reason in left_out.items():
        print(f"left out: {what}: {reason}", file=sys.stderr)

    return Measured({name: client.versions for name, client in found.items()}, left_out, figures, rows)
