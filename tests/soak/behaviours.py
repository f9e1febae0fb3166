"""What a call can make a server do. A tool's name is its behaviour, so that a line in a book says what happened.

Nothing is expected of a behaviour but what the books need: whether the script runs the call at all, and how often it
may arrive. Which error comes of it depends on what else happens at that moment.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deputy_mcp.testing import (
    Turns,
    ask,
    be_stubborn,
    change_tools,
    close_stdout,
    die,
    drop_listeners,
    end_stream,
    endless,
    endless_body,
    fail,
    forget_sessions,
    freeze,
    gzip_bomb,
    half_body,
    hang_up,
    junk,
    leave,
    list_changed,
    notify,
    redirect,
    reply,
    respond,
    send,
    silence,
    spawn,
    stream,
    tell_listeners,
    tool,
    wait,
    write_stderr,
)

STDIO, HTTP, SSE = "stdio", "http", "sse"
EVERYWHERE = frozenset({STDIO, HTTP, SSE})
PIPES = frozenset({STDIO})
WEB = frozenset({HTTP})
NOT_WEB = frozenset({STDIO, SSE})

MOST_MESSAGE_BYTES = 256 * 1024
MOST_RESULT_BYTES = 4_000
"""The limits of the soak's connection; `padded` and the oversized replies are made to pass them."""

POISON = "another call's result"
"""What a reply says that no call may ever get."""


@dataclass(frozen=True)
class Behaviour:
    """One tool of a scripted server."""

    turns: Turns
    where: frozenset[str] = EVERYWHERE
    weight: float = 1
    """How often it is called, beside the others of its server."""
    runs: bool = True
    """False: the server says no, in words by which it promises that nothing ran."""
    arrivals: int = 1
    """How often one call may reach it without having been declared repeatable: a refusal may be asked about again."""
    padding: int = 0
    """Characters sent along, which come back in the result."""
    reports: bool = False
    """Whether the caller listens to progress."""


def _poison(wire_id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": wire_id, "result": {"content": [{"type": "text", "text": POISON}]}}


def _poison_text(wire_id: str) -> str:
    return json.dumps(_poison(0)).replace('"id": 0', f'"id": {wire_id}')


def _large(size: int) -> str:
    return '{"jsonrpc":"2.0","id":$id,"result":{"content":[{"type":"text","text":"' + "x" * size + '"}]}}'


def _refused(status: int, **headers: str) -> Turns:
    return respond(status, f"no: {status}", content_type="text/plain", headers=headers)


OTHER_ID = "1000000007"
"""No request gets so far."""

_NOTE = {"level": "info", "data": "never mind"}
_LATE_SECOND = (
    "HTTP/1.1 200 OK\r\ncontent-type: {0}\r\ncontent-length: {1}\r\n\r\n{2}"  # a response that nobody asked for
)


def _second(kind: str, body: str) -> str:
    return _LATE_SECOND.format(kind, len(body), body)


BEHAVIOURS: Mapping[str, Behaviour] = {
    # -- good, slow, refusing, silent
    "echo": Behaviour(reply(), weight=10),
    "slow": Behaviour(wait(0.15) + reply(), weight=3),
    "late": Behaviour(wait(0.7) + reply()),
    "padded": Behaviour(reply(), padding=6_000),
    "refuse": Behaviour(fail(-32602, "not like this"), runs=False),
    "broken": Behaviour(fail(-32000, "it broke")),
    "silent": Behaviour(silence()),
    "null_result": Behaviour(send({"jsonrpc": "2.0", "id": "$id", "result": None})),
    "odd_answer": Behaviour(send({"jsonrpc": "2.0", "id": "$id", "result": [], "error": {"code": "x"}}), where=NOT_WEB),
    # -- floods
    "notes": Behaviour(notify("notifications/message", _NOTE, times=400) + reply()),
    "progress": Behaviour(
        notify("notifications/progress", {"progressToken": "$token", "progress": 1}, times=40) + reply(), reports=True
    ),
    "announce": Behaviour(list_changed() + list_changed() + list_changed() + reply()),
    "noise": Behaviour(junk(b"<hello> \xff\x1b[31m{\n", times=300) + reply(), where=PIPES),
    "chatter": Behaviour(write_stderr("what a day\n", times=3_000) + reply(), where=PIPES),
    "oversized": Behaviour(junk(_large(300_000) + "\n"), where=PIPES, weight=0.5),
    "endless": Behaviour(endless(b"x" * 65536, head=b'{"jsonrpc":"2.0","id":$id,"result":'), where=PIPES, weight=0.1),
    # -- wrong ids, and answers that come twice
    "wrong_id": Behaviour(send(_poison(int(OTHER_ID))) + send(_poison("x")) + send(_poison(None)) + reply()),
    "twice": Behaviour(reply() + send(_poison("$id"), times=2), where=NOT_WEB),
    # -- processes
    "die": Behaviour(die(), weight=0.3),
    "answer_and_die": Behaviour(reply() + die(), where=NOT_WEB, weight=0.3),
    "die_later": Behaviour(wait(0.05) + die(), weight=0.2),
    "half_line": Behaviour(junk(b'{"jsonrpc":"2.0","id":$id,"result":{"con') + die(), where=PIPES, weight=0.3),
    "leave": Behaviour(leave(0), weight=0.2),
    "fall_over": Behaviour(write_stderr("Traceback: it fell over\n") + leave(3), where=PIPES, weight=0.3),
    "mute": Behaviour(close_stdout(), where=PIPES, weight=0.2),
    "freeze": Behaviour(freeze(), where=PIPES, weight=0.1),
    "framed": Behaviour(junk(b"Content-Length: 38\r\n\r\n"), where=PIPES, weight=0.2),
    "breed": Behaviour(spawn(own_session=True) + reply(), where=PIPES, weight=0.3),
    "orphan": Behaviour(spawn(own_session=True, ignores_term=True) + die(), where=PIPES, weight=0.4),
    "stubborn": Behaviour(be_stubborn() + reply(), where=PIPES, weight=0.1),
    # -- requests of the server's own
    "ask_roots": Behaviour(ask("roots/list", request_id="$id") + reply(), where=PIPES),
    "ask_model": Behaviour(
        ask("sampling/createMessage", {"messages": [], "maxTokens": 1}, request_id="$id") + reply(), where=PIPES
    ),
    # -- HTTP
    "events": Behaviour(stream() + reply(), where=WEB, weight=3),
    "cut_events": Behaviour(
        stream() + notify("notifications/message", _NOTE, times=3) + hang_up(), where=WEB, weight=0.5
    ),
    "ended_events": Behaviour(stream() + end_stream(), where=WEB, weight=0.5),
    "too_busy": Behaviour(_refused(429, **{"retry-after": "0.05"}), where=WEB, runs=False, arrivals=2),
    "much_too_busy": Behaviour(_refused(429, **{"retry-after": "30"}), where=WEB, runs=False),
    "unauthorised": Behaviour(_refused(401), where=WEB, runs=False),
    "forbidden": Behaviour(_refused(403), where=WEB | {SSE}, runs=False),
    # To a request with a session id a 404 says that the session is gone, which is worth one more try.
    "not_found": Behaviour(_refused(404), where=WEB, weight=0.5, runs=False, arrivals=2),
    "failing": Behaviour(_refused(500), where=WEB | {SSE}),
    "unavailable": Behaviour(_refused(503, **{"retry-after": "1"}), where=WEB | {SSE}),
    "moved": Behaviour(redirect("http://127.0.0.1:1/mcp"), where=WEB, weight=0.5),
    "hang_up": Behaviour(hang_up(), where=WEB | {SSE}),
    "half_body": Behaviour(half_body(), where=WEB),
    "endless_body": Behaviour(endless_body(), where=WEB, weight=0.3),
    "bomb": Behaviour(gzip_bomb(2_000_000), where=WEB, weight=0.3),
    "web_page": Behaviour(respond(200, "<html>It works!</html>", content_type="text/html"), where=WEB),
    "other_body": Behaviour(respond(200, _poison_text(OTHER_ID), content_type="application/json"), where=WEB),
    "second_body": Behaviour(
        reply() + junk(_second("application/json", _poison_text(OTHER_ID))), where=WEB, weight=0.5
    ),
    "no_name": Behaviour(
        respond(400, '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request"}}'), where=WEB
    ),
    "forget": Behaviour(forget_sessions() + reply(), where=WEB, weight=0.3),
    "forget_badly": Behaviour(
        forget_sessions(400, '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no session"}}') + reply(),
        where=WEB,
        weight=0.3,
    ),
    "tell_listeners": Behaviour(tell_listeners() + reply(), where=PIPES | WEB),
    "drop_listeners": Behaviour(drop_listeners() + reply(), where=PIPES | WEB, weight=0.3),
}

ALWAYS = ("echo", "slow")
"""On every server."""


def lists(names: tuple[str, ...]) -> dict[str, Behaviour]:
    """The tools of one server, and three more by which its listing changes: `drift` replaces the definition of
    `moving` and brings a malformed entry, `settle` takes that back.
    """
    before = [tool(name) for name in (*names, "drift", "settle", "moving")]
    after = [*before[:-1], tool("moving", description="not what it was"), {"name": 7}, tool("brand_new")]
    return {
        **{name: BEHAVIOURS[name] for name in names},
        "drift": Behaviour(change_tools(*after) + list_changed() + reply(), weight=0.3),
        "settle": Behaviour(change_tools(*before) + list_changed() + reply(), weight=0.5),
        "moving": Behaviour(reply()),
    }
