"""The end of a turn of the event loop, and waiting for one thing: what a call needs and anyio has no cheap name for.

On asyncio both are the loop's own; on trio, where the host runs that, they fall back to what works there.
"""

import asyncio  # noqa: TID251 # a callback and a future of the loop, no task is made
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


def at_end_of_turn(loop: Any, call: Callable[[], None]) -> None:
    """Run `call` when everything that is ready to run in this turn of `loop` (a `running_loop()`) has run."""
    (getattr(loop, "call_soon", None) or loop.run_sync_soon)(call)


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
