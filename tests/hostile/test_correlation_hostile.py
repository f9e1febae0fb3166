"""Which reply belongs to which call, what is no reply, and what a server asks in the middle of one."""

import json
from contextlib import asynccontextmanager

import anyio
import pytest
from bounds import AT_ONCE_SECONDS, connected

from deputy_mcp import CallError, CallTimeoutError, MalformedReplyError, RemoteError
from deputy_mcp.testing import ScriptedServer, ask, fail, hold, junk, reply, send, silence, stream, tool

pytestmark = pytest.mark.anyio

TRANSPORTS = ("stdio", "http", "sse")


@asynccontextmanager
async def running(server: ScriptedServer, transport: str, **options):
    """The entry of `server` over one of the transports."""
    if transport == "stdio":
        yield server.stdio(**options)
    else:
        async with server.http(transport=transport, **options) as entry:
            yield entry


def result_of(request_id, text):
    """A whole reply."""
    return {"jsonrpc": "2.0", "id": request_id, "result": {"content": [{"type": "text", "text": text}]}}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_an_id_echoed_as_a_string_is_our_own(tmp_path, era, transport):
    """`"2"` answers request 2.

    https://github.com/modelcontextprotocol/python-sdk/pull/1720
    """
    server = ScriptedServer(tmp_path, era=era, calls={"echo": send(result_of("$id_text", "mine"))})
    async with running(server, transport) as entry, connected({"a": entry}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS):
            result = await connection.call_tool("a", "echo")

    assert "mine" == result.text


@pytest.mark.parametrize("wrong", [9999, "9999", "x", True, 1.5, [1], None])
async def test_an_id_never_issued_answers_nobody(tmp_path, wrong):
    """A reply to something we did not ask is dropped; the right one after it is the answer.

    https://github.com/modelcontextprotocol/python-sdk/pull/1720
    """
    server = ScriptedServer(tmp_path, calls={"echo": send(result_of(wrong, "foreign")) + reply("mine")})
    async with connected({"a": server.stdio()}) as connection:
        result = await connection.call_tool("a", "echo")

    assert "mine" == result.text


async def test_a_body_that_answers_another_request_fails_its_call_at_once(tmp_path):
    """Over HTTP the reply is whole when its body is: one with another id is no answer, and none will come.

    https://github.com/microsoft/agent-framework/issues/1744
    """
    body = json.dumps(result_of(9999, "foreign"))
    head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"
    server = ScriptedServer(tmp_path, calls={"echo": [junk(head + body), reply("mine")]})
    async with server.http() as entry, connected({"a": entry}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(MalformedReplyError) as caught:
            await connection.call_tool("a", "echo")

        again = await connection.call_tool("a", "echo")

    assert "unknown" == caught.value.outcome
    assert "mine" == again.text


INVALID = {
    "no result": {"jsonrpc": "2.0", "id": "$id"},
    "result null": {"jsonrpc": "2.0", "id": "$id", "result": None},
    "result a string": {"jsonrpc": "2.0", "id": "$id", "result": "ok"},
    "result a list": {"jsonrpc": "2.0", "id": "$id", "result": []},
    "error without code": {"jsonrpc": "2.0", "id": "$id", "error": {"message": "x"}},
    "error with a text code": {"jsonrpc": "2.0", "id": "$id", "error": {"code": "E1", "message": "x"}},
    "error a string": {"jsonrpc": "2.0", "id": "$id", "error": "x"},
    "in a batch": [{"jsonrpc": "2.0", "id": "$id"}],
}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("kind", INVALID)
async def test_a_reply_that_names_its_call_and_is_invalid_fails_it_at_once(tmp_path, kind, transport):
    """Nothing waits for a deadline when the answer is there and is none; the session stays usable.

    https://github.com/microsoft/agent-framework/issues/1744
    """
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": [send(INVALID[kind]), reply("fine")]})
    async with running(server, transport) as entry, connected({"a": entry}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(MalformedReplyError) as caught:
            await connection.call_tool("a", "echo")

        again = await connection.call_tool("a", "echo")

    assert ("a", "echo", "unknown") == (caught.value.server, caught.value.tool, caught.value.outcome)
    assert "fine" == again.text


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_an_error_beside_a_result_is_an_error(tmp_path, transport):
    """Of both at once the cautious reading counts.

    https://github.com/microsoft/agent-framework/issues/1744
    """
    both = result_of("$id", "fine") | {"error": {"code": -32000, "message": "not fine"}}
    server = ScriptedServer(tmp_path, calls={"echo": send(both)})
    async with running(server, transport) as entry, connected({"a": entry}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(RemoteError) as caught:
            await connection.call_tool("a", "echo")

    assert (-32000, "not fine") == (caught.value.rpc_code, caught.value.message)


@pytest.mark.parametrize("code", [-32601, -32602, -32603, -32001, 7])
async def test_a_remote_error_keeps_its_code_and_says_whether_it_may_have_run(tmp_path, code):
    """The server's own code reaches the caller; an unknown method and bad parameters are found before running.

    https://github.com/anthropics/claude-code/issues/83404
    """
    server = ScriptedServer(tmp_path, calls={"echo": fail(code, "no", data={"why": 1})})
    async with connected({"a": server.stdio()}) as connection:
        with pytest.raises(RemoteError) as caught:
            await connection.call_tool("a", "echo")

    assert (code, "no", {"why": 1}) == (caught.value.rpc_code, caught.value.message, caught.value.details)
    assert ("refused" if code in (-32601, -32602) else "unknown") == caught.value.outcome
    assert not isinstance(caught.value, TimeoutError)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_reply_after_its_deadline_reaches_nobody(tmp_path, transport):
    """A late answer is dropped; the calls after it get their own, again and again.

    https://github.com/strands-agents/harness-sdk/issues/1221
    """
    late = hold("go") + reply("late")
    server = ScriptedServer(tmp_path, era="legacy", tools=[tool("slow"), tool("fast")], calls={"slow": late})
    async with running(server, transport) as entry, connected({"a": entry}) as connection:
        with pytest.raises(CallTimeoutError):
            await connection.call_tool("a", "slow", timeout_seconds=0.2)

        server.release("go")
        texts = [(await connection.call_tool("a", "fast", {"n": n})).text for n in range(20)]

    assert [f'{{"tool": "fast", "arguments": {{"n": {n}}}}}' for n in range(20)] == texts


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("how", ["timeout", "cancelled"])
async def test_an_abandoned_call_is_cancelled_on_the_wire_exactly_once(tmp_path, how, transport):
    """The server hears `notifications/cancelled` with the id of the call that nobody waits for.

    https://github.com/modelcontextprotocol/python-sdk/issues/2507
    """
    server = ScriptedServer(
        tmp_path, era="legacy", tools=[tool("slow"), tool("fast")], calls={"slow": hold("never") + reply()}
    )
    async with running(server, transport) as entry, connected({"a": entry}) as connection:
        if how == "timeout":
            with pytest.raises(CallTimeoutError):
                await connection.call_tool("a", "slow", timeout_seconds=0.2)
        else:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(connection.call_tool, "a", "slow")
                await server.wait_for(lambda s: s.runs("slow"))
                tasks.cancel_scope.cancel()

        await server.wait_for(lambda s: s.received("notifications/cancelled"))
        await connection.call_tool("a", "fast")

    slow = next(m for m in server.received("tools/call") if m["params"]["name"] == "slow")
    assert [slow["id"]] == [m["params"]["requestId"] for m in server.received("notifications/cancelled")]


async def test_a_timeout_after_sending_says_that_it_was_sent(tmp_path):
    """`CallTimeoutError` means that the call may have run; only what never left is a `WaitTimeoutError`.

    https://github.com/modelcontextprotocol/python-sdk/issues/2507
    """
    server = ScriptedServer(tmp_path, calls={"echo": silence()})
    async with connected({"a": server.stdio()}) as connection:
        with pytest.raises(CallTimeoutError) as caught:
            await connection.call_tool("a", "echo", timeout_seconds=0.2)

    assert ("call_timeout", "unknown") == (caught.value.code, caught.value.outcome)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("method", ["roots/list", "sampling/createMessage", "elicitation/create", "x/unknown"])
async def test_a_request_of_the_server_is_declined_at_once_even_under_our_own_id(tmp_path, method, transport):
    """What nobody handles is declined, not dropped; the id of a call in flight is not mistaken for its answer.

    https://github.com/KlaatAI/klaatcode/issues/59
    """
    params = {"messages": [], "maxTokens": 1, "message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    turn = stream() if transport == "http" else silence()
    turn += ask(method, params, request_id="$id") + reply("answered")
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": turn})
    async with running(server, transport) as entry, connected({"a": entry}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS):
            result = await connection.call_tool("a", "echo")

    (answer,) = server.ledger("answer")
    assert "answered" == result.text
    assert answer["answer"]["error"]["code"] in (-32601, -32600, -32602)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_ping_of_the_server_is_answered_even_under_our_own_id(tmp_path, transport):
    """A ping gets the empty result, in the middle of a call too.

    https://github.com/KlaatAI/klaatcode/issues/59
    """
    turn = (stream() if transport == "http" else silence()) + ask("ping", request_id="$id") + reply("answered")
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": turn})
    async with running(server, transport) as entry, connected({"a": entry}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS):
            result = await connection.call_tool("a", "echo")

    (answer,) = server.ledger("answer")
    assert "answered" == result.text
    assert {} == answer["answer"]["result"]


async def test_no_capability_is_advertised_that_nobody_handles(tmp_path):
    """Without roots, sampler and elicitor the handshake names none of them.

    https://github.com/KlaatAI/klaatcode/issues/59
    """
    server = ScriptedServer(tmp_path, era="legacy")
    async with connected({"a": server.stdio()}):
        (greeting,) = server.received("initialize")

    assert set() == {"roots", "sampling", "elicitation"} & set(greeting["params"]["capabilities"])


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_call_that_asks_the_host_for_input_ends_with_that_reason(tmp_path, transport):
    """In the 2026-07-28 era a result may ask for input instead; without anybody to ask the call ends at once.

    https://github.com/anthropics/claude-code/issues/94806
    """
    params = {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    needs = {
        "resultType": "input_required",
        "inputRequests": {"q": {"method": "elicitation/create", "params": params}},
        "requestState": "s",
    }
    server = ScriptedServer(tmp_path, era="modern", calls={"echo": reply(result=needs)})
    async with running(server, transport) as entry, connected({"a": entry}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(CallError) as caught:
            await connection.call_tool("a", "echo")

    assert "input_declined" == caught.value.code
