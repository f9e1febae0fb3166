"""The one place that starts a task outside a task group: the owner of a connection.

A connection must survive being closed from another task than it was opened in (a web request opens it, a background
task closes it; a generator that holds it is broken out of and finalised by the loop), and anyio's task groups must be
left by the task that entered them, innermost first. So the connection's task group lives in an owner task of its own,
and entering and leaving only talk to it. The owner is held by its connection, ends with it, and is cancelled with the
loop; see docs/decisions/0002-owner-task.md.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, NoReturn

import anyio


class Owner:
    """A task that runs `body` until it returns; failures are kept for `wait`."""

    # Mutable state: whether it is over, and what went wrong.
    def __init__(self) -> None:
        self.done = anyio.Event()
        self.error: BaseException | None = None
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

    async def wait(self) -> None:
        """Return when it is over. Shielded: what it owns is taken down in bounded time, and nothing may be left."""
        with anyio.CancelScope(shield=True):
            await self.done.wait()

    async def _run(self, body: Callable[[], Awaitable[None]]) -> None:
        try:
            await body()
        except Exception as error:  # noqa: BLE001 # told by `error`: nobody awaits this task itself
            self.error = error
        finally:
            self.done.set()


class LazyCoroutine(Coroutine[Any, Any, None]):
    """A coroutine that is made when it is first awaited; for a task group's `start_soon`.

    A loop that ends cancels tasks that have not begun yet. A task group's task then drops the coroutine it was given
    without having awaited it, and Python would say so on stderr.
    """

    def __init__(self, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._body = body

    def __await__(self) -> Generator[Any, Any, None]:
        return self._body().__await__()

    def send(self, value: Any) -> NoReturn:
        raise NotImplementedError("it is awaited, not driven")

    def throw(self, *error: Any) -> NoReturn:
        raise NotImplementedError("it is awaited, not driven")

    def close(self) -> None:
        """Nothing was made, so nothing is closed."""
