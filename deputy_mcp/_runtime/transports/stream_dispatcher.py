"""Our dispatcher under the SDK's session, for transports that are one stream of messages each way.

It correlates requests and replies, keeps the books of what was sent, and answers the server's own requests through
the session. It is not a transport: a `Channel` moves the bytes. It promises that
- a reply ends at most the one call whose id it names, an invalid one ends it at once, a late one is dropped;
- nothing a server sends starts a task but a request, and of those only `MOST_REQUESTS` at a time;
- a caller is never held by the peer: writes are queued, and a caller who leaves takes an unsent request with him;
- what several callers send in one turn of the loop leaves in one write, each after its record's last word.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import anyio
import anyio.abc
import anyio.lowlevel
from mcp import MCPError
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest, ProgressFnT

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
    plain_id,
)
from deputy_mcp._core.sanitizing import clean_line
from deputy_mcp._runtime.transports.answering import Answering
from deputy_mcp._runtime.transports.dispatching import (
    FLOOD_PAUSE_SECONDS,
    MESSAGES_PER_TURN,
    check_greeting,
    encode_message,
    encode_request,
    take_notification,
)
from deputy_mcp._runtime.transports.link import (
    CallRecord,
    ExpiredError,
    Fault,
    Hooks,
    LinkError,
    LossSignal,
    Reports,
    Traffic,
)
from deputy_mcp._runtime.turns import Deadlines, Once, asyncio_loop, at_end_of_turn

MOST_REPLIES_BYTES = 1024 * 1024
"""Our unsent answers to a server that asks without reading; past it they are dropped, and the server may wait."""

LAST_WORDS_SECONDS = 0.25
"""How long a dead child's remaining output, exit code and stderr are waited for before its calls fail."""

WRITE_BYTES = 64 * 1024
"""Joined into one write at most: what a pipe takes."""


class Channel(Protocol):
    """A bounded, message-wise way to a peer and back."""

    async def receive(self) -> list[Message]:
        """What came next; [] at the end. Raises `LinkError` when nothing more can come."""

    def write_now(self, data: bytes | memoryview) -> int:
        """Take as many bytes as fit without waiting. Raises `LinkError` when the peer is gone."""

    async def wait_writable(self) -> None:
        """Return when `write_now` may take more."""


class _Outgoing:
    """A message that has not left whole yet."""

    # Mutable state: how many bytes of it were taken.
    __slots__ = ("data", "taken")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.taken = 0


class _Asked(_Outgoing):
    """A request of ours, from when it is queued to its answer."""

    # Mutable state: what came of it.
    __slots__ = ("done", "error", "record", "result")

    def __init__(self, data: bytes, record: CallRecord) -> None:
        super().__init__(data)
        self.record = record
        self.done = Once()
        self.result: dict[str, Any] | None = None
        self.error: Exception | None = None

    def finish(self, result: dict[str, Any] | None, error: Exception | None = None) -> None:
        if not self.done.happened:
            self.result = result
            self.error = error
            self.done.set()
            if self.record.reports is not None:
                self.record.reports.end()


class StreamDispatcher:
    """See the module. Made for one life of one channel; `run` it once."""

    # Mutable state: what was asked, by id, and how much of it was not asked by the SDK's session, whose requests may
    # stand for its whole life; the timer of the next deadline; the outbox, whether it waits for the turn's end or for
    # the peer; the loss.
    def __init__(self, channel: Channel, hooks: Hooks, traffic: Traffic, lost: LossSignal) -> None:
        self._channel = channel
        self._hooks = hooks
        self._traffic = traffic
        self._lost = lost
        self._asked: dict[MessageId, _Asked] = {}
        self._calls = 0
        self._deadlines = Deadlines(self._expire)
        self.keeps_deadlines = self._deadlines.possible
        self._next_id = 0
        self._outbox: deque[_Outgoing] = deque()
        self._unsent_replies_bytes = 0
        self._wake = anyio.Event()
        self._stuck = self._pump_asked = False
        self._answering = Answering(self._post)
        self._broken: LinkError | None = None
        self._closed: LinkError | None = None
        self._heard = False

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
        """Read until the channel ends. `**_later`: the SDK calls this surface provisional."""
        try:
            async with anyio.create_task_group() as tasks:
                self._answering.begin(tasks, on_request)
                tasks.start_soon(self._run_writer)
                tasks.start_soon(self._run_loss)
                task_status.started()
                try:
                    await self._read(on_notify_intercept)
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            self._answering.end()
            self.close(LinkError("lost", "the session ended"))

    def mint_id(self) -> MessageId:
        self._next_id += 1
        return self._next_id

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **_later: Any
    ) -> dict[str, Any]:
        """Send one request and wait for its raw result.

        Raises `MCPError`, of which `LinkError` is one, and what the record's last word raises.
        """
        if self._closed is not None:
            raise self._closed

        if self._lost.loss is not None:
            # Told, but this session has not been taken down yet: nothing may go out into it any more.
            raise LinkError("lost", self._lost.loss.detail)

        options: Mapping[str, Any] = opts or {}
        wire_id = options.get("request_id")
        if wire_id is None:
            wire_id = self.mint_id()

        key = wire_id if type(wire_id) is int else plain_id(wire_id)
        if key is None or key in self._asked:
            raise ValueError(f"request id {wire_id!r} is already in flight")

        given: CallRecord | None = options.get("record")
        record = given or CallRecord()
        on_progress: ProgressFnT | None = options.get("on_progress")
        record.reports = None if on_progress is None else Reports()
        asked = self._asked[key] = _Asked(
            encode_request(method, params, options.get("params_json"), wire_id) + b"\n", record
        )
        if record.deadline is not None:
            self._deadlines.watch(record.deadline)

        self._calls += given is not None
        self._enqueue(asked)
        try:
            # The negotiation's own timeout is the start deadline: a server that needs 20 s to boot is no failure.
            if on_progress is None or record.reports is None:
                await asked.done.wait()
            else:
                await record.reports.tell(on_progress)
        finally:
            self._calls -= given is not None
            self._asked.pop(key, None)
            if not asked.done.happened:
                self._abandon(asked, wire_id, cancel=options.get("cancel_on_abandon", True))

        if asked.error is not None:
            raise asked.error

        assert asked.result is not None
        check_greeting(method, asked.result)
        return asked.result

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **_later: Any
    ) -> None:
        """Queue one notification; after the end it is dropped."""
        self._post({"method": method} | ({} if params is None else {"params": params}))

    # -- ending --------------------------------------------------------------------------------------------------

    def close(self, error: LinkError) -> None:
        """Fail every call in flight and every later one. The first word counts; synchronous."""
        if self._closed is None:
            self._closed = error

        for asked in self._asked.values():
            asked.finish(None, self._closed)

        self._asked.clear()
        self._outbox.clear()
        self._deadlines.end()

    # -- writing -------------------------------------------------------------------------------------------------

    def _post(self, message: dict[str, Any], *, reply: bool = False) -> None:
        if self._closed is not None:
            return

        data = encode_message(message) + b"\n"
        if reply:
            if self._unsent_replies_bytes + len(data) > MOST_REPLIES_BYTES:
                return

            self._unsent_replies_bytes += len(data)

        self._enqueue(_Outgoing(data))

    def _enqueue(self, outgoing: _Outgoing) -> None:
        self._outbox.append(outgoing)
        if self._pump_asked or self._stuck:
            return

        loop = asyncio_loop() if self._calls > 1 else None
        if loop is None:
            # Usually the pipe has room: no turn of the loop for a call alone.
            self._pump()
        else:
            self._pump_asked = True
            at_end_of_turn(loop, self._pump_asked_for)

    def _pump_asked_for(self) -> None:
        self._pump_asked = False
        if not self._stuck:
            self._pump()

    def _pump(self) -> None:
        """Write until the outbox is empty; where the peer takes no more, the writer's task goes on."""
        self._stuck = False
        try:
            while self._outbox and self._broken is None:
                if data := self._next_data():
                    count = self._channel.write_now(data)
                    if count == 0:
                        self._stuck = True
                        self._wake.set()
                        return

                    self._traffic.bytes_out += count
                    self._note_taken(count)

            self._unsent_replies_bytes = 0
        except LinkError as error:
            self._broken = error
            self._wake.set()

        if self._broken is not None:
            self._outbox.clear()

    def _next_data(self) -> bytes | memoryview:
        """The first of the outbox that may leave together; what may not is dropped from it."""
        parts: list[bytes | memoryview] = []
        size = 0
        waiting = self._outbox
        held: list[_Outgoing] = []
        while waiting and (not parts or size + len(waiting[0].data) <= WRITE_BYTES):
            outgoing = waiting.popleft()
            if outgoing.taken or not isinstance(outgoing, _Asked) or self._may_leave(outgoing):
                held.append(outgoing)
                # The rest of megabytes is not copied for each piece that the peer takes of it.
                parts.append(memoryview(outgoing.data)[outgoing.taken :] if outgoing.taken else outgoing.data)
                size += len(outgoing.data)

        waiting.extendleft(reversed(held))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _may_leave(self, asked: _Asked) -> bool:
        try:
            if asked.record.last_word is not None:
                asked.record.last_word()
        except Exception as error:  # noqa: BLE001 # raised by the caller, whose word it is
            asked.finish(None, error)
            return False

        return True

    def _note_taken(self, count: int) -> None:
        while count:
            first = self._outbox[0]
            if isinstance(first, _Asked):
                first.record.sent = True

            left = len(first.data) - first.taken
            if count < left:
                first.taken += count
                return

            first.taken += left
            count -= left
            self._outbox.popleft()

    async def _run_writer(self) -> None:
        while self._broken is None:
            await self._wake.wait()
            self._wake = anyio.Event()
            while self._stuck and self._broken is None:
                await self._channel.wait_writable()
                self._pump()

        # A write often finds out first that a process died; who watches it knows more, exit code and last words.
        with anyio.move_on_after(LAST_WORDS_SECONDS):
            await self._lost.wait()

        self._lost.tell("stdin_closed", self._broken.detail)

    # -- giving up -----------------------------------------------------------------------------------------------

    def _abandon(self, asked: _Asked, wire_id: Any, *, cancel: bool) -> None:
        """Nobody waits for this answer any more."""
        if asked.taken == 0 and asked in self._outbox:
            # Provably not sent: the server never hears of it.
            self._outbox.remove(asked)
        elif cancel:
            self._post(
                {
                    "method": "notifications/cancelled",
                    "params": {"requestId": wire_id, "reason": "the caller gave up"},
                }
            )

    def _expire(self, now: float) -> float | None:
        """End what has waited until `now`; the next deadline."""
        coming: float | None = None
        for key, asked in list(self._asked.items()):
            at = None if asked.done.happened else asked.record.deadline
            if at is not None and at <= now:
                del self._asked[key]
                self._abandon(asked, key, cancel=True)
                asked.finish(None, ExpiredError())
            elif at is not None and (coming is None or at < coming):
                coming = at

        return coming

    # -- reading -------------------------------------------------------------------------------------------------

    async def _read(self, intercept: OnNotifyIntercept | None) -> None:
        count = 0
        try:
            while messages := await self._channel.receive():
                for message in messages:
                    self._take(message, intercept)
                    # What nobody waits for is read at a bounded speed: the peer waits, and not its siblings.
                    count = 0 if isinstance(message, Reply | Failure | Request) else count + 1
                    if count == MESSAGES_PER_TURN:
                        count = 0
                        await anyio.sleep(FLOOD_PAUSE_SECONDS)
        except LinkError as error:
            self._lost.tell("broken", error.detail)

        # The end is told by who knows why; until then the session stands, and `_run_loss` fails the calls.
        await anyio.sleep_forever()

    def take_answers(self, answers: Iterable[Message]) -> None:
        """Replies and failures that the channel read outside `receive`, where nobody has to wait for anything."""
        for answer in answers:
            self._take(answer, None)

    async def _run_loss(self) -> None:
        loss = await self._lost.wait()
        self.close(LinkError("lost", loss.detail))

    def _take(self, message: Message, intercept: OnNotifyIntercept | None) -> None:
        # From a stream that has brought one message others can come, however it is decorated.
        self._heard = self._heard or not isinstance(message, Noise)
        match message:
            case Reply(id=key, result=result):
                if asked := self._answered(key):
                    asked.record.answer = message
                    asked.record.reply_bytes = message.size_bytes
                    asked.record.reply_sha256 = message.sha256
                    asked.finish(result)
            case Failure(id=None, text=text):
                self._noise(f"an error without id: {clean_line(text)}")
            case Failure(id=key, code=code, text=text, details=details):
                if key is not None and (asked := self._answered(key)):
                    asked.record.reply_sha256 = message.sha256
                    asked.finish(None, MCPError(code, text, details))
            case Invalid(id=key, reason=reason):
                self._fail(key, "malformed", reason)
            case TooLarge(id=None):
                # Whose call it answers cannot be known, so no call may wait for ever: the server ends as flooded.
                self._lost.tell("flooded", f"a message of {message.seen_bytes} bytes ({message.reason}) without id")
            case TooLarge(id=key, reason=reason, seen_bytes=seen):
                assert key is not None
                self._fail(key, "too_large", reason, seen_bytes=seen)
            case Notification():
                take_notification(message, intercept=intercept, answering=self._answering, hooks=self._hooks)
                if message.method == "notifications/progress":
                    self._take_progress(message.params or {})
            case Request():
                self._answering.take(message)
            case Noise(reason=reason, framing=framing, sample=sample):
                if framing is not None and not self._heard:
                    self._lost.tell("framing", f"it writes {framing}")

                self._noise(f"{reason}: {sample}" if sample else reason)

    def _answered(self, key: MessageId) -> _Asked | None:
        asked = self._asked.get(key)
        if asked is None or not asked.record.sent:
            # A guess at what has not left yet is no answer either.
            self._traffic.late += 1
            return None

        return self._asked.pop(key)

    def _fail(self, key: MessageId, fault: Fault, detail: str, *, seen_bytes: int = 0) -> None:
        if asked := self._answered(key):
            asked.finish(None, LinkError(fault, detail, seen_bytes=seen_bytes))

    def fail_unsent(self, seen: CallRecord, fault: Fault, detail: str) -> None:
        """A transport could not deliver the request with `seen.id`: fail its call with what was seen instead."""
        if asked := self._asked.pop(seen.id, None):
            asked.record.status = seen.status
            asked.record.retry_after_seconds = seen.retry_after_seconds
            asked.record.excerpt = seen.excerpt
            asked.record.sent = seen.sent
            asked.finish(None, LinkError(fault, detail))

    def _noise(self, sample: str) -> None:
        self._traffic.noise += 1
        self._hooks.on_noise(sample)

    def _take_progress(self, params: dict[str, Any]) -> None:
        key = plain_id(params.get("progressToken"))
        asked = self._asked.get(key) if key is not None else None
        if asked is not None and asked.record.reports is not None:
            asked.record.reports.note(params)
