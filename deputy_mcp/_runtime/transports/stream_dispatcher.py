"""Our dispatcher under the SDK's session, for transports that are one stream of messages each way.

It correlates requests and replies, keeps the books of what was sent, and answers the server's own requests through
the session. It is not a transport: a `Channel` moves the bytes. It promises that
- a reply ends at most the one call whose id it names, an invalid one ends it at once, a late one is dropped;
- nothing a server sends starts a task but a request, and of those only `MOST_REQUESTS` at a time;
- a caller is never held by the peer: writes are queued, and a caller who leaves takes an unsent request with him;
- what several callers send in one turn of the loop leaves in one write, each after its record's last word.
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import anyio
import anyio.abc
import anyio.lowlevel
import attrs
from mcp import MCPError
from mcp.shared.dispatcher import (
    CallOptions,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    ProgressFnT,
    run_notify_intercept,
)

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
    more_values_than,
    plain_id,
)
from deputy_mcp._core.sanitizing import clean_line
from deputy_mcp._runtime.transports.answering import Answering
from deputy_mcp._runtime.transports.link import CallRecord, Fault, Hooks, LinkError, LossSignal, Reports, Traffic
from deputy_mcp._runtime.turns import Once, asyncio_loop, at_end_of_turn

MOST_REPLIES_BYTES = 1024 * 1024
"""Our unsent answers to a server that asks without reading; past it they are dropped, and the server may wait."""

LAST_WORDS_SECONDS = 0.25
"""How long a dead child's remaining output, exit code and stderr are waited for before its calls fail."""

GREETINGS = frozenset({"initialize", "server/discover"})
MOST_GREETING_VALUES = 10_000

MESSAGES_PER_TURN = 64
FLOOD_PAUSE_SECONDS = 0.001
"""A flood must not starve the other servers: after so many messages in a row that answer nothing its reader waits so
long, which leaves it some 30,000 a second and the loop most of its time."""

CHANGES = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}


WRITE_BYTES = 64 * 1024
"""Joined into one write at most: what a pipe takes."""


class Channel(Protocol):
    """A bounded, message-wise way to a peer and back."""

    async def receive(self) -> list[Message]:
        """What came next; [] at the end. Raises `LinkError` when nothing more can come."""

    def write_now(self, data: memoryview) -> int:
        """Take as many bytes as fit without waiting. Raises `LinkError` when the peer is gone."""

    async def wait_writable(self) -> None:
        """Return when `write_now` may take more."""


@attrs.define(eq=False)
class _Slot:
    """One request of ours on its way."""

    record: CallRecord
    done: Once = attrs.field(factory=Once)
    result: dict[str, Any] | None = None
    error: Exception | None = None

    def finish(self, result: dict[str, Any] | None, error: Exception | None = None) -> None:
        if not self.done.happened:
            self.result = result
            self.error = error
            self.done.set()
            if self.record.reports is not None:
                self.record.reports.end()


@attrs.define(eq=False)
class _Outgoing:
    """A message that has not left whole yet."""

    data: memoryview
    slot: _Slot | None
    taken: int = 0

    @property
    def rest(self) -> memoryview:
        return self.data[self.taken :]


class StreamDispatcher:
    """See the module. Made for one life of one channel; `run` it once."""

    # Mutable state: slots by id; the outbox, whether it waits for the turn's end or for the peer; the loss.
    def __init__(self, channel: Channel, hooks: Hooks, traffic: Traffic, lost: LossSignal) -> None:
        self._channel = channel
        self._hooks = hooks
        self._traffic = traffic
        self._lost = lost
        self._slots: dict[MessageId, _Slot] = {}
        self._next_id = 0
        self._outbox: deque[_Outgoing] = deque()
        self._unsent_replies_bytes = 0
        self._wake = anyio.Event()
        self._pump_asked = False
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

        key = plain_id(wire_id)
        if key is None or key in self._slots:
            raise ValueError(f"request id {wire_id!r} is already in flight")

        slot = _Slot(options.get("record") or CallRecord())
        on_progress: ProgressFnT | None = options.get("on_progress")
        slot.record.reports = None if on_progress is None else Reports()

        self._slots[key] = slot
        outgoing = self._enqueue(_encode(method, params, options.get("params_json"), wire_id), slot)
        try:
            # The negotiation's own timeout is the start deadline: a server that needs 20 s to boot is no failure.
            if on_progress is None or slot.record.reports is None:
                await slot.done.wait()
            else:
                await slot.record.reports.tell(on_progress)
        finally:
            self._slots.pop(key, None)
            if not slot.done.happened:
                self._abandon(outgoing, wire_id, cancel=options.get("cancel_on_abandon", True))

        if slot.error is not None:
            raise slot.error

        assert slot.result is not None
        if method in GREETINGS and more_values_than(slot.result, MOST_GREETING_VALUES):
            # The SDK would list every wrong one of them.
            raise LinkError("malformed", f"its greeting holds more than {MOST_GREETING_VALUES} JSON values")

        return slot.result

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

        for slot in self._slots.values():
            slot.finish(None, self._closed)

        self._outbox.clear()

    # -- writing -------------------------------------------------------------------------------------------------

    def _post(self, message: dict[str, Any], *, reply: bool = False) -> None:
        if self._closed is not None:
            return

        data = json.dumps({"jsonrpc": "2.0"} | message, separators=(",", ":")).encode() + b"\n"
        if reply:
            if self._unsent_replies_bytes + len(data) > MOST_REPLIES_BYTES:
                return

            self._unsent_replies_bytes += len(data)

        self._enqueue(data, None)

    def _enqueue(self, data: bytes, slot: _Slot | None) -> _Outgoing:
        outgoing = _Outgoing(memoryview(data), slot)
        self._outbox.append(outgoing)
        if self._pump_asked or self._wake.is_set():
            return outgoing

        loop = asyncio_loop() if len(self._slots) > 1 else None
        if loop is None:
            # Usually the pipe has room: no turn of the loop for a call alone.
            self._pump()
        else:
            self._pump_asked = True
            at_end_of_turn(loop, self._pump_asked_for)

        return outgoing

    def _pump_asked_for(self) -> None:
        self._pump_asked = False
        if not self._wake.is_set():
            self._pump()

    def _pump(self) -> None:
        """Write until the outbox is empty or the peer takes no more, which sets `_wake`."""
        if self._broken is not None:
            self._outbox.clear()
            return

        try:
            while batch := self._next_batch():
                data = batch[0].data[batch[0].taken :] if len(batch) == 1 else b"".join(one.rest for one in batch)
                count = self._channel.write_now(memoryview(data))
                if count == 0:
                    self._wake.set()
                    return

                self._traffic.bytes_out += count
                self._note_taken(count)

            self._unsent_replies_bytes = 0
        except LinkError as error:
            self._broken = error
            self._outbox.clear()
            self._wake.set()

    def _next_batch(self) -> list[_Outgoing]:
        """The first of the outbox that may leave together."""
        batch: list[_Outgoing] = []
        size = 0
        for outgoing in list(self._outbox):
            if batch and size + len(outgoing.data) > WRITE_BYTES:
                break

            if outgoing.taken or outgoing.slot is None or self._may_leave(outgoing.slot):
                batch.append(outgoing)
                size += len(outgoing.data)
            else:
                self._outbox.remove(outgoing)

        return batch

    def _may_leave(self, slot: _Slot) -> bool:
        try:
            if slot.record.last_word is not None:
                slot.record.last_word()
        except Exception as error:  # noqa: BLE001 # raised by the caller, whose word it is
            slot.finish(None, error)
            return False

        return True

    def _note_taken(self, count: int) -> None:
        while count:
            first = self._outbox[0]
            part = min(count, len(first.data) - first.taken)
            first.taken += part
            count -= part
            if first.slot is not None:
                first.slot.record.sent = True

            if first.taken == len(first.data):
                self._outbox.popleft()

    async def _run_writer(self) -> None:
        while self._broken is None:
            await self._wake.wait()
            while self._outbox and self._broken is None:
                await self._channel.wait_writable()
                self._pump()

            self._wake = anyio.Event()

        # A write often finds out first that a process died; who watches it knows more, exit code and last words.
        with anyio.move_on_after(LAST_WORDS_SECONDS):
            await self._lost.wait()

        self._lost.tell("stdin_closed", self._broken.detail)

    def _abandon(self, outgoing: _Outgoing, wire_id: Any, *, cancel: bool) -> None:
        if outgoing.taken == 0 and outgoing in self._outbox:
            # Provably not sent: the server never hears of it.
            self._outbox.remove(outgoing)
        elif cancel:
            self._post(
                {
                    "method": "notifications/cancelled",
                    "params": {"requestId": wire_id, "reason": "the caller gave up"},
                }
            )

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
                if slot := self._answered(key):
                    slot.record.answer = message
                    slot.record.reply_bytes = message.size_bytes
                    slot.record.reply_sha256 = message.sha256
                    slot.finish(result)
            case Failure(id=None, text=text):
                self._noise(f"an error without id: {clean_line(text)}")
            case Failure(id=key, code=code, text=text, details=details):
                if key is not None and (slot := self._answered(key)):
                    slot.record.reply_sha256 = message.sha256
                    slot.finish(None, MCPError(code, text, details))
            case Invalid(id=key, reason=reason):
                self._fail(key, "malformed", reason)
            case TooLarge(id=None):
                # Whose call it answers cannot be known, so no call may wait for ever: the server ends as flooded.
                self._lost.tell("flooded", f"a message of {message.seen_bytes} bytes ({message.reason}) without id")
            case TooLarge(id=key, reason=reason, seen_bytes=seen):
                assert key is not None
                self._fail(key, "too_large", reason, seen_bytes=seen)
            case Notification(method=method, params=params):
                self._take_notification(method, params, intercept)
            case Request():
                self._answering.take(message)
            case Noise(reason=reason, framing=framing, sample=sample):
                if framing is not None and not self._heard:
                    self._lost.tell("framing", f"it writes {framing}")

                self._noise(f"{reason}: {sample}" if sample else reason)

    def _answered(self, key: MessageId) -> _Slot | None:
        slot = self._slots.get(key)
        if slot is None or not slot.record.sent:
            # A guess at what has not left yet is no answer either.
            self._traffic.late += 1
            return None

        return self._slots.pop(key)

    def _fail(self, key: MessageId, fault: Fault, detail: str, *, seen_bytes: int = 0) -> None:
        if slot := self._answered(key):
            slot.finish(None, LinkError(fault, detail, seen_bytes=seen_bytes))

    def fail_unsent(self, seen: CallRecord, fault: Fault, detail: str) -> None:
        """A transport could not deliver the request with `seen.id`: fail its call with what was seen instead."""
        if slot := self._slots.pop(seen.id, None):
            slot.record.status = seen.status
            slot.record.retry_after_seconds = seen.retry_after_seconds
            slot.record.excerpt = seen.excerpt
            slot.record.sent = seen.sent
            slot.finish(None, LinkError(fault, detail))

    def _noise(self, sample: str) -> None:
        self._traffic.noise += 1
        self._hooks.on_noise(sample)

    def _take_notification(
        self, method: str, params: dict[str, Any] | None, intercept: OnNotifyIntercept | None
    ) -> None:
        run_notify_intercept(intercept, method, params)
        if method == "notifications/progress":
            self._take_progress(params or {})
        elif method == "notifications/cancelled":
            self._answering.withdraw(plain_id((params or {}).get("requestId")))
        elif kind := CHANGES.get(method):
            self._hooks.on_change(kind)  # type: ignore[arg-type] # the table's values are the literal's

    def _take_progress(self, params: dict[str, Any]) -> None:
        key = plain_id(params.get("progressToken"))
        slot = self._slots.get(key) if key is not None else None
        if slot is not None and slot.record.reports is not None:
            slot.record.reports.note(params)


def _encode(method: str, params: Mapping[str, Any] | None, params_json: bytes | None, wire_id: MessageId) -> bytes:
    if params_json is None and params:
        params_json = json.dumps(params, separators=(",", ":")).encode()

    shown_id = wire_id if isinstance(wire_id, int) else json.dumps(wire_id)
    head = f'{{"jsonrpc":"2.0","id":{shown_id},"method":"{method}"'.encode()
    return head + b"}\n" if params_json is None else head + b',"params":' + params_json + b"}\n"
