"""Step 9 of a call: on the wire and back, under its deadline; what is sent again, and what an error means.

Sent again is only what provably did not run, or what the caller declared repeatable and the effects confirm. Not here:
whether a call may be sent (`gate`), what kinds of call there are (`calls`), how bytes move (`transports`).
"""

import inspect
import math
from collections.abc import Awaitable
from typing import Any, Literal, TypeVar

import anyio
from mcp import MCPError

from deputy_mcp._core.errors import CallError, CallTimeoutError, DeputyError, MalformedReplyError, WaitTimeoutError
from deputy_mcp._core.frozen import check_number
from deputy_mcp._core.permissions import Deny
from deputy_mcp._core.sanitizing import clean_line, clean_text
from deputy_mcp._runtime.deciding import Target, denied_error
from deputy_mcp._runtime.faults import translate
from deputy_mcp._runtime.handles import Progress
from deputy_mcp._runtime.log import log_event
from deputy_mcp._runtime.server import ServerTask
from deputy_mcp._runtime.server_requests import CallUnderWay
from deputy_mcp._runtime.session import Session
from deputy_mcp._runtime.transports.link import CallRecord, ExpiredError, LinkError
from deputy_mcp._runtime.turns import current_time

MOST_ROUNDS = 10
"""How often a server (2026-07-28) may ask for input, or only to be asked again, before its call is given up."""

STATE_PAUSE_SECONDS = 0.05
"""Before a call is asked again only with the server's state."""

T = TypeVar("T")

NOTHING_SENT = CallRecord()
"""Of a call that was not sent yet; never changed."""

Stage = Literal["waiting", "callback", "verifying", "sending"]


class Sending:
    """The part of a call that has a deadline and leaves: `gate.Call` is one."""

    method = ""

    # Mutable state: the deadline, the stage it is about, the scope of what is waited for; the record of the latest
    # sending, and whether an earlier one left, or may have run; why it was sent again, and for how long to wait before.
    def __init__(
        self, task: ServerTask, tool: str, *, timeout_seconds: float | None, progress: Progress | None, retry: bool
    ) -> None:
        self.task = task
        self.tool = tool
        self.record = NOTHING_SENT
        self.generation = 0
        self.started = current_time()
        self._progress = progress
        self._retry = retry
        if timeout_seconds is None:
            self._seconds = task.limits.call_timeout_seconds
        else:
            self._seconds = check_number("timeout_seconds", timeout_seconds, above_zero=True)

        self._hard_end = self.started + self._seconds
        self._scope: anyio.CancelScope | None = None
        self._stage: Stage = "waiting"
        self._resent: set[str] = set()
        self._pause = 0.0
        self._idle = task.limits.idle_timeout_seconds
        self._under_way = False
        self._left = self._may_have_run = False

    def _last_word(self) -> None:
        """Asked right before the first byte leaves; what it raises keeps the call here."""
        raise NotImplementedError

    async def _bounded(self, waiting: Awaitable[T], *, until: float = math.inf) -> T:
        """What `waiting` gives, within the deadline; `until`: one that may be moved by what is heard meanwhile."""
        with anyio.CancelScope(deadline=min(until, self._hard_end)) as self._scope:
            return await waiting

        raise self._timed_out()

    async def _pause_as_told(self) -> None:
        """A server said when to come again; nobody else waits for that."""
        await anyio.sleep(self._pause)
        self._pause = 0.0

    def _may_come_again(self, record: CallRecord, why: str) -> bool:
        """A 429 said when, and that fits the deadline: pause, once."""
        after = record.retry_after_seconds
        if record.status != 429 or after is None or why in self._resent:
            return False

        if current_time() + after >= self._hard_end:
            return False

        self._resent.add(why)
        self._pause = after
        return True

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
            if not self._under_way:
                # A later round is the same call, which has left already.
                self.record.last_word = self._last_word

            self.generation = self.task.generation
            self._stage = "sending"
            heard = self._progress is not None or self._idle is not None
            answer = session.request(
                self.method,
                params,
                record=self.record,
                arguments_json=self._wire_arguments(arguments_json),
                on_progress=self._on_progress if heard else None,
                headers=self._headers(target, arguments_json) if session.modern and session.link.has_headers else None,
            )
            try:
                if session.keeps_deadlines and not heard:
                    self.record.deadline = self._hard_end
                    raw = await answer
                else:
                    raw = await self._bounded(answer, until=self._idle_end())
            except ExpiredError:
                raise self._timed_out() from None
            except MCPError as error:
                self._stage = "waiting"
                self._recover(error, session, target)
                return None

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
                responses = await self._bounded(self.task.requests.answer_inputs(inputs, call))
                if responses is None:
                    break

                params["inputResponses"] = responses
            elif isinstance(state, str):
                await self._bounded(anyio.sleep(STATE_PAUSE_SECONDS))
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

    def _idle_end(self) -> float:
        return math.inf if self._idle is None else current_time() + self._idle

    async def _on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        if self._scope is not None:
            self._scope.deadline = min(self._hard_end, self._idle_end())

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
            self.task.note_timeout(self.started)

        if self._stage == "sending":
            idle = self._idle is not None and current_time() < self._hard_end
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
