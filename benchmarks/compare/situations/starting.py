"""Servers that do not start, start oddly, or list oddly."""

import json

from benchmarks.compare.situations import sources
from benchmarks.compare.situations.answers import FINE
from benchmarks.compare.situations.scripts import TOOLS, one
from benchmarks.compare.values import AFTER, STOP_SECONDS, AtDeadline, Fails, Names, OneOf, Opens, Situation
from deputy_mcp.testing import freeze, junk, leave, list_changed, notify, reply, respond, silence, tool, wait

MANY = tuple(tool(f"t{i}") for i in range(12))
BAD = {"name": "bad", "inputSchema": None}
GREETING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "main", "version": "1"},
}
BODY = json.dumps({"jsonrpc": "2.0", "id": "$id", "result": GREETING}).replace('"$id"', "$id")
FRAMED = f"Content-Length: {len(BODY)}\r\n\r\n{BODY}"
NO_SESSION_YET = '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Mcp-Session-Id header is required"}}'
LOG = {"level": "info", "data": "early"}

STARTING = (
    Situation(
        name="no-command",
        says="there is no such command",
        source=sources.NO_SPAWN,
        servers={"main": "no such command"},
        over=("stdio",),
        opens=Fails(),
    ),
    Situation(
        name="nobody-listens",
        says="the port is closed",
        source=sources.DEAD_URL,
        servers={"main": "nobody listens"},
        over=("http",),
        opens=Fails(),
    ),
    Situation(
        name="exits-at-once",
        says="exits before it reads anything",
        source=sources.NO_SPAWN,
        servers=one(at_start=leave(3)),
        over=("stdio",),
        opens=Fails(),
    ),
    Situation(
        name="silent-start",
        says="reads nothing, with a deadline of 3 s for the start, and time to stop it",
        source=sources.SILENT_START,
        servers=one(at_start=freeze()),
        over=("stdio",),
        opens=AtDeadline(grace_seconds=STOP_SECONDS),
        bound_seconds=14,
    ),
    Situation(
        name="length-prefixed",
        says="frames its messages with `Content-Length`",
        source=sources.ERRORS,
        servers=one(methods={"server/discover": junk(FRAMED), "initialize": junk(FRAMED)}),
        over=("stdio",),
        opens=Fails(),
        bound_seconds=14,
    ),
    Situation(
        name="slow-start",
        says="answers the handshake after 1.5 s",
        source=sources.SLOW_START,
        servers=one(reply("fine"), methods={"initialize": wait(1.5) + reply()}),
        steps=(FINE, AFTER),
    ),
    Situation(
        name="discover-kills",
        says="exits on `server/discover`",
        source=sources.DISCOVER_KILLS,
        servers=one(reply("fine"), methods={"server/discover": leave()}),
        over=("stdio",),
        steps=(FINE, AFTER),
    ),
    Situation(
        name="discover-unanswered",
        says="leaves `server/discover` unanswered, with a deadline of 3 s for the start",
        source=sources.SERVERS,
        servers=one(reply("fine"), methods={"server/discover": silence()}),
        over=("stdio",),
        steps=(FINE, AFTER),
        bound_seconds=14,
    ),
    Situation(
        name="discover-bad-request",
        says="HTTP 400 and an error without id for `server/discover`",
        source=sources.DISCOVER_400,
        servers=one(
            reply("fine"),
            methods={"server/discover": respond(400, NO_SESSION_YET, content_type="application/json")},
        ),
        over=("http",),
        steps=(FINE, AFTER),
    ),
    Situation(
        name="early-notifications",
        says="notifications before the handshake's answer, and nothing before `initialized`",
        source=sources.HANDSHAKE,
        servers=one(
            reply("fine"),
            strict=True,
            methods={"initialize": list_changed() + notify("notifications/message", LOG) + reply()},
        ),
        steps=(FINE, AFTER),
    ),
    Situation(
        name="bad-entry",
        says="a listing with one malformed tool",
        source=sources.BAD_ENTRY,
        servers=one(reply("fine"), tools=(*TOOLS, BAD)),
        steps=(FINE, AFTER),
    ),
    Situation(
        name="null-entry",
        says="a listing with a null among the tools",
        source=sources.BAD_ENTRY,
        servers=one(reply("fine"), tools=(*TOOLS, None)),
        steps=(FINE, AFTER),
    ),
    Situation(
        name="pages",
        says="a listing of several pages",
        source=sources.PAGES,
        servers=one(reply("fine"), tools=(*TOOLS, *MANY), page_size=5),
        lists=Names(tuple(one["name"] for one in (*TOOLS, *MANY))),
        steps=(FINE, AFTER),
    ),
    Situation(
        name="cursor-stands",
        says="a listing whose cursor never moves on",
        source=sources.CURSOR,
        servers=one(methods={"tools/list": reply(result={"tools": list(TOOLS), "nextCursor": "8"})}),
        opens=OneOf((Opens(), Fails())),
        lists=OneOf((Names(("echo", "well")), Fails())),
        steps=(AFTER,),
    ),
)
