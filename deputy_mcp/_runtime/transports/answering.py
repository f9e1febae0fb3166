"""The server's own requests over a stream: answered through the SDK's session, a bounded number at a time."""

from collections.abc import Mapping
from typing import Any, Protocol

import anyio
import anyio.abc
import attrs
from mcp import MCPError
from mcp.shared.dispatcher import CallOptions, OnRequest
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.transport_context import TransportContext
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST

from deputy_mcp._core.messages import MessageId, Request, plain_id

MOST_REQUESTS = 16
"""Requests of the server handled at the same time; one more is answered with an error at once."""


class Post(Protocol):
    """Queues one message of ours."""

    def __call__(self, message: dict[str, Any], *, reply: bool = False) -> None: ...


@attrs.define
class _Inbound:
    """The SDK's `DispatchContext` for one request of the server: no back-channel of its own."""

    request_id: Any
    transport: TransportContext = attrs.field(factory=lambda: TransportContext(kind="stream", can_send_request=False))
    message_metadata: None = None
    cancel_requested: anyio.Event = attrs.field(factory=anyio.Event)
    can_send_request: bool = False

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        return

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        return


class Answering:
    """See the module. One per dispatcher."""

    # Mutable state: the group the answers run in, the session's handler, and the requests being answered.
    def __init__(self, post: Post) -> None:
        self._post = post
        self._tasks: anyio.abc.TaskGroup | None = None
        self._on_request: OnRequest | None = None
        self._scopes: dict[MessageId, anyio.CancelScope] = {}

    def begin(self, tasks: anyio.abc.TaskGroup, on_request: OnRequest) -> None:
        """The session runs: requests are answered from here on."""
        self._tasks, self._on_request = tasks, on_request

    def end(self) -> None:
        """The session is over: nobody answers any more."""
        self._tasks = None

    def withdraw(self, key: MessageId | None) -> None:
        """The server takes a request back."""
        if key is not None and (scope := self._scopes.get(key)):
            scope.cancel()

    def take(self, request: Request) -> None:
        """Answer a request: a ping at once, others in a task of their own, too many with an error."""
        if request.method == "ping":
            self._post({"id": request.id, "result": {}}, reply=True)
            return

        key = plain_id(request.id)
        if self._tasks is None or key is None or key in self._scopes or len(self._scopes) >= MOST_REQUESTS:
            self._post(_error(request.id, INVALID_REQUEST, "too many requests at once"), reply=True)
            return

        scope = anyio.CancelScope()
        self._scopes[key] = scope
        self._tasks.start_soon(self._answer, request, key, scope)

    async def _answer(self, request: Request, key: MessageId, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                answer = await self._ask(request)
                self._post({"id": request.id} | answer, reply=True)
        finally:
            del self._scopes[key]

    async def _ask(self, request: Request) -> dict[str, Any]:
        try:
            assert self._on_request is not None
            return {"result": await self._on_request(_Inbound(request.id), request.method, request.params)}
        except MCPError as error:
            return {"error": error.error.model_dump(exclude_none=True)}
        except Exception:  # noqa: BLE001 # a host's handler must not end the session; the server learns no details
            return {"error": {"code": INTERNAL_ERROR, "message": "the host's handler failed"}}


def _error(request_id: Any, code: int, text: str) -> dict[str, Any]:
    return {"id": request_id, "error": {"code": code, "message": text}}
