"""How the cost of reading one result grows with its size: CPU time of the client, and its peak memory."""

import math
import statistics
import time

from benchmarks.floods.child import Row, measure, peak_bytes, reset_peak, tell
from benchmarks.floods.sides import flood_http, flood_stdio, open_ours, open_sdk
from deputy_mcp import Limits

MB = 1_000_000
SIZES = (1, 2, 4, 8, 16, 32, 64)
SDK_SIZES = (1, 2, 4, 8, 16)
"""On stdio; what it would take for more is reckoned from these."""

ROUNDS = 3
WANTED_EXPONENT = 1.05
WANTED_RATIO = 0.02
WANTED_PAYLOADS = 5
RAISED = Limits(max_message_bytes=128 * MB, max_result_bytes=128 * MB)

WAYS = {"stdio": False, "HTTP JSON": False, "HTTP SSE": True}
"""Each with whether the answer comes as an event."""


# -- in the child ----------------------------------------------------------------------------------------------------


async def read(side: str, way: str, sizes: list[int]) -> None:
    """One result of each size; tells the CPU seconds of each."""
    with flood_http() as address:
        servers = {"large": flood_stdio() if way == "stdio" else f"{address}/mcp"}
        # The SDK's own bound on an event, 1 MiB, is lifted: without it there is nothing to measure.
        opened = open_ours(servers, RAISED) if side == "ours" else open_sdk(servers, largest_event=None)
        async with opened as call:
            await call("large", {"what": "fine"}, 10)
            for size in sizes:
                arguments = {"what": "reply", "name": "prose", "size": size * MB, "sse": WAYS[way]}
                times = max(1, 4 // size)
                tell(idle=reset_peak())
                before = time.process_time()
                for _ in range(times):
                    result = await call("large", arguments, 120)

                tell(row={"size": size, "cpu": (time.process_time() - before) / times}, peak=peak_bytes())
                assert len(result.content[0].text) > 0.9 * size * MB
                del result


# -- in the parent ---------------------------------------------------------------------------------------------------


def exponent(points: dict[int, float]) -> float:
    """The slope of the least-squares line through the logarithms."""
    xs = [math.log(size) for size in points]
    ys = [math.log(cpu) for cpu in points.values()]
    x0, y0 = statistics.mean(xs), statistics.mean(ys)
    return sum((x - x0) * (y - y0) for x, y in zip(xs, ys, strict=True)) / sum((x - x0) ** 2 for x in xs)


async def rows() -> list[Row]:
    """Rows of (what, figure, holds)."""
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    for number in range(ROUNDS):
        # HTTP once: it is there for comparison.
        for way in WAYS if number == 0 else ("stdio",):
            for side in ("ours", "sdk"):
                sizes = SDK_SIZES if (side, way) == ("sdk", "stdio") else SIZES
                outcome = await measure("growth.read", seconds=60, side=side, way=way, sizes=sizes)
                for row in outcome.rows:
                    found.setdefault((side, way), {}).setdefault(row["size"], []).append(row["cpu"])

    medians = {
        key: {size: statistics.median(cpus) for size, cpus in sorted(sizes.items())} for key, sizes in found.items()
    }
    out = [_judge(way, medians.get(("ours", way), {}), medians.get(("sdk", way), {})) for way in WAYS]
    out.append(_ratio(medians.get(("ours", "stdio"), {}), medians.get(("sdk", "stdio"), {})))
    out.append(await _peak())
    return out


def _judge(way: str, ours: dict[int, float], sdk: dict[int, float]) -> Row:
    name = f"large result, {way}: exponent"
    if len(ours) < len(SIZES) or len(sdk) < 2:
        return name, "not measured", False

    # Also without the small ones: what each call costs, however small, would hide how the rest grows.
    large = exponent({size: ours[size] for size in SIZES[-4:]})
    slope = max(exponent(ours), large)
    wanted = f" (wanted <= {WANTED_EXPONENT})" if way == "stdio" else ""
    text = f"{exponent(ours):.3f}, from 8 MB {large:.3f}{wanted}, {_costs(ours)}"
    text += f"; SDK {exponent(sdk):.2f}, {_costs(sdk)}"
    return name, text, way != "stdio" or slope <= WANTED_EXPONENT


def _ratio(ours: dict[int, float], sdk: dict[int, float]) -> Row:
    name = "64 MB result, stdio: CPU"
    if 64 not in ours or len(sdk) < 2:
        return name, "not measured", False

    # From its last sizes (at small ones a constant hides how it grows), and never steeper than the square.
    largest = max(sdk)
    slope = min(exponent({size: sdk[size] for size in list(sdk)[-3:]}), 2.0)
    reckoned = sdk[largest] * (64 / largest) ** slope
    ratio = ours[64] / reckoned
    text = f"{ratio:.4f} x the SDK's {reckoned:.1f} s, reckoned from {largest} MB with exponent {slope:.2f}"
    return name, f"{ours[64]:.3f} s, {text} (wanted <= {WANTED_RATIO})", ratio <= WANTED_RATIO


def _costs(points: dict[int, float]) -> str:
    first, last = min(points), max(points)
    return f"{points[first]:.3f} s at {first} MB to {points[last]:.3f} at {last}"


async def _peak() -> Row:
    name = "64 MB result, stdio: peak of the process"
    outcome = await measure("growth.read", seconds=60, side="ours", way="stdio", sizes=[64])
    if "peak" not in outcome.facts:
        return name, f"not measured: the client {outcome.ended}", False

    peak, idle = int(outcome.facts["peak"]), int(outcome.facts["idle"])
    payloads = peak / (64 * MB)
    text = f"{peak / 1e6:.0f} MB, {payloads:.1f} x the payload (wanted <= {WANTED_PAYLOADS}); idle {idle / 1e6:.0f} MB"
    return name, text, payloads <= WANTED_PAYLOADS
