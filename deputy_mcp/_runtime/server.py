"""One server's task: it drives the lifecycle and owns the link and the session.

Everybody else leaves it a word: they step the lifecycle (a value) and wake it; only this task enters or leaves a
transport, a session, a process. What goes wrong inside stops at this task's edge and becomes a state and a reason.

Longer than 400 lines because every line of it touches the one life: split, two rooms would share all their state.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from secrets import SystemRandom
from typing import Any, Literal, Protocol

import anyio
import anyio.abc
import anyio.lowlevel
from mcp import MCPError

from deputy_mcp._core.annotations import Finding
from deputy_mcp._core.config import CustomServer, HttpServer, Limits, RestartPolicy, Server, StdioServer
from deputy_mcp._core.errors import (
    DeputyError,
    QuarantinedError,
    RestartLimitError,
    StartError,
    UnavailableError,
)
from deputy_mcp._core.lifecycle import Ending, EndKind, Event, Lifecycle, ServerState, cooled_at
from deputy_mcp._core.sanitizing import known_secrets, masked_line
from deputy_mcp._runtime.deciding import Target
from deputy_mcp._runtime.listing import Listing
from deputy_mcp._runtime.log import log_event
from deputy_mcp._runtime.pin_book import PinBook
from deputy_mcp._runtime.pin_file import PinFile
from deputy_mcp._runtime.server_requests import HostAnswers, ServerRequests
from deputy_mcp._runtime.session import (
    DiedOnProbeError,
    Era,
    ListingError,
    NegotiationError,
    Session,
    open_session,
)
from deputy_mcp._runtime.transports.link import SIGN_IN_FAILED, ChangeKind, Link, LinkError, SignInError, Traffic
from deputy_mcp._runtime.transports.stdio import open_stdio

MOST_FORGETTINGS = 5
"""Sessions that a server may forget within a restart window before that counts as a loss."""

_random = SystemRandom()


class Owner(Protocol):
    """What a server's task tells the connection."""

    def on_server(self, kind: str, server: "ServerTask", **facts: Any) -> None:
        """Something happened that people may want to know."""

    def on_secret(self, server: "ServerTask") -> None:
        """A further value must be masked from now on."""


class ServerTask:
    """See the module. Made by the connection; `run` is the task's body."""

    # Mutable state, all of it this task's or stepped synchronously by callers:
    #   life                    where it stands, and the memory of its deaths
    #   link, session           what it owns while it owns something
    #   generation, load        sessions so far; deliberate reloads so far
    #   listing, _era           its tools, judged and pinned; the remembered protocol era
    #   targets                 what calls of its tools are judged by, since its tools were judged last
    #   collisions, compared    what the connection found by comparing its tools with other servers'
    #   timeouts, forgettings   timeouts in a row with nothing read, and the latest; when sessions were forgotten
    #   _stir, _scope, _done    the wake-up of those who wait, if any; the life's scope; attempts finished
    #   _serving                the scope of the session that serves, whose end need not be that of the life
    def __init__(
        self,
        name: str,
        spec: Server,
        *,
        limits: Limits,
        policy: RestartPolicy,
        secrets: tuple[str, ...],
        answers: HostAnswers,
        book: PinBook,
        pin_file: PinFile | None,
        hash_replies: bool,
        owner: Owner,
    ) -> None:
        self.name = name
        self.spec = spec
        self.limits = limits
        self.policy = policy
        self._owner = owner
        self.secrets = known_secrets((*spec.secrets, *secrets))
        self.hash_replies = hash_replies
        self.life = Lifecycle(since=0.0)
        self.link: Link | None = None
        self.session: Session | None = None
        self.generation = 0
        self.load = 0
        self.listing = Listing(self, book, pin_file)
        self.collisions: frozenset[str] = frozenset()
        self.compared: Mapping[str, tuple[Finding, ...]] = {}
        self.targets: dict[str, Target] = {}
        self.last_error: str | None = None
        self.exit_code: int | None = None
        self.stderr_tail = ""
        self.server_info: Mapping[str, Any] | None = None
        self.protocol_version: str | None = None
        self.requests = ServerRequests(name, answers, limits, self.tell)
        self.awaiting_approval = 0
        self.slots = anyio.Semaphore(limits.max_concurrent_calls)
        self._era: Era | None = None
        self._past = Traffic()
        self._timeouts = 0
        self._timed_out_at = 0.0
        self._bytes_at_timeout = -1
        self._forgettings: list[float] = []
        self._stir: anyio.Event | None = None
        self._scope: anyio.CancelScope | None = None
        self._serving: anyio.CancelScope | None = None
        self._done = 0
        self._closed = False

    # -- what everybody may ask ----------------------------------------------------------------------------------

    @property
    def state(self) -> ServerState:
        return self.life.state

    @property
    def closed(self) -> bool:
        """Whether it was stopped for good."""
        return self._closed

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes in and out, over all sessions."""
        now = self.link.traffic if self.link is not None else Traffic()
        return self._past.bytes_in + now.bytes_in, self._past.bytes_out + now.bytes_out

    @property
    def stopping(self) -> bool:
        """Whether this server's end was asked for."""
        return self.life.ending is not None and self.life.ending.kind in (EndKind.STOP, EndKind.RELOAD)

    def step(self, event: Event, ending: Ending | None = None) -> bool:
        """Leave the task a word; synchronous, from any task. False: illegal here, nothing changed."""
        if not self.life.can(event):
            return False

        before = self.life.state
        self.life = self.life.step(
            event, now=anyio.current_time(), policy=self.policy, ending=ending, jitter=_random.random()
        )
        if self.life.state is not before:
            reason = self.life.ending
            facts: dict[str, Any] = {"code": reason.code, "detail": reason.detail} if reason is not None else {}
            if self.life.state is ServerState.STARTING and self.life.restarts:
                facts["restarts"] = self.life.restarts

            self._owner.on_server("state", self, state=str(self.life.state), **facts)

        if self.life.state is ServerState.CLOSING and self._scope is not None:
            self._scope.cancel()

        self.stir()
        return True

    def stir(self) -> None:
        """Wake everybody who waits for this server."""
        waited_for, self._stir = self._stir, None
        if waited_for is not None:
            waited_for.set()

    def tell(self, kind: str, **facts: Any) -> None:
        """Tell the connection what happened."""
        self._owner.on_server(kind, self, **facts)

    async def changed(self) -> None:
        """Return at the next change of anything here."""
        if self._stir is None:
            self._stir = anyio.Event()

        await self._stir.wait()

    async def wait_until(self, reached: Callable[[], bool]) -> None:
        """Return when `reached()` holds; looked at after every change."""
        while not reached():
            await self.changed()

    @property
    def attempts(self) -> int:
        """Starts that came to an end: READY, or down again."""
        return self._done

    async def wait_attempt(self, before: int) -> None:
        """Return when an attempt after the `before`-th is over."""
        await self.wait_until(lambda: self._done > before or (self._closed and self._scope is None))

    @property
    def ready_session(self) -> Session | None:
        """The session of a READY server."""
        return self.session if self.life.state is ServerState.READY else None

    async def wait_ready(self) -> Session:
        """The session of a READY server; waits while it is on its way there. Raises `UnavailableError`."""
        while True:
            if (session := self.ready_session) is not None:
                return session

            at = cooled_at(self.life, self.policy)
            if at is not None and anyio.current_time() >= at:
                self.step(Event.COOLED)
                continue

            error = self.unavailable()
            if error is not None:
                raise error

            await self.changed()

    def unavailable(self) -> UnavailableError | None:
        """Why a call cannot wait for this server; None while it is READY or on its way."""
        state, ending = self.life.state, self.life.ending
        detail = ending.detail if ending is not None else ""
        known: dict[str, Any] = {"state": str(state), "reason": detail or None, "server": self.name}
        known["stderr_tail"] = self.stderr_tail
        why = f": {detail}" if detail else ""
        if state is ServerState.QUARANTINED:
            text = f"server {self.name!r} is quarantined{why}; look at it, then release it"
            return QuarantinedError(text, **known)

        if state is ServerState.FAILED:
            if self.policy.when == "never":
                return StartError(f"server {self.name!r} is down and its restart policy is 'never'{why}", **known)

            text = f"server {self.name!r} was lost more often than its restart policy allows{why}"
            return RestartLimitError(text, **known)

        asked = ending is not None and ending.kind is EndKind.STOP
        if state in (ServerState.STOPPED, ServerState.DORMANT) or (state is ServerState.CLOSING and asked):
            return UnavailableError(f"server {self.name!r} is {state}; start it", code="stopped", **known)

        return None

    def masked(self, text: str, most: int = 500) -> str:
        """`text` as it may be shown: one clean line without this server's secrets."""
        return masked_line(text, self.secrets, most)

    # -- hooks of the transport ----------------------------------------------------------------------------------

    def on_change(self, kind: ChangeKind) -> None:
        self.listing.note_change(kind)

    def on_noise(self, sample: str) -> None:
        traffic = self.link.traffic if self.link is not None else None
        # The first few and then every thousandth: a banner is worth a line, a flood is not.
        if traffic is None or traffic.noise <= 5 or traffic.noise % 1000 == 0:
            log_event("server_noise", server=self.name, sample=self.masked(sample), count=traffic and traffic.noise)

    def _on_secret(self, value: str) -> None:
        fresh = known_secrets((*self.secrets, value, *value.split()))
        # A token that changes every minute must not make this grow for ever.
        known = fresh if len(fresh) < 200 else known_secrets((*self.spec.secrets, value, *value.split()))
        if known != self.secrets:
            self.secrets = known
            self._owner.on_secret(self)

    # -- words of callers ----------------------------------------------------------------------------------------

    def note_timeout(self, began: float) -> None:
        """A call that began then timed out. Several in a row with nothing read in between end the server as hung.

        In a row is one after the other: calls that waited at the same time found out the same thing, once.
        """
        if self.link is None:
            return

        read = self.link.traffic.bytes_in
        if read != self._bytes_at_timeout:
            self._timeouts = 0
        elif began < self._timed_out_at:
            return

        self._timeouts += 1
        self._timed_out_at = anyio.current_time()
        self._bytes_at_timeout = read
        most = self.limits.max_timeouts_in_row
        if most is not None and self._timeouts >= most:
            self._timeouts = 0
            self._give_up(self.link, "hung", f"{most} calls in a row timed out and nothing was read meanwhile")

    def _give_up(self, link: Link, code: str, detail: str) -> None:
        """End this life from a caller's task. No other call may try its session, which the owner still has to leave."""
        self.session = None
        link.lose(code, self.masked(detail))
        self.stir()

    def note_fault(self, session: Session, error: MCPError) -> None:
        """A request found out before this task did that its session is no good any more."""
        fault = error.fault if isinstance(error, LinkError) else None
        if session is not self.session:
            return

        if fault == "forgotten":
            self._note_forgotten(session)
        elif fault == "unreachable":
            # The server is down, and is waited for like any other.
            self._give_up(session.link, "unreachable", str(error))
        elif fault == "lost":
            self.session = None
            self.stir()

    def note_refused_sign_in(self, session: Session, error: SignInError) -> None:
        """A listing of our own, which would be tried again and again, was refused its sign-in: a person must look."""
        if session is self.session:
            self._give_up(session.link, SIGN_IN_FAILED, f"its sign-in failed: {error}")

    def _note_forgotten(self, session: Session) -> None:
        """The server forgot this session; a new one is opened over the same link."""
        if self.life.state is not ServerState.READY:
            return

        now = anyio.current_time()
        self._forgettings = [at for at in self._forgettings if now - at <= self.policy.window_seconds] + [now]
        if len(self._forgettings) > MOST_FORGETTINGS:
            self._give_up(session.link, "forgetful", "it keeps forgetting its sessions")
            return

        self.session = None
        self.generation += 1
        self.step(Event.FORGOTTEN)
        if self._serving is not None:
            self._serving.cancel()

    def kill(self) -> None:
        """No courtesy: the whole tree, at once; not restarted."""
        if self.link is not None:
            self.link.kill_now()

        self.step(Event.STOP, Ending(EndKind.STOP, code="killed", detail="killed on request"))

    def close(self) -> None:
        """Stop for good; `run` returns once nothing is left."""
        self._closed = True
        self.step(Event.STOP)
        self.stir()

    # -- the task ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """The task's body: one life after the other, until `close`."""
        try:
            while True:
                match self.life.state:
                    case ServerState.STARTING:
                        await self._live()
                    case ServerState.CLOSING:
                        # Told to end before this task had its turn: nothing was opened yet.
                        self._end_attempt()
                    case ServerState.BACKING_OFF:
                        await self._back_off()
                    case ServerState.STOPPED if self._closed:
                        return
                    case resting:
                        await self.wait_until(lambda was=resting: self.life.state is not was or self._closed)  # type: ignore[misc] # a bound default
        finally:
            # Also after a cancellation that was nobody's of ours: whoever waits for an attempt must not wait for ever.
            self._closed = True
            self._scope = None
            self.step(Event.STOP)
            self._end_attempt()

    async def _back_off(self) -> None:
        assert self.life.resume_at is not None
        with anyio.move_on_at(self.life.resume_at):
            await self.wait_until(lambda: self.life.state is not ServerState.BACKING_OFF)

        if self.life.state is ServerState.BACKING_OFF:
            self.step(Event.ELAPSED)

    async def _live(self) -> None:
        """From STARTING to the state after CLOSED; never raises but for its own cancellation."""
        self._forgettings.clear()
        self._timeouts = 0
        with anyio.CancelScope() as scope:
            self._scope = scope
            self._begin_deadline()
            # A server that exits on the probe is started once more with `initialize`; that is no restart.
            while await self._life() == "again":
                log_event("server_started_again", server=self.name, reason="it ended on server/discover")

        if self.life.can(Event.ENDED) and scope.cancelled_caught:
            self._lose(self._overdue(), None)

        self._scope = None
        self._end_attempt()

    def _end_attempt(self) -> None:
        """Nothing is owned any more."""
        self.step(Event.CLOSED)
        self._done += 1
        self.stir()

    async def _life(self) -> Literal["again", "over"]:
        ending: Ending | Literal["again"] | None = None
        try:
            async with self._open_link() as link:
                self.link = link
                try:
                    ending = await self._serve(link)
                finally:
                    self.session = None
                    # Before the transport is taken down, so that nobody calls into what is going away.
                    if isinstance(ending, Ending):
                        self._lose(ending, link)
                    elif ending is None and self.life.can(Event.ENDED):
                        self._lose(self._overdue(), link)
        except Exception as error:  # noqa: BLE001 # the edge of this server's task: siblings must not feel it
            if not isinstance(ending, Ending):
                self._lose(self._ending_from(error), self.link)
        finally:
            self._keep_last_words()

        return "again" if ending == "again" else "over"

    def _begin_deadline(self) -> None:
        """The start deadline: from here to READY, the opening of the transport included."""
        assert self._scope is not None
        self._scope.deadline = anyio.current_time() + self.limits.startup_timeout_seconds

    def _overdue(self) -> Ending:
        """The ending of a life that was cancelled without being asked to end."""
        if self._scope is None or anyio.current_time() < self._scope.deadline:
            return Ending(EndKind.LOST, code="failed", detail="its session failed")

        seconds = self.limits.startup_timeout_seconds
        doing = "list its tools" if self.life.state is ServerState.VETTING else "answer the handshake"
        return Ending(EndKind.LOST, code="startup_timeout", detail=f"it did not {doing} within {seconds:g} s")

    def _lose(self, ending: Ending, link: Link | None) -> None:
        self.last_error = ending.detail
        log_event(
            "server_ended",
            level="warning",
            server=self.name,
            code=ending.code,
            detail=ending.detail,
            exit_code=link.exit_code if link is not None else None,
        )
        scope, self._scope = self._scope, None  # this end is orderly: the contexts are left, not cancelled
        self.step(Event.ENDED, ending)
        self._scope = scope

    def _keep_last_words(self) -> None:
        if self.link is not None:
            self.exit_code = self.link.exit_code
            self.stderr_tail = self.link.stderr_tail  # masked by the link
            self._past.bytes_in += self.link.traffic.bytes_in
            self._past.bytes_out += self.link.traffic.bytes_out

        self.link = None
        self.session = None

    def _ending_from(self, error: BaseException) -> Ending:
        """What an exception out of the SDK or a transport means; groups are looked into."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]

        if isinstance(error, DeputyError):
            kind = EndKind.REFUSED if error.code in ("config", SIGN_IN_FAILED) else EndKind.LOST
            return Ending(kind, code=error.code, detail=self.masked(error.message))

        detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return Ending(EndKind.LOST, code="failed", detail=self.masked(detail))

    def _open_link(self) -> AbstractAsyncContextManager[Link]:
        match self.spec:
            case StdioServer() as spec:
                return open_stdio(spec, self.limits, self, server=self.name, secrets=self.secrets)
            # Loaded where one is there to be opened.
            case HttpServer(transport="sse") as spec:
                from deputy_mcp._runtime.transports.sse import open_sse

                return open_sse(spec, self.limits, self, on_secret=self._on_secret)
            case HttpServer() as spec:
                from deputy_mcp._runtime.transports.http import open_http

                return open_http(spec, self.limits, self, on_secret=self._on_secret)
            case CustomServer() as spec:
                from deputy_mcp._runtime.transports.custom import open_custom

                return open_custom(spec, self.limits, self)

    async def _serve(self, link: Link) -> Ending | Literal["again"]:
        while True:
            if self.life.state is ServerState.STARTING:
                self.generation += 1

            outcome: Ending | Literal["again", "forgotten"] = "forgotten"
            async with open_session(link, self.requests) as session:
                outcome = await self._serve_session(link, session)
                self.session = None

            if outcome != "forgotten":
                return outcome

            self._begin_deadline()

    async def _serve_session(self, link: Link, session: Session) -> Ending | Literal["again", "forgotten"]:
        ending = await self._begin(link, session)
        if ending is not None:
            return ending

        assert self._scope is not None
        # The start deadline may have passed in the very turn in which the listing came: then this is no READY.
        await anyio.lowlevel.checkpoint_if_cancelled()
        self._scope.deadline = math.inf
        outcome: Ending | Literal["forgotten"] = "forgotten"
        async with anyio.create_task_group() as tasks:
            self._serving = tasks.cancel_scope
            self.session = session
            self.step(Event.VETTED)
            self._done += 1
            self.stir()
            self.listing.follow(session, tasks)
            if session.announces:
                tasks.start_soon(session.run_listen, lambda: self.on_change("tools"))

            loss = await link.wait_lost()
            kind = EndKind.REFUSED if loss.code == SIGN_IN_FAILED else EndKind.LOST
            outcome = Ending(kind, code=loss.code, detail=self.masked(loss.detail))
            tasks.cancel_scope.cancel()

        self._serving = None
        return outcome

    async def _begin(self, link: Link, session: Session) -> Ending | Literal["again"] | None:
        """Handshake and vetting; None when the session may serve."""
        try:
            era = await session.negotiate(self.spec.protocol, self._era)
            self._era = era
            self.protocol_version = session.version
            self.server_info = session.server_info
            self.step(Event.OPENED)
            return await self.listing.take(session)
        except DiedOnProbeError:
            self._era = "legacy"
            return "again"
        except NegotiationError as error:
            kind = EndKind.REFUSED if error.refused else EndKind.LOST
            return Ending(kind, code="protocol", detail=self.masked(str(error)))
        except ListingError as error:
            return self.listing.refuse(str(error))
        except SignInError as error:
            return Ending(EndKind.REFUSED, code=SIGN_IN_FAILED, detail=self.masked(f"its sign-in failed: {error}"))
        except LinkError as error:
            if self.life.state is ServerState.VETTING and error.fault in ("malformed", "too_large"):
                return self.listing.refuse(error.detail)

            loss = None
            if error.fault == "lost":
                # The transport knows better why it is gone than the request that found out.
                with anyio.move_on_after(1):
                    loss = await link.wait_lost()

            code, detail = (loss.code, loss.detail) if loss is not None else (error.fault, error.detail)
            return Ending(EndKind.LOST, code=code, detail=self.masked(detail))
        except MCPError as error:
            if self.life.state is ServerState.VETTING:
                return self.listing.refuse(f"tools/list failed with error {error.code}: {error.message}")

            self._era = None
            return Ending(
                EndKind.LOST, code="handshake_failed", detail=self.masked(f"error {error.code}: {error.message}")
            )
