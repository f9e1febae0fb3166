"""`verify="call"`: what listing again before each call costs, beside the floor that only reads the same listing."""

from collections.abc import Mapping

from benchmarks.speed.clients import EACH_CALL, FLOOR, Client, Driver
from benchmarks.speed.figures import Figure, Wanted
from benchmarks.speed.rounds import Failures, Job, measured, opened, stdio
from benchmarks.speed.works import as_figures

TOOLS = (10, 100, 1_000)
LISTINGS = ("same", "moved", "changed")
AT_ONCE = 64

WANTED = (
    *(Wanted("list and call, 100 tools, same", figure, EACH_CALL, 1.0) for figure in ("p50", "CPU")),
    *(
        Wanted(f"list and call, 100 tools, {how}", figure, EACH_CALL, 3.0)
        for how in LISTINGS[1:]
        for figure in ("p50", "CPU")
    ),
    Wanted("64 calls at once, 100 tools", "listings", EACH_CALL, 3, absolute=True),
)


async def listings(clients: Mapping[str, Client], failures: Failures, rounds: int) -> list[Figure]:
    """One call at a time; and with 100 tools 64 at once, where the server counts the listings."""
    found: list[Figure] = []
    both = [clients[FLOOR], clients[EACH_CALL]]
    for tools in TOOLS:
        for listing in LISTINGS:
            work = f"list and call, {tools:,} tools, {listing}"
            how = {"calls": max(5, 2_000 // tools)}
            jobs = {
                FLOOR: [Job("sequential", ("p50", "cpu"), how | {"tool": "list"})],
                EACH_CALL: [Job("sequential", ("p50", "cpu"), how)],
            }
            async with opened(both, stdio(str(tools), listing), failures, work) as drivers:
                found += as_figures(work, await measured(drivers, jobs, rounds), FLOOR)
                if (tools, listing) == (100, "same") and EACH_CALL in drivers:
                    found.append(await _at_once(drivers[EACH_CALL], rounds))

    return found


async def _at_once(ours: Driver, rounds: int) -> Figure:
    counts = []
    for _ in range(rounds):
        before = await ours.work("count")
        await ours.work("flight", calls=AT_ONCE, in_flight=AT_ONCE)
        after = await ours.work("count")
        # One was for the second count itself.
        counts.append(float(after["listings"] - before["listings"] - 1))

    return Figure("64 calls at once, 100 tools", "listings", "", FLOOR, {EACH_CALL: counts})
