"""One measurement in a fresh process: what it tells, its peak memory, and its end, also a violent one.

The measured code is `async def NAME(**arguments)` in a module beside this one, named "MODULE.NAME"; it reports by
`tell`. A client that grows or hangs is killed by `measure` and what it told until then counts.
"""

import importlib
import json
import os
import resource
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from attrs import define, field

POLL_SECONDS = 0.02
START_SECONDS = 60.0
"""For imports, on a machine that has other work."""

MOST_BYTES = 2 * 1024**3
"""A client that has taken so much is killed."""

Facts = dict[str, Any]
Row = tuple[str, str, bool]
"""What was measured, the figure, and whether it holds."""


# -- in the child ----------------------------------------------------------------------------------------------------


def tell(**facts: Any) -> None:
    """Report to the parent, at once."""
    os.write(1, json.dumps(facts).encode() + b"\n")


def reset_peak() -> int:
    """Begin a new peak; gives the bytes now in use."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")

    return _status_bytes("self", "VmRSS") or peak_bytes()


def peak_bytes() -> int:
    """The most bytes in use since `reset_peak`; on systems without /proc since the start."""
    unit = 1 if sys.platform == "darwin" else 1024
    return _status_bytes("self", "VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status_bytes(pid: int | str, name: str) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024

    return 0


def main() -> None:
    """The whole life of a child, as `measure` starts it: its arguments are MODULE.NAME and the keywords as JSON."""
    module, _, name = sys.argv[1].partition(".")
    measured = getattr(importlib.import_module(f"benchmarks.floods.{module}"), name)
    arguments = json.loads(sys.argv[2])

    async def run() -> None:
        tell(begun=True)
        await measured(**arguments)

    anyio.run(run)
    # What a client left hanging must not hold up the benchmark.
    os._exit(0)


# -- in the parent ---------------------------------------------------------------------------------------------------


@define
class Outcome:
    """What a child told and how it ended."""

    facts: Facts = field(factory=dict)
    """All it told, the later over the earlier, but for `row`."""
    rows: list[Facts] = field(factory=list)
    """What it told under `row`, all of it."""
    ended: str = "ended well"
    peak_bytes: int = 0
    """From outside, since the last `reset_peak`; survives the child's death."""
    end: float = 0.0
    """When it ended or was ended, by `time.monotonic`, which all processes share."""


async def measure(what: str, *, seconds: float, **arguments: Any) -> Outcome:
    """Run `what` in a process of its own, for at most so long after its start, or until it tells `done`."""
    return await anyio.to_thread.run_sync(lambda: _measure(what, seconds, arguments))


def _measure(what: str, seconds: float, arguments: Facts) -> Outcome:
    code = "from benchmarks.floods.child import main; main()"
    command = [sys.executable, "-c", code, what, json.dumps(arguments)]
    noise = None if os.environ.get("FLOODS_STDERR") else subprocess.DEVNULL
    outcome = Outcome()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=noise) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        try:
            _follow(process, process.stdout.fileno(), seconds, outcome)
        finally:
            _kill_all(process)

    outcome.end = time.monotonic()
    return outcome


def _follow(process: subprocess.Popen[bytes], out: int, seconds: float, outcome: Outcome) -> None:
    end = time.monotonic() + START_SECONDS
    rest = b""
    while True:
        running = process.poll() is None
        with suppress(BlockingIOError):
            while chunk := os.read(out, 65536):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    _take(json.loads(line), outcome)

        if outcome.facts.pop("begun", False):
            end = time.monotonic() + seconds

        outcome.peak_bytes = _status_bytes(process.pid, "VmHWM") or outcome.peak_bytes
        if not running:
            if process.returncode:
                outcome.ended = f"ended with exit code {process.returncode}"

            return

        if outcome.facts.get("done"):
            return

        if outcome.peak_bytes > MOST_BYTES:
            outcome.ended = f"killed at {outcome.peak_bytes / 1e9:.1f} GB"
            return

        if time.monotonic() > end:
            outcome.ended = f"killed after {seconds:g} s"
            return

        time.sleep(POLL_SECONDS)


def _take(told: Facts, outcome: Outcome) -> None:
    if "row" in told:
        outcome.rows.append(told.pop("row"))

    outcome.facts |= told


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    """The child, where it still runs, and the servers it started, which may be in groups of their own."""
    if process.poll() is None:
        for one in (process.pid, *_descendants(process.pid)):
            with suppress(OSError):
                os.kill(one, 9)


def _descendants(pid: int) -> list[int]:
    children: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            children += map(int, (task / "children").read_text().split())

    return [one for child in children for one in (child, *_descendants(child))]
