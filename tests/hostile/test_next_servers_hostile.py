"""Misbehaviours that nobody has reported yet, in what is said and over stdio: thought of before a server does them.

Those over HTTP are in `test_next_http_hostile`.
"""

from contextlib import asynccontextmanager

import anyio
import pytest
from bounds import AT_ONCE_SECONDS, BOUND_SECONDS, connected
from structlog.testing import capture_logs

from deputy_mcp import (
    CallError,
    Limits,
    MalformedReplyError,
    RemoteError,
    ServerState,
)
from deputy_mcp.testing import (
    ScriptedServer,
    fail,
    hold,
    junk,
    note,
    notify,
    reply,
    send,
    stream,
    tool,
)

pytestmark = pytest.mark.anyio

TRANSPORTS = ("stdio", "http", "sse")


@asynccontextmanager
async def running(server, transport):
    """The entry of `server` over one of the transports."""
    if transport == "stdio":
        yield server.stdio()
    else:
        async with server.http(transport=transport) as entry:
            yield entry


def said(request_id, text):
    """A whole reply."""
    return {"jsonrpc": "2.0", "id": request_id, "result": {"content": [{"type": "text", "text": text}]}}


def line(request_id: str, text: str) -> bytes:
    """A reply line whose id is written as it stands; `$id` is filled in."""
    return (
        f'{{"jsonrpc":"2.0","id":{request_id},"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}\n'.encode()
    )


# -- ids -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["$id.0", "$id.000", "$ide0", "$id0e-1", '"$id"'])
async def test_an_id_that_is_the_same_number_is_ours_however_it_is_spelled(tmp_path, spelling):
    """JSON knows one kind of number, and some encoders write every one as a float."""
    server = ScriptedServer(tmp_path, calls={"echo": junk(line(spelling, "mine"))})
    async with connected({"a": server.stdio()}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS):
            result = await connection.call_tool("a", "echo")

    assert "mine" == result.text


@pytest.mark.parametrize(
    "spelling", ["-0", "-$id", "$id.5", "1e400", "NaN", "9" * 400, '" $id"', '"+$id"', '"$id.0"', "[$id]", '{"id":$id}']
)
async def test_an_id_that_is_nearly_ours_answers_nobody(tmp_path, spelling):
    """The right reply after it is the answer."""
    server = ScriptedServer(tmp_path, calls={"echo": junk(line(spelling, "foreign")) + reply("mine")})
    async with connected({"a": server.stdio()}) as connection:
        results = [await connection.call_tool("a", "echo") for _ in range(2)]

    assert ["mine", "mine"] == [result.text for result in results]
    assert 1 == len(server.pids())


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_reply_that_comes_twice_counts_once(tmp_path, transport):
    """The first word is the answer; another value afterwards reaches neither this call nor the next."""
    start = stream() if transport == "http" else send([])
    turn = start + send(said("$id", "first")) + send(said("$id", "second"))
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": [turn, reply("next")]})
    async with running(server, transport) as entry, connected({"a": entry}) as connection:
        first = await connection.call_tool("a", "echo")
        following = await connection.call_tool("a", "echo")

    assert ("first", "next") == (first.text, following.text)


async def test_of_a_member_written_twice_the_last_counts(tmp_path):
    """As for every JSON reader of its kind; what stood there before answers nobody."""
    twice = b'{"jsonrpc":"2.0","id":77,"result":{"content":[]},"id":$id}\n'
    server = ScriptedServer(tmp_path, calls={"echo": [junk(twice), reply("next")]})
    async with connected({"a": server.stdio()}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS):
            first = await connection.call_tool("a", "echo")

        following = await connection.call_tool("a", "echo")

    assert ("", "next") == (first.text, following.text)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_server_cannot_take_back_a_call_of_ours(tmp_path, transport):
    """`notifications/cancelled` is for its own requests; under our id it changes nothing."""
    start = stream() if transport == "http" else send([])
    turn = start + notify("notifications/cancelled", {"requestId": "$id", "reason": "no"}) + reply("still there")
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": turn})
    async with running(server, transport) as entry, connected({"a": entry}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS):
            result = await connection.call_tool("a", "echo")

    assert "still there" == result.text


@pytest.mark.parametrize("token", [9999, "x", None, True, [1], {"a": 1}], ids=repr)
async def test_progress_under_a_foreign_token_is_reported_to_nobody(tmp_path, token):
    """Only a call's own token moves its progress; the answer comes all the same."""
    foreign = notify("notifications/progress", {"progressToken": token, "progress": 1})
    own = notify("notifications/progress", {"progressToken": "$token", "progress": 2})
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": foreign + own + reply("fine")})
    reports = []
    async with connected({"a": server.stdio()}) as connection:
        result = await connection.call_tool("a", "echo", progress=lambda *report: reports.append(report))

    assert ([(2, None, None)], "fine") == (reports, result.text)


@pytest.mark.parametrize("progress", ["1", True, None, [], {}], ids=repr)
async def test_progress_that_is_no_number_is_reported_to_nobody(tmp_path, progress):
    """A callback gets numbers; total and text that are none are left out."""
    odd = notify("notifications/progress", {"progressToken": "$token", "progress": progress})
    half = notify("notifications/progress", {"progressToken": "$token", "progress": 3, "total": "x", "message": 7})
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": odd + half + reply("fine")})
    reports = []
    async with connected({"a": server.stdio()}) as connection:
        await connection.call_tool("a", "echo", progress=lambda *report: reports.append(report))

    assert [(3, None, None)] == reports


# -- what a server asks and tells ----------------------------------------------------------------------------------


ODD_MESSAGES = {
    "a request under half a character": b'{"jsonrpc":"2.0","id":"x\\ud800","method":"roots/list"}',
    "a method of half a character": b'{"jsonrpc":"2.0","id":"q","method":"roots/list\\ud800","params":{"a":"\\ud800"}}',
    "a request under a float": b'{"jsonrpc":"2.0","id":5.5,"method":"ping"}',
    "a request under a huge id": b'{"jsonrpc":"2.0","id":' + b"9" * 300 + b',"method":"ping"}',
    "a request under null": b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
    "params that are a list": b'{"jsonrpc":"2.0","id":"q","method":"roots/list","params":[1]}',
    "a subscription nobody asked for": b'{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":'
    b'{"_meta":{"io.modelcontextprotocol/subscriptionId":[1]},"notifications":5}}',
    "meta that is a number": b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":5}}',
    "a cancellation of nothing": b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{"a":1}}}',
    "a second greeting": b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
    "a deep notification": b'{"jsonrpc":"2.0","method":"notifications/message","params":' + b'{"a":' * 50_000 + b"1"
    b"" + b"}" * 50_000 + b"}",
    "an answer to nothing we were asked": b'{"jsonrpc":"2.0","id":"never","error":{"code":1,"message":"x"}}',
    "a record separator": b"\x1e{}",
    "zeros": b"\0" * 1000,
    "a form feed": b"\x0c",
}


@pytest.mark.parametrize("kind", ODD_MESSAGES)
async def test_an_odd_message_beside_the_answer_changes_nothing(tmp_path, kind):
    """It is answered, declined or skipped; the session and the call go on."""
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": junk(ODD_MESSAGES[kind] + b"\n") + reply("fine")})
    async with connected({"a": server.stdio()}) as connection:
        with anyio.fail_after(2 * AT_ONCE_SECONDS):
            texts = [(await connection.call_tool("a", "echo")).text for _ in range(2)]

        status = connection.status()["a"]

    assert ["fine", "fine"] == texts
    assert (ServerState.READY, 1) == (status.state, status.generation)


ROUNDS = {
    "the same state for ever": {"resultType": "input_required", "requestState": "s"},
    "a state of a megabyte": {"resultType": "input_required", "requestState": "s" * 1_000_000},
    "a state that is none": {"resultType": "input_required", "requestState": 5},
    "no state": {"resultType": "input_required"},
    "requests that are a list": {"resultType": "input_required", "inputRequests": [1], "requestState": "s"},
    "requests that are none": {"resultType": "input_required", "inputRequests": {"q": 7}, "requestState": "s"},
    "an unknown method": {"resultType": "input_required", "inputRequests": {"q": {"method": "x"}}, "requestState": "s"},
}


@pytest.mark.parametrize("kind", ROUNDS)
async def test_asking_again_and_again_comes_to_an_end(tmp_path, kind):
    """A server (2026-07-28) may ask to be asked again a bounded number of times; then the call is given up."""
    server = ScriptedServer(tmp_path, era="modern", calls={"echo": [*[reply(result=ROUNDS[kind])] * 30, reply("late")]})
    async with connected({"a": server.stdio()}) as connection:
        with anyio.fail_after(BOUND_SECONDS / 2), pytest.raises(CallError):
            await connection.call_tool("a", "echo")

        runs = server.runs("echo")
        state = connection.status()["a"].state

    assert 1 <= runs <= 20
    assert ServerState.READY is state


@pytest.mark.parametrize("kind", ["other", 5, None, []], ids=repr)
async def test_a_result_type_that_nobody_knows_is_no_result(tmp_path, kind):
    """What a later protocol means by it cannot be guessed: the call fails at once, as unknown, and the next works."""
    result = {"resultType": kind, "content": [{"type": "text", "text": "here"}]}
    server = ScriptedServer(tmp_path, era="modern", calls={"echo": [reply(result=result), reply()]})
    async with connected({"a": server.stdio()}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(MalformedReplyError) as caught:
            await connection.call_tool("a", "echo")

        following = await connection.call_tool("a", "echo")

    assert ("unknown", False) == (caught.value.outcome, following.is_error)


# -- sizes ---------------------------------------------------------------------------------------------------------


async def test_an_oversized_reply_whose_caller_left_hurts_nobody(tmp_path):
    """Half of it is there when the call is given up; the rest is drained, and the same process answers the next."""
    half = junk(b'{"jsonrpc":"2.0","id":$id,"result":{"x":"' + b"A" * 300_000)
    turn = half + hold("go") + junk(b'AAAA"}}\n') + note("written")
    server = ScriptedServer(tmp_path, era="legacy", tools=[tool("big"), tool("small")], calls={"big": turn})
    limits = Limits(max_message_bytes=100_000, call_timeout_seconds=6, shutdown_timeout_seconds=1)
    async with connected({"a": server.stdio()}, limits=limits) as connection:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.call_tool, "a", "big")
            await server.wait_for(lambda s: s.ledger("holding"))
            tasks.cancel_scope.cancel()

        server.release("go")
        await server.wait_for(lambda s: s.ledger("note"))
        result = await connection.call_tool("a", "small")
        status = connection.status()["a"]

    assert not result.is_error
    assert (ServerState.READY, 1) == (status.state, status.generation)


async def test_an_oversized_request_of_the_server_is_drained(tmp_path):
    """Its id is none of ours: no call fails by it, and the answer that follows is delivered."""
    request = b'{"jsonrpc":"2.0","id":"q","method":"roots/list","params":{"x":"' + b"A" * 300_000 + b'"}}\n'
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": junk(request) + reply("mine")})
    limits = Limits(max_message_bytes=100_000, call_timeout_seconds=6, shutdown_timeout_seconds=1)
    async with connected({"a": server.stdio()}, limits=limits) as connection:
        texts = [(await connection.call_tool("a", "echo")).text for _ in range(2)]
        generation = connection.status()["a"].generation

    assert (["mine", "mine"], 1) == (texts, generation)


@pytest.mark.parametrize("digits", [5_000, 1_000_000])
@pytest.mark.parametrize(
    "form", ['{"jsonrpc":"2.0","id":$id,"result":{"content":[],"structuredContent":{"a":%s}}}', "code"]
)
async def test_a_number_of_more_digits_than_python_reads_fails_its_call_at_once(tmp_path, digits, form):
    """Neither a result nor an error code of that kind hangs, stops the loop, or comes out as a ValueError."""
    form = '{"jsonrpc":"2.0","id":$id,"error":{"code":%s,"message":"x"}}' if form == "code" else form
    server = ScriptedServer(tmp_path, calls={"echo": [junk((form % ("1" * digits)) + "\n"), reply("next")]})
    async with connected({"a": server.stdio()}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(MalformedReplyError):
            await connection.call_tool("a", "echo")

        following = await connection.call_tool("a", "echo")

    assert "next" == following.text


async def test_an_error_of_ten_megabytes_is_an_error_of_one_line(tmp_path):
    """Its beginning is shown, and what the caller prints is bounded."""
    server = ScriptedServer(
        tmp_path,
        calls={
            "echo": junk(b'{"jsonrpc":"2.0","id":$id,"error":{"code":-1,"message":"' + b"no " * 3_000_000 + b'"}}\n')
        },
    )
    async with connected({"a": server.stdio()}) as connection:
        with anyio.fail_after(2 * AT_ONCE_SECONDS), pytest.raises(RemoteError) as caught:
            await connection.call_tool("a", "echo")

    assert caught.value.message.startswith("no no no")
    assert len(str(caught.value)) < 1_000
    assert len(caught.value.diagnostics()) < 2_000


async def test_what_stands_in_the_data_of_an_error_is_in_no_text_of_ours(tmp_path):
    """`details` is the server's own value, secrets and escape sequences included; texts and logs do not hold it."""
    secret = "sk-live-0123456789"
    turn = fail(-1, f"\x1b[31mno \u202e{secret}", data={"env": {"KEY": secret}, "x": "\x1b[2J"})
    server = ScriptedServer(tmp_path, calls={"echo": turn})
    with capture_logs() as lines:
        async with connected({"a": server.stdio(env={"KEY": secret})}) as connection:
            with pytest.raises(RemoteError) as caught:
                await connection.call_tool("a", "echo")

            status = connection.status()["a"]

    shown = (str(caught.value), caught.value.diagnostics(), repr(caught.value), str(lines), str(status.last_error))
    assert [False] * 5 == [secret in text or "\x1b" in text or "\u202e" in text for text in shown]
    assert {"env": {"KEY": secret}, "x": "\x1b[2J"} == caught.value.details


@pytest.mark.parametrize("where", ["message", "data"])
async def test_half_a_character_in_an_error_is_shown_and_ends_nothing(tmp_path, where):
    """The SDK's own error type refuses such a text; the session must not end by it."""
    parts = {"message": '"message":"a\\ud800b"', "data": '"message":"x","data":{"a":"\\ud800"}'}
    turn = junk(f'{{"jsonrpc":"2.0","id":$id,"error":{{"code":-1,{parts[where]}}}}}\n')
    server = ScriptedServer(tmp_path, calls={"echo": [turn, reply("next")]})
    async with connected({"a": server.stdio()}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(RemoteError) as caught:
            await connection.call_tool("a", "echo")

        following = await connection.call_tool("a", "echo")
        generation = connection.status()["a"].generation

    assert caught.value.diagnostics().encode()
    assert ("next", 1) == (following.text, generation)
