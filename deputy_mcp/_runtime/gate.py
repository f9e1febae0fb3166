"""The order of every call, in one place.

1. route: server and tool known, allowlisted, handle not stale
2. arguments: encoded once; these bytes are what every later step and the wire use; checked against the input schema
3. permit: Deny ends here, before any waiting (a server never vetted is waited for first); then `can_use_tool`
4. ready: a server on its way up is waited for; nothing was sent yet
5. slot: `max_concurrent_calls`
6. pin: the tool is what it was when it was pinned
7. approve, if Ask: slot given back, deadline standing still; then 2 to 6 again with what was approved
8. journal the intent: its line stands in the file, and the permissions are asked once more, before a byte leaves
9. send (`sending`)
10. cap, check, clean (`results`)
11. journal the outcome

A deadline that passes before 9 raises `WaitTimeoutError`, after it `CallTimeoutError`. Not here: what is allowed
(`permissions`), what a server does (`server`), what kinds of call there are (`calls`).
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

import anyio

from deputy_mcp._core.catalog import ToolFacts
from deputy_mcp._core.errors import (
    CallError,
    CallTimeoutError,
    DeputyError,
    InvalidArgumentsError,
    NotAllowlistedError,
)
from deputy_mcp._core.permissions import Allow, Ask, Deny, Permissions
from deputy_mcp._core.sanitizing import clean_line
from deputy_mcp._runtime.approval import Approver, ask_person
from deputy_mcp._runtime.approval_store import ApprovalStore, void_error
from deputy_mcp._runtime.deciding import Target, ask_callbacks, denied_error, effective_permissions
from deputy_mcp._runtime.handles import Caller, McpTool, Progress, near_names
from deputy_mcp._runtime.recording import CallLines, Recorder
from deputy_mcp._runtime.relisting import LostWhileVerifyingError, UnreachedError
from deputy_mcp._runtime.schemas import SchemaChecker
from deputy_mcp._runtime.sending import Sending
from deputy_mcp._runtime.server import ServerTask
from deputy_mcp._runtime.session import HeaderMap, ListKind, Session, header_map
from deputy_mcp._runtime.tickets import TicketUse, leave_ticket
from deputy_mcp._runtime.turns import current_time

MOST_CHECKERS = 8_192
"""Compiled schemas kept; past it all are compiled anew when next needed."""

R = TypeVar("R")

_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


class Gate:
    """What all calls of one connection share: its servers, its permissions, its approver, its compiled schemas."""

    # Mutable state: compiled schemas by digest and side, header maps by digest; the latest shares and what follows from
    # them, by server.
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
        self._effective: dict[ServerTask | None, tuple[Permissions | None, Permissions | None, Permissions]] = {}

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
        """What holds for a call: `&` over what server, connection and agent gave, and what the handle took away.

        The same object as the last time for this server, as long as the shares are the same.
        """
        server = task.spec.permissions if task is not None else None
        granted, narrowing = handle.shares() if handle is not None else (None, None)
        known = self._effective.get(task)
        if known is not None and known[0] is granted and known[1] is narrowing:
            return known[2]

        effective = effective_permissions((server, self._permissions, granted), narrowing)
        self._effective[task] = granted, narrowing, effective
        return effective

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


class _Judged(NamedTuple):
    """What a call was judged by, and the decision."""

    permissions: Permissions
    target: Target
    arguments_json: bytes
    decision: Allow | Ask


class _NotAgreedError(Exception):
    """Right before it left, the permissions want it asked."""

    def __init__(self, missing: Ask) -> None:
        super().__init__(missing.reason)
        self.missing = missing


class Call(Sending):
    """One call on its way through the gate: what was decided and approved."""

    # Mutable state: what it was judged by last, and what was decided; what was approved.
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
        super().__init__(task, tool, timeout_seconds=timeout_seconds, progress=progress, retry=retry)
        self._caller = caller
        self._gate = gate
        self._handle = handle
        self._judged: _Judged | None = None
        self._use = use
        self._approved: tuple[str | None, bytes] | None = None
        if use is None:
            # Now, and once: what the caller does to his dict while a person thinks must not change what is sent.
            self._encoded = self._encode(arguments)
        else:
            # Exactly the approved bytes, however the arguments would be encoded anew.
            self._encoded = use.ticket.arguments_json
            self._approved = (use.ticket.digest, use.ticket.arguments_json)

        self._lines = CallLines(gate.recorder, server=task.name, tool=tool, method=self.method)

    async def run(self, finish: Callable[[dict[str, Any]], Awaitable[R]]) -> R:
        """What `finish` makes of the raw result. Raises our errors; a cancellation from outside is never wrapped."""
        try:
            result = await finish(await self._run())
        except DeputyError as last:
            error = self._with_earlier_attempts(last)
            self._lines.failed(error, seconds=current_time() - self.started, record=self.record)
            await self._settle(error.code, sent=self._left or error.outcome != "not_sent")
            if error is last:
                raise

            raise error from last
        except BaseException:
            sent = self._left or self.record.sent
            self._lines.cancelled(seconds=current_time() - self.started, record=self.record, sent=sent)
            await self._settle("cancelled", sent=sent)
            raise

        self._lines.ended(result, reply_sha256=self.record.reply_sha256)
        await self._settle("delivered", sent=True)
        return result

    async def _settle(self, note: str, *, sent: bool) -> None:
        if self._use is not None:
            await self._use.settle(note, sent=sent)

    def _with_earlier_attempts(self, error: DeputyError) -> DeputyError:
        """The error of the last attempt; where it did not leave but an earlier one may have run, that is said."""
        if not self._may_have_run or error.outcome != "not_sent":
            return error

        kind = CallTimeoutError if isinstance(error, TimeoutError) else CallError
        return kind(error.message, server=self.task.name, tool=self.tool, code=error.code, outcome="unknown")

    async def _run(self) -> dict[str, Any]:
        """Steps 1 to 9. What has to be waited for is `_bounded` by the deadline; mostly nothing has but the answer."""
        task, slots = self.task, self.task.slots
        while True:
            if self._pause:
                await self._bounded(self._pause_as_told())

            target = self._found()
            if target is None:
                target = await self._bounded(self._route())

            arguments_json = self._checked(target)
            if arguments_json is None:
                arguments_json = await self._bounded(self._check_slowly(target))

            permissions = self._gate.permissions_for(task, self._handle)
            decision = target.decided_by(permissions)
            if permissions.callbacks:
                self._stage = "callback"
                decision = await self._bounded(self._ask_callbacks(decision, permissions, target, arguments_json))
                self._stage = "waiting"

            self._take_decision(decision, permissions, target, arguments_json)
            session = task.ready_session
            if session is None:
                session = await self._bounded(task.wait_ready())

            try:
                slots.acquire_nowait()
            except anyio.WouldBlock:
                await self._bounded(slots.acquire())

            try:
                if not task.listing.holds(self._kind):
                    await self._bounded(self._list_again(session))

                target = self._as_pinned(target)
                missing = self._missing_approval(target, arguments_json)
                if missing is None:
                    if self._use is not None:
                        await self._bounded(
                            self._use.spend(task.spec, self._lines, digest=target.digest, arguments_json=arguments_json)
                        )

                    self._lines.announce(generation=task.generation, sent_again=bool(self._resent))
                    raw = await self._send(session, target, arguments_json)
                    if raw is not None:
                        return raw

                    if not self.record.sent:
                        self._lines.withdraw()

            except LostWhileVerifyingError:
                self._stage = "waiting"
                self._lines.withdraw()
                continue
            except _NotAgreedError as error:
                self._stage = "waiting"
                self._lines.withdraw()
                missing = error.missing
            finally:
                slots.release()

            if missing is not None:
                await self._approve(target, missing, arguments_json)

    def _last_word(self) -> None:
        # It may have waited in what cannot be cut off; an agent may have been narrowed since; and what is sent is
        # announced first.
        if current_time() >= self._hard_end:
            self._stage = "waiting"
            raise self._timed_out()

        judged = self._judged
        assert judged is not None
        missing = self._missing_approval(judged.target, judged.arguments_json)
        if missing is not None:
            raise _NotAgreedError(missing)

        self._lines.secure()

    # -- 1 to 3 --------------------------------------------------------------------------------------------------

    _kind: ListKind

    def _found(self) -> Target | None:
        """What is called, where nothing about that has to be waited for, or refused."""
        return None

    async def _route(self) -> Target:
        raise NotImplementedError

    def _checked(self, target: Target) -> bytes | None:
        """The arguments, where they hold; None: it takes long to say. Raises `InvalidArgumentsError`."""
        return self._given()

    def _given(self) -> bytes:
        """The arguments, unchecked. Raises `InvalidArgumentsError` where they are none."""
        if isinstance(self._encoded, InvalidArgumentsError):
            raise self._encoded

        return self._encoded

    async def _check_slowly(self, target: Target) -> bytes:
        raise NotImplementedError

    def _encode(self, arguments: object) -> bytes | InvalidArgumentsError:
        """The bytes of `arguments`, or what is wrong with them, for the step that judges it."""
        if not isinstance(arguments, dict | Mapping) or [key for key in arguments if not isinstance(key, str)]:
            return self._invalid("must be an object with text keys")

        try:
            encoded = _encoder.encode(dict(arguments)).encode()
        except (TypeError, ValueError, RecursionError) as error:
            return self._invalid(f"are no JSON: {error}")

        if len(encoded) > self.task.limits.max_message_bytes:
            return self._invalid(f"have {len(encoded)} bytes, more than max_message_bytes")

        return encoded

    def _invalid(self, what: str) -> InvalidArgumentsError:
        shown = f"{self.task.name}/{clean_line(str(self.tool), 80)}"
        return InvalidArgumentsError(f"the arguments of {shown} {what}", server=self.task.name, tool=self.tool)

    async def _ask_callbacks(
        self, decision: Allow | Ask | Deny, permissions: Permissions, target: Target, arguments_json: bytes
    ) -> Allow | Ask | Deny:
        shown = self._shown(target)
        names = {"server": self.task.name, "tool": self.tool}
        return await ask_callbacks(decision, permissions, target, shown, arguments_json, **names)

    def _missing_approval(self, target: Target, arguments_json: bytes) -> Ask | None:
        """What is still to be asked, by what the permissions say now; None: it may be sent. Raises where they deny."""
        judged = self._judged
        assert judged is not None
        permissions = self._gate.permissions_for(self.task, self._handle)
        if permissions is not judged.permissions or target is not judged.target:
            if any(all(one is not asked for asked in judged.permissions.callbacks) for one in permissions.callbacks):
                # Who narrowed meanwhile wants to be asked: from the beginning, where callbacks may be waited for.
                raise LostWhileVerifyingError

            verdict = target.decided_by(permissions)
            decision = judged.decision if isinstance(verdict, Allow) else verdict
            judged = self._take_decision(decision, permissions, target, arguments_json)

        # An approval is of these bytes for this definition; after a reload there may be another.
        asked = judged.decision if isinstance(judged.decision, Ask) else None
        return None if asked is None or self._approved == (target.digest, arguments_json) else asked

    def _take_decision(
        self, decision: Allow | Ask | Deny, permissions: Permissions, target: Target, arguments_json: bytes
    ) -> "_Judged":
        """Note what was decided. Raises `PermissionDeniedError` for a Deny."""
        self._lines.decided(decision, public_name=target.name, digest=target.digest, arguments=arguments_json)
        if isinstance(decision, Deny):
            raise denied_error(decision, name=target.name, server=self.task.name, tool=self.tool)

        self._judged = _Judged(permissions, target, arguments_json, decision)
        return self._judged

    def _shown(self, target: Target) -> Any:
        """What `can_use_tool` is given as the tool."""
        return self._handle or target

    # -- 6 and 7 -------------------------------------------------------------------------------------------------

    async def _list_again(self, session: Session) -> None:
        """Raises `LostWhileVerifyingError` to go through the steps again."""
        self._stage = "verifying"
        try:
            await self.task.listing.verify(session, self._kind)
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

    def _as_pinned(self, target: Target) -> Target:
        """The target as it is now, compared with its pin. Raises `LostWhileVerifyingError` as `_list_again`."""
        now = self._found_again(target)
        if now is not target and now.findings != target.findings:
            # A person accepted one meanwhile, or another server brought one: judged anew, from the beginning.
            raise LostWhileVerifyingError

        return now

    def _found_again(self, target: Target) -> Target:
        """The same target after a wait; raises where it is not the same any more."""
        raise NotImplementedError

    async def _approve(self, target: Target, decision: Ask, arguments_json: bytes) -> None:
        approver = self._gate.approver
        if self._use is not None:
            raise void_error(self._use.ticket, "the tool is not the one that was approved any more")

        if isinstance(approver, ApprovalStore):
            leaving = leave_ticket(
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
            raise await self._bounded(leaving)

        began = current_time()
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
            self._hard_end += current_time() - began

        if answer.arguments is not None:
            self._encoded = self._encode(answer.arguments)

        if not isinstance(self._encoded, InvalidArgumentsError):
            self._approved = (target.digest, self._encoded)
