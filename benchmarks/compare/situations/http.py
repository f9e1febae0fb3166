"""What an HTTP server may answer, and when it may not."""

import json
from typing import Any

from attrs import evolve

from benchmarks.compare.situations import sources
from benchmarks.compare.situations.answers import FAILS, FINE
from benchmarks.compare.situations.scripts import answer, one
from benchmarks.compare.situations.stdio import DEEP, WAITS
from benchmarks.compare.values import AFTER, Back, Call, Fails, Kill, OneOf, Situation, Step, Text
from deputy_mcp.testing import (
    die,
    dribble,
    end_stream,
    endless,
    endless_body,
    forget_sessions,
    gzip_bomb,
    half_body,
    hang_up,
    hold,
    junk,
    note,
    notify,
    open_stream,
    redirect,
    reply,
    respond,
    silence,
    stream,
    tell_streams,
    want_bearer,
)

JSON = "application/json"
EVENT_SIZE = 2_000_000
BOMB = 100_000_000
NO_SESSION = '{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}'


def http(name: str, says: str, source: str, echo: Any, *steps: Step, **fields: Any) -> Situation:
    return Situation(
        name=name, says=says, source=source, servers=one(echo, **fields), over=("http",), steps=steps or (FINE, AFTER)
    )


def status(code: int) -> Situation:
    echo = respond(code, "no", content_type="text/plain")
    return http(
        f"status-{code}",
        f"HTTP {code}",
        sources.STATUS,
        echo,
        Call(right=Fails((str(code),))),
        AFTER,
    )


HTTP = (
    *(status(code) for code in (401, 403, 404, 500, 503)),
    http(
        "retry-after",
        "HTTP 429 with `Retry-After: 1`, then the answer, with a deadline of 3 s",
        sources.STATUS,
        [respond(429, "slow down", headers={"retry-after": "1"}), reply("fine")],
        Call(right=OneOf((Text("fine"), Fails(("429",)))), deadline_seconds=3),
        AFTER,
    ),
    http("no-body", "an empty 202 for an answer", sources.NO_ANSWER, silence(), FAILS, AFTER),
    http(
        "empty-object",
        "`{}` for an answer",
        sources.NO_ANSWER,
        respond(200, "{}", content_type=JSON),
        FAILS,
        AFTER,
    ),
    http(
        "foreign-id-body",
        "a JSON body with another id",
        sources.INVALID_REPLY,
        respond(200, json.dumps(answer("another's", 9999)), content_type=JSON),
        FAILS,
        AFTER,
    ),
    http(
        "login-page",
        "a page for an answer",
        sources.CONTENT_TYPE,
        respond(200, "<html>", content_type="text/html"),
        FAILS,
        AFTER,
    ),
    http("no-http", "bytes that are no HTTP", sources.ERRORS, junk("hello\r\n\r\n"), FAILS, AFTER),
    http(
        "deep-body",
        "an answer nested 5,000 deep",
        sources.ODD_TEXT,
        respond(200, DEEP.decode(), content_type=JSON),
        FAILS,
        AFTER,
    ),
    http(
        "odd-receipt",
        "text for an answer to a notification",
        sources.CONTENT_TYPE,
        reply("fine"),
        methods={"notifications/initialized": respond(200, "ok", content_type="text/plain")},
    ),
    http("events", "the answer as an event", sources.SPECIFICATION, stream() + reply("fine")),
    http(
        "event-byte-by-byte",
        "the answer as an event, a byte at a time",
        sources.SPLIT_UTF8,
        stream() + junk("data: ") + dribble(answer("é—😀")) + junk("\n"),
        Call(right=Text("é—😀")),
        AFTER,
    ),
    http(
        "priming-event",
        "a comment, `retry` and an event without content, then the answer",
        sources.PRIMING,
        stream() + junk(": hello\r\n\r\n") + junk("retry: 10\r\nid: 1\r\ndata: \r\n\r\n") + reply("fine"),
    ),
    http(
        "large-event",
        f"the answer as an event of {EVENT_SIZE:,} bytes, with a deadline of 3 s",
        sources.LARGE_EVENT,
        stream() + reply("a" * EVENT_SIZE),
        Call(right=Text("a" * EVENT_SIZE), deadline_seconds=3),
        AFTER,
    ),
    http(
        "stream-ends",
        "an event stream that ends without the answer",
        sources.NO_ANSWER,
        stream() + end_stream(),
        FAILS,
        AFTER,
    ),
    http(
        "stream-cut",
        "an event stream that is cut",
        sources.DROPPED,
        stream() + notify("x/y") + hang_up(),
        FAILS,
        AFTER,
    ),
    http(
        "hangs-up",
        "closes the connection without a byte",
        sources.DROPPED,
        hang_up(),
        FAILS,
        AFTER,
    ),
    evolve(
        http(
            "works-and-hangs-up",
            "does the work, then hangs up",
            sources.REPLAY,
            note("ran") + hang_up(),
            FAILS,
            AFTER,
        ),
        notes=1,
    ),
    http("half-body", "half a body", sources.DROPPED, half_body(), FAILS, AFTER),
    http("endless-body", "a body that never ends", sources.LIMITS, endless_body(), FAILS, AFTER),
    http(
        "endless-event",
        "an event that never ends",
        sources.LIMITS,
        stream() + endless("a" * 65536, head="data: "),
        FAILS,
        AFTER,
    ),
    http(
        "gzip-bomb",
        f"a small body that is {BOMB:,} bytes decompressed, with a deadline of 5 s",
        sources.LIMITS,
        gzip_bomb(BOMB),
        Call(right=OneOf((Fails(), Text("a" * BOMB))), deadline_seconds=5),
        AFTER,
    ),
    http("redirect", "a redirect within the origin", sources.REDIRECT, [redirect("/mcp/"), reply("fine")]),
    http(
        "redirect-elsewhere",
        "a redirect to another port",
        sources.REDIRECT,
        redirect("http://127.0.0.1:1/mcp"),
        FAILS,
        AFTER,
    ),
    http(
        "session-forgotten",
        "forgets the session and says 404",
        sources.FORGOTTEN,
        forget_sessions() + reply("fine"),
        FINE,
        AFTER,
        sessions=True,
    ),
    http(
        "session-forgotten-json",
        "forgets the session and says 404 with a JSON-RPC error",
        sources.FORGOTTEN,
        forget_sessions(body=NO_SESSION) + reply("fine"),
        FINE,
        AFTER,
        sessions=True,
    ),
    http(
        "token-expired",
        "wants another token than the one configured",
        sources.TOKEN,
        want_bearer("2") + reply("fine"),
        FINE,
        Call(tool="well", right=Fails(("401",))),
        bearer="1",
    ),
    http(
        "own-stream",
        "tells of a changed listing on its own stream",
        sources.LIST_CHANGED,
        tell_streams() + reply("fine"),
        methods={"GET": open_stream()},
    ),
    http("http-silent", "a stream and no answer", sources.LIMITS, stream() + hold("never"), WAITS, AFTER),
    http(
        "http-comments",
        "comments on the stream for ever, and no answer",
        sources.LIMITS,
        stream() + endless(": still here\n\n"),
        WAITS,
        AFTER,
    ),
    http(
        "http-dies",
        "is killed in the middle of a call and started again",
        sources.DROPPED,
        die(),
        FAILS,
        Back(),
        AFTER,
    ),
    http(
        "http-dies-idle",
        "is killed between two calls and started again",
        sources.FORGOTTEN,
        reply("fine"),
        FINE,
        Kill(),
        AFTER,
    ),
    http(
        "http-dies-idle-session",
        "the same, with sessions: the new process knows none",
        sources.FORGOTTEN,
        reply("fine"),
        FINE,
        Kill(),
        AFTER,
        sessions=True,
    ),
    Situation(
        name="sse-hangs-up",
        says="closes the connection of the call without a byte",
        source=sources.DROPPED,
        servers=one(hang_up()),
        over=("sse",),
        steps=(FAILS, AFTER),
    ),
    Situation(
        name="sse-status",
        says="HTTP 503 to the call",
        source=sources.STATUS,
        servers=one(respond(503, "no")),
        over=("sse",),
        steps=(Call(right=Fails(("503",))), AFTER),
    ),
    Situation(
        name="sse-dies-idle",
        says="is killed between two calls and started again",
        source=sources.DROPPED,
        servers=one(reply("fine")),
        over=("sse",),
        steps=(FINE, Kill(), AFTER),
    ),
)
