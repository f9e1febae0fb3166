"""The one place that starts a task outside a task group: the owner of a connection.

A connection must survive being closed from another task than it was opened in (a web request opens it, a background
task closes it; a generator that holds it is broken out of and finalised by the loop), and anyio's task groups must be
left by the task that entered them, innermost first. So the connection's task group lives in an owner task of its own,
and entering and leaving only talk to it. The owner is held by its connection, ends with it, and is cancelled with the
loop; see docs/decisions/0002-owner-task.md.
"""

import asyncio
from collections.abc import Awaitable, Callable

import anyio


class Owner:
    """A task that runs `body` until it returns; failures are kept for `wait`."""

    # Mutable state: whether it is over, and what went wrong.
    def __init__(self) -> None:
        self.done = anyio.Event()
        self.error: BaseException | None = None
        self._scope = anyio.CancelScope()
        self._task: object = None

    def start(self, body: Callable[[], Awaitable[None]], name: str) -> None:
        """Start it on the running loop: asyncio, or trio where the host runs that."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            import trio

            self._task = trio.lowlevel.spawn_system_task(self._run, body, name=name)
        else:
            self._task = loop.create_task(self._run(body), name=name)

    def cancel(self) -> None:
        """Give up the body; it cleans up after itself."""
        self._scope.cancel()

    async def wait(self) -> None:
        """Return when it is over. Shielded: what it owns is taken down in bounded time, and nothing may be left."""
        with anyio.CancelScope(shield=True):
            await self.done.wait()

    async def _run(self, body: Callable[[], Awaitable[None]]) -> None:
        try:
            with self._scope:
                await body()
        except Exception as error:  # noqa: BLE001 # told by `error`: nobody awaits this task itself
            self.error = error
        finally:
            self.done.set()
