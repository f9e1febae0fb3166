"""A line of the journal: its time among the many of a turn, its bytes, and how many write calls it takes."""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from deputy_mcp._core.audit import EventKind
from deputy_mcp._runtime.journal import Journal

ROUNDS, TURNS, FLIGHT = 5, 40, 128
MOST_MICROSECONDS = 20.0
ARGUMENTS = b'{"query":"the weather in Reykjavik tomorrow","limit":10,"units":"metric"}'
COMMON: dict[str, Any] = {
    "server": "weather",
    "tool": "forecast",
    "method": "tools/call",
    "public_name": "weather__forecast",
    "digest": "1f" * 32,
    "arguments": ARGUMENTS,
    "decision": "allow",
    "code": "allowed",
}
"""As a call's two lines have them; the arguments are hashed for each."""
RESULT: dict[str, Any] = {
    "generation": 1,
    "reply_sha256": "2e" * 32,
    "reply_bytes": 812,
    "duration_seconds": 0.012345,
    "is_error": False,
}
SECRETS = ("a-password-of-the-environment", "another-token-of-a-header")


async def _call(journal: Journal, number: int) -> None:
    """The two lines of one call."""
    announced = journal.announce("call", call=number, generation=1, **COMMON)
    await anyio.lowlevel.checkpoint()
    intent = journal.secure(announced)
    await anyio.lowlevel.checkpoint()
    end: EventKind = "result"
    journal.append(end, call=number, intent=intent, **COMMON, **RESULT)


async def _calls(journal: Journal, flight: int, turns: int) -> None:
    """`flight` calls at once, `turns` times over."""
    for turn in range(turns):
        async with anyio.create_task_group() as tasks:
            for number in range(flight):
                tasks.start_soon(_call, journal, turn * flight + number)


def _lines(journal: Journal, count: int) -> float:
    """Microseconds a line, when many are written at once."""
    start = time.perf_counter()
    for number in range(count):
        journal.append("result", call=number, intent=number + 1, **COMMON, **RESULT)
        if number % 100 == 99:
            journal.flush()

    journal.flush()
    return (time.perf_counter() - start) * 1e6 / count


class _Writes:
    """Counts the write calls for a while."""

    # Mutable state: the count.
    def __init__(self) -> None:
        self.count = 0
        self._write: Callable[..., int] = os.write

    def __enter__(self) -> "_Writes":
        def write(fd: int, piece: Any, /) -> int:
            self.count += 1
            return self._write(fd, piece)

        os.write = write
        return self

    def __exit__(self, *what: object) -> None:
        os.write = self._write


async def _write_calls(path: Path, flight: int, turns: int) -> tuple[int, int]:
    """Write calls, and lines, of calls at once."""
    journal = Journal(path)
    journal.open()
    with _Writes() as writes:
        await _calls(journal, flight, turns)
        journal.flush()

    journal.close()
    return writes.count, 2 * flight * turns


async def run() -> list[tuple[str, str, bool]]:
    """Rows of (what, figure, holds)."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for key in (None, "a key"):
            path = Path(folder, f"lines-{key}.jsonl")
            journal = Journal(path, key=key)
            journal.open()
            journal.add_secrets(SECRETS)
            before = path.stat().st_size
            times = [_lines(journal, FLIGHT * TURNS) for _ in range(ROUNDS)]
            size = (path.stat().st_size - before) / (ROUNDS * FLIGHT * TURNS)
            journal.close()
            figure = min(times)  # what else the machine does only adds
            name = "with key" if key else "without key"
            rows.append((f"journal, a line, {name}", f"{figure:.1f} us (<= 20)", figure <= MOST_MICROSECONDS))
            if key is None:
                rows.append(("journal, bytes a line", f"{size:.0f}", True))

        for flight, most in ((1, 1.0), (FLIGHT, 0.05)):
            writes, lines = await _write_calls(Path(folder, f"writes-{flight}.jsonl"), flight, TURNS)
            rows.append(
                (
                    f"journal, write calls for {flight} at once",
                    f"{writes} for {lines} lines (<= {most * lines:.0f})",
                    writes <= most * lines,
                )
            )

    return rows
