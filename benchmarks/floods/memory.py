"""What a flood costs: peak memory, the time from the cap to the error, and the rate of a healthy server beside it."""

import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio

from benchmarks.floods.child import Outcome, Row, measure, peak_bytes, reset_peak, tell
from benchmarks.floods.sides import ECHO, Call, Spec, ending, flood_http, flood_stdio, open_ours, open_sdk
from deputy_mcp import Limits

CAP = Limits().max_message_bytes
WANTED_CAPS = 3
"""Idle and so many times `max_message_bytes`."""

WANTED_SECONDS = 0.2
WANTED_RATE = 0.8
PACE_SECONDS = 0.02
"""The healthy server is called, answers, and is called again so much later: work as an agent does it."""

ROUNDS = 3
WINDOW_SECONDS = 0.7
SDK_SECONDS = 2.5
PATIENCE_SECONDS = 8.0
"""The timeout of a call to a flooding server: what ends it must be the cap."""

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "endless line": ("stdio", {"what": "endless_line"}),
    "endless line, 50 MB/s": ("stdio", {"what": "endless_line", "pause": 0.001}),
    "endless JSON body": ("http", {"what": "endless_body"}),
    "endless SSE event": ("http", {"what": "endless_event"}),
    "gzip bomb": ("http", {"what": "gzip_bomb"}),
    "notifications, stdio": ("stdio", {"what": "notifications", "seconds": WINDOW_SECONDS}),
    "notifications, SSE": ("http", {"what": "notifications", "seconds": WINDOW_SECONDS}),
}


# -- in the child ----------------------------------------------------------------------------------------------------


async def flood(side: str, transport: str, arguments: dict[str, Any], pace: float) -> None:
    """One kind of flood beside a healthy server, in turns with no flood; a fresh server for each turn."""
    rounds = ROUNDS if side == "ours" else 1
    with flood_http() as address, tempfile.TemporaryDirectory() as folder:
        flooding: Spec = flood_stdio() if transport == "stdio" else f"{address}/mcp"
        servers = {"healthy": ECHO} | {f"flood{i}": flooding for i in range(rounds)}
        opened = open_ours(servers, Limits()) if side == "ours" else open_sdk(servers)
        async with opened as call:
            for i in range(rounds):
                await call(f"flood{i}", {"what": "fine"}, 10)

            await _calls(call, 0.3, pace)
            tell(idle=reset_peak())
            for i in range(rounds):
                seconds = WINDOW_SECONDS if side == "ours" else SDK_SECONDS
                before = await _calls(call, WINDOW_SECONDS, pace) / WINDOW_SECONDS
                tell(before=before, since=time.monotonic())
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_press, call, f"flood{i}", arguments, folder, seconds)
                    during = await _calls(call, seconds, pace, say=side == "sdk") / seconds

                tell(row={"before": before, "during": during}, peak=peak_bytes())


async def _calls(call: Call, seconds: float, pace: float, *, say: bool = False) -> int:
    """Calls that a healthy server answers in so long."""
    end = time.monotonic() + seconds
    count = 0
    while (left := end - time.monotonic()) > 0:
        with anyio.move_on_after(left):
            await call("healthy", {"text": "hello"}, 30)
            count += 1
            if say:
                tell(calls=count, peak=peak_bytes())

            await anyio.sleep(pace)

    return count


async def _press(call: Call, server: str, arguments: dict[str, Any], folder: str, seconds: float) -> None:
    """Flood again and again for so long; tells of each how long after the cap it ended."""
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        mark = Path(folder) / f"{server}.{number}"
        number += 1
        how = await ending(call(server, {**arguments, "mark": str(mark), "size": CAP}, PATIENCE_SECONDS))
        now = time.monotonic()
        if mark.exists():
            tell(row={"late": now - float(mark.read_text()), "how": how})
        elif how == "WaitTimeoutError":
            return  # ended as flooded, and still being taken down


# -- in the parent ---------------------------------------------------------------------------------------------------


async def rows() -> list[Row]:
    """Rows of (what, figure, holds)."""
    out = []
    for name in CASES:
        ours = await _measure(name, "ours", PACE_SECONDS)
        sdk = await _measure(name, "sdk", PACE_SECONDS)
        out += _judge(name, ours, sdk)

    for name in ("notifications, stdio", "notifications, SSE"):
        ours = await _measure(name, "ours", 0)
        if ours.rows:
            text = f"{_kept(ours):.0%} of {ours.facts['before']:.0f} calls/s (for information)"
            out.append((f"{name}: a healthy server without pause", text, True))

    return out


async def _measure(name: str, side: str, pace: float) -> Outcome:
    transport, arguments = CASES[name]
    seconds = 60 if side == "ours" else 3 + SDK_SECONDS
    return await measure(
        "memory.flood", seconds=seconds, side=side, transport=transport, arguments=arguments, pace=pace
    )


def _judge(name: str, ours: Outcome, sdk: Outcome) -> list[Row]:
    if ours.ended != "ended well" or not ours.rows:
        return [(f"{name}", f"not measured: the client {ours.ended}", False)]

    growth, most, kept = _growth(ours), WANTED_CAPS * CAP, _kept(ours)
    sdk_growth, sdk_kept = (f"{_growth(sdk) / 1e6:.0f} MB", f"{_kept(sdk):.0%}") if "idle" in sdk.facts else ("?", "?")
    text = f"{growth / 1e6:.0f} MB (wanted <= {most / 1e6:.0f}); SDK {sdk_growth}, {sdk.ended}"
    out = [(f"{name}: peak above idle", text, growth <= most)]
    text = f"{kept:.0%} of its rate (wanted >= {WANTED_RATE:.0%}); SDK {sdk_kept}"
    out.append((f"{name}: healthy server beside it", text, kept >= WANTED_RATE))
    if "notifications" not in name:
        late = [row["late"] for row in ours.rows if "late" in row] or [math.inf]
        hows = ", ".join(sorted({row["how"] for row in ours.rows if "how" in row}))
        theirs = [row["late"] for row in sdk.rows if "late" in row]
        said = f"{min(theirs):.2f} s" if theirs else "none while it ran"
        text = f"{statistics.median(late):.3f} s, worst of {len(late)} {max(late):.3f} (wanted <= {WANTED_SECONDS})"
        holds = statistics.median(late) <= WANTED_SECONDS
        out.append((f"{name}: error after the cap", f"{text}, {hows}; SDK {said}", holds))

    return out


def _growth(outcome: Outcome) -> int:
    # Both count: the child's own word is later, the parent's survives its death.
    return max(int(outcome.facts.get("peak", 0)), outcome.peak_bytes) - int(outcome.facts["idle"])


def _kept(outcome: Outcome) -> float:
    """The share of its rate that the healthy server kept; of a client that was killed, over its time alive."""
    ratios = [row["during"] / row["before"] for row in outcome.rows if "during" in row]
    if ratios:
        return float(statistics.median(ratios))

    alive = outcome.end - float(outcome.facts.get("since", 0))
    return float(outcome.facts.get("calls", 0)) / alive / float(outcome.facts.get("before", math.inf))
