"""What a scripted server can be told to do.

An `Action` is one or more steps; `a + b` is one that does both in this order. What a message sets off is one action
(a *turn*): `junk("hello") + reply()`. None of these functions does anything by itself.

In messages and results given to `send` and `reply` these strings are filled in: `"$id"` (the id of the request that
is being answered), `"$id_text"` (the same as a string) and `"$token"` (its progress token); in bytes, `$id` alone.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen


@frozen
class Action:
    """Steps of a scripted server, made by the functions of this module and joined by `+`."""

    steps: tuple[Mapping[str, Any], ...] = field(default=())

    def __add__(self, other: "Action") -> "Action":
        return Action((*self.steps, *other.steps))


def _step(op: str, **members: Any) -> Action:
    return Action(({"op": op, **members},))


def _bytes(data: bytes | str) -> str:
    raw = data.encode() if isinstance(data, str) else data
    return base64.b64encode(raw).decode()


# -- answers ---------------------------------------------------------------------------------------------------------


def reply(text: str | None = None, *, result: Mapping[str, Any] | None = None) -> Action:
    """Answer properly. `text`: a tool result of one text block; `result`: the whole result; neither: what a sane
    server says (a tool gives its name and arguments as JSON).
    """
    if result is not None:
        return _step("reply", result=dict(result))

    return _step("reply") if text is None else _step("reply", text=text)


def fail(code: int, message: str, *, data: Any = None) -> Action:
    """Answer with a JSON-RPC error."""
    return _step("error", code=code, message=message, **({} if data is None else {"data": data}))


def silence() -> Action:
    """No answer, ever. Over HTTP: an empty 202."""
    return Action()


def send(message: Any, *, times: int = 1) -> Action:
    """One JSON message, exactly this; `times` of it. May be any JSON value, valid or not as JSON-RPC."""
    return _step("send", message=message, times=times)


def notify(method: str, params: Mapping[str, Any] | None = None, *, times: int = 1) -> Action:
    """A notification."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    return send(message if params is None else message | {"params": dict(params)}, times=times)


def ask(method: str, params: Mapping[str, Any] | None = None, *, request_id: Any = "ask-1") -> Action:
    """A request to the client; goes on when it is answered. `request_id="$id"`: the id of the client's own request."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": method}
    return _step("ask", message=message if params is None else message | {"params": dict(params)})


def change_tools(*tools: Any) -> Action:
    """From now on the listing is this one. Says nothing to the client; see `list_changed`."""
    return _step("tools", tools=list(tools))


def list_changed() -> Action:
    """`notifications/tools/list_changed`, to the client at once."""
    return notify("notifications/tools/list_changed")


def tell_listeners(method: str = "notifications/tools/list_changed") -> Action:
    """A notification on the `subscriptions/listen` streams (2026-07-28)."""
    return _step("listeners", method=method)


def drop_listeners() -> Action:
    """Cut the `subscriptions/listen` streams without a good-bye."""
    return _step("listeners", drop=True)


# -- bytes -----------------------------------------------------------------------------------------------------------


def junk(data: bytes | str, *, times: int = 1) -> Action:
    """Bytes as they are: a line of stdout with its line break, a piece of an event stream, or (over HTTP, when no
    stream was begun) the raw response, after which the connection is closed.
    """
    return _step("raw", data=_bytes(data), times=times)


def dribble(message: Any) -> Action:
    """One message and its line break, a byte at a time. Its non-ASCII characters are not escaped."""
    text = json.dumps(message, ensure_ascii=False).replace('"$id"', "$id") + "\n"
    return _step("dribble", data=_bytes(text))


def endless(data: bytes | str, *, head: bytes | str = b"") -> Action:
    """`head` and then `data` for ever, without a line break of its own."""
    start = junk(head) if head else Action()
    return start + _step("endless", data=_bytes(data))


# -- time and process ------------------------------------------------------------------------------------------------


def hold(gate: str) -> Action:
    """Wait until the test calls `ScriptedServer.release(gate)`; other messages are answered meanwhile."""
    return _step("hold", gate=gate)


def wait(seconds: float) -> Action:
    """Be slow; other messages are answered meanwhile."""
    return _step("wait", seconds=seconds)


def freeze(gate: str = "never") -> Action:
    """Do and read nothing any more, until `release(gate)`."""
    return _step("freeze", gate=gate)


def note(text: str) -> Action:
    """A line of the kind `note` in the ledger: the effect that must not happen twice."""
    return _step("note", text=text)


def leave(code: int = 0) -> Action:
    """End the process with this exit code, at once."""
    return _step("exit", code=code)


def die() -> Action:
    """End by SIGKILL."""
    return _step("die")


def close_stdout() -> Action:
    """Close stdout and live on."""
    return _step("close_stdout")


def write_stderr(data: bytes | str, *, times: int = 1) -> Action:
    """Bytes on stderr."""
    return _step("stderr", data=_bytes(data), times=times)


def spawn(*, own_session: bool = False, ignores_term: bool = False) -> Action:
    """Start a child that never ends by itself; its pid is in the ledger (kind `child`)."""
    return _step("child", own_session=own_session, ignores_term=ignores_term)


def be_stubborn() -> Action:
    """From now on ignore SIGTERM and the end of stdin."""
    return _step("stubborn")


# -- HTTP ------------------------------------------------------------------------------------------------------------


def respond(
    status: int, body: str = "", *, content_type: str | None = None, headers: Mapping[str, str] | None = None
) -> Action:
    """One whole HTTP response; `$id` in the body is filled in."""
    kind = {} if content_type is None else {"content-type": content_type}
    return _step("respond", status=status, body=body, headers={**kind, **(headers or {})})


def stream() -> Action:
    """Answer as an event stream from here on; `reply` is then an event and ends it."""
    return _step("stream")


def end_stream() -> Action:
    """End the event stream in order."""
    return _step("end_stream")


def open_stream() -> Action:
    """For the method `GET`: the server's own stream, which stays open."""
    return _step("open_stream")


def tell_streams(method: str = "notifications/tools/list_changed") -> Action:
    """A notification on the server's own streams that are open."""
    return _step("server_stream", method=method)


def hang_up() -> Action:
    """Close the connection; as the first step, before a byte of the response."""
    return _step("hang_up")


def half_body(length: int = 1000) -> Action:
    """A JSON response that promises `length` bytes, gives a few and hangs up."""
    head = f'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{{"jsonrpc":'
    return junk(head) + hang_up()


def endless_body() -> Action:
    """A JSON response that never ends."""
    head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"
    start = '{"jsonrpc":"2.0","id":$id,"result":{"content":[{"type":"text","text":"'
    return endless("a" * 65536, head=head + start)


def gzip_bomb(size: int) -> Action:
    """A small compressed JSON response that is `size` bytes large when decompressed."""
    return _step("gzip", size=size)


def redirect(to: str, *, status: int = 307) -> Action:
    """A redirect; `to` may be a path."""
    return respond(status, headers={"location": to})


def forget_sessions(status: int = 404, body: str = "session not found") -> Action:
    """Forget every session; requests with an old one get this answer."""
    return _step("forget", status=status, body=body)


def want_bearer(token: str) -> Action:
    """From now on only this bearer token is let in; others get 401."""
    return _step("bearer", token=token)


Turns = Action | Sequence[Action]
"""What a message sets off: always the same action, or the first time the first and so on; the last one repeats."""
