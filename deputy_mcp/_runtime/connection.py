"""`McpConnection`: every server of one agent behind one object.

It decides in synchronous methods and leaves the acting to one task per server, inside one owner task. It may be
entered, used and closed from any task, in any order, twice; one bad server never harms another; nothing it started
outlives it.

Longer than 400 lines because it is the front of the house: each public method stands here with its whole promise, and
the work is done behind it.
"""

import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import anyio
import anyio.abc
import anyio.to_thread
from mcp import MCPError

from deputy_mcp._core.annotations import Finding
from deputy_mcp._core.catalog import ToolFacts, accepted_as_notes
from deputy_mcp._core.config import CommonFields, Limits, RestartPolicy, Server
from deputy_mcp._core.cross_server import Neighbours
from deputy_mcp._core.errors import (
    CallTimeoutError,
    ClosedError,
    ConfigError,
    MalformedReplyError,
    NotAllowlistedError,
    RefusedError,
    UnavailableError,
    WaitTimeoutError,
)
from deputy_mcp._core.frozen import FrozenMapping, check_flag, check_mapping, wrong_type
from deputy_mcp._core.lifecycle import Event, ServerState
from deputy_mcp._core.permissions import Allow, Ask, Deny, Permissions, both_permissions, unmatched_entries
from deputy_mcp._core.pinning import PinDifference
from deputy_mcp._core.sanitizing import clean_line, clean_text
from deputy_mcp._runtime.approval import Approver
from deputy_mcp._runtime.approval_store import ApprovalStore, Ticket, check_usable
from deputy_mcp._runtime.calls import PromptCall, ResourceCall, ToolCall, capability_effects, stale_handle
from deputy_mcp._runtime.capability_tools import make_capability_tools
from deputy_mcp._runtime.configfile import Config, load_config
from deputy_mcp._runtime.deciding import Target
from deputy_mcp._runtime.faults import translate
from deputy_mcp._runtime.gate import Gate
from deputy_mcp._runtime.handles import McpTool, Progress, PromptResult, ResourceResult, ToolResult, make_handle
from deputy_mcp._runtime.journal import Journal
from deputy_mcp._runtime.log import log_event
from deputy_mcp._runtime.owner import LazyCoroutine, Owner
from deputy_mcp._runtime.pin_book import PinBook, check_pins
from deputy_mcp._runtime.pin_file import PinFile
from deputy_mcp._runtime.recording import Recorder, check_journal
from deputy_mcp._runtime.results import finish_prompt, finish_resource, finish_tool
from deputy_mcp._runtime.server import ServerTask
from deputy_mcp._runtime.server_requests import Elicitor, Sampler, check_answers
from deputy_mcp._runtime.session import METHODS, ListingError, ListKind, Page
from deputy_mcp._runtime.spill import Spill
from deputy_mcp._runtime.status import ConnectionEvent, EventReader, ServerStatus, dormant, snapshot
from deputy_mcp._runtime.steering import bring_up, reload, start_error, wait_down
from deputy_mcp._runtime.tickets import TicketUse
from deputy_mcp._runtime.transports.link import CallRecord, LinkError


class Made(NamedTuple):
    """A handle, and what it was made of."""

    facts: ToolFacts
    compared: tuple[Finding, ...]
    handle: McpTool


class McpConnection:
    """See the module; `docs/reference/` has the contract."""

    # Mutable state: the servers' tasks, made once; the owner and the group it runs them in; the handles of each
    # server's latest vetting; the queues of those who read events; whether it was closed.
    def __init__(
        self,
        servers: Mapping[str, Server],
        *,
        permissions: Permissions | None = None,
        limits: Limits | None = None,
        restart: RestartPolicy | None = None,
        pins: PinBook | str | os.PathLike[str] | None = None,
        approver: Approver | ApprovalStore | None = None,
        journal: Journal | str | os.PathLike[str] | None = None,
        elicitor: Elicitor | None = None,
        sampler: Sampler | None = None,
        roots: Sequence[str | Path] = (),
        shadowing: bool = False,
        secrets: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Check and remember; nothing is started.

        `servers`: a mapping of name to server, or a `Config`, whose permissions then narrow those given, whose pins
        and journal count where none is given, and whose expanded variables are masked. `pins`: a `PinBook` or the path
        of its file; None: in memory. `journal`: a `Journal` or the path of its file. `elicitor`, `sampler`, `roots`
        answer the servers' own requests; `roots` are file URIs or paths. `shadowing`: a text that names another
        server's tool is a flag. `secrets`: further values to mask, by server.
        """
        if isinstance(servers, Config):
            secrets = {**servers.secrets, **(secrets or {})}
            permissions = both_permissions(servers.permissions, permissions)
            pins = servers.pins if pins is None else pins
            journal = servers.journal if journal is None else journal

        _check_options(servers, permissions, limits, restart, approver)
        self._specs = FrozenMapping(servers)
        self._limits = limits or Limits()
        self._restart = restart or RestartPolicy()
        self._permissions = permissions
        self._secrets = dict(secrets or {})
        self._book = check_pins(pins)
        self._neighbours = Neighbours(shadowing=check_flag("shadowing", shadowing))
        self._answers = check_answers(elicitor, sampler, roots)
        self._tasks: dict[str, ServerTask] = {}
        self._recorder = Recorder(check_journal(journal))
        self._gate = Gate(self._tasks, permissions=permissions, approver=approver, recorder=self._recorder)
        self._spill = Spill()
        self._owner: Owner | None = None
        self._closing: anyio.Event | None = None
        self._handles: dict[str, dict[str, Made]] = {}
        self._readers: list[EventReader] = []
        self._closed = False

    @classmethod
    def from_config(cls, path: Any = None, servers: Any = None, **options: Any) -> Self:
        """A connection over the servers of a configuration file; see `load_config` for `path` and `servers`.

        Permissions in the file and in `options` combine by `&`.
        """
        return cls(load_config(path, servers), **options)

    # -- entering and leaving ------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Start every server side by side; return when each is READY or has failed its first start.

        Raises `StartError` when a `required` server is not READY then; everything started is stopped again.
        """
        if self._owner is not None or self._closed:
            raise ClosedError("a connection is entered once; make a new one")

        await self._open_journal()
        pin_file = None if self._book.path is None else PinFile(self._book.path)
        for name, spec in self._specs.items():
            self._tasks[name] = ServerTask(
                name,
                spec,
                limits=spec.limits or self._limits,
                policy=spec.restart or self._restart,
                secrets=self._secrets.get(name, ()),
                answers=self._answers,
                book=self._book,
                pin_file=pin_file,
                hash_replies=self._recorder.journal is not None,
                owner=self,
            )

        self._closing = anyio.Event()
        self._owner = Owner()
        self._owner.start(self._run, "deputy_mcp connection")
        try:
            for task in self._tasks.values():
                task.step(Event.START)

            for task in self._tasks.values():
                await task.wait_attempt(0)

            self._check_required()
        except BaseException:
            # Nothing half-started stays behind, whoever cancelled or whatever failed.
            await self.aclose()
            raise

        self._warn_unmatched()
        return self

    async def _open_journal(self) -> None:
        journal = self._recorder.journal
        if journal is None:
            return

        # It reads the whole file; a cancellation waits for it, so that it is not left open and locked.
        await anyio.to_thread.run_sync(journal.open)
        for name, spec in self._specs.items():
            self._recorder.add_secrets((*spec.secrets, *self._secrets.get(name, ())), servers=self._specs)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop every server and return when nothing is left. From any task, in any order, twice."""
        self._closed = True
        if self._owner is None or self._closing is None:
            return

        self._closing.set()
        for task in self._tasks.values():
            task.close()

        await self._owner.wait()
        for reader in self._readers:
            reader.end()

    async def _run(self) -> None:
        """The owner's body: the servers' tasks, until closed."""
        assert self._closing is not None
        try:
            async with anyio.create_task_group() as group:
                for task in self._tasks.values():
                    group.start_soon(LazyCoroutine, task.run, name=f"deputy_mcp server {task.name}")
        finally:
            self._closed = True
            self._spill.remove()
            self._recorder.close()

    def _check_required(self) -> None:
        for task in self._tasks.values():
            if task.spec.required and task.state is not ServerState.READY:
                raise start_error(task, "the required server")

    def _warn_unmatched(self) -> None:
        names = [made.handle.name for offered in self._handles.values() for made in offered.values()]
        names += ["resources/read", "prompts/get", *(tool.name for tool in self.capability_tools())]
        judged = [p for p in (self._permissions, *(t.spec.permissions for t in self._tasks.values())) if p is not None]
        for entry in sorted({entry for permissions in judged for entry in unmatched_entries(permissions, names)}):
            shown = clean_line(entry, 80)
            self._tell(
                "warning", None, detail=f"tool_allowlist or tool_denylist names {shown!r}, which matches no tool"
            )

    def _task(self, server: str, tool: str | None = None) -> ServerTask:
        if self._owner is None or self._closed:
            self._check_open()

        return self._tasks.get(server) or self._server(server, tool)

    def _server(self, server: str, tool: str | None = None) -> ServerTask:
        task = self._tasks.get(server)
        if task is not None:
            return task

        with self._noting(server, tool):
            return self._gate.server(server)

    @contextlib.contextmanager
    def _noting(self, server: str | None, tool: str | None = None) -> Iterator[None]:
        """Journal a refusal of what is no call, or not yet one."""
        try:
            yield
        except (RefusedError, UnavailableError) as error:
            self.note_refusal(server, tool, error)
            raise

    def note_refusal(self, server: str | None, tool: str | None, error: RefusedError | UnavailableError) -> None:
        """Journal a refusal that was said before the gate, here or by an agent."""
        self._recorder.note_refusal(server, tool, error)

    def _entered(self) -> Owner:
        if self._owner is None:
            raise ClosedError("the connection is not entered yet: use `async with McpConnection(...)`")

        return self._owner

    def _check_open(self) -> None:
        owner = self._entered()
        if self._closed:
            why = f" after a failure of its own: {owner.error!r}" if owner.error is not None else ""
            raise ClosedError(f"the connection is closed{why}")

    # -- tools ---------------------------------------------------------------------------------------------------

    def tools(self, *servers: str) -> list[McpTool]:
        """The last vetted handles, of the servers named or of all; also while a server restarts."""
        self._entered()
        names = servers or tuple(self._tasks)
        for name in names:
            self._server(name)

        return [
            made.handle
            for name in names
            for tool, made in self._handles.get(name, {}).items()
            if tool not in self._tasks[name].collisions
        ]

    async def call_tool(
        self,
        server: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_seconds: float | None = None,
        progress: Progress | None = None,
        retry: bool = False,
    ) -> ToolResult:
        """One governed call by names. Raises `RefusedError`, `UnavailableError`, `CallError`, `ClosedError`."""
        call = ToolCall(
            self._gate,
            self._task(server, tool),
            tool,
            {} if arguments is None else arguments,
            timeout_seconds=timeout_seconds,
            progress=progress,
            retry=retry,
            caller=self,
        )
        return await call.run(partial(finish_tool, call, self._gate, self._spill))

    async def call_handle(
        self,
        handle: McpTool,
        arguments: Mapping[str, Any] | None,
        *,
        timeout_seconds: float | None,
        progress: Progress | None,
        retry: bool,
    ) -> ToolResult:
        """What stands behind `McpTool.call`."""
        known = self._tasks.get(handle.server)
        if known is not None and known.load != handle.load:
            # Before asking whether we are closed: a handle whose server was loaded elsewhere should say so.
            with self._noting(handle.server, handle.tool):
                raise stale_handle(handle)

        call = ToolCall(
            self._gate,
            self._task(handle.server, handle.tool),
            handle.tool,
            {} if arguments is None else arguments,
            timeout_seconds=timeout_seconds,
            progress=progress,
            retry=retry,
            handle=handle,
            caller=self,
        )
        return await call.run(partial(finish_tool, call, self._gate, self._spill))

    def instructions(self, server: str) -> str | None:
        """A server's instructions as a model may read them, clean; None when it gave none, or changed ones."""
        self._entered()
        said = self._server(server).listing.instructions
        return None if said is None else clean_text(said)

    def differences(self, *servers: str) -> tuple[PinDifference, ...]:
        """What the servers named, or all, offer otherwise than they were pinned."""
        self._entered()
        names = servers or tuple(self._tasks)
        return tuple(one for name in names for one in self._server(name).listing.differences())

    def decide(self, handle: McpTool) -> Allow | Ask | Deny:
        """What the effective permissions say of a handle, callbacks apart."""
        return self._gate.permissions_for(self._tasks.get(handle.server), handle).decide(handle)

    def capability_tools(self, prefix: str = "mcp") -> list[McpTool]:
        """`PREFIX_read_resource` and `PREFIX_get_prompt` over the servers' allowlists; those with nothing to offer
        are left out. Read-only and open-world.
        """
        return make_capability_tools(self._specs, self, prefix)

    def decide_capability(self, handle: McpTool, method: str) -> Allow | Ask | Deny:
        """What the permissions say of a capability tool: the mildest answer of the servers it reaches.

        Each call is judged again by its own server's.
        """
        reached = {
            name: spec
            for name, spec in self._specs.items()
            if (spec.resources if method == "resources/read" else spec.prompts)
        }
        answers = [
            self._gate.permissions_for(self._tasks.get(name), handle).decide(
                Target(name=handle.name, effects=capability_effects(spec, method), findings=(), digest=None)
            )
            for name, spec in reached.items()
        ]
        return min(answers, key=lambda answer: (isinstance(answer, Deny), isinstance(answer, Ask)))

    # -- resources, prompts, listings ----------------------------------------------------------------------------

    async def read_resource(
        self, server: str, uri: str, *, timeout_seconds: float | None = None, handle: McpTool | None = None
    ) -> ResourceResult:
        """Read an allowlisted resource, through the gate. `handle`: the capability tool it is read for."""
        call = ResourceCall(
            self._gate,
            self._task(server, uri),
            uri,
            {"uri": uri},
            timeout_seconds=timeout_seconds,
            handle=handle,
            caller=self,
        )
        return await call.run(partial(finish_resource, call))

    async def get_prompt(
        self,
        server: str,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout_seconds: float | None = None,
        handle: McpTool | None = None,
    ) -> PromptResult:
        """Get an allowlisted prompt, through the gate. All arguments are strings."""
        call = PromptCall(
            self._gate,
            self._task(server, name),
            name,
            {} if arguments is None else arguments,
            timeout_seconds=timeout_seconds,
            handle=handle,
            caller=self,
        )
        return await call.run(partial(finish_prompt, call))

    async def resume(self, ticket: str, *, handle: McpTool | None = None) -> ToolResult | ResourceResult | PromptResult:
        """Run the call of an approved ticket, once: the whole gate again, with exactly the approved bytes.

        Raises as the call itself; `ApprovalPendingError` while nobody decided, `ApprovalExpiredError`, and
        `ApprovalDeniedError`, code `rejected`, `approval_used`, `unknown_ticket` or `approval_void` (another tool,
        other arguments, another server, or the permissions deny it now). `handle`: what the caller holds on the tool.
        """
        with self._noting(None):
            store, found = await self._ticket(ticket)

        with self._noting(found.server, found.tool):
            check_usable(found)

        use = TicketUse(store, found)
        common: dict[str, Any] = {"timeout_seconds": None, "handle": handle, "use": use, "caller": self}
        where: tuple[Any, ...] = (self._gate, self._task(found.server), found.tool, {})
        try:
            match found.method:
                case "resources/read":
                    reading = ResourceCall(*where, **common)
                    return await reading.run(partial(finish_resource, reading))
                case "prompts/get":
                    prompting = PromptCall(*where, **common)
                    return await prompting.run(partial(finish_prompt, prompting))
                case _:
                    call = ToolCall(*where, **common)
                    return await call.run(partial(finish_tool, call, self._gate, self._spill))
        except RefusedError as error:
            voided = await use.voided(error)
            if voided is error:
                raise

            with self._noting(found.server, found.tool):
                raise voided from error

    async def ticket(self, ticket: str) -> Ticket:
        """A ticket of this connection's store. Raises `ApprovalDeniedError`, code `unknown_ticket`."""
        return (await self._ticket(ticket))[1]

    async def _ticket(self, ticket: str) -> tuple[ApprovalStore, Ticket]:
        self._check_open()
        store = self._gate.store
        if store is None:
            raise ConfigError("there is no approval store; pass approver=ApprovalStore(path)", key="approver")

        return store, await anyio.to_thread.run_sync(store.get, ticket)

    async def discover(self, server: str, kind: ListKind, cursor: str | None = None) -> Page:
        """One page of what a server offers, as it sends it. It never widens what is allowed."""
        task = self._task(server)
        if kind not in tuple(METHODS):  # a tuple: what is not hashable is no kind either
            raise ConfigError(f"kind must be one of {', '.join(METHODS)}", server=server, key="kind")

        with self._noting(server):
            page: Page = await self._ask(task, lambda session, record: session.list_page(kind, cursor, record))

        return page

    async def complete(self, server: str, ref: Mapping[str, Any], argument: Mapping[str, str]) -> list[str]:
        """Completions of one argument of an allowlisted prompt or resource template.

        `ref` is the protocol's: `{"type": "ref/prompt", "name": …}` or `{"type": "ref/resource", "uri": …}`.
        """
        task = self._task(server)
        named = ref.get("name") if ref.get("type") == "ref/prompt" else ref.get("uri")
        allowed = task.spec.prompts if ref.get("type") == "ref/prompt" else task.spec.resources
        params = {"ref": dict(ref), "argument": dict(argument)}
        with self._noting(server):
            if named not in allowed:
                raise NotAllowlistedError(
                    f"server {server!r} allows no completion for {clean_line(str(named), 80)!r}",
                    server=server,
                    code="not_allowlisted",
                )

            raw = await self._ask(
                task, lambda session, record: session.request("completion/complete", params, record=record)
            )

        completion = raw.get("completion")
        values = completion.get("values") if isinstance(completion, dict) else None
        return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []

    async def _ask(self, task: ServerTask, ask: Any) -> Any:
        """One ungoverned question (it runs nothing), under the call timeout and the concurrency limit."""
        record = CallRecord()
        with anyio.move_on_after(task.limits.call_timeout_seconds):
            while True:
                session = await task.wait_ready()
                try:
                    async with task.slots:
                        return await ask(session, record)
                except MCPError as error:
                    task.note_fault(session, error)
                    if isinstance(error, LinkError) and error.fault in ("unreachable", "forgotten"):
                        # A question runs nothing: it is put again to the next session, inside the deadline.
                        continue

                    raise translate(
                        error,
                        record,
                        session.link,
                        server=task.name,
                        tool=None,
                        limits=task.limits,
                        secrets=task.secrets,
                        stopping=task.stopping,
                    ) from None
                except ListingError as error:
                    raise MalformedReplyError(f"server {task.name!r}: {error}", server=task.name) from None

        seconds = task.limits.call_timeout_seconds
        if record.sent:
            raise CallTimeoutError(f"server {task.name!r} did not answer within {seconds:g} s", server=task.name)

        raise WaitTimeoutError(
            f"server {task.name!r} could not be asked within {seconds:g} s",
            server=task.name,
            state=str(task.state),
            reason=task.last_error,
        )

    # -- status --------------------------------------------------------------------------------------------------

    def status(self) -> Mapping[str, ServerStatus]:
        """A snapshot of every server, by name. No IO; also before entering and after closing."""
        if not self._tasks:
            return FrozenMapping({name: dormant(name) for name in self._specs})

        return FrozenMapping({name: snapshot(task, len(self.tools(name))) for name, task in self._tasks.items()})

    async def events(self) -> AsyncIterator[ConnectionEvent]:
        """What happens from now on, until the connection closes."""
        reader = EventReader()
        if self._closed:
            return

        self._readers.append(reader)
        try:
            while (event := await reader.next()) is not None:
                yield event
        finally:
            self._readers.remove(reader)

    def on_secret(self, server: ServerTask) -> None:
        """A server's task learnt of a further value to mask."""
        self._recorder.add_secrets(server.secrets)

    def on_server(self, kind: str, server: ServerTask, **facts: Any) -> None:
        """A server's task tells what happened; synchronous."""
        if kind == "listing":
            self._take_listing(server)

        self._tell(kind, server.name, **facts)

    def _tell(self, kind: str, server: str | None, **facts: Any) -> None:
        self._recorder.tell_all()
        log_event(kind, level="warning" if kind == "warning" else "info", server=server, **facts)
        self._recorder.note_server(kind, server, facts)
        event = ConnectionEvent(kind=kind, server=server, facts=FrozenMapping(facts))
        for reader in self._readers:
            reader.put(event)

    def _take_listing(self, server: ServerTask) -> None:
        """One server's tools were judged: compare them with the others', and make the handles."""
        assert server.listing.vetting is not None
        for name in self._neighbours.put(server.name, server.listing.vetting.tools.values()):
            task = self._tasks[name]
            assert task.listing.vetting is not None
            offered = task.listing.vetting.tools
            task.targets.clear()
            task.collisions = self._neighbours.colliding(name)
            task.compared = {
                tool: accepted_as_notes(findings, offered[tool].accepted)
                for tool, findings in self._neighbours.found(name).items()
            }
            known = self._handles.get(name, {})
            self._handles[name] = {tool: self._handle(task, facts, known.get(tool)) for tool, facts in offered.items()}

    def _handle(self, task: ServerTask, facts: ToolFacts, known: Made | None) -> Made:
        """The handle on a tool; the `known` one where nothing of it is new."""
        compared = task.compared.get(facts.tool, ())
        if (
            known is not None
            and known.facts is facts
            and known.compared == compared
            and known.handle.generation == task.generation
            and known.handle.load == task.load
        ):
            return known

        findings = (*facts.findings, *compared)
        handle = make_handle(facts, findings=findings, generation=task.generation, load=task.load, caller=self)
        return Made(facts, compared, handle)

    # -- one server ----------------------------------------------------------------------------------------------

    async def start(self, server: str) -> None:
        """Start a server that is down and return when it is READY. Raises `UnavailableError`."""
        task = self._task(server)
        with self._noting(server):
            await bring_up(task, Event.START)

    async def stop(self, server: str) -> None:
        """End a server on request; its calls fail with code `stopped`. Returns when nothing of it is left."""
        task = self._task(server)
        task.step(Event.STOP)
        await wait_down(task)

    async def kill(self, server: str) -> None:
        """End a server without courtesy, its whole tree, at once; it is not restarted."""
        task = self._task(server)
        task.kill()
        await wait_down(task)

    async def release(self, server: str) -> None:
        """A person lets a QUARANTINED or FAILED server try again; returns when it is READY, raises when it is not."""
        task = self._task(server)
        with self._noting(server):
            await bring_up(task, Event.RELEASED)

    async def reload(self, server: str, *, repin: bool = False) -> list[McpTool]:
        """Restart a server on purpose and give its new handles; those of the earlier load become stale.

        `repin=True` takes the new listing as a first one. Raises `UnavailableError` when it does not come up again.
        """
        task = self._task(server)
        if repin and self._book.path is not None:
            raise ConfigError(
                f"repin: the pins of {server!r} are in {self._book.path}; accept what changed with "
                f"`deputy-mcp pins accept {server} TOOL --digest PREFIX`",
                server=server,
                key="repin",
            )

        with self._noting(server):
            await reload(task, repin=repin)

        return self.tools(server)

    async def supersede(self, server: str) -> None:
        """Another load of this server takes over: stop it for good, its handles become stale."""
        task = self._tasks[server]
        task.load += 1
        task.close()
        await wait_down(task)
        if all(other.closed for other in self._tasks.values()):
            await self.aclose()

    def failure(self, server: str) -> UnavailableError | None:
        """Why a server is not READY, as the error a call would get; None when it is."""
        task = self._server(server)
        return None if task.state is ServerState.READY else task.unavailable() or start_error(task)

    def __repr__(self) -> str:
        states = ", ".join(f"{name} {task.state}" for name, task in self._tasks.items())
        return f"<McpConnection {states or 'of ' + ', '.join(self._specs)}{' (closed)' if self._closed else ''}>"


def _check_options(servers: object, permissions: object, limits: object, restart: object, approver: object) -> None:
    for name, spec in check_mapping("servers", servers).items():
        if not name:
            raise ConfigError("a server needs a name", key="servers")

        if not isinstance(spec, CommonFields):
            wrong_type(f"servers[{name!r}]", spec, "a StdioServer, an HttpServer or a CustomServer")

    for key, value, kind in (
        ("permissions", permissions, Permissions),
        ("limits", limits, Limits),
        ("restart", restart, RestartPolicy),
    ):
        if value is not None and not isinstance(value, kind):
            wrong_type(key, value, f"a {kind.__name__}")

    if approver is not None and not callable(approver) and not isinstance(approver, ApprovalStore):
        wrong_type("approver", approver, "an async callable or an ApprovalStore")
