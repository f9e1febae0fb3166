"""The order of every call, in one place.

1. route: server and tool known, allowlisted, handle not stale
2. arguments: encoded once; these bytes are what every later step and the wire use; checked against the input schema
3. permit: Deny ends here, before any waiting (a server never vetted is waited for first); then `can_use_tool`
4. ready: a server on its way up is waited for; nothing was sent yet
5. slot: `max_concurrent_calls`
6. pin: the tool is what it was when it was pinned
7. approve, if Ask: slot given back, deadline standing still; then 2 to 6 again with what was approved
8. journal the intent; after this wait the permissions are asked once more, without a turn before sending
9. send
10. cap, check, clean (`results`)
11. journal the outcome

A deadline that passes before 9 raises `WaitTimeoutError`,
after it `CallTimeoutError`. Sent again is only what provably did not run, or what the caller declared repeatable and
the effects confirm. Not here: what is allowed (`permissions`), what a server does (`server`), what kinds of call there
are (`calls`).
"""

import inspect
import json
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeVar

import anyio
from attrs import field, frozen
from mcp import MCPError

from deputy_mcp._core.annotations import Effects, Finding
from deputy_mcp._core.catalog import ToolFacts
from deputy_mcp._core.errors import (
    CallError,
    CallTimeoutError,
    DeputyError,
    InvalidArgumentsError,
    MalformedReplyError,
    NotAllowlistedError,
    WaitTimeoutError,
)
from deputy_mcp._core.frozen import check_number
from deputy_mcp._core.permissions import Allow, Ask, Deny, Permissions
from deputy_mcp._core.sanitizing import clean_line, clean_text
from deputy_mcp._runtime.approval import Approver, ask_person
from deputy_mcp._runtime.approval_store import ApprovalStore, void_error
from deputy_mcp._runtime.deciding import decide_with_callbacks, denied_error, effective_permissions
from deputy_mcp._runtime.faults import translate
from deputy_mcp._runtime.handles import Caller, McpTool, Progress, near_names
from deputy_mcp._runtime.log import log_event
from deputy_mcp._runtime.recording import CallLines, Recorder
from deputy_mcp._runtime.relisting import LostWhileVerifyingError, UnreachedError
from deputy_mcp._runtime.schemas import SchemaChecker
from deputy_mcp._runtime.server import ServerTask
from deputy_mcp._runtime.server_requests import CallUnderWay
from deputy_mcp._runtime.session import HeaderMap, Session, header_map
from deputy_mcp._runtime.tickets import TicketUse, leave_ticket
from deputy_mcp._runtime.transports.link import CallRecord, LinkError

MOST_CHECKERS = 8_192
"""Compiled schemas kept; past it all are compiled anew when next needed."""

MOST_ROUNDS = 10
"""How often a server (2026-07-28) may ask for input, or only to be asked again, before its call is given up."""

R = TypeVar("R")

_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)

STATE_PAUSE_SECONDS = 0.05
"""Before a call is asked again only with the server's state."""

Stage = Literal["waiting", "callback", "verifying", "sending"]


@frozen(kw_only=True)
class Target:
    """What a call is judged by: a tool's facts, or a capability's."""

    name: str
    """The public name."""
    effects: Effects
    findings: tuple[Finding, ...]
    digest: str | None
    facts: ToolFacts | None = field(default=None, repr=False)


class Gate:
    """What all calls of one connection share: its servers, its permissions, its approver, its compiled schemas."""

    # Mutable state: compiled schemas by digest and side, header maps by digest.
    def __init__(
        self,
        servers: Mapping[str, ServerTask],
        *,
        permissions: Permissions | None,
        approver: Approver | ApprovalStore | None,
        recorder: Recorder,
    ) -> None:
        self.servers = servers
        self.approver = approver
        self.recorder = recorder
        self._permissions = permissions
        self._checkers: dict[tuple[str, str], SchemaChecker] = {}
        self._header_maps: dict[str, HeaderMap] = {}

    @property
    def store(self) -> ApprovalStore | None:
        """Where approvals are kept, if they outlive the process."""
        return self.approver if isinstance(self.approver, ApprovalStore) else None

    def server(self, name: str) -> ServerTask:
        """The server's task. Raises `NotAllowlistedError` with names that look alike."""
        task = self.servers.get(name)
        if task is not None:
            return task

        known = ", ".join(map(repr, self.servers)) or "none"
        raise NotAllowlistedError(
            f"there is no server {clean_line(str(name), 80)!r}; configured: {known}",
            near=near_names(str(name), self.servers),
            server=str(name),
            code="unknown_server",
        )

    def permissions_for(self, task: ServerTask | None, handle: McpTool | None) -> Permissions:
        """What holds for a call: `&` over what server, connection and agent gave, and what the handle took away."""
        server = task.spec.permissions if task is not None else None
        granted, narrowing = handle.shares() if handle is not None else (None, None)
        return effective_permissions((server, self._permissions, granted), narrowing)

    def checker(self, facts: ToolFacts, side: Literal["inputSchema", "outputSchema"]) -> SchemaChecker:
        """The compiled schema of a tool, original as on the wire."""
        key = (facts.digest, side)
        found = self._checkers.get(key)
        if found is None:
            if len(self._checkers) >= MOST_CHECKERS:
                self._checkers.clear()
                self._header_maps.clear()

            found = self._checkers[key] = SchemaChecker(facts.raw[side])

        return found

    def header_map(self, facts: ToolFacts) -> HeaderMap:
        """Which arguments of a tool are mirrored in HTTP headers; found once."""
        found = self._header_maps.get(facts.digest)
        if found is None:
            found = self._header_maps[facts.digest] = header_map(facts.raw)

        return found


class Call:
    """One call on its way through the gate: its deadline, its stage, and what was approved."""

    method = ""

    # Mutable state: the stage and scope of the deadline; the record of the latest sending, and
    # whether an earlier one left, or may have run; why it was sent again.
    def __init__(
        self,
        gate: Gate,
        task: ServerTask,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout_seconds: float | None,
        progress: Progress | None = None,
        retry: bool = False,
        handle: McpTool | None = None,
        use: TicketUse | None = None,
        caller: Caller,
    ) -> None:
        self.task = task
        self._caller = caller
        self.tool = tool
        self.record = CallRecord()
        self.generation = 0
        self.started = anyio.current_time()
        self._gate = gate
        self._handle = handle
        # Now, and once: what the caller does to his dict while a person thinks must not change what is sent.
        self._encoded = self._encode(arguments)
        self._progress = progress
        self._retry = retry
        seconds = task.limits.call_timeout_seconds if timeout_seconds is None else timeout_seconds
        self._seconds = check_number("timeout_seconds", seconds, above_zero=True)
        self._hard_end = self.started + self._seconds
        self._scope = anyio.CancelScope(deadline=self._hard_end)
        self._stage: Stage = "waiting"
        self._approved: tuple[str | None, bytes] | None = None
        self._use = use
        if use is not None:
            # Exactly the approved bytes, however the arguments would be encoded anew.
            self._encoded = use.ticket.arguments_json
            self._approved = (use.ticket.digest, use.ticket.arguments_json)

        self._resent: set[str] = set()
        self._pause = 0.0
        self._under_way = False
        self._left = self._may_have_run = False
        self._lines = CallLines(gate.recorder, server=task.name, tool=tool, method=self.method)

    async def run(self, finish: Callable[[dict[str, Any]], Awaitable[R]]) -> R:
        """What `finish` makes of the raw result. Raises our errors; a cancellation from outside is never wrapped."""
        try:
            result = await finish(await self._run())
        except DeputyError as last:
            error = self._with_earlier_attempts(last)
            self._lines.failed(error, seconds=anyio.current_time() - self.started, record=self.record)
            await self._settle(error.code, sent=self._left or error.outcome != "not_sent")
            if error is last:
                raise

            raise error from last
        except BaseException:
            sent = self._left or self.record.sent
            self._lines.cancelled(seconds=anyio.current_time() - self.started, record=self.record, sent=sent)
            await self._settle("cancelled", sent=sent)
            raise

        self._lines.ended(result, reply_sha256=self.record.reply_sha256)
        await self._settle("delivered", sent=True)
        return result

    def _with_earlier_attempts(self, error: DeputyError) -> DeputyError:
        """The error of the last attempt; where it did not leave but an earlier one may have run, that is said."""
        if not self._may_have_run or error.outcome != "not_sent":
            return error

        kind = CallTimeoutError if isinstance(error, TimeoutError) else CallError
        return kind(error.message, server=self.task.name, tool=self.tool, code=error.code, outcome="unknown")

    async def _settle(self, note: str, *, sent: bool) -> None:
        if self._use is not None:
            await self._use.settle(note, sent=sent)

    async def _run(self) -> dict[str, Any]:
        with self._scope:
            return await self._steps()

        raise self._timed_out()

    async def _steps(self) -> dict[str, Any]:
        while True:
            await self._pause_if_told()
            target = await self._route()
            arguments_json = await self._check_arguments(target)
            decision = await self._permit(target, arguments_json)
            session = await self.task.wait_ready()
            async with self.task.slots:
                try:
                    target = await self._verified(session, target)
                except LostWhileVerifyingError:
                    continue

                missing = self._missing_approval(target, decision, arguments_json)
                if missing is None:
                    if self._use is not None:
                        await self._use.spend(
                            self.task.spec, self._lines, digest=target.digest, arguments_json=arguments_json
                        )

                    await self._lines.announce(generation=self.task.generation, sent_again=bool(self._resent))
                    # The last word, without a turn before sending: an agent may have been narrowed during the waits.
                    missing = self._missing_approval(target, decision, arguments_json)

                if missing is None:
                    raw = await self._send(session, target, arguments_json)
                    if raw is not None:
                        return raw

            if missing is not None:
                await self._approve(target, missing, arguments_json)

    async def _pause_if_told(self) -> None:
        """A server said when to come again; nobody else waits for that."""
        if self._pause:
            await anyio.sleep(self._pause)
            self._pause = 0.0

    # -- 1 to 3 --------------------------------------------------------------------------------------------------

    async def _route(self) -> Target:
        raise NotImplementedError

    async def _check_arguments(self, target: Target) -> bytes:
        if isinstance(self._encoded, InvalidArgumentsError):
            raise self._encoded

        return self._encoded

    def _encode(self, arguments: object) -> bytes | InvalidArgumentsError:
        """The bytes of `arguments`, or what is wrong with them, for the step that judges it."""
        shown = f"{self.task.name}/{clean_line(str(self.tool), 80)}"
        names: dict[str, Any] = {"server": self.task.name, "tool": self.tool}
        if not isinstance(arguments, Mapping) or not all(isinstance(key, str) for key in arguments):
            return InvalidArgumentsError(f"the arguments of {shown} must be an object with text keys", **names)

        try:
            encoded = _encoder.encode(dict(arguments)).encode()
        except (TypeError, ValueError, RecursionError) as error:
            return InvalidArgumentsError(f"the arguments of {shown} are no JSON: {error}", **names)

        if len(encoded) > self.task.limits.max_message_bytes:
            return InvalidArgumentsError(
                f"the arguments of {shown} have {len(encoded)} bytes, more than max_message_bytes", **names
            )

        return encoded

    def _missing_approval(self, target: Target, decision: Allow | Ask, arguments_json: bytes) -> Ask | None:
        """What is still to be asked, by what the permissions say now; None: it may be sent. Raises where they deny."""
        verdict = self._gate.permissions_for(self.task, self._handle).decide(target)
        if isinstance(verdict, Deny):
            raise denied_error(verdict, name=target.name, server=self.task.name, tool=self.tool)

        decision = verdict if isinstance(verdict, Ask) else decision
        self._note_decision(target, decision, arguments_json)
        # An approval is of these bytes for this definition; after a reload there may be another.
        approved = not isinstance(decision, Ask) or self._approved == (target.digest, arguments_json)
        return None if approved or not isinstance(decision, Ask) else decision

    def _note_decision(self, target: Target, decision: Allow | Ask | Deny, arguments_json: bytes) -> None:
        self._lines.decided(decision, public_name=target.name, digest=target.digest, arguments=arguments_json)

    async def _permit(self, target: Target, arguments_json: bytes) -> Allow | Ask:
        permissions = self._gate.permissions_for(self.task, self._handle)
        self._stage = "callback"
        decision = await decide_with_callbacks(
            permissions, target, self._shown(target), arguments_json, server=self.task.name, tool=self.tool
        )
        self._stage = "waiting"
        self._note_decision(target, decision, arguments_json)
        if isinstance(decision, Deny):
            raise denied_error(decision, name=target.name, server=self.task.name, tool=self.tool)

        return decision

    def _shown(self, target: Target) -> Any:
        """What `can_use_tool` is given as the tool."""
        return self._handle or target

    # -- 6 and 7 -------------------------------------------------------------------------------------------------

    async def _verified(self, session: Session, target: Target) -> Target:
        """The target, compared with its pin. Raises `LostWhileVerifyingError` to go through the steps again."""
        self._stage = "verifying"
        try:
            verified = await self._check_pin(session, target)
        except UnreachedError as unreached:
            self._stage = "waiting"
            record = unreached.record
            if self._may_come_again(record, "verify_retry_after"):
                raise LostWhileVerifyingError from None

            error = self._translated(unreached.error, record, session)
            if error.outcome == "unknown":
                error.outcome = "not_sent"  # of the call nothing went out

            raise error from None

        self._stage = "waiting"
        if verified.findings != target.findings:
            # A person accepted one meanwhile, or another server brought one: judged anew, from the beginning.
            raise LostWhileVerifyingError

        return verified

    async def _check_pin(self, session: Session, target: Target) -> Target:
        raise NotImplementedError

    def _may_come_again(self, record: CallRecord, why: str) -> bool:
        """A 429 said when, and that fits the deadline: pause, once."""
        after = record.retry_after_seconds
        if record.status != 429 or after is None or why in self._resent:
            return False

        if anyio.current_time() + after >= self._hard_end:
            return False

        self._resent.add(why)
        self._pause = after
        return True

    async def _approve(self, target: Target, decision: Ask, arguments_json: bytes) -> None:
        approver = self._gate.approver
        if self._use is not None:
            raise void_error(self._use.ticket, "the tool is not the one that was approved any more")

        if isinstance(approver, ApprovalStore):
            raise await leave_ticket(
                approver,
                decision,
                self._lines,
                spec=self.task.spec,
                public_name=target.name,
                server=self.task.name,
                method=self.method,
                tool=self.tool,
                effects=target.effects,
                findings=target.findings,
                arguments_json=arguments_json,
                digest=target.digest,
            )

        left = self._scope.deadline - anyio.current_time()
        self._scope.deadline = math.inf
        self.task.awaiting_approval += 1
        try:
            answer = await ask_person(
                approver,
                decision,
                server=self.task.name,
                tool=self.tool,
                public_name=target.name,
                effects=target.effects,
                findings=target.findings,
                arguments_json=arguments_json,
                digest=target.digest,
                lines=self._lines,
                timeout_seconds=self.task.limits.approval_timeout_seconds,
            )
        finally:
            self.task.awaiting_approval -= 1
            self._hard_end = self._scope.deadline = anyio.current_time() + left

        if answer.arguments is not None:
            self._encoded = self._encode(answer.arguments)

        if not isinstance(self._encoded, InvalidArgumentsError):
            self._approved = (target.digest, self._encoded)

    # -- 9 -------------------------------------------------------------------------------------------------------

    def _params(self) -> dict[str, Any]:
        raise NotImplementedError

    def _headers(self, target: Target, arguments_json: bytes) -> dict[str, str]:
        return {}

    async def _send(self, session: Session, target: Target, arguments_json: bytes) -> dict[str, Any] | None:
        """The raw result; None: provably not run (or repeatable), go through the steps again."""
        call = self.task.requests.begin(self.tool)
        try:
            return await self._rounds(session, target, arguments_json, call)
        finally:
            self.task.requests.end(call)

    async def _rounds(
        self, session: Session, target: Target, arguments_json: bytes, call: CallUnderWay
    ) -> dict[str, Any] | None:
        params = self._params()
        for turn in range(MOST_ROUNDS):
            self._under_way = turn > 0
            self._left = self._left or self.record.sent
            self.record = CallRecord()
            self.generation = self.task.generation
            self._stage = "sending"
            self._touch()
            try:
                raw = await session.request(
                    self.method,
                    params,
                    record=self.record,
                    arguments_json=self._wire_arguments(arguments_json),
                    on_progress=self._on_progress if self._progress or self._idle else None,
                    headers=self._headers(target, arguments_json) if session.modern else None,
                )
            except MCPError as error:
                self._stage = "waiting"
                self._recover(error, session, target)
                return None
            finally:
                if not self._scope.cancel_called:
                    self._scope.deadline = self._hard_end

            kind = raw.get("resultType", "complete") if session.modern else "complete"
            if kind == "complete":
                return raw

            if kind != "input_required":
                raise MalformedReplyError(
                    f"server {self.task.name!r} answered with a result of the unknown type {clean_line(str(kind), 40)}",
                    server=self.task.name,
                    tool=self.tool,
                )

            # The same call, still under way (2026-07-28): asked again with what the server asked for, and its state.
            params = self._params()
            state, inputs = raw.get("requestState"), raw.get("inputRequests")
            if isinstance(state, str):
                params["requestState"] = state

            if inputs:
                responses = await self.task.requests.answer_inputs(inputs, call)
                if responses is None:
                    break

                params["inputResponses"] = responses
            elif isinstance(state, str):
                await anyio.sleep(STATE_PAUSE_SECONDS)
            else:
                break

        raise CallError(
            f"{target.name} asked the host for input that is not to be had, or never came to an end; "
            "the call was given up",
            server=self.task.name,
            tool=self.tool,
            code="input_declined",
        )

    def _wire_arguments(self, arguments_json: bytes) -> bytes | None:
        return arguments_json

    @property
    def _idle(self) -> float | None:
        return self.task.limits.idle_timeout_seconds

    def _touch(self) -> None:
        if self._idle is not None:
            self._scope.deadline = min(self._hard_end, anyio.current_time() + self._idle)

    async def _on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self._touch()
        if self._progress is not None:
            outcome = self._progress(progress, total, clean_text(message) if message is not None else None)
            if inspect.isawaitable(outcome):
                await outcome

    def _recover(self, error: MCPError, session: Session, target: Target) -> None:
        """Return when the call may go through the steps again; else raise what happened."""
        task, record = self.task, self.record
        fault = error.fault if isinstance(error, LinkError) else None
        task.note_fault(session, error)
        # What an earlier round sent may have run, whatever became of this one.
        record.sent = record.sent or self._under_way
        stopping = task.stopping
        again: str | None = None
        match fault if not self._under_way else None:
            case "forgotten":
                # A 404 is said before anything runs; other ways of forgetting may have come after.
                again = "forgotten" if record.status == 404 else self._repeatable(target)
            case "unreachable":
                return  # nothing was sent; it is waited for like a restart, inside the deadline
            case "lost" | "dropped":
                again = self._repeatable(target) if record.sent else "unsent"
            case "http" if not stopping and self._may_come_again(record, "retry_after"):
                log_event("sent_again", server=task.name, tool=self.tool, reason="retry_after")
                return

        if again is not None and again not in self._resent and not stopping:
            self._resent.add(again)
            self._may_have_run = self._may_have_run or again == "retry"
            log_event("sent_again", server=task.name, tool=self.tool, reason=again)
            return

        raise self._translated(error, record, session) from None

    def _translated(self, error: MCPError, record: CallRecord, session: Session) -> DeputyError:
        task = self.task
        return translate(
            error,
            record,
            session.link,
            server=task.name,
            tool=self.tool,
            limits=task.limits,
            secrets=task.secrets,
            stopping=task.stopping,
        )

    def _repeatable(self, target: Target) -> str | None:
        """Effects come from hints that are trusted or the host's own: the cautious reading has no other true ones."""
        effects = target.effects
        return "retry" if self._retry and (effects.read_only or effects.idempotent) else None

    def _timed_out(self) -> Exception:
        names: dict[str, Any] = {"server": self.task.name, "tool": self.tool}
        name = f"{self.task.name}/{clean_line(self.tool, 80)}"
        if self._stage == "callback":
            late = Deny(f"needs the agreement of can_use_tool, which did not answer within {self._seconds:g} s")
            return denied_error(late, name=name, **names)

        if self._stage in ("verifying", "sending"):
            # It was asked something and did not answer: a frozen server is found out either way.
            self.task.note_timeout()

        if self._stage == "sending":
            idle = anyio.current_time() < self._hard_end
            what = f"made no progress for {self._idle:g} s" if idle else f"did not answer within {self._seconds:g} s"
            return CallTimeoutError(
                f"{name} {what}",
                code="idle_timeout" if idle else None,
                outcome="unknown" if self.record.sent or self._under_way else "not_sent",
                **names,
            )

        state = str(self.task.state)
        reason = self.task.last_error if state != "ready" else None
        why = f" ({state}{f': {reason}' if reason else ''})"
        return WaitTimeoutError(
            f"{name} could not be sent within {self._seconds:g} s{why}", state=state, reason=reason, **names
        )
