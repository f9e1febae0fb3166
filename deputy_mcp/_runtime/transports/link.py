"""What every transport gives: a link, that is an SDK dispatcher plus what is known of the other end.

The SDK's session above expects `MCPError`s, so whatever goes wrong below comes up as a `LinkError`, which is one, and
says what really happened; `session.py` turns it into our own tree.
"""

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from math import isfinite
from typing import Any, Literal, Protocol, TypeGuard

import anyio
import attrs
from mcp import MCPError
from mcp.shared.dispatcher import CallOptions, Dispatcher, ProgressFnT
from mcp_types import CONNECTION_CLOSED

from deputy_mcp._core.messages import Failure, Invalid, MessageId, Reply, TooLarge

Fault = Literal["lost", "dropped", "unreachable", "unsendable", "forgotten", "malformed", "too_large", "http"]
"""`lost`: the server is gone. `dropped`: this one connection. `unreachable`: never connected, nothing was sent.
`unsendable`: our own side could not make the request. `forgotten`: the HTTP session. The rest concern one reply."""

SIGN_IN_FAILED = "sign_in_failed"
"""The code of an ending, and of an error, whose reason is a sign-in that was refused."""

MOST_PROGRESS = 64
"""Progress reports kept for one call whose callback is slow; the oldest go first."""

ChangeKind = Literal["tools", "prompts", "resources"]


class CallRecord:
    """What became of one request on the wire; filled by the transport, read by the session.

    Mutable on purpose: it is the one place where facts that an exception cannot carry (was a byte sent, what status
    came back) are kept for the call they belong to. Made for every request, so what nobody set stands in the class.
    """

    id: MessageId
    sent: bool = False
    """Whether a byte of it may have left this process."""
    answer: Reply | Failure | Invalid | TooLarge | None = None
    """What came back, where the transport reads replies itself."""
    reply_bytes: int = 0
    """The reply's size on the wire after decompression."""
    reply_sha256: str | None = None
    """Over the reply's bytes as received, where the transport was asked for it and has bytes."""
    status: int | None = None
    retry_after_seconds: float | None = None
    excerpt: str = ""
    fault: Fault | None = None
    detail: str = ""
    sign_in_failed: bool = False
    """Whether the host's auth flow failed at it, or the server refused what the flow brought."""
    session_bound: bool = False
    """Whether the request carried an HTTP session id."""
    signing_in: bool = False
    """Whether the host's auth flow has it: then it is neither on its way nor answered."""
    abandoned: bool = False
    """Whether nobody waits for it any more: what has not gone out must not."""
    reports: "Reports | None" = None
    """Its progress, where somebody wants to hear of it."""
    deadline: float | None = None
    """By the clock of `current_time`; honoured where the session `keeps_deadlines`: `ExpiredError` then."""
    last_word: Callable[[], None] | None = None
    """Asked right before its first byte leaves, and again when it could not: what it raises keeps the request here."""

    def __init__(self, request_id: MessageId = 0) -> None:
        self.id = request_id

    def begin(self, *, session_bound: bool) -> None:
        """Forget an earlier request (the pages of one listing share a record)."""
        self.session_bound = session_bound
        self.answer = self.fault = self.status = self.retry_after_seconds = None
        self.sign_in_failed = False
        self.detail = self.excerpt = ""


class ExpiredError(Exception):
    """The deadline of a record has passed; the peer was told that nobody waits any more."""


class Reports:
    """The progress of one call: noted on the receive path, told in the caller's own task, where his callback runs."""

    # Mutable state: what was not told yet (of a flood the newest), and whether something came.
    def __init__(self) -> None:
        self._waiting: deque[tuple[float, float | None, str | None]] = deque(maxlen=MOST_PROGRESS)
        self._moved = anyio.Event()
        self._done = False

    def note(self, params: Mapping[str, Any]) -> None:
        """Keep a report."""
        progress, total, text = params.get("progress"), params.get("total"), params.get("message")
        if is_number(progress):
            report = (progress, total if is_number(total) else None, text if isinstance(text, str) else None)
            self._waiting.append(report)
            self._moved.set()

    def end(self) -> None:
        """The answer is there."""
        self._done = True
        self._moved.set()

    async def tell(self, on_progress: ProgressFnT) -> None:
        """Give every report to the callback, one at a time, until the end."""
        while True:
            await self._moved.wait()
            self._moved = anyio.Event()
            while self._waiting:
                await on_progress(*self._waiting.popleft())

            if self._done:
                return


def is_number(value: object) -> TypeGuard[float]:
    """Whether a wire value is a number that JSON has; a boolean is none, nor are NaN and the infinities."""
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and (isinstance(value, int) or isfinite(value))
    )


class LinkError(MCPError):
    """A transport's error on its way through the SDK's session."""

    def __init__(self, fault: Fault, detail: str, *, seen_bytes: int = 0) -> None:
        super().__init__(CONNECTION_CLOSED, detail)
        self.fault: Fault = fault
        self.detail = detail
        self.seen_bytes = seen_bytes


class SignInError(LinkError):
    """The sign-in was refused. Trying again by itself would ask a person again and again."""


class Options(CallOptions, total=False):
    """The SDK's per-call options and two of ours. Dispatchers ignore keys they do not know."""

    record: CallRecord
    params_json: bytes
    """The params as they go on the wire, encoded once."""


@attrs.frozen(kw_only=True)
class Loss:
    """Why a link ended without being asked."""

    code: str
    detail: str


@attrs.define
class Traffic:
    """Bytes and oddities of one link; counters only grow."""

    bytes_in: int = 0
    bytes_out: int = 0
    noise: int = 0
    late: int = 0


class MintingDispatcher(Dispatcher[Any], Protocol):
    """The SDK's dispatcher, and the id of the next request before it is sent (it doubles as progress token)."""

    keeps_deadlines: bool
    """Whether it ends a request at its record's deadline by itself."""

    def mint_id(self) -> MessageId:
        """An integer that no request in flight has."""


class Link(Protocol):
    """One open transport."""

    traffic: Traffic
    has_headers: bool
    """Whether requests carry headers, which say again what the message says."""

    def open_dispatcher(self) -> AbstractAsyncContextManager[MintingDispatcher]:
        """A dispatcher for one session over this link."""

    def lose(self, code: str, detail: str) -> None:
        """End this life: `wait_lost` returns."""

    def kill_now(self) -> None:
        """End the other end at once, where it is ours."""

    async def wait_lost(self) -> Loss:
        """Return when the other end is gone."""

    @property
    def pid(self) -> int | None: ...

    @property
    def exit_code(self) -> int | None: ...

    @property
    def stderr_tail(self) -> str: ...


class Hooks(Protocol):
    """What a transport tells its owner, synchronously, on the receive path; nothing here may block."""

    hash_replies: bool
    """Whether the SHA-256 of each reply's bytes is wanted."""

    def on_change(self, kind: ChangeKind) -> None:
        """The server says that a list changed."""

    def on_noise(self, sample: str) -> None:
        """Something came that is no message."""


class LossSignal:
    """A loss, told once and waited for by anybody."""

    def __init__(self) -> None:
        self._event = anyio.Event()
        self.loss: Loss | None = None

    def tell(self, code: str, detail: str) -> None:
        """The first word counts."""
        if self.loss is None:
            self.loss = Loss(code=code, detail=detail)
            self._event.set()

    async def wait(self) -> Loss:
        await self._event.wait()
        assert self.loss is not None
        return self.loss
