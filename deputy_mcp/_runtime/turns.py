"""The end of a turn of the event loop, and waiting for one thing: what a call needs and anyio has no cheap name for.

On asyncio both are the loop's own; on trio, where the host runs that, they fall back to what works there.
"""

import asyncio  # noqa: TID251 # a callback and a future of the loop, no task is made
import math
import sys
from collections.abc import Callable
from typing import Any

import anyio


def running_loop() -> Any:
    """asyncio's loop, or trio's token where the host runs that; None where neither runs."""
    if (loop := asyncio_loop()) is not None:
        return loop

    trio = sys.modules.get("trio")
    try:
        return trio.lowlevel.current_trio_token() if trio is not None else None
    except RuntimeError:
        return None


def asyncio_loop() -> asyncio.AbstractEventLoop | None:
    """asyncio's running loop; None on trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def current_time() -> float:
    """`anyio.current_time()`, at half its price on asyncio."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return anyio.current_time()


def at_end_of_turn(loop: Any, call: Callable[[], None]) -> None:
    """Run `call` when everything that is ready to run in this turn of `loop` (a `running_loop()`) has run."""
    (getattr(loop, "call_soon", None) or loop.run_sync_soon)(call)


class Deadlines:
    """One timer for many deadlines: `expire(now)` ends what is due by then and gives the next one, None without any."""

    # Mutable state: the timer, and when it rings.
    def __init__(self, expire: Callable[[float], float | None]) -> None:
        self._expire = expire
        self._loop = asyncio_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._at = math.inf

    @property
    def possible(self) -> bool:
        """Whether there are timers: trio has none."""
        return self._loop is not None

    def watch(self, at: float) -> None:
        """There is something with the deadline `at`."""
        if at >= self._at:
            return

        assert self._loop is not None
        self.end()
        self._at = at
        self._timer = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        # The loop may ring a moment early, and would then ring for the same deadline again.
        due, self._at, self._timer = self._at, math.inf, None
        coming = self._expire(max(due, current_time()))
        if coming is not None:
            self.watch(coming)

    def end(self) -> None:
        """Nothing is waited for any more."""
        if self._timer is not None:
            self._timer.cancel()

        self._at, self._timer = math.inf, None


class Once:
    """Something that happens once and that one task waits for: an `anyio.Event` at a tenth of its price."""

    # Mutable state: whether it happened, and what wakes the task that waits.
    __slots__ = ("_waiting", "happened")

    def __init__(self) -> None:
        self.happened = False
        self._waiting: asyncio.Future[None] | anyio.Event | None = None

    def set(self) -> None:
        """It has happened. Twice is fine."""
        self.happened = True
        waiting = self._waiting
        if isinstance(waiting, anyio.Event):
            waiting.set()
        elif waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def wait(self) -> None:
        """Return when it has happened; without a turn of the loop where it has already."""
        if self.happened:
            return

        loop = asyncio_loop()
        if loop is None:
            self._waiting = event = anyio.Event()
            await event.wait()
        else:
            self._waiting = future = loop.create_future()
            await future
