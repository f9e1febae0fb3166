"""Streamable HTTP: statuses, lost connections, forgotten sessions, odd bodies, redirects, tokens."""

import json
from urllib.parse import urlsplit

import anyio
import pytest
from bounds import AT_ONCE_SECONDS, NEVER, connected

from deputy_mcp import (
    Approve,
    CallError,
    CallTimeoutError,
    HttpServer,
    HttpStatusError,
    Limits,
    MalformedReplyError,
    PinBook,
    PinMismatchError,
    RemoteError,
    RestartPolicy,
    ResultTooLargeError,
    ServerLostError,
    ServerState,
)
from deputy_mcp.testing import (
    FixedApprover,
    ScriptedServer,
    change_tools,
    end_stream,
    endless,
    endless_body,
    fail,
    forget_sessions,
    gzip_bomb,
    half_body,
    hang_up,
    hold,
    junk,
    list_changed,
    note,
    open_stream,
    redirect,
    reply,
    respond,
    silence,
    stream,
    tell_streams,
    tool,
    want_bearer,
)

pytestmark = pytest.mark.anyio

JSON = "application/json"
SSE_HEAD = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


def answer(text: str) -> str:
    """A reply as JSON with its id still to be filled in."""
    result = {"content": [{"type": "text", "text": text}]}
    return json.dumps({"jsonrpc": "2.0", "id": "$id", "result": result}).replace('"$id"', "$id")


DROPS = {
    "before a byte": hang_up(),
    "after the head": junk("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n"),
    "inside the body": half_body(),
    "inside a stream": stream() + hang_up(),
}


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("drop", DROPS)
async def test_a_dropped_connection_costs_one_call_and_nobody_else(tmp_path, drop, era):
    """That call's outcome is unknown; the next on the same server and those on others are answered.

    https://github.com/modelcontextprotocol/python-sdk/issues/3522
    """
    server = ScriptedServer(tmp_path, era=era, calls={"echo": [note("ran") + DROPS[drop], reply("next")]})
    sibling = ScriptedServer(tmp_path, name="sibling", calls={"echo": hold("go") + reply("undisturbed")})
    async with server.http() as entry, connected({"a": entry, "b": sibling.stdio()}) as connection:
        results = []

        async def call_sibling():
            results.append(await connection.call_tool("b", "echo"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call_sibling)
            await sibling.wait_for(lambda s: s.ledger("holding"))
            with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(ServerLostError) as caught:
                await connection.call_tool("a", "echo")

            status = connection.status()["a"]
            results.append(await connection.call_tool("a", "echo"))
            sibling.release("go")

    assert ("connection_dropped", "unknown") == (caught.value.code, caught.value.outcome)
    assert (ServerState.READY, 1) == (status.state, status.generation)
    assert ["next", "undisturbed"] == [result.text for result in results]
    assert 1 == len(server.ledger("note"))


FORGOTTEN = {
    "JSON-RPC": '{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}',
    "plain text": "no such session",
    "nothing": "",
}


@pytest.mark.parametrize("body", FORGOTTEN)
async def test_a_forgotten_session_is_opened_again_and_the_call_sent_once_more(tmp_path, body):
    """A 404 to a request with a session id says that nothing ran: a new session, a new listing, the call again.

    https://github.com/modelcontextprotocol/python-sdk/issues/3556
    """
    server = ScriptedServer(
        tmp_path,
        era="legacy",
        sessions=True,
        calls={"echo": [reply("first") + forget_sessions(404, FORGOTTEN[body]), reply("second")]},
    )
    async with server.http() as entry, connected({"a": entry}, pins=PinBook(verify="change")) as connection:
        handle = connection.tools("a")[0]
        first = await handle()
        with anyio.fail_after(AT_ONCE_SECONDS):
            second = await handle()

        status = connection.status()["a"]

    greetings = [e for e in server.ledger() if e["kind"] == "http"]
    assert ("first", "second") == (first.text, second.text)
    assert (2, 2) == (server.runs("echo"), len(server.received("initialize")))
    assert 2 == len(server.received("tools/list"))
    assert (ServerState.READY, 2, 0) == (status.state, status.generation, status.restarts)
    assert sum("mcp-session-id" not in e["headers"] and e["method"] == "POST" for e in greetings) >= 2


async def test_a_tool_that_changed_with_the_session_is_refused(tmp_path):
    """After a forgotten session the tools are compared with their pins before anything is sent again.

    https://github.com/modelcontextprotocol/python-sdk/issues/3556
    """
    turn = reply("first") + forget_sessions() + change_tools(tool("echo", description="now something else"))
    server = ScriptedServer(tmp_path, era="legacy", sessions=True, calls={"echo": turn})
    async with server.http() as entry, connected({"a": entry}) as connection:
        await connection.call_tool("a", "echo")
        with pytest.raises(PinMismatchError) as caught:
            await connection.call_tool("a", "echo")

    assert "pin_changed" == caught.value.code
    assert 1 == server.runs("echo")


@pytest.mark.parametrize("sessions", [False, True])
async def test_an_immediate_404_is_no_timeout(tmp_path, sessions):
    """Codes are not guessed at: a server's -32001 is its own error, a timeout is our own deadline.

    https://github.com/anthropics/claude-code/issues/83404
    """
    body = '{"jsonrpc":"2.0","id":$id,"error":{"code":-32001,"message":"Session not found"}}'
    turns = [respond(404, body, content_type=JSON), reply("again")]
    server = ScriptedServer(tmp_path, era="legacy", sessions=sessions, calls={"echo": turns})
    async with server.http() as entry, connected({"a": entry}) as connection:
        if sessions:
            assert "again" == (await connection.call_tool("a", "echo")).text
        else:
            with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(CallError) as caught:
                await connection.call_tool("a", "echo")

            assert not isinstance(caught.value, TimeoutError)
            assert isinstance(caught.value, HttpStatusError | RemoteError)


async def test_a_tool_s_own_error_is_not_taken_for_a_forgotten_session(tmp_path):
    """Only the transport's word ends a session, never what a tool writes.

    https://github.com/google/adk-python/issues/6822
    """
    failure = {"content": [{"type": "text", "text": "404 Session not found"}], "isError": True}
    turns = [reply(result=failure), fail(-32001, "Session not found"), reply("fine")]
    server = ScriptedServer(tmp_path, era="legacy", sessions=True, calls={"echo": turns})
    async with server.http() as entry, connected({"a": entry}) as connection:
        first = await connection.call_tool("a", "echo")
        with pytest.raises(RemoteError):
            await connection.call_tool("a", "echo")

        third = await connection.call_tool("a", "echo")

    assert first.is_error
    assert "fine" == third.text
    assert 1 == len(server.received("initialize"))


LOST_IN_FLIGHT = {
    "error without id": respond(
        200, '{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session terminated"}}', content_type=JSON
    ),
    "empty object": respond(200, "{}", content_type=JSON),
    "stream without answer": stream() + junk(": ping\n\n") + end_stream(),
    "accepted": silence(),
}


@pytest.mark.parametrize("how", LOST_IN_FLIGHT)
async def test_a_session_lost_under_a_call_is_repaired_and_the_call_not_replayed(tmp_path, how):
    """What may have run fails with `session_lost`; the calls after it find a new session.

    https://github.com/google/adk-python/issues/6822
    """
    turns = [note("ran") + LOST_IN_FLIGHT[how], reply("after")]
    server = ScriptedServer(tmp_path, era="legacy", sessions=True, calls={"echo": turns})
    async with server.http() as entry, connected({"a": entry}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(ServerLostError) as caught:
            await connection.call_tool("a", "echo")

        after = [await connection.call_tool("a", "echo") for _ in range(3)]

    assert ("session_lost", "unknown") == (caught.value.code, caught.value.outcome)
    assert ["after"] * 3 == [result.text for result in after]
    assert (1, 2) == (len(server.ledger("note")), len(server.received("initialize")))


@pytest.mark.parametrize("status", [404, 405, 406])
async def test_a_server_without_a_stream_of_its_own_is_asked_once(tmp_path, status):
    """A refused GET is not tried again; everything goes over POST.

    https://github.com/open-webui/open-webui/issues/27795
    """
    server = ScriptedServer(tmp_path, era="legacy", sessions=True, methods={"GET": respond(status)})
    async with server.http() as entry, connected({"a": entry}) as connection:
        await server.wait_for(lambda s: [e for e in s.ledger("http") if e["method"] == "GET"])
        results = [await connection.call_tool("a", "echo") for _ in range(5)]

    assert [False] * 5 == [result.is_error for result in results]
    assert 1 == sum(entry["method"] == "GET" for entry in server.ledger("http"))


async def test_a_change_told_on_the_server_s_own_stream_is_followed(tmp_path):
    """Over legacy Streamable HTTP changes come on the GET stream; the list is fetched again.

    https://github.com/aaif-goose/goose/issues/10433
    """
    turn = change_tools(tool("echo"), tool("new")) + tell_streams() + reply()
    server = ScriptedServer(tmp_path, era="legacy", sessions=True, methods={"GET": open_stream()}, calls={"echo": turn})
    async with server.http() as entry, connected({"a": entry}) as connection:
        await server.wait_for(lambda s: s.ledger("stream"))
        await connection.call_tool("a", "echo")
        await server.wait_for(lambda s: len(s.received("tools/list")) >= 2)
        await connection.call_tool("a", "echo")
        refused = connection.status()["a"].refused

    assert "pin_unknown" == refused["new"][0]


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("status", [400, 401, 403, 429, 500, 502, 503])
async def test_an_http_status_reaches_the_caller_with_what_the_server_said(tmp_path, status, era):
    """Status, a bounded and masked piece of the body, and `Retry-After` stand in the error.

    https://github.com/modelcontextprotocol/python-sdk/issues/3091
    """
    body = "denied to Bearer token-of-mine-1234 " + "x" * 20_000
    turn = respond(status, body, content_type="text/plain", headers={"retry-after": "3600"})
    server = ScriptedServer(tmp_path, era=era, calls={"echo": turn})
    async with (
        server.http(headers={"Authorization": "Bearer token-of-mine-1234"}) as entry,
        connected({"a": entry}) as connection,
    ):
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(HttpStatusError) as caught:
            await connection.call_tool("a", "echo")

    error = caught.value
    assert (status, 3600) == (error.status, error.retry_after_seconds)
    assert ("refused" if status in (401, 403, 429) else "unknown") == error.outcome
    assert error.excerpt.startswith("denied to")
    assert "token-of-mine-1234" not in error.excerpt + str(error) + error.diagnostics()
    assert len(error.excerpt) <= 8 * 1024


async def test_a_429_whose_wait_fits_the_deadline_is_sent_once_more(tmp_path):
    """Nothing ran, the server said when to come back, and the deadline allows it.

    https://github.com/modelcontextprotocol/python-sdk/issues/3091
    """
    turns = [respond(429, headers={"retry-after": "0"}), reply("now")]
    server = ScriptedServer(tmp_path, calls={"echo": turns})
    async with server.http() as entry, connected({"a": entry}) as connection:
        result = await connection.call_tool("a", "echo")

    assert "now" == result.text
    assert 2 == server.runs("echo")


NO_ANSWER = {
    "stream without answer": stream() + junk(": ping\n\n") + end_stream(),
    "202": respond(202),
    "204": junk("HTTP/1.1 204 No Content\r\n\r\n"),
    "empty object": respond(200, "{}", content_type=JSON),
    "empty body": respond(200, "", content_type=JSON),
    "empty list": respond(200, "[]", content_type=JSON),
    "broken JSON": respond(200, '{"jsonrpc":"2.0","id":$id,"resu', content_type=JSON),
    "no content type": respond(200, "ok"),
    "unknown encoding": junk(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: br\r\ncontent-length: 2\r\n\r\n{}"
    ),
    "broken gzip": junk(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}"
    ),
}


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("how", NO_ANSWER)
async def test_a_response_without_an_answer_fails_its_call_at_once(tmp_path, how, era):
    """No call waits for an answer that can no longer come; its outcome is unknown, the next one works.

    https://github.com/modelcontextprotocol/python-sdk/pull/3052
    """
    server = ScriptedServer(tmp_path, era=era, calls={"echo": [NO_ANSWER[how], reply("next")]})
    async with server.http() as entry, connected({"a": entry}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(CallError) as caught:
            await connection.call_tool("a", "echo")

        after = await connection.call_tool("a", "echo")

    assert "unknown" == caught.value.outcome
    assert isinstance(caught.value, MalformedReplyError | ServerLostError)
    assert "next" == after.text


async def test_a_login_page_in_the_middle_is_named_as_what_it_is(tmp_path):
    """HTML instead of JSON is an error that shows the content type.

    https://github.com/modelcontextprotocol/python-sdk/issues/1382
    """
    page = respond(200, "<html>login</html>", content_type="text/html; charset=utf-8")
    server = ScriptedServer(tmp_path, calls={"echo": page})
    async with server.http() as entry, connected({"a": entry}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(MalformedReplyError, match="text/html"):
            await connection.call_tool("a", "echo")


async def test_an_address_that_is_no_mcp_server_is_told_apart_at_the_start(tmp_path):
    """A login page from the first request on leaves the server down, with that reason.

    https://github.com/modelcontextprotocol/python-sdk/issues/1382
    """
    page = respond(200, "<html>login</html>", content_type="text/html")
    server = ScriptedServer(tmp_path, methods={"server/discover": page, "initialize": page})
    async with server.http(restart=NEVER) as entry, connected({"a": entry}) as connection:
        status = connection.status()["a"]

    assert ServerState.READY != status.state
    assert "text/html" in (status.reason or "")


async def test_a_charset_and_an_odd_reply_to_a_notification_are_no_obstacle(tmp_path):
    """Parameters of a content type do not count, nor does what is answered to a notification.

    https://github.com/modelcontextprotocol/python-sdk/issues/1382
    """
    server = ScriptedServer(
        tmp_path,
        era="legacy",
        calls={"echo": respond(200, answer("fine"), content_type="Application/JSON; charset=utf-8")},
        methods={"notifications/initialized": respond(200, "thanks", content_type="text/plain")},
    )
    async with server.http() as entry, connected({"a": entry}) as connection:
        result = await connection.call_tool("a", "echo")

    assert "fine" == result.text


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("sessions", [False, True])
async def test_an_event_stream_may_carry_what_the_standard_allows(tmp_path, line_end, sessions):
    """Priming events, comments, retry fields, a byte-order mark and any line end stand before the answer.

    https://github.com/modelcontextprotocol/go-sdk/issues/768
    """
    lines = [
        "\ufeffid: 123",
        "data: ",
        "",
        ": a comment",
        "",
        "retry: 10",
        "",
        "event: message",
        "data: " + answer("fine"),
        "",
        "",
    ]
    server = ScriptedServer(
        tmp_path, era="legacy", sessions=sessions, calls={"echo": junk(SSE_HEAD + line_end.join(lines))}
    )
    async with server.http() as entry, connected({"a": entry}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS):
            result = await connection.call_tool("a", "echo")

    assert "fine" == result.text


async def test_a_redirect_within_the_origin_is_followed_with_body_and_headers(tmp_path):
    """307 to the same origin keeps method, body and token.

    https://github.com/BerriAI/litellm/pull/34845
    """
    server = ScriptedServer(tmp_path, calls={"echo": [redirect("/mcp/"), reply()]})
    async with server.http(headers={"Authorization": "Bearer t"}) as entry, connected({"a": entry}) as connection:
        result = await connection.call_tool("a", "echo", {"x": 1})

    (followed,) = [entry for entry in server.ledger("http") if entry["path"] == "/mcp/"]
    assert '{"tool": "echo", "arguments": {"x": 1}}' == result.text
    assert ("POST", "Bearer t") == (followed["method"], followed["headers"]["authorization"])


async def test_a_redirect_to_another_origin_is_refused_and_gets_nothing(tmp_path):
    """Another port is another origin: it sees neither request nor token, and the error shows where it would have led.

    https://github.com/BerriAI/litellm/pull/34845
    """
    elsewhere = ScriptedServer(tmp_path, name="elsewhere")
    async with elsewhere.http() as trap:
        server = ScriptedServer(tmp_path, calls={"echo": redirect(trap.url)})
        async with server.http(headers={"Authorization": "Bearer t"}) as entry, connected({"a": entry}) as connection:
            with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(HttpStatusError) as caught:
                await connection.call_tool("a", "echo")

    assert 307 == caught.value.status
    assert trap.url.split("/")[2] in str(caught.value)
    assert [] == elsewhere.ledger("http")


@pytest.mark.parametrize("form", ["json", "stream"])
async def test_two_megabytes_are_fine_in_a_listing_and_in_a_result(tmp_path, form):
    """One cap for every transport, ours: a large event is no larger than the same JSON body.

    https://github.com/modelcontextprotocol/python-sdk/issues/3332
    """
    start = stream() if form == "stream" else silence()
    server = ScriptedServer(
        tmp_path,
        tools=[tool("echo", description="d" * 2_140_787)],
        methods={"tools/list": start + reply()},
        calls={"echo": start + reply("r" * 2_140_787)},
    )
    limits = Limits(max_result_bytes=4_000_000, call_timeout_seconds=6, shutdown_timeout_seconds=1)
    async with (
        server.http() as entry,
        connected({"a": entry}, limits=limits, approver=FixedApprover(Approve())) as connection,
    ):
        tools = connection.tools("a")
        result = await connection.call_tool("a", "echo")

    assert ["echo"] == [handle.tool for handle in tools]
    assert 2_140_787 == len(result.text)


BOMBS = {
    "endless body": endless_body(),
    "gzip": gzip_bomb(60_000_000),
    "endless event": endless("a" * 65_536, head=SSE_HEAD + 'data: {"jsonrpc":"2.0","id":$id,"result":{"x":"'),
    "endless line of comments": endless(":" + "a" * 65_536, head=SSE_HEAD),
}


@pytest.mark.parametrize("bomb", BOMBS)
async def test_a_response_without_end_is_hung_up_on_at_the_cap(tmp_path, bomb):
    """Counted after decompression; the call fails with limit and size, and the next one works.

    https://github.com/modelcontextprotocol/python-sdk/issues/3332
    """
    server = ScriptedServer(tmp_path, calls={"echo": [BOMBS[bomb], reply("next")]})
    limits = Limits(max_message_bytes=1_000_000, call_timeout_seconds=6, shutdown_timeout_seconds=1)
    async with server.http() as entry, connected({"a": entry}, limits=limits) as connection:
        # Compressing the bomb takes the server a second.
        with anyio.fail_after(AT_ONCE_SECONDS + 2), pytest.raises(ResultTooLargeError) as caught:
            await connection.call_tool("a", "echo")

        after = await connection.call_tool("a", "echo")

    assert 1_000_000 == caught.value.limit_bytes
    assert caught.value.seen_bytes >= 1_000_000
    assert "next" == after.text


async def test_a_header_callable_is_asked_again_when_the_token_expires(tmp_path):
    """Headers are resolved for each request and once more after a 401, unseen by the caller.

    https://github.com/anthropics/claude-code/issues/53267
    """
    tokens = ["Bearer 1"]
    turns = [reply("one"), reply("two") + want_bearer("2"), reply("three")]
    server = ScriptedServer(tmp_path, bearer="1", era="modern", capabilities={"tools": {}}, calls={"echo": turns})

    def token():
        return tokens.pop(0) if len(tokens) > 1 else tokens[0]

    async with server.http(headers={"Authorization": token}) as entry, connected({"a": entry}) as connection:
        texts = [(await connection.call_tool("a", "echo")).text for _ in range(2)]
        # The next request still gets the old one; the server's no is what brings the new one.
        tokens[:] = ["Bearer 1", "Bearer 2"]
        texts.append((await connection.call_tool("a", "echo")).text)

    assert ["one", "two", "three"] == texts
    assert 3 == server.runs("echo")


async def test_a_token_that_stays_wrong_is_an_error_after_one_more_try(tmp_path):
    """Two requests, then HTTP 401; nothing ran.

    https://github.com/anthropics/claude-code/issues/53267
    """
    server = ScriptedServer(
        tmp_path, bearer="1", era="modern", capabilities={"tools": {}}, calls={"echo": reply() + want_bearer("2")}
    )
    async with (
        server.http(headers={"Authorization": lambda: "Bearer 1"}) as entry,
        connected({"a": entry}) as connection,
    ):
        await connection.call_tool("a", "echo")
        before = len(server.ledger("http"))
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(HttpStatusError) as caught:
            await connection.call_tool("a", "echo")

        after = len(server.ledger("http"))

    assert (401, "refused", 2) == (caught.value.status, caught.value.outcome, after - before)
    assert 1 == server.runs("echo")


async def test_localhost_is_never_proxied_and_odd_no_proxy_entries_break_nothing(tmp_path, monkeypatch):
    """Proxy variables are for the world outside, and one that cannot be read is no crash.

    https://github.com/databricks/unity-gateway/issues/705
    """
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8,[::1,*.example..com")
    server = ScriptedServer(tmp_path)
    async with server.http() as entry, connected({"a": entry}) as connection:
        result = await connection.call_tool("a", "echo")

    assert not result.is_error


async def test_a_ca_bundle_that_cannot_be_read_is_one_server_s_own_failure(tmp_path):
    """`verify` is per server; a wrong one names itself and touches no sibling.

    https://github.com/databricks/unity-gateway/issues/705
    """
    good = ScriptedServer(tmp_path)
    bad = HttpServer("https://127.0.0.1:9/mcp", verify=str(tmp_path / "missing.pem"), restart=NEVER)
    async with connected({"good": good.stdio(), "bad": bad}) as connection:
        status = connection.status()
        result = await connection.call_tool("good", "echo")

    assert "missing.pem" in (status["bad"].reason or "")
    assert not result.is_error


async def test_an_unanswered_notification_blocks_no_later_call(tmp_path):
    """A server that never answers the POST of a cancellation holds nobody.

    https://github.com/modelcontextprotocol/python-sdk/issues/2507
    """
    server = ScriptedServer(
        tmp_path,
        era="legacy",
        tools=[tool("slow"), tool("fast")],
        calls={"slow": hold("never")},
        methods={"notifications/cancelled": hold("never")},
    )
    async with server.http() as entry, connected({"a": entry}) as connection:
        with pytest.raises(CallTimeoutError):
            await connection.call_tool("a", "slow", timeout_seconds=0.2)

        await server.wait_for(lambda s: s.received("notifications/cancelled"))
        with anyio.fail_after(AT_ONCE_SECONDS):
            result = await connection.call_tool("a", "fast")

    assert not result.is_error


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
async def test_a_status_of_the_legacy_transport_s_post_reaches_the_caller(tmp_path, status):
    """The legacy transport answers on its stream, but a refused POST is an HTTP status like any other.

    https://github.com/modelcontextprotocol/python-sdk/issues/3091
    """
    turn = respond(status, "not you", headers={"retry-after": "3600"})
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": [turn, reply("next")]})
    async with server.http(transport="sse") as entry, connected({"a": entry}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(HttpStatusError) as caught:
            await connection.call_tool("a", "echo")

        after = await connection.call_tool("a", "echo")

    assert (status, 3600) == (caught.value.status, caught.value.retry_after_seconds)
    assert "next" == after.text


async def test_a_post_dropped_on_the_legacy_transport_is_a_dropped_connection(tmp_path):
    """Its outcome is unknown, and the stream goes on serving.

    https://github.com/modelcontextprotocol/python-sdk/issues/3522
    """
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": [note("ran") + hang_up(), reply("next")]})
    async with server.http(transport="sse") as entry, connected({"a": entry}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(ServerLostError) as caught:
            await connection.call_tool("a", "echo")

        after = await connection.call_tool("a", "echo")

    assert ("connection_dropped", "unknown") == (caught.value.code, caught.value.outcome)
    assert "next" == after.text
    assert 1 == len(server.ledger("note"))


async def test_a_server_that_comes_back_on_its_address_is_waited_for(tmp_path):
    """A refused connection is a restart of theirs: the call waits inside its deadline and nothing was sent before.

    https://github.com/modelcontextprotocol/python-sdk/issues/3556
    """
    server = ScriptedServer(tmp_path)
    async with server.http() as entry:
        pass  # its address is known now, and nobody listens there

    patient = RestartPolicy(max_restarts=1_000, backoff_initial_seconds=0.02, backoff_max_seconds=0.05)
    results = []
    async with connected({"a": entry}, restart=patient) as connection:
        before = connection.status()["a"].state

        async def call():
            results.append(await connection.call_tool("a", "echo"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            async with server.http(port=urlsplit(entry.url).port):
                await server.wait_for(lambda _: results)

    assert ServerState.READY != before
    assert [False] == [result.is_error for result in results]


async def test_a_list_change_inside_the_answer_s_stream_reaches_us(tmp_path):
    """A notification before the answer, on the answer's own stream, is heard.

    https://github.com/microsoft/agent-framework/pull/4898
    """
    turn = change_tools(tool("echo"), tool("new")) + list_changed() + reply("fine")
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": turn})
    async with server.http() as entry, connected({"a": entry}) as connection:
        result = await connection.call_tool("a", "echo")
        await server.wait_for(lambda s: len(s.received("tools/list")) >= 2)

    assert "fine" == result.text
