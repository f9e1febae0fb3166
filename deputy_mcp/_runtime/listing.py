"""One server's tools: listed, judged against their pins, followed when they change, verified before a call.

The pins are those of the first listing and outlive every restart; a reload may ask for new ones.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import anyio
from mcp import MCPError

from deputy_mcp._core.catalog import Pinned, Refusal, Vetting, vet_listing
from deputy_mcp._core.errors import PinMismatchError
from deputy_mcp._core.lifecycle import Ending, EndKind, Event
from deputy_mcp._core.sanitizing import clean_line
from deputy_mcp._runtime.log import log_event
from deputy_mcp._runtime.session import ListingError, Session, check_header_annotations
from deputy_mcp._runtime.transports.link import LinkError

if TYPE_CHECKING:
    from deputy_mcp._runtime.server import ServerTask

DEBOUNCE_SECONDS = 0.1
"""A change is followed after so long, so that a burst costs one listing; a waiting call does not wait for it."""

VERIFY_INTERVAL_SECONDS = 300
"""A listing older than this is fetched again before a call, whether the server announced a change or not."""

RELIST_BACKOFF_SECONDS = 1.0
"""After a failed re-listing; calls are refused meanwhile, because nothing proves that their tools are unchanged."""


class LostWhileVerifyingError(Exception):
    """The server went away during a re-listing: no mismatch, the call waits for the restart."""


class Listing:
    """See the module. Belongs to one server's task."""

    # Mutable state: the pins; the last judged listing, and when it was asked for; the numbers of the last re-listing
    # begun, finished and failed; whether one is due, and whether a call waits for it.
    def __init__(self, task: "ServerTask") -> None:
        self._task = task
        self.pins: Mapping[str, Pinned] | None = None
        self.vetting: Vetting | None = None
        self._due = False
        self._hurry = anyio.Event()
        self._begun = 0
        self._finished = 0
        self._failed = 0
        self._listed_at = 0.0

    def note_change(self) -> None:
        """The server says that its tools changed, or may have. Synchronous, from the receive path."""
        self._due = True
        self._task.stir()

    async def take(self, session: Session) -> Ending | None:
        """List and judge for a session that begins; the ending when a first listing cannot be taken."""
        return self._vet(await self._list(session), session)

    def refuse(self, detail: str) -> Ending:
        """The ending of a session that gives no listing."""
        # Before the first vetting nothing is known of the server, and a person must look; later it is a loss.
        kind = EndKind.REFUSED if self.pins is None else EndKind.LOST
        return Ending(kind, code="no_listing", detail=self._task.masked(f"it gives no usable listing: {detail}"))

    async def _list(self, session: Session) -> list[Any]:
        try:
            return await session.list_tools(self._task.limits)
        except LinkError:
            raise
        except MCPError:
            if session.offers_tools:
                raise

            return []  # it declares no tools and answers accordingly

    def _vet(self, entries: list[Any], session: Session) -> Ending | None:
        """Judge a listing and take it; the ending when a first one cannot be taken."""
        vetting = vet_listing(
            self._task.name,
            entries,
            allowlist=self._task.spec.tools,
            pins=self.pins,
            host_annotations=self._task.spec.annotations,
            trusted=self._task.spec.trust_annotations,
            max_description_bytes=self._task.limits.max_description_bytes,
            entry_check=check_header_annotations if session.modern else _accept,
        )
        if self.pins is None and vetting.missing:
            missing = ", ".join(clean_line(name, 60) for name in vetting.missing)
            return Ending(EndKind.REFUSED, code="tool_missing", detail=f"it does not offer the allowlisted {missing}")

        self.pins = vetting.pins
        self.vetting = vetting
        self._listed_at = anyio.current_time()
        self._task.tell("listing", tools=len(vetting.tools), refused=len(vetting.refused))
        for unknown in set(self._task.spec.annotations) - set(vetting.tools) - {"resources/read", "prompts/get"}:
            self._task.tell("warning", detail=f"annotations name a tool it does not offer: {unknown}")

        return None

    async def run_follow(self, session: Session) -> None:
        """Re-list when a change was told or a call wants it verified; outside the receive path, debounced."""
        while True:
            await self._task.wait_until(lambda: self._due)
            with anyio.move_on_after(DEBOUNCE_SECONDS):
                await self._hurry.wait()

            self._hurry = anyio.Event()
            self._due = False
            self._begun += 1
            number = self._begun
            problem: str | None = None
            with anyio.move_on_after(self._task.limits.call_timeout_seconds) as timer:
                try:
                    self._vet(await self._list(session), session)
                except LinkError as error:
                    self._task.note_fault(session, error)
                    if self._task.session is not session:
                        # It went away meanwhile, which is no mismatch: who waits for this listing waits for the next.
                        return

                    problem = str(error)
                except (MCPError, ListingError) as error:
                    problem = str(error)

            if timer.cancelled_caught:
                problem = "it did not list its tools in time"

            if problem is None:
                self._finished = number
                self._task.step(Event.CHANGED)
            else:
                self._failed = number
                self._due = True
                self._task.last_error = self._task.masked(f"re-listing failed: {problem}")
                log_event("relisting_failed", level="warning", server=self._task.name, detail=self._task.last_error)

            self._task.stir()
            if problem is not None:
                await anyio.sleep(RELIST_BACKOFF_SECONDS)

    async def verify(self, session: Session) -> None:
        """Return when the tools were compared with their pins as `verify="change"` asks. Raises `PinMismatchError`.

        A call shares only a listing requested after it came here.
        """
        old = anyio.current_time() - self._listed_at > VERIFY_INTERVAL_SECONDS
        if not self._due and self._begun == self._finished and not old:
            return

        wanted = self._begun + 1
        self._due = True
        self._hurry.set()
        self._task.stir()
        while self._finished < wanted:
            if self._task.session is not session:
                raise LostWhileVerifyingError

            if self._failed >= wanted:
                raise PinMismatchError(
                    f"the tools of server {self._task.name!r} could not be verified: {self._task.last_error}",
                    server=self._task.name,
                    code="pin_unverified",
                )

            await self._task.changed()


def _accept(_: Mapping[str, Any]) -> Refusal | None:
    return None
