"""What stands on stdout besides messages, and messages that are too large, too deep or no text."""

import json
import resource

import anyio
import pytest
from bounds import AT_ONCE_SECONDS, connected, until

from deputy_mcp import (
    CallTimeoutError,
    Limits,
    MalformedReplyError,
    PinBook,
    ResultTooLargeError,
    ServerLostError,
    ServerState,
)
from deputy_mcp.testing import ScriptedServer, dribble, endless, freeze, hold, junk, notify, reply, send, tool

pytestmark = pytest.mark.anyio

BANNER = "Azure DevOps MCP Server version : 1.2\n\n┌──┐\n[09/15/25 00:30:17] INFO starting\n{}\n[]\nnull\n\n"


def answer(text: str) -> bytes:
    """A whole reply line to the request under way, without its line break; `text` stands in it as it is."""
    return b'{"jsonrpc":"2.0","id":$id,"result":{"content":[{"type":"text","text":"%s"}]}}' % text.encode()


def answer_of_size(size: int) -> bytes:
    """A reply line of exactly `size` bytes where the request id has one digit."""
    return answer("a" * (size - len(answer("").replace(b"$id", b"3"))))


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_lines_that_are_no_messages_cost_nothing(tmp_path, era):
    """Banners, log lines, box drawings and blank lines are skipped, before the handshake and between messages.

    https://github.com/microsoft/azure-devops-mcp/issues/147
    """
    server = ScriptedServer(
        tmp_path,
        era=era,
        at_start=junk(BANNER),
        methods={"tools/list": junk(BANNER) + reply()},
        calls={"echo": junk(BANNER) + reply("fine") + junk(BANNER)},
    )
    async with connected({"a": server.stdio()}) as connection:
        results = [await connection.call_tool("a", "echo") for _ in range(2)]

    assert ["fine", "fine"] == [result.text for result in results]
    assert 1 == len(server.pids())


async def test_one_invalid_byte_costs_only_its_own_line(tmp_path):
    """A line that is no UTF-8 is noise; the valid one after it is the answer.

    https://github.com/modelcontextprotocol/python-sdk/pull/2456
    """
    server = ScriptedServer(tmp_path, calls={"echo": junk(b"\xff\xfe\n") + reply("fine")})
    async with connected({"a": server.stdio()}) as connection:
        results = [await connection.call_tool("a", "echo") for _ in range(2)]

    assert ["fine", "fine"] == [result.text for result in results]


async def test_an_invalid_byte_inside_a_reply_is_repaired_and_marked(tmp_path):
    """A reply with a byte of another encoding is delivered with U+FFFD and a finding, and the session stays usable.

    https://github.com/modelcontextprotocol/python-sdk/pull/2456
    """
    broken = answer("it?s").replace(b"?", b"\x92") + b"\n"
    server = ScriptedServer(tmp_path, calls={"echo": [junk(broken), reply("fine")]})
    async with connected({"a": server.stdio()}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS):
            first = await connection.call_tool("a", "echo")

        second = await connection.call_tool("a", "echo")

    assert "it\ufffds" == first.text
    assert ["repaired_text"] == [finding.code for finding in first.findings]
    assert ("fine", ()) == (second.text, second.findings)


async def test_a_reply_that_comes_byte_by_byte_is_whole(tmp_path):
    """No character is lost where a read ends in the middle of it.

    https://github.com/modelcontextprotocol/typescript-sdk/pull/2038
    """
    message = {"jsonrpc": "2.0", "id": "$id", "result": {"content": [{"type": "text", "text": "é—😀"}]}}
    server = ScriptedServer(tmp_path, calls={"echo": dribble(message)})
    async with connected({"a": server.stdio()}) as connection:
        result = await connection.call_tool("a", "echo")

    assert "é—😀" == result.text


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
async def test_a_byte_order_mark_and_carriage_returns_are_no_obstacle(tmp_path, era, line_end):
    """A stream may begin with a byte-order mark and end its lines as Windows does.

    https://github.com/modelcontextprotocol/kotlin-sdk/issues/956
    """
    server = ScriptedServer(tmp_path, era=era, at_start=junk(b"\xef\xbb\xbf"), line_end=line_end)
    async with connected({"a": server.stdio()}) as connection:
        result = await connection.call_tool("a", "echo")

    assert not result.is_error


@pytest.mark.parametrize("size", [132_000, 1_000_000, 12_000_000])
async def test_a_large_reply_below_the_cap_is_delivered(tmp_path, size):
    """There is one limit on a message, ours; below it size alone fails nothing and costs linear time.

    https://github.com/QwenLM/qwen-code/issues/9298
    """
    server = ScriptedServer(tmp_path, calls={"echo": reply("a" * size)})
    limits = Limits(max_result_bytes=20_000_000, call_timeout_seconds=6, shutdown_timeout_seconds=1)
    async with connected({"a": server.stdio()}, limits=limits) as connection:
        result = await connection.call_tool("a", "echo")

    assert size == len(result.text)


@pytest.mark.parametrize("transport", ["stdio", "http", "stream"])
async def test_the_message_cap_is_exact_and_the_session_survives_it(tmp_path, transport):
    """At the cap a reply is delivered; one byte more fails that call with limit and size, and only that call.

    https://github.com/QwenLM/qwen-code/issues/9298
    """
    cap = 50_000
    sizes = (cap - 1, cap, cap + 1)
    turns = [_answer_over(transport, size) for size in sizes]
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": [*turns, reply("after")]})
    limits = Limits(max_message_bytes=cap, call_timeout_seconds=6, shutdown_timeout_seconds=1)

    async def check(entry):
        # Not listed again before each call: the replies' sizes are counted for ids of one digit.
        async with connected({"a": entry}, limits=limits, pins=PinBook(verify="change")) as connection:
            below = await connection.call_tool("a", "echo")
            exact = await connection.call_tool("a", "echo")
            with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(ResultTooLargeError) as caught:
                await connection.call_tool("a", "echo")

            after = await connection.call_tool("a", "echo")
            return below, exact, caught.value, after, connection.status()["a"].generation

    if transport == "stdio":
        below, exact, error, after, generation = await check(server.stdio(protocol="legacy"))
    else:
        async with server.http(protocol="legacy") as entry:
            below, exact, error, after, generation = await check(entry)

    assert 1 == len(exact.text) - len(below.text)
    assert (cap, cap + 1) == (error.limit_bytes, error.seen_bytes)
    assert ("after", 1) == (after.text, generation)


def _answer_over(transport: str, size: int):
    """A reply whose message (on a stream: whose event, its blank line apart) has exactly `size` bytes."""
    if transport == "stdio":
        return junk(answer_of_size(size) + b"\n")

    if transport == "http":
        return junk(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + answer_of_size(size))

    event = b"data:" + answer_of_size(size - len(b"data:\n")) + b"\n\n"
    return junk(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + event)


@pytest.mark.parametrize("id_stands", ["first", "last", "in the middle"])
async def test_an_oversized_line_fails_the_call_that_it_answers_and_no_other(tmp_path, id_stands):
    """Wherever its id stands, a line past the cap hurts its own call; one beside it gets its answer.

    https://github.com/openai/codex/pull/31805
    """
    blob = b'"result":{"content":[{"type":"text","text":"%s"}],"id":77}' % (b"A" * 300_000)
    small = b'"result":{"content":[],"id":77,"x":"%s"}' % (b"A" * 300_000)
    lines = {
        "first": b'{"id":$id,"jsonrpc":"2.0",' + blob + b"}\n",
        "last": b'{"jsonrpc":"2.0",' + blob + b',"id":$id}\n',
        "in the middle": b'{"jsonrpc":"2.0","extra":{"id":77},"id":$id,' + small + b"}\n",
    }
    server = ScriptedServer(
        tmp_path,
        tools=[tool("big"), tool("small")],
        calls={"big": junk(lines[id_stands]), "small": hold("go") + reply("fine")},
    )
    limits = Limits(max_message_bytes=100_000, call_timeout_seconds=6, shutdown_timeout_seconds=1)
    async with connected({"a": server.stdio()}, limits=limits) as connection, anyio.create_task_group() as tasks:
        results = []

        async def call_small():
            results.append(await connection.call_tool("a", "small"))

        tasks.start_soon(call_small)
        await server.wait_for(lambda s: s.ledger("holding"))
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(ResultTooLargeError) as caught:
            await connection.call_tool("a", "big")

        server.release("go")

    assert caught.value.seen_bytes > 300_000
    assert ["fine"] == [result.text for result in results]
    assert 1 == len(server.pids())


async def test_a_line_that_never_ends_is_cut_off_and_its_memory_bounded(tmp_path):
    """A flood ends the server, not the host; what was whole before it is still delivered.

    https://github.com/openai/codex/pull/31805
    """
    cap = 4 * 1024 * 1024
    flood = reply("whole") + endless(b"A" * 1_000_000, head='{"jsonrpc":"2.0","x":"')
    server = ScriptedServer(tmp_path, calls={"echo": flood})
    limits = Limits(max_message_bytes=cap, call_timeout_seconds=6, shutdown_timeout_seconds=1)
    async with connected({"a": server.stdio()}, limits=limits) as connection:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = await connection.call_tool("a", "echo")
        await until(connection, lambda status: status["a"].last_error is not None)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        status = connection.status()["a"]

    assert "whole" == result.text
    assert "max_message_bytes" in (status.last_error or "")
    assert grown < 2 * cap


async def test_a_call_answered_by_an_endless_line_fails_and_the_server_comes_back(tmp_path):
    """The call under which the flood began does not wait for its deadline.

    https://github.com/openai/codex/pull/31805
    """
    flood = endless(b"A" * 100_000, head='{"jsonrpc":"2.0","result":{"text":"')
    server = ScriptedServer(tmp_path, calls={"echo": [flood, reply("back")]})
    limits = Limits(max_message_bytes=100_000, call_timeout_seconds=6, shutdown_timeout_seconds=1)
    async with connected({"a": server.stdio()}, limits=limits) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises((ServerLostError, ResultTooLargeError)):
            await connection.call_tool("a", "echo")

        again = await connection.call_tool("a", "echo")

    assert "back" == again.text


TEXTS = {
    "nul": ("$12,000\\u0000–$18,000", "$12,000\\u0000–$18,000", "$12,000\0–$18,000"),
    "escape": ("\\u001b[2Jgone", "\\u001b[2Jgone", "\x1b[2Jgone"),
}


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("kind", TEXTS)
async def test_control_characters_are_shown_in_text_and_kept_in_content(tmp_path, kind, transport):
    """What a model reads holds no control character; what a program reads is what was sent.

    https://github.com/aebrer/dreb/issues/352
    """
    escaped, shown, original = TEXTS[kind]
    line = answer(escaped)
    http = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"
    server = ScriptedServer(tmp_path, calls={"echo": junk(line + b"\n" if transport == "stdio" else http + line)})

    async def check(entry):
        async with connected({"a": entry}) as connection:
            return await connection.call_tool("a", "echo")

    if transport == "stdio":
        result = await check(server.stdio())
    else:
        async with server.http() as entry:
            result = await check(entry)

    assert shown == result.text
    assert original == result.content[0].text


@pytest.mark.parametrize("transport", ["stdio", "http", "stream"])
async def test_a_lone_surrogate_is_repaired_and_marked(tmp_path, transport):
    """Half a character that no other program can encode does not hang the call and never reaches a model.

    https://github.com/aebrer/dreb/issues/352
    """
    line = answer("a\\ud800b")
    turns = {
        "stdio": junk(line + b"\n"),
        "http": junk(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + line),
        "stream": junk(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: " + line + b"\n\n"),
    }
    server = ScriptedServer(tmp_path, calls={"echo": [turns[transport], reply("fine")]})

    async def check(entry):
        async with connected({"a": entry}) as connection:
            with anyio.fail_after(AT_ONCE_SECONDS):
                return await connection.call_tool("a", "echo"), await connection.call_tool("a", "echo")

    if transport == "stdio":
        first, second = await check(server.stdio())
    else:
        async with server.http() as entry:
            first, second = await check(entry)

    assert first.text.encode()
    assert first.text.startswith("a")
    assert first.text.endswith("b")
    assert ["repaired_text"] == [finding.code for finding in first.findings]
    assert "fine" == second.text


@pytest.mark.parametrize("depth", [150, 500])
async def test_a_reply_nested_as_real_ones_may_be_is_delivered(tmp_path, depth):
    """Depth that Python's own reader takes is no reason to lose a result.

    https://github.com/aebrer/dreb/issues/352
    """
    deep = b'{"jsonrpc":"2.0","id":$id,"result":{"content":[],"structuredContent":{"a":%s%s}}}\n'
    server = ScriptedServer(tmp_path, calls={"echo": junk(deep % (b"[" * depth, b"]" * depth))})
    async with connected({"a": server.stdio()}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS):
            result = await connection.call_tool("a", "echo")

    assert not result.is_error


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("depth", [5_000, 100_000])
async def test_a_reply_nested_beyond_reason_fails_its_call_at_once(tmp_path, depth, transport):
    """What cannot be parsed but names its call ends that call, not its deadline and not the session.

    https://github.com/aebrer/dreb/issues/352
    """
    deep = b'{"jsonrpc":"2.0","id":$id,"result":{"content":[],"structuredContent":{"a":%s%s}}}'
    line = deep % (b"[" * depth, b"]" * depth)
    http = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"
    server = ScriptedServer(
        tmp_path, calls={"echo": [junk(line + b"\n" if transport == "stdio" else http + line), reply("fine")]}
    )

    async def check(entry):
        async with connected({"a": entry}) as connection:
            with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(MalformedReplyError):
                await connection.call_tool("a", "echo")

            return await connection.call_tool("a", "echo")

    if transport == "stdio":
        result = await check(server.stdio())
    else:
        async with server.http() as entry:
            result = await check(entry)

    assert "fine" == result.text
    assert 1 == len(server.pids())


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e400"])
async def test_a_number_that_json_lacks_never_hangs_a_call(tmp_path, number):
    """The call ends at once, with a result or as malformed, and the next one works.

    https://github.com/aebrer/dreb/issues/352
    """
    odd = b'{"jsonrpc":"2.0","id":$id,"result":{"content":[],"structuredContent":{"a":%s}}}\n' % number.encode()
    server = ScriptedServer(tmp_path, calls={"echo": [junk(odd), reply("fine")]})
    async with connected({"a": server.stdio()}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS):
            try:
                outcome = type(await connection.call_tool("a", "echo")).__name__
            except MalformedReplyError:
                outcome = "MalformedReplyError"

            again = await connection.call_tool("a", "echo")

    assert outcome in ("ToolResult", "MalformedReplyError")
    assert "fine" == again.text


async def test_a_server_that_writes_length_prefixed_messages_is_told_apart(tmp_path):
    """A framing from which no message can ever come is named, instead of the start deadline being waited out.

    https://github.com/microsoft/azure-devops-mcp/issues/147
    """
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}})
    server = ScriptedServer(tmp_path, at_start=junk(f"Content-Length: {len(body)}\r\n\r\n{body}") + freeze())
    limits = Limits(startup_timeout_seconds=6, shutdown_timeout_seconds=0.5)
    async with connected({"a": server.stdio()}, limits=limits) as connection:
        status = connection.status()["a"]

    assert "length-prefixed" in (status.last_error or "")
    assert status.state is not ServerState.READY


@pytest.mark.parametrize(
    "method",
    ["notifications/tools/list_changed", "notifications/message", "notifications/progress", "notifications/x"],
)
async def test_a_flood_of_notifications_neither_delays_the_answer_nor_is_followed_one_by_one(tmp_path, method):
    """A burst costs one listing, no task each, and the call behind it is answered.

    https://github.com/aaif-goose/goose/issues/10433
    """
    params = {"level": "info", "data": "x", "progressToken": "$token", "progress": 1}
    server = ScriptedServer(
        tmp_path, era="legacy", calls={"echo": notify(method, params, times=20_000) + reply("fine")}
    )
    async with connected({"a": server.stdio()}) as connection:
        result = await connection.call_tool("a", "echo")
        after = await connection.call_tool("a", "echo", timeout_seconds=6)

    assert ("fine", "fine") == (result.text, after.text)
    assert len(server.received("tools/list")) <= 6


async def test_a_server_that_reads_nothing_holds_no_caller(tmp_path):
    """The deadline covers the write: a request that does not fit into the pipe ends when its time is over.

    https://github.com/mark3labs/mcp-go/issues/956
    """
    server = ScriptedServer(tmp_path, tools=[tool("stuck"), tool("echo")], calls={"stuck": freeze()})
    async with connected({"a": server.stdio()}, pins=PinBook(verify="change")) as connection:
        with pytest.raises(CallTimeoutError):
            await connection.call_tool("a", "stuck", timeout_seconds=0.2)

        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(CallTimeoutError):
            await connection.call_tool("a", "echo", {"x": "y" * 1_000_000}, timeout_seconds=0.3)


async def test_a_server_that_stays_silent_call_after_call_is_started_again(tmp_path):
    """Three timeouts with nothing read in between are a hung server, and the next call gets a new process.

    https://github.com/MoonshotAI/kimi-code/issues/2109
    """
    server = ScriptedServer(tmp_path, calls={"echo": [freeze(), reply("back")]})
    async with connected({"a": server.stdio()}) as connection:
        for _ in range(3):
            # The first was sent; those after it are not answered when the tools are listed anew.
            with pytest.raises(TimeoutError):
                await connection.call_tool("a", "echo", timeout_seconds=0.1)

        result = await connection.call_tool("a", "echo")

    assert "back" == result.text
    assert 2 == len(server.pids())


async def test_a_reply_in_a_batch_reaches_its_call(tmp_path):
    """Protocol 2025-03-26 lets a server answer in a batch; its members are messages like any other.

    https://github.com/microsoft/agent-framework/issues/1744
    """
    batch = [
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}},
        {"jsonrpc": "2.0", "id": "$id", "result": {"content": [{"type": "text", "text": "in a batch"}]}},
    ]
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": send(batch)})
    async with connected({"a": server.stdio()}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS):
            result = await connection.call_tool("a", "echo")

    assert "in a batch" == result.text
