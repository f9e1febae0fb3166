"""The longest time that the event loop stands still under any one message, at default limits."""

import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio

from benchmarks.floods.child import Row, measure, tell
from benchmarks.floods.sides import Call, ending, flood_http, flood_stdio, open_ours
from deputy_mcp import Limits

ROUNDS = 2
WANTED_SECONDS = 0.3
BEAT_SECONDS = 0.001
MOST_SECONDS = 20.0
MIB = 1024 * 1024
WHOLE = Limits().max_message_bytes - 4096
"""A message just under the cap."""

MANY = 20_000
"""Enough to fill many reads; the longest stall does not depend on how many more there are."""

LONG_FLOOD_SECONDS = 5.0
"""So much of a million notifications; they may be read slowly, and the rest would be the same."""

SMALL: dict[str, Any] = {"what": "fine"}

RESULTS = (
    "prose",
    "text",
    "control characters",
    "surrogates",
    "broken UTF-8",
    "wide characters",
    "image",
    "more than a million zeros",
    "a million zeros",
    "a million strings",
    "a million empty lists",
    "a million floats",
    "a million keys",
    "400,000 keys",
    "long integers",
    "a million values, broken UTF-8",
    "a million values, cut off",
    "commas in strings",
    "strings side by side",
    "pairs of strings with commas",
    "100,000 deep",
    "brackets only",
    "330,000 blocks",
    "330,000 unknown blocks",
    "a million non-blocks",
)
RAW = {
    "20,000 list changes": ("list changes", MANY),
    "20,000 empty objects": ("empty objects", MANY),
    "20,000 digits on lines": ("single digits", MANY),
    "20,000 pings": ("pings", MANY),
    "20,000 late replies": ("late replies", MANY),
    "a million blank lines": ("blank lines", 1_000_000),
    "a batch of a million": ("a batch of a million", 1_000_000),
    "a batch of 80,000 notifications": ("a batch of notifications", 80_000),
    "16 MiB that is no JSON": ("no JSON", WHOLE),
}
"""Lines before the answer: which, and how much of it."""

EVENTS = {
    "20,000 notifications": ("notifications", MANY),
    "16 MB of empty data lines": ("empty data lines", 2_600_000),
    "16 MB of comments": ("comments", 8_000_000),
    "16 MB of carriage returns": ("carriage returns", 16_000_000),
    "200,000 empty events": ("empty events", 200_000),
    "20,000 pings": ("pings", MANY),
}
"""Pieces of an event stream before the answer: which, and how many."""

LISTINGS: dict[str, tuple[str, dict[str, Any] | None]] = {
    "2,000 tools": ("tools", SMALL),
    "2,000 tools of 7 KB": ("long tools", SMALL),
    "an enum of 990,000": ("enum", SMALL),
    "a schema 100,000 deep": ("nested schema", None),
    "references that double": ("references", SMALL),
    "a catastrophic pattern, 1 MB": ("pattern", {"what": "reply", "name": "catastrophic match", "size": 1_000_000}),
    "a catastrophic pattern, 16 MB": ("pattern", {"what": "reply", "name": "catastrophic match", "size": WHOLE}),
    "a back-reference, 1 MB": ("back-reference", {"what": "reply", "name": "catastrophic match", "size": 1_000_000}),
    "a million items to check": ("items", {"what": "reply", "name": "a million zeros", "size": WHOLE}),
    "a million unique items": ("unique items", {"what": "reply", "name": "a million strings", "size": WHOLE}),
}
"""Which listing, and the call after it; None: no server can come up with this one."""

HTTP = ("a million strings", "400,000 keys")


class Heartbeat:
    """A task that wants to run every millisecond, and knows for how long it could not."""

    def __init__(self) -> None:
        self.stall = 0.0
        self.wall = 0.0

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            wall, waited = time.perf_counter(), _waited_seconds()
            await anyio.sleep(BEAT_SECONDS)
            gap = time.perf_counter() - wall - BEAT_SECONDS
            self.wall = max(self.wall, gap)
            self.stall = max(self.stall, gap - (_waited_seconds() - waited))


def _waited_seconds() -> float:
    """How long this thread was ready to run and other processes had the processors: no stall of our making.

    Linux only (the second figure of `schedstat`, nanoseconds); elsewhere nothing is known and nothing taken off.
    """
    with suppress(OSError):
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9

    return 0.0


# -- in the child ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _beating(name: str) -> AsyncIterator[None]:
    """Tells the longest stall of the block."""
    heart = Heartbeat()
    start = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(heart.run)
        await anyio.sleep(0.01)
        yield
        await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()

    tell(row={"name": name, "stall": heart.stall, "wall": heart.wall, "took": time.perf_counter() - start})


async def messages(only: str | None = None) -> None:
    """Every hostile message over stdio, HTTP and SSE; `only`: those whose name holds it."""
    with flood_http() as address:
        cases: dict[str, dict[str, Any]] = {}
        for name in RESULTS:
            cases[name] = {"what": "reply", "name": name, "size": WHOLE}

        cases["an error of control characters"] = {"what": "fail", "size": WHOLE}
        for name, (kind, count) in RAW.items():
            cases[name] = {"what": "raw", "name": kind, "size": count}

        async with open_ours({"bad": flood_stdio()}, Limits()) as call:
            await _all(call, "", cases, only)

        if only is None or only in "a million notifications":
            async with open_ours({"bad": flood_stdio()}, Limits()) as call, _beating("a million notifications"):
                await ending(
                    call("bad", {"what": "raw", "name": "notifications", "size": 1_000_000}, LONG_FLOOD_SECONDS)
                )

        for sse, prefix in ((False, "HTTP: "), (True, "SSE: ")):
            cases = {name: {"what": "reply", "name": name, "size": WHOLE - 16, "sse": sse} for name in HTTP}
            if sse:
                cases |= {
                    name: {"what": "event_lines", "name": kind, "size": size} for name, (kind, size) in EVENTS.items()
                }

            async with open_ours({"bad": f"{address}/mcp"}, Limits()) as call:
                await _all(call, prefix, cases, only)


async def _all(call: Call, prefix: str, cases: dict[str, dict[str, Any]], only: str | None) -> None:
    await call("bad", SMALL, 10)
    for name, arguments in cases.items():
        if only is not None and only not in prefix + name:
            continue

        async with _beating(prefix + name):
            await ending(call("bad", arguments, MOST_SECONDS))


async def listings(only: str | None = None) -> None:
    """Every hostile listing, from the start of its server to the first call."""
    for name, (listing, arguments) in LISTINGS.items():
        if only is not None and only not in name:
            continue

        async with _beating(f"listing: {name}"), open_ours({"bad": flood_stdio(listing)}, Limits()) as call:
            if arguments is not None:
                await ending(call("bad", arguments, MOST_SECONDS))


# -- in the parent ---------------------------------------------------------------------------------------------------


async def rows() -> list[Row]:
    """Rows of (what, figure, holds)."""
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(ROUNDS):
        for what in ("stalls.messages", "stalls.listings"):
            outcome = await measure(what, seconds=120)
            if outcome.ended != "ended well":
                found.setdefault(f"{what} {outcome.ended}", [])

            for row in outcome.rows:
                found.setdefault(row["name"], []).append(row)

    return [_judge(name, measured) for name, measured in found.items()]


def _judge(name: str, measured: list[dict[str, float]]) -> Row:
    if not measured:
        return f"stall: {name}", "not all could be measured", False

    stall = statistics.median(row["stall"] for row in measured)
    worst = max(row["stall"] for row in measured)
    wall = max(row["wall"] for row in measured)
    text = f"{stall:.3f} s, worst {worst:.3f}, with the machine's other work {wall:.3f} (wanted <= {WANTED_SECONDS})"
    return f"stall: {name}", text, stall <= WANTED_SECONDS
