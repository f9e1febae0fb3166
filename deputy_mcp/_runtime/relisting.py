"""One kind of listing, fetched again when it is due; whoever waits for it shares the next one asked for.

Not a judge: what a listing means is decided by what `fetch` does with it. It promises that a burst of changes costs
one listing, that calls which arrive together share one, that none shares a listing asked for before it came, and that
losing the server meanwhile is no mismatch.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import anyio
from mcp import MCPError

from deputy_mcp._core.errors import ConfigError, PinMismatchError
from deputy_mcp._core.lifecycle import Event
from deputy_mcp._runtime.log import log_event
from deputy_mcp._runtime.session import ListingError, Session
from deputy_mcp._runtime.transports.link import CallRecord, LinkError, SignInError

if TYPE_CHECKING:
    from deputy_mcp._runtime.server import ServerTask

DEBOUNCE_SECONDS = 0.1
"""A change is followed after so long, so that a burst costs one listing; a waiting call does not wait for it."""

RELIST_BACKOFF_SECONDS = 1.0
"""After a failed re-listing that no call waits for."""

UNREACHED = frozenset({"http", "dropped", "unsendable"})
"""Faults that say nothing of what the server offers."""


class LostWhileVerifyingError(Exception):
    """The server went away during a re-listing: no mismatch, the call waits for the restart."""


class UnreachedError(Exception):
    """The listing could not be had for a reason that says nothing of the tools: a status, a dropped connection."""

    def __init__(self, error: LinkError, record: CallRecord) -> None:
        super().__init__(error.detail)
        self.error, self.record = error, record


Problem = str | UnreachedError


class Relisting:
    """See the module. Belongs to one server's task; `fetch` lists and judges."""

    # Mutable state: the numbers of the last re-listing begun, finished and failed, and why; whether one is due; how
    # many calls wait, whether one just came, and the scope of the listing under way.
    def __init__(self, task: "ServerTask", what: str, fetch: Callable[[Session, CallRecord], Awaitable[None]]) -> None:
        self._task = task
        self._what = what
        self._fetch = fetch
        self._due = False
        self._hurry = anyio.Event()
        self._begun = 0
        self._finished = 0
        self._failed = 0
        self._problem: Problem | None = None
        self._waiting = 0
        self._scope: anyio.CancelScope | None = None

    @property
    def stale(self) -> bool:
        """Whether what was listed last may have changed since."""
        return self._due or self._begun != self._finished

    def note_change(self) -> None:
        """The server says that the list changed, or may have. Synchronous, from the receive path."""
        self._due = True
        self._task.stir()

    async def run(self, session: Session) -> None:
        """Re-list when a change was told or a call waits; outside the receive path, debounced."""
        while True:
            await self._task.wait_until(lambda: self._due)
            if not self._hurry.is_set():
                with anyio.move_on_after(DEBOUNCE_SECONDS):
                    await self._hurry.wait()

            self._hurry = anyio.Event()
            self._due = False
            self._begun += 1
            number = self._begun
            problem: Problem | None = "it did not list them in time"
            with anyio.move_on_after(self._task.limits.call_timeout_seconds) as self._scope:
                problem = await self._try(session)

            abandoned, self._scope = self._scope.cancel_called and self._waiting == 0, None
            if self._task.session is not session:
                # It went away meanwhile, which is no mismatch: who waits for this listing waits for the next.
                return

            if problem is None:
                self._finished = number
                self._task.step(Event.CHANGED)
                self._task.stir()
            else:
                self._failed = number
                self._problem = problem
                await self._report(problem, abandoned=abandoned)

    async def _report(self, problem: Problem, *, abandoned: bool) -> None:
        """Tell of a failure, and wait before the next try unless a call needs one."""
        if abandoned:
            self._task.stir()
            return

        self._due = True
        self._task.last_error = self._task.masked(f"re-listing its {self._what} failed: {problem}")
        log_event("relisting_failed", level="warning", server=self._task.name, detail=self._task.last_error)
        self._task.stir()
        with anyio.move_on_after(RELIST_BACKOFF_SECONDS):
            await self._hurry.wait()

    async def _try(self, session: Session) -> Problem | None:
        """What went wrong; a connection that was dropped is tried once more, because a listing runs nothing."""
        for last in (False, True):
            record = CallRecord()
            try:
                await self._fetch(session, record)
            except LinkError as error:
                if error.fault == "dropped" and not last:
                    continue

                if isinstance(error, SignInError):
                    self._task.note_refused_sign_in(session, error)
                else:
                    self._task.note_fault(session, error)

                return UnreachedError(error, record) if error.fault in UNREACHED else str(error)
            except (MCPError, ListingError, ConfigError) as error:
                return str(error)
            else:
                return None

        raise AssertionError("unreachable")

    async def wait(self, session: Session) -> None:
        """Return when a listing asked for from now on was judged.

        Raises `PinMismatchError`, code `pin_unverified`; `UnreachedError`; `LostWhileVerifyingError`.
        """
        self._waiting += 1
        try:
            await self._wait(session)
        finally:
            self._waiting -= 1
            if self._waiting == 0 and self._finished < self._begun and self._scope is not None:
                # Its callers gave up on this question: the next one must not stand behind it.
                self._scope.cancel()

    async def _wait(self, session: Session) -> None:
        wanted = self._begun + 1
        self._due = True
        self._hurry.set()
        self._task.stir()
        while self._finished < wanted:
            if self._task.session is not session:
                raise LostWhileVerifyingError

            if self._failed >= wanted:
                if isinstance(self._problem, UnreachedError):
                    raise UnreachedError(self._problem.error, self._problem.record)

                # Why it failed may be the server's own text, and a model reads this: it stands in `last_error`.
                raise PinMismatchError(
                    f"the {self._what} of server {self._task.name!r} could not be verified: listing them failed; "
                    f"status()[{self._task.name!r}].last_error says why",
                    server=self._task.name,
                    code="pin_unverified",
                )

            await self._task.changed()
