"""Feels whether the event loop turns, and whose doing it is when it does not. Linux only."""

import time
from dataclasses import dataclass
from pathlib import Path

import anyio

BEAT_SECONDS = 0.05


@dataclass(frozen=True)
class Pause:
    """A time in which the loop did not turn. What it neither computed nor waited for a processor it was blocked."""

    seconds: float = 0
    computing_seconds: float = 0
    waiting_seconds: float = 0
    """Ready to run, while the machine ran others."""

    def __str__(self) -> str:
        return (
            f"{self.seconds:.2f} s, of it computing {self.computing_seconds:.2f} s, "
            f"waiting for a processor {self.waiting_seconds:.2f} s"
        )


class Pulse:
    """See the module; `run` is a task's body."""

    # Mutable state: the longest pause, the sum of all, the latest beat.
    def __init__(self) -> None:
        self.longest = Pause()
        self._lost = 0.0
        self._beat: float | None = None

    @property
    def lost_seconds(self) -> float:
        """How long the loop did not turn so far, all pauses together and the one that may just be ending."""
        return self._lost + (0 if self._beat is None else max(0.0, anyio.current_time() - self._beat - BEAT_SECONDS))

    async def run(self) -> None:
        while True:
            self._beat = anyio.current_time()
            computed, waited = time.thread_time(), _waited_seconds()
            await anyio.sleep(BEAT_SECONDS)
            seconds = anyio.current_time() - self._beat - BEAT_SECONDS
            self._lost += seconds
            if seconds > self.longest.seconds:
                self.longest = Pause(seconds, time.thread_time() - computed, _waited_seconds() - waited)


def _waited_seconds() -> float:
    """How long this thread was ready to run and did not (Documentation/scheduler/sched-stats)."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0
