"""Our dispatcher under the SDK's session for Streamable HTTP, where each request has a reply of its own.

It keeps the books of one session: ids, the session's own id, what is under way, the server's own requests. How a
message is sent and its reply read is `http_wire`'s. It promises that
- a request is sent and its reply read in its caller's task: who leaves takes it with him, and the server is told; only
  a sign-in under way is not cut off, for it may be about to keep a new token;
- nothing a server sends starts a task but a request, and of those only so many;
- when the session ends, whatever is under way ends with it.
"""

import math
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.abc
from mcp import MCPError
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest, ProgressFnT
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from deputy_mcp._core.messages import (
    Failure,
    Invalid,
    Message,
    MessageId,
    Noise,
    Notification,
    Reply,
    Request,
    TooLarge,
)
from deputy_mcp._runtime.transports.answering import Answering
from deputy_mcp._runtime.transports.dispatching import (
    check_greeting,
    encode_message,
    encode_request,
    take_notification,
)
from deputy_mcp._runtime.transports.http_wire import HttpWire
from deputy_mcp._runtime.transports.link import (
    CallRecord,
    ExpiredError,
    Hooks,
    LinkError,
    Reports,
    SignInError,
    Traffic,
)

SESSION_ID_HEADER = "mcp-session-id"

SESSION_STATUSES = frozenset({None, 400, 410})
"""Under these an error without id speaks of the session or the request; under others the status says it better."""

MOST_COURTESIES = 16
"""Cancellations on their way at once; each could wait."""

NOTIFICATION_SECONDS = 1.0
"""The POST of what has no answer (a notification, a reply of ours) may take so long."""

POST_HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class HttpDispatcher:
    """See the module. Made for one session over one link; `run` it once."""

    keeps_deadlines = True

    # Mutable state: the next id; the session's id and the version it runs under, as headers; what is under way; the
    # task group for what nobody waits for, while the session runs, and who is told of notifications.
    def __init__(self, wire: HttpWire, hooks: Hooks, traffic: Traffic) -> None:
        self._wire = wire
        self._hooks = hooks
        self._traffic = traffic
        self._next_id = 0
        self._session_headers: dict[str, str] = {}
        self._under_way: dict[MessageId, anyio.CancelScope] = {}
        self._answering = Answering(self._post)
        self._tasks: anyio.abc.TaskGroup | None = None
        self._intercept: OnNotifyIntercept | None = None
        self._closed = False
        self._courtesies = 0
        self.forgotten = False

    # -- the SDK's Dispatcher ------------------------------------------------------------------------------------

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,  # notifications are collapsed here instead of spawning a task each
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
        **_later: Any,
    ) -> None:
        """Serve until cancelled. `**_later`: the SDK calls this surface provisional."""
        self._intercept = on_notify_intercept
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                self._answering.begin(tasks, on_request)
                task_status.started()
                await anyio.sleep_forever()
        finally:
            self._closed = True
            self._tasks = None
            self._answering.end()
            for scope in self._under_way.values():
                scope.cancel()

    def mint_id(self) -> MessageId:
        self._next_id += 1
        return self._next_id

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **_later: Any
    ) -> dict[str, Any]:
        """Send one request and wait for its raw result.

        Raises `MCPError`, of which `LinkError` is one, `ExpiredError`, and what the record's last word raises.
        """
        if (ended := self._ended()) is not None:
            raise ended

        options: Mapping[str, Any] = opts or {}
        wire_id: MessageId | None = options.get("request_id")
        if wire_id is None:
            wire_id = self.mint_id()

        if wire_id in self._under_way:
            raise ValueError(f"request id {wire_id!r} is already in flight")

        if method == "initialize":
            # The version of a probe must not speak for the handshake.
            self._session_headers.clear()

        # Servers of the modern era want to see every method in a header; the hedged `initialize` goes to them too.
        headers = {**POST_HEADERS, MCP_METHOD_HEADER: method, **self._session_headers, **options.get("headers", {})}
        if version := headers.get(MCP_PROTOCOL_VERSION_HEADER):
            self._session_headers[MCP_PROTOCOL_VERSION_HEADER] = version

        record: CallRecord = options.get("record") or CallRecord()
        record.id = wire_id
        record.begin(session_bound=SESSION_ID_HEADER in headers)
        body = encode_request(method, params, options.get("params_json"), wire_id)
        on_progress: ProgressFnT | None = options.get("on_progress")
        deadline = math.inf if record.deadline is None else record.deadline
        scope = self._under_way[wire_id] = anyio.CancelScope(deadline=deadline)
        finished = False
        try:
            with scope:
                # The negotiation's own timeout is the start deadline: a server that needs 20 s to boot is no failure.
                if on_progress is None:
                    await self._exchange(method, body, headers, record)
                else:
                    await self._exchange_reporting(method, body, headers, record, on_progress)

                finished = True
        finally:
            del self._under_way[wire_id]
            if not finished and options.get("cancel_on_abandon", True):
                self._tell_abandoned(record, headers)

        if not finished:
            raise self._ended() or ExpiredError()

        result = self._outcome(record)
        check_greeting(method, result)
        return result

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **_later: Any
    ) -> None:
        """Send one notification; what becomes of it is nobody's concern."""
        message = {"method": method} | ({} if params is None else {"params": params})
        await self._send_unanswered(message, (opts or {}).get("headers", {}))
        if method == "notifications/initialized" and SESSION_ID_HEADER in self._session_headers and self._tasks:
            self._tasks.start_soon(self._wire.run_own_stream, dict(self._session_headers), self)

    def farewell(self) -> dict[str, str] | None:
        """The headers of the session's good-bye, once; None when there is no session to end."""
        headers, self._session_headers = self._session_headers, {}
        return headers if SESSION_ID_HEADER in headers and not self.forgotten else None

    # -- requests ------------------------------------------------------------------------------------------------

    async def _exchange(self, method: str, body: bytes, headers: Mapping[str, str], record: CallRecord) -> None:
        if not self._wire.has_auth or self._tasks is None:
            await self._send_and_receive(method, body, headers, record)
            return

        # Not in the caller's task: see the module about a sign-in.
        scope, done = anyio.CancelScope(), anyio.Event()
        failure: Exception | None = None

        async def run() -> None:
            nonlocal failure
            try:
                with scope:
                    await self._send_and_receive(method, body, headers, record)
            except Exception as error:  # noqa: BLE001 # the last word's: raised below, to whom it belongs
                failure = error

            done.set()

        self._tasks.start_soon(run)
        try:
            await done.wait()
        finally:
            if not done.is_set():
                record.abandoned = True
                if not record.signing_in:
                    scope.cancel()

        if failure is not None:
            raise failure

    async def _send_and_receive(self, method: str, body: bytes, headers: Mapping[str, str], record: CallRecord) -> None:
        response = await self._wire.post(record, body, headers)
        if response is None:
            return

        if method == "initialize" and response.status_code < 300:
            session_id = response.headers.get(SESSION_ID_HEADER)
            if session_id and not session_id.isascii():
                record.fault, record.detail = "malformed", "its session id holds what no header may hold"
                await response.aclose()
                return

            if session_id:
                self._session_headers[SESSION_ID_HEADER] = session_id

        await self._wire.receive(response, record, headers, self)

    async def _exchange_reporting(
        self, method: str, body: bytes, headers: Mapping[str, str], record: CallRecord, on_progress: ProgressFnT
    ) -> None:
        """The same, while progress goes to the callback in the caller's own task, one report at a time."""
        reports = record.reports = Reports()
        failure: Exception | None = None

        async def exchange() -> None:
            nonlocal failure
            try:
                await self._exchange(method, body, headers, record)
            except Exception as error:  # noqa: BLE001 # the last word's: raised below, outside the group
                failure = error

            reports.end()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange)
            try:
                await reports.tell(on_progress)
            except Exception as error:  # noqa: BLE001 # the host's own callback: raised below, outside the group
                failure = error
                tasks.cancel_scope.cancel()

        if failure is not None:
            raise failure

    def _outcome(self, record: CallRecord) -> dict[str, Any]:
        """The result, or the error that fits what was seen."""
        answer = record.answer
        if record.sign_in_failed:
            raise SignInError(record.fault or "http", record.detail or f"HTTP status {record.status}")

        if record.session_bound and _forgets(record):
            self.forgotten = True
            raise LinkError("forgotten", record.detail or "the server forgot the session")

        if record.fault is not None:
            raise LinkError(record.fault, record.detail, seen_bytes=record.reply_bytes)

        if isinstance(answer, Reply):
            return answer.result

        if isinstance(answer, Failure) and (answer.id is not None or record.status in SESSION_STATUSES):
            raise MCPError(answer.code, answer.text, answer.details)

        raise LinkError("http", record.detail or f"HTTP status {record.status}")

    def _ended(self) -> LinkError | None:
        return LinkError("forgotten" if self.forgotten else "lost", "the session ended") if self._closed else None

    def _tell_abandoned(self, record: CallRecord, headers: Mapping[str, str]) -> None:
        """In the modern era the end of the connection says it, and nothing else may."""
        modern = headers.get(MCP_PROTOCOL_VERSION_HEADER) in MODERN_PROTOCOL_VERSIONS
        if self._tasks is not None and record.sent and not modern and self._courtesies < MOST_COURTESIES:
            self._courtesies += 1
            self._tasks.start_soon(self._send_courtesy, record.id)

    async def _send_courtesy(self, wire_id: MessageId) -> None:
        params = {"requestId": wire_id, "reason": "the caller gave up"}
        await self._send_unanswered({"method": "notifications/cancelled", "params": params}, {})
        self._courtesies -= 1

    def _post(self, message: dict[str, Any], *, reply: bool = False) -> None:
        """Queue a reply of ours."""
        if self._tasks is not None:
            self._tasks.start_soon(self._send_unanswered, message, {})

    async def _send_unanswered(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        if version := headers.get(MCP_PROTOCOL_VERSION_HEADER):
            self._session_headers[MCP_PROTOCOL_VERSION_HEADER] = version

        body = encode_message(message)
        with anyio.move_on_after(NOTIFICATION_SECONDS):
            response = await self._wire.post(CallRecord(), body, {**POST_HEADERS, **self._session_headers, **headers})
            if response is not None:
                await response.aclose()

    # -- what comes (`Inbox`) ------------------------------------------------------------------------------------

    def file(self, message: Message, record: CallRecord) -> None:
        """Put a message that came as the reply to a request into its record."""
        if isinstance(message, Notification):
            self.take_notification(message)
            return

        if isinstance(message, Request | Noise):
            return

        if (
            record.answer is not None
            or record.fault is not None
            or (message.id is not None and message.id != record.id)
        ):
            # The first word counts, and what did not come as its own request's reply is nobody's answer.
            self._traffic.late += 1
            return

        if isinstance(message, TooLarge):
            record.fault, record.detail = "too_large", message.reason
        elif isinstance(message, Invalid):
            record.answer = message
            record.fault, record.detail = "malformed", message.reason
        else:
            record.answer = message
            record.reply_sha256 = message.sha256

    def take_notification(self, message: Notification) -> None:
        """All but progress, which is its stream's."""
        take_notification(message, intercept=self._intercept, answering=self._answering, hooks=self._hooks)

    def take_request(self, message: Request) -> None:
        """Answer it, in a task of its own."""
        self._answering.take(message)

    def note_noise(self, sample: str) -> None:
        """Something came that is no message."""
        self._hooks.on_noise(sample)


def _forgets(record: CallRecord) -> bool:
    """Whether this reply to a request with a session id says that the session is forgotten.

    A 404 by the specification; servers also answer with an error whose id is null, or with nothing that is JSON-RPC.
    Never a tool's own error text.
    """
    if record.status == 404:
        return True

    if record.status not in SESSION_STATUSES:
        return False

    if isinstance(record.answer, Failure):
        return record.answer.id is None

    return record.answer is None and record.fault in (None, "malformed")
