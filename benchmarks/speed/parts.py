"""The parts of governance that are pure: what a decision and a digest cost, over the tools of real servers."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.speed.figures import Row
from benchmarks.verdicts import servers, vetted
from deputy_mcp import Permissions
from deputy_mcp._core.pinning import tool_digest

DECISION_SECONDS = 5e-6
DIGEST_SECONDS = 30e-6
ROUNDS = 25
JUDGED = 25
"""Servers of the corpus whose tools are decided upon; judging them all would take longer than the rest."""


async def rows() -> list[Row]:
    """Rows of (what, figure, holds)."""
    offered = servers()
    raw = [entry for entries in offered.values() for entry in entries]
    judged = vetted(dict(list(offered.items())[:JUDGED]))
    asking = Permissions(web=True, write="ask", tool_denylist=("some__tool",))
    decision = _median_seconds(asking.decide, judged)
    digest = _median_seconds(tool_digest, raw)
    return [
        ("permission decision", f"{decision * 1e6:.1f} µs (wanted <= 5)", decision <= DECISION_SECONDS),
        ("digest of a median tool", f"{digest * 1e6:.1f} µs (wanted <= 30)", digest <= DIGEST_SECONDS),
    ]


def _median_seconds(work: Callable[[Any], object], values: Sequence[Any]) -> float:
    """For the median value; of each the least of its rounds, since others use the machine too."""
    return statistics.median(min(_seconds(work, value) for _ in range(ROUNDS)) for value in values)


def _seconds(work: Callable[[Any], object], value: Any) -> float:
    start = time.perf_counter()
    work(value)
    return time.perf_counter() - start
