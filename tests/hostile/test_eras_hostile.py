"""Servers of either protocol era, and those that take the probe for the other one badly."""

import anyio
import pytest
from bounds import NEVER, connected, until

from deputy_mcp import PinMismatchError, ServerState
from deputy_mcp.testing import (
    ScriptedServer,
    change_tools,
    drop_listeners,
    fail,
    leave,
    list_changed,
    notify,
    reply,
    respond,
    send,
    silence,
    tell_listeners,
    tool,
)

pytestmark = pytest.mark.anyio

JSON = "application/json"


async def test_a_server_that_exits_on_the_probe_is_started_once_more_with_initialize(tmp_path):
    """That is no restart, and the era is remembered: the next start does not probe again.

    https://github.com/0xMassi/webclaw/issues/107
    """
    server = ScriptedServer(tmp_path, era="legacy", methods={"server/discover": leave(0)})
    async with connected({"a": server.stdio(restart=NEVER)}) as connection:
        first = connection.status()["a"]
        await connection.reload("a")
        result = await connection.call_tool("a", "echo")
        second = connection.status()["a"]

    assert (ServerState.READY, 0) == (first.state, first.restarts)
    assert (ServerState.READY, 0) == (second.state, second.restarts)
    assert not result.is_error
    assert (3, 1) == (len(server.pids()), len(server.received("server/discover")))


async def test_a_server_that_ignores_the_probe_is_greeted_beside_it(tmp_path):
    """After a second without an answer `initialize` goes out, and its answer counts; the era is remembered.

    https://github.com/0xMassi/webclaw/issues/107
    """
    server = ScriptedServer(tmp_path, era="legacy", methods={"server/discover": silence()})
    async with connected({"a": server.stdio()}) as connection:
        version = connection.status()["a"].protocol_version
        await connection.reload("a")

    assert "2025-11-25" == version
    assert 1 == len(server.received("server/discover"))
    assert [] == server.received("notifications/cancelled")


NO_DISCOVER = {
    "400 without id": respond(
        400,
        '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Mcp-Session-Id header is required"}}',
        content_type=JSON,
    ),
    "400 invalid request": respond(
        400, '{"jsonrpc":"2.0","id":$id,"error":{"code":-32600,"message":"Invalid Request"}}', content_type=JSON
    ),
    "400 plain": respond(400, "bad request"),
    "200 unknown method": fail(-32601, "unknown method"),
    "404": respond(404, "not found"),
    "405": respond(405),
    "415": respond(415, "what?"),
    "500": respond(500, "oops"),
    "unsupported version": fail(-32022, "unsupported", data={"supported": ["2025-11-25"], "requested": "2026-07-28"}),
    "empty list of versions": reply(
        result={
            "supportedVersions": [],
            "capabilities": {},
            "resultType": "complete",
            "ttlMs": 0,
            "cacheScope": "private",
        }
    ),
    "malformed result": reply(result={"hello": "world"}),
}


@pytest.mark.parametrize("how", NO_DISCOVER)
async def test_whatever_a_legacy_server_says_to_the_probe_it_is_then_initialized(tmp_path, how):
    """Falling back keys on no one code or status, and `initialize` carries no session id.

    https://github.com/modelcontextprotocol/python-sdk/pull/2950
    """
    server = ScriptedServer(tmp_path, era="legacy", sessions=True, methods={"server/discover": NO_DISCOVER[how]})
    async with server.http() as entry, connected({"a": entry}) as connection:
        status = connection.status()["a"]
        result = await connection.call_tool("a", "echo")

    posts = [e for e in server.ledger() if e["kind"] in ("http", "received")]
    greeting = next(i for i, e in enumerate(posts) if e.get("message", {}).get("method") == "initialize")
    assert (ServerState.READY, "2025-11-25", 0) == (status.state, status.protocol_version, status.restarts)
    assert "mcp-session-id" not in posts[greeting - 1]["headers"]
    assert not result.is_error


async def test_the_handshake_is_finished_before_anything_is_asked(tmp_path):
    """A server that refuses everything before `notifications/initialized` is served in the right order.

    https://github.com/posit-dev/mcptools/pull/77
    """
    server = ScriptedServer(tmp_path, era="legacy", strict=True)
    async with connected({"a": server.stdio()}) as connection:
        result = await connection.call_tool("a", "echo")

    methods = [entry["message"]["method"] for entry in server.ledger("received")]
    assert not result.is_error
    assert ["initialize", "notifications/initialized", "tools/list"] == [m for m in methods if m != "server/discover"][
        :3
    ]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_notifications_before_the_handshake_s_answer_are_tolerated(tmp_path, transport):
    """A server that talks before it has greeted is odd and usable.

    https://github.com/posit-dev/mcptools/pull/77
    """
    early = list_changed() + notify("notifications/message", {"level": "info", "data": "booting"}) + reply()
    server = ScriptedServer(tmp_path, era="legacy", methods={"initialize": early})

    async def check(entry):
        async with connected({"a": entry}) as connection:
            return await connection.call_tool("a", "echo")

    if transport == "stdio":
        result = await check(server.stdio())
    else:
        async with server.http() as entry:
            result = await check(entry)

    assert not result.is_error


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_changes_of_a_modern_server_are_heard_also_after_its_stream_dropped(tmp_path, transport):
    """The stream that tells changes is asked for, asked for again when it drops, and the list fetched anew then.

    https://github.com/strands-agents/harness-sdk/pull/4112
    """
    tools = (tool("toggle"), tool("cut"), tool("late"), tool("gamma"))
    changed = tool("gamma", description="another one")
    server = ScriptedServer(
        tmp_path,
        era="modern",
        tools=tools,
        calls={
            "toggle": change_tools(*tools[:3], changed) + tell_listeners() + reply(),
            # What changes while nobody listens is not told.
            "cut": drop_listeners() + change_tools(*tools[:2], changed) + reply(),
        },
    )

    async def check(entry):
        async with connected({"a": entry}) as connection:
            await server.wait_for(lambda s: s.ledger("listening"))
            await connection.call_tool("a", "toggle")
            await until(connection, lambda status: "gamma" in status["a"].refused)
            with pytest.raises(PinMismatchError) as gamma:
                await connection.call_tool("a", "gamma")

            await connection.call_tool("a", "cut")
            await server.wait_for(lambda s: len(s.ledger("listening")) == 2)
            await until(connection, lambda status: "late" in status["a"].refused)
            with pytest.raises(PinMismatchError) as late:
                await connection.call_tool("a", "late")

            return gamma.value.code, late.value.code, connection.status()["a"].restarts

    if transport == "stdio":
        outcome = await check(server.stdio())
    else:
        async with server.http() as entry:
            outcome = await check(entry)

    assert ("pin_changed", "pin_gone", 0) == outcome
    assert 0 == server.runs("gamma") + server.runs("late")


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])
async def test_a_version_is_proposed_as_it_stands(tmp_path, version):
    """A server that speaks the named version is served in it, without a probe for another.

    https://github.com/modelcontextprotocol/python-sdk/pull/2950
    """
    server = ScriptedServer(tmp_path)
    async with connected({"a": server.stdio(protocol=version)}) as connection:
        status = connection.status()["a"]
        result = await connection.call_tool("a", "echo")

    assert (ServerState.READY, version) == (status.state, status.protocol_version)
    assert not result.is_error


async def test_a_server_that_answers_with_another_version_than_the_named_one_is_refused(tmp_path):
    """What was asked for is not silently replaced.

    https://github.com/modelcontextprotocol/python-sdk/pull/2950
    """
    other = {
        "protocolVersion": "2024-11-05",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "s", "version": "1"},
    }
    server = ScriptedServer(tmp_path, methods={"initialize": reply(result=other)})
    async with connected({"a": server.stdio(protocol="2025-11-25")}) as connection:
        status = connection.status()["a"]

    assert ServerState.READY != status.state
    assert "2024-11-05" in (status.reason or "")


@pytest.mark.parametrize(
    "greeting",
    [
        send({"jsonrpc": "2.0", "id": "$id", "result": None}),
        send({"jsonrpc": "2.0", "id": "$id"}),
        reply(result={}),
        reply(result={"protocolVersion": "1.0", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}),
        fail(-32603, "no"),
    ],
    ids=["null", "no result", "empty", "unknown version", "error"],
)
async def test_a_broken_greeting_is_a_failed_start_at_once(tmp_path, greeting):
    """A handshake that is none ends in a state with a reason, not in a wait for the start deadline.

    https://github.com/microsoft/agent-framework/issues/1744
    """
    server = ScriptedServer(tmp_path, era="legacy", methods={"initialize": greeting})
    began = anyio.current_time()
    async with connected({"a": server.stdio(restart=NEVER)}) as connection:
        took = anyio.current_time() - began
        status = connection.status()["a"]

    assert ServerState.READY != status.state
    assert status.reason
    assert took < 3
