"""What one server offers: listed, judged against its pins, followed when it changes, verified before a call.

Tools always; prompts and resources where the host allowed some; the instructions of each session. The pins are those
of the first listing, or of the pin file, and outlive every restart; a reload may ask for new ones in memory.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import anyio
import anyio.abc
import anyio.to_thread
from mcp import MCPError
from mcp_types import METHOD_NOT_FOUND

from deputy_mcp._core.catalog import Refusal, Vetting, listing_texts, vet_listing
from deputy_mcp._core.definitions import vet_definitions
from deputy_mcp._core.errors import ConfigError
from deputy_mcp._core.frozen import FrozenMapping
from deputy_mcp._core.lifecycle import Ending, EndKind
from deputy_mcp._core.pin_book import ServerPins
from deputy_mcp._core.pinning import PinDifference, definition_digest, describe_difference, tool_digest
from deputy_mcp._core.sanitizing import clean_line, mask_secrets
from deputy_mcp._core.scanning import scan_text
from deputy_mcp._runtime.pin_book import PinBook
from deputy_mcp._runtime.pin_file import PinFile
from deputy_mcp._runtime.relisting import Relisting
from deputy_mcp._runtime.session import Listed, ListKind, Session, check_header_annotations
from deputy_mcp._runtime.transports.link import CallRecord, ChangeKind, LinkError
from deputy_mcp._runtime.turns import current_time

if TYPE_CHECKING:
    from deputy_mcp._runtime.server import ServerTask

FEW_TOOLS, FEW_BYTES = 40, 256 * 1024
"""A listing of at most so many new tools, within so many bytes, is judged at once, in tens of milliseconds; a larger
one in a thread."""

LOOK_SECONDS = 0.001
"""With `verify="change"` the pin file is looked at once in so long: calls that come together need not each look."""

Named = Literal["prompts", "resources"]
"""What is allowed by name and pinned where it is listed."""


class Listing:
    """See the module. Belongs to one server's task."""

    # Mutable state: the pins, the stamp of the file in which they stand, and when to look at that again; per kind what
    # was listed last, and when; the last judgement of tools, of prompts and resources, and of the instructions.
    def __init__(self, task: "ServerTask", book: PinBook, file: PinFile | None) -> None:
        self._task = task
        self._book = book
        self._file = file
        self.pins: ServerPins | None = None
        self.vetting: Vetting | None = None
        self.refused: Mapping[str, Refusal] = FrozenMapping()
        self.instructions: str | None = None
        self._stamp: object = None
        self._look_again_at = 0.0
        self._judging = anyio.Lock(fast_acquire=True)
        self._listed: dict[ListKind, Listed] = {}
        self._listed_at: dict[ListKind, float] = {}
        spec = task.spec
        kinds: dict[ListKind, object] = {"tools": True, "prompts": spec.prompts, "resources": spec.resources}
        self._relistings: dict[ListKind, Relisting] = {
            kind: Relisting(task, kind, partial(self._relist, kind=kind)) for kind, asked in kinds.items() if asked
        }

    def note_change(self, kind: ChangeKind) -> None:
        """The server says that a list changed, or may have. Synchronous, from the receive path."""
        if kind in self._relistings:
            self._relistings[kind].note_change()

    def forget_pins(self) -> None:
        """Take the next listing as a first one."""
        self.pins = None

    @property
    def in_file(self) -> bool:
        """Whether the pins are kept in a file."""
        return self._file is not None

    # -- a session begins ----------------------------------------------------------------------------------------

    async def take(self, session: Session) -> Ending | None:
        """List and judge for a session that begins; the ending when a first listing cannot be taken."""
        try:
            await self._read_pins()
        except ConfigError as error:
            return self._no_pins(error)

        self._listed.clear()
        for kind in self._relistings:
            await self._fetch(session, kind, CallRecord())

        vetting = await self._vet(session, self.pins, self.vetting)
        if vetting.missing and (self.vetting is None or self.pins is None):
            missing = ", ".join(clean_line(name, 60) for name in vetting.missing)
            return Ending(EndKind.REFUSED, code="tool_missing", detail=f"it does not offer the allowlisted {missing}")

        if self.pins is None:
            pinned = await self._pin(session, vetting)
            if isinstance(pinned, Ending):
                return pinned

            vetting = pinned

        self._take_tools(vetting)
        self._judge_named()
        self._judge_instructions(session)
        return None

    def _no_pins(self, error: ConfigError) -> Ending:
        return Ending(EndKind.REFUSED, code="pin_file", detail=self._task.masked(str(error)))

    def refuse(self, detail: str) -> Ending:
        """The ending of a session that gives no listing."""
        # Before the first vetting nothing is known of the server, and a person must look; later it is a loss.
        kind = EndKind.REFUSED if self.vetting is None else EndKind.LOST
        return Ending(kind, code="no_listing", detail=self._task.masked(f"it gives no usable listing: {detail}"))

    async def _read_pins(self) -> bool:
        """Read the file's pins of this server where somebody wrote it; whether they are others now."""
        if self._file is None or self._file.stamp() == self._stamp:
            return False

        seen = await self._file.see()
        before, self.pins = self.pins, seen.pins.get(self._task.name, self.pins)
        self._stamp = seen.stamp
        return self.pins != before

    async def _pin(self, session: Session, vetting: Vetting) -> Ending | Vetting:
        """The first use of a server: what it offers now is what it is held to; the ending when it cannot be."""
        spec = self._task.spec
        pins = ServerPins(
            tools=vetting.pins,
            prompts=vet_definitions(self._entries("prompts"), "name", spec.prompts, None).pins,
            resources=vet_definitions(self._entries("resources"), "uri", spec.resources, None).pins,
            instructions=session.instructions,
        )
        if self._file is not None:
            if self._book.new_servers == "refuse":
                name = shlex.quote(self._task.name)
                detail = (
                    f"the pin file {self._file.path} does not know it, and new_servers is 'refuse'; "
                    f"`deputy-mcp pins diff {name}` shows what it offers and by which digest "
                    f"`deputy-mcp pins accept {name} --digest PREFIX` adds it"
                )
                return Ending(EndKind.REFUSED, code="pin_new_server", detail=detail)

            try:
                seen = await self._file.add(self._task.name, pins)
            except ConfigError as error:
                return self._no_pins(error)

            pins = seen.pins[self._task.name]
            self._stamp = seen.stamp
            self._task.tell("pinned", path=str(self._file.path), tools=len(pins.tools))

        self.pins = pins
        # Where another process pinned it first, its pins count; what is the same is not read twice.
        return vetting if pins.tools is vetting.pins else await self._vet(session, pins, vetting)

    # -- judging -------------------------------------------------------------------------------------------------

    async def _vet(self, session: Session, pins: ServerPins | None, known: Vetting | None) -> Vetting:
        spec = self._task.spec
        listed = self._listed["tools"]
        # Only what our own parser made stays as it was: a transport in this process may change what it gave us.
        read_texts = partial(listing_texts, listed.entries, known if listed.size_bytes else None)
        vet = partial(
            vet_listing,
            self._task.name,
            listed.entries,
            allowlist=spec.tools,
            pins=pins.tools if pins is not None else None,
            host_annotations=spec.annotations,
            trusted=spec.trust_annotations,
            max_description_bytes=self._task.limits.max_description_bytes,
            ignored=spec.pin_ignore,
            known=known,
            entry_check=check_header_annotations if session.modern else None,
        )
        texts: Sequence[bytes] = ()
        if listed.size_bytes <= FEW_BYTES:
            texts = read_texts()
            # How much is new tells how long it takes; finding that out is a hundredth of it.
            fresh = len(texts) if known is None else sum(text not in known.entries.outcomes for text in texts)
            if fresh <= FEW_TOOLS:
                return vet(texts=texts)

        # Digests, schemas and texts of thousands of tools take seconds: not in the loop's turn.
        return await anyio.to_thread.run_sync(lambda: vet(texts=texts or read_texts()), abandon_on_cancel=True)

    def _take_tools(self, vetting: Vetting) -> None:
        self.vetting = vetting
        self._task.targets.clear()
        self._task.tell("listing", tools=len(vetting.tools), refused=len(vetting.refused))
        for unknown in self._task.spec.annotations.keys() - vetting.tools.keys() - {"resources/read", "prompts/get"}:
            self._task.tell("warning", detail=f"annotations name a tool it does not offer: {unknown}")

    def _judge_named(self) -> None:
        assert self.pins is not None
        refused: dict[str, Refusal] = {}
        kinds: Iterable[tuple[Named, str, Any, tuple[str, ...]]] = (
            ("prompts", "name", self.pins.prompts, self._task.spec.prompts),
            ("resources", "uri", self.pins.resources, self._task.spec.resources),
        )
        for kind, key, pins, allowed in kinds:
            if kind in self._listed:
                judged = vet_definitions(self._entries(kind), key, allowed, pins).refused
                refused |= {named(kind, name): refusal for name, refusal in judged.items()}

        if (changed := self.refused.get(INSTRUCTIONS)) is not None:
            refused[INSTRUCTIONS] = changed

        self.refused = FrozenMapping(refused)

    def _judge_instructions(self, session: Session) -> None:
        """Changed instructions are withheld: nobody agreed to these."""
        assert self.pins is not None
        said = session.instructions
        kept = {name: refusal for name, refusal in self.refused.items() if name != INSTRUCTIONS}
        if said == self.pins.instructions:
            self.instructions = said
            for finding in scan_text(said, place="/instructions") if said is not None else ():
                self._task.tell(
                    "warning", detail=f"its instructions have the finding {finding.code}: {finding.message}"
                )
        else:
            self.instructions = None
            kept[INSTRUCTIONS] = Refusal(
                code="pin_changed",
                reason="its instructions are not those that were pinned",
                difference=describe_difference({"instructions": self.pins.instructions}, {"instructions": said}),
                raw=None if said is None else {"instructions": said},
            )

        self.refused = FrozenMapping(kept)

    def _entries(self, kind: ListKind) -> list[Any]:
        listed = self._listed.get(kind)
        return listed.entries if listed is not None else []

    def differences(self) -> tuple[PinDifference, ...]:
        """What is refused because it is not as it was pinned."""
        refused = dict(self.vetting.refused) if self.vetting is not None else {}
        refused |= self.refused
        return tuple(
            PinDifference(
                server=self._task.name,
                name=name,
                code=refusal.code,
                difference=mask_secrets(refusal.difference, self._task.secrets),
                digest="" if refusal.raw is None else shown_digest(name, refusal.raw),
                definition=refusal.raw,
            )
            for name, refusal in refused.items()
            if refusal.code in ("pin_changed", "pin_gone", "pin_unknown")
        )

    # -- listing again -------------------------------------------------------------------------------------------

    async def _fetch(self, session: Session, kind: ListKind, record: CallRecord) -> bool:
        """List one kind anew; whether anything in it differs from the last time."""
        before = self._listed.get(kind)
        at = anyio.current_time()
        try:
            wanted = {"prompts": self._task.spec.prompts, "resources": self._task.spec.resources}.get(kind)
            if wanted is not None and not session.offers(kind):
                self._listed[kind] = Listed(entries=[], pages=(), size_bytes=0)
                self._listed_at[kind] = at
                return True

            listed = await session.list_all(kind, self._task.limits, before, record=record, wanted=wanted)
        except LinkError:
            raise
        except MCPError as error:
            if session.offers(kind) and (kind == "tools" or error.code != METHOD_NOT_FOUND):
                raise

            listed = Listed(entries=[], pages=(), size_bytes=0)  # it declares none of these and answers accordingly

        self._listed[kind] = listed
        self._listed_at[kind] = at
        return listed is not before

    async def _relist(self, session: Session, record: CallRecord, kind: ListKind) -> None:
        fresh = await self._fetch(session, kind, record)
        async with self._judging:
            reread = await self._read_pins()
            if reread or (fresh and kind == "tools"):
                self._take_tools(await self._vet(session, self.pins, self.vetting))

            if reread or (fresh and kind != "tools"):
                self._judge_named()

            if reread:
                self._judge_instructions(session)

    def follow(self, session: Session, tasks: anyio.abc.TaskGroup) -> None:
        """Re-list what changed, in these tasks, for the life of a session."""
        for relisting in self._relistings.values():
            tasks.start_soon(relisting.run, session)

    def holds(self, kind: ListKind) -> bool:
        """Whether this kind need not be listed again before a call, by the book's `verify`."""
        if self._book.verify != "change" or self._relistings[kind].stale:
            return False

        now = current_time()
        if now - self._listed_at[kind] > self._book.verify_interval_seconds:
            return False

        if self._file is not None and now >= self._look_again_at:
            if self._file.stamp() != self._stamp:
                return False

            self._look_again_at = now + LOOK_SECONDS

        return True

    async def verify(self, session: Session, kind: ListKind) -> None:
        """Return when this kind was listed again and compared with its pins. Raises `PinMismatchError`.

        A call shares only a listing asked for after it came here.
        """
        await self._relistings[kind].wait(session)


INSTRUCTIONS = "#instructions"
"""Where changed instructions stand among what is refused; no tool is called so there (`#` begins no wire name)."""


def named(kind: Named, name: str) -> str:
    """Where a prompt or a resource stands among what is refused."""
    return f"#{kind}/{name}"


def shown_digest(name: str, definition: Mapping[str, Any]) -> str:
    """The digest by which a person names a definition."""
    return definition_digest(definition) if name.startswith("#") else tool_digest(definition)
