"""The order of a call: who is refused before what, and that the server's own ledger shows nothing of a refused one."""

import asyncio
import json
import os
import signal
from typing import Any

import pytest
from workbench import FULL, LIMITS, PATIENT, Bench, handle, reaches, within

from deputy_mcp import (
    Ask,
    InvalidArgumentsError,
    McpConnection,
    NotAllowlistedError,
    PermissionDeniedError,
    Permissions,
    PinBook,
    ServerState,
    WaitTimeoutError,
)

pytestmark = pytest.mark.anyio


async def lose(connection: McpConnection) -> None:
    """Kill the server; it backs off for longer than the test."""
    pid = connection.status()["a"].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await reaches(connection, "a", ServerState.BACKING_OFF)


# -- 1: route ----------------------------------------------------------------------------------------------------


@within(10)
async def test_an_unknown_name_is_refused_first_and_near_names_are_listed(bench: Bench) -> None:
    """Server, tool and allowlist: each has its code, and a misspelling is answered with what was meant."""
    spec = bench.stdio({"offers": ["echo", "pid", "note"]}, tools=("echo", "pid"))
    async with McpConnection({"files": spec, "all": bench.stdio({"offers": ["echo"]})}, **FULL) as connection:
        cases = (
            (("fiels", "echo"), "unknown_server", ("files",)),
            (("files", "ehco"), "not_allowlisted", ("echo",)),
            (("files", "note"), "not_allowlisted", ()),
            (("all", "ecko"), "unknown_tool", ("echo",)),
        )
        for names, code, near in cases:
            with pytest.raises(NotAllowlistedError) as caught:
                await connection.call_tool(*names)

            assert (code, near, "not_sent") == (caught.value.code, caught.value.near, caught.value.outcome)

    assert [] == bench.ledger.calls()


# -- 2: arguments ------------------------------------------------------------------------------------------------

BAD_ARGUMENTS: dict[str, Any] = {
    "a wrong type": {"code": "seven"},
    "an unknown name": {"cod": 7},
    "a list": [1],
    "a text": "code",
    "a key that is no text": {7: 7},
    "a value that is no JSON": {"words": {1, 2}},
    "not a number": {"code": float("nan")},
    "bytes": {"words": b"x"},
}


@pytest.mark.parametrize("bad", BAD_ARGUMENTS)
@within(10)
async def test_arguments_that_break_the_schema_are_not_sent(bench: Bench, bad: str) -> None:
    """Nothing is coerced and nothing leaves: the server's ledger shows no call."""
    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        with pytest.raises(InvalidArgumentsError) as caught:
            await connection.call_tool("a", "die", BAD_ARGUMENTS[bad])

        assert ("invalid_arguments", "not_sent", "a", "die") == (
            caught.value.code,
            caught.value.outcome,
            caught.value.server,
            caught.value.tool,
        )
        await connection.call_tool("a", "echo", {"value": 1})

    assert [("echo", '{"value": 1}')] == bench.ledger.calls()


@within(10)
async def test_a_schema_that_cannot_be_checked_refuses_the_arguments(bench: Bench) -> None:
    """References are never fetched, so what depends on one is unchecked; unchecked is refused."""
    tool = {"name": "odd", "inputSchema": {"type": "object", "properties": {"x": {"$ref": "file:///etc/passwd"}}}}
    spec = bench.stdio({"replies": {"tools/list": {"tools": [tool]}}})
    async with McpConnection({"a": spec}, **FULL) as connection:
        with pytest.raises(InvalidArgumentsError) as caught:
            await connection.call_tool("a", "odd", {"x": 1})

        assert "schema_unchecked" == caught.value.code

    assert [] == bench.ledger.calls()


@within(10)
async def test_what_is_sent_is_what_was_given_when_the_call_was_made(bench: Bench) -> None:
    """Arguments are encoded once: a caller, or a callback, that changes them later changes nothing."""
    given: dict[str, Any] = {"value": {"list": [1]}}
    seen: list[Any] = []

    async def meddle(tool: Any, arguments: dict[str, Any], context: Any) -> None:
        seen.append(arguments)
        arguments["value"]["list"].append(2)
        given["value"]["list"].append(3)

    permissions = Permissions(write=True, web=True, can_use_tool=meddle)
    async with McpConnection({"a": bench.stdio()}, **FULL | {"permissions": permissions}) as connection:
        result = await connection.call_tool("a", "echo", given)

    assert '{"list": [1]}' == result.text
    assert [("echo", '{"value": {"list": [1]}}')] == bench.ledger.calls()
    assert 1 == len(seen)


@within(10)
async def test_what_is_sent_again_is_what_was_given_when_the_call_was_made(bench: Bench) -> None:
    """The session was forgotten and the call is sent once more: with the same bytes, whatever became of the dict."""
    given: dict[str, Any] = {"value": ["given"]}
    async with (
        bench.http({"sessions": True}) as http,
        McpConnection({"a": http.server(protocol="legacy")}, pins=PinBook(verify="change"), **FULL) as connection,
    ):
        await connection.call_tool("a", "forget")
        call = asyncio.create_task(connection.call_tool("a", "note", given))
        await bench.ledger.wait("not_found", method="tools/call")
        given["value"].append("changed")
        assert '["given"]' == (await call).text


@within(10)
async def test_exotic_arguments_arrive_as_they_were(bench: Bench) -> None:
    """Large integers, floats, text of every kind, nesting, empty things: what comes back is what went."""
    value = {"big": 2**70, "float": 0.1, "one": 1.0, "text": 'ä\n\u2028\U0001f600"\\', "none": None, "deep": [[[{}]]]}
    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        assert value == json.loads((await connection.call_tool("a", "echo", {"value": value})).text)
        assert "null" == (await connection.call_tool("a", "echo", None)).text
        assert "null" == (await connection.call_tool("a", "echo")).text
        assert "[1, 2]" == (await connection.call_tool("a", "echo", {"value": (1, 2)})).text


# -- 3: permit ---------------------------------------------------------------------------------------------------


@within(10)
async def test_a_denied_call_is_refused_before_any_waiting(bench: Bench) -> None:
    """The server is down and nobody is asked: Deny is said at once, where an allowed call waits."""
    asked: list[Any] = []
    permissions = Permissions(can_use_tool=lambda *given: asked.append(given))
    options = FULL | {"permissions": permissions, "restart": PATIENT}
    async with McpConnection({"a": bench.stdio()}, **options) as connection:
        await lose(connection)
        with pytest.raises(PermissionDeniedError) as caught:
            await connection.call_tool("a", "note", {"value": "secret"})

        assert ("write", "not_sent") == (caught.value.code, caught.value.outcome)
        assert isinstance(caught.value, PermissionError)
        assert "write=True" in str(caught.value)
        assert "secret" not in str(caught.value)
        assert [] == asked
        with pytest.raises(WaitTimeoutError):
            await connection.call_tool("a", "echo", timeout_seconds=0.1)


@within(10)
async def test_a_denied_call_with_bad_arguments_is_told_of_its_arguments(bench: Bench) -> None:
    """Step 2 comes before step 3."""
    async with McpConnection({"a": bench.stdio()}, **FULL | {"permissions": Permissions()}) as connection:
        with pytest.raises(InvalidArgumentsError):
            await connection.call_tool("a", "note", {"volume": 1})


@within(10)
async def test_a_server_that_was_never_vetted_is_waited_for_before_anything_is_decided(bench: Bench) -> None:
    """Nothing is known of its tools, so nothing can be denied: the deadline ends the wait."""
    spec = bench.stdio({"exit_at_start": 3}, restart=PATIENT)
    async with McpConnection({"a": spec}, permissions=Permissions(), limits=LIMITS) as connection:
        with pytest.raises(WaitTimeoutError) as caught:
            await connection.call_tool("a", "note", timeout_seconds=0.2)

        assert "backing_off" == caught.value.state


@pytest.mark.parametrize(
    ("tool", "code"), [("echo", None), ("note", "write"), ("put", "write"), ("wipe", "write"), ("fetch", "web")]
)
@within(10)
async def test_the_floor_allows_only_what_is_positively_read_only_and_closed(
    bench: Bench, tool: str, code: str | None
) -> None:
    """Where nobody gave permissions, `Permissions()` holds, for handles and for `call_tool` alike."""
    async with McpConnection({"a": bench.stdio()}, limits=LIMITS) as connection:
        for use in (connection.call_tool("a", tool), handle(connection, "a", tool)()):
            if code is None:
                assert "null" == (await use).text
                continue

            with pytest.raises(PermissionDeniedError) as caught:
                await use

            assert code == caught.value.code

    assert (2 if code is None else 0) == len(bench.ledger.calls())


@within(10)
async def test_server_and_connection_give_their_shares_and_both_count(bench: Bench) -> None:
    """Effective permissions are `&` over what was given: each side alone can take away."""
    servers = {
        "reads": bench.stdio(permissions=Permissions.readonly()),
        "writes": bench.stdio(permissions=Permissions.full()),
    }
    async with McpConnection(servers, permissions=Permissions(write=True), limits=LIMITS) as connection:
        with pytest.raises(PermissionDeniedError) as caught:
            await connection.call_tool("reads", "note")

        assert "write" == caught.value.code
        assert "null" == (await connection.call_tool("writes", "note")).text
        with pytest.raises(PermissionDeniedError) as caught:
            await connection.call_tool("writes", "fetch")

        assert "web" == caught.value.code


@within(10)
async def test_the_host_s_word_on_a_tool_comes_before_the_server_s(bench: Bench) -> None:
    """Untrusted hints count for nothing; the host's own do, hint by hint."""
    closed = {"readOnlyHint": True, "openWorldHint": False}
    spec = bench.stdio(trust_annotations=False, annotations={"echo": closed})
    async with McpConnection({"a": spec}, limits=LIMITS) as connection:
        assert "1" == (await connection.call_tool("a", "echo", {"value": 1})).text
        with pytest.raises(PermissionDeniedError):
            await connection.call_tool("a", "pid")

    assert [("echo", '{"value": 1}')] == bench.ledger.calls()


# -- narrowing ---------------------------------------------------------------------------------------------------


@within(10)
async def test_a_narrowed_handle_may_less_and_its_original_as_much_as_before(bench: Bench) -> None:
    """Narrowing only takes away, again and again, and never gives back."""
    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        note = handle(connection, "a", "note")
        narrow = note.narrowed(Permissions.readonly())
        for tool in (narrow, narrow.narrowed(Permissions.full()), note.narrowed(Permissions(web=True))):
            with pytest.raises(PermissionDeniedError):
                await tool(value=1)

        both = note.narrowed(Permissions.full()).narrowed(Permissions(tool_denylist=("a__note",), web=True, write=True))
        with pytest.raises(PermissionDeniedError) as caught:
            await both(value=1)

        assert "tool_denylist" == caught.value.code
        assert "1" == (await note(value=1)).text
        assert "2" == (await note.narrowed(Permissions.full())(value=2)).text

    assert 2 == len(bench.ledger.calls())


@within(10)
async def test_a_narrowing_callback_is_asked_beside_the_connection_s(bench: Bench) -> None:
    """Both callbacks run; each alone can refuse."""
    asked: list[str] = []

    def first(tool: Any, arguments: Any, context: Any) -> None:
        asked.append("connection")

    def second(tool: Any, arguments: Any, context: Any) -> bool:
        asked.append("handle")
        return arguments["value"] == 1

    permissions = Permissions(web=True, write=True, can_use_tool=first)
    async with McpConnection({"a": bench.stdio()}, **FULL | {"permissions": permissions}) as connection:
        echo = handle(connection, "a", "echo").narrowed(Permissions(web=True, write=True, can_use_tool=second))
        assert "1" == (await echo(value=1)).text
        with pytest.raises(PermissionDeniedError):
            await echo(value=2)

    assert ["connection", "handle"] * 2 == asked
    assert [("echo", '{"value": 1}')] == bench.ledger.calls()


# -- 5 and 7: slots and approval are in their own files; here only their place -----------------------------------


@within(10)
async def test_who_must_be_asked_is_not_asked_for_a_server_that_is_down(bench: Bench) -> None:
    """Approval comes after ready, slot and pin: a person is not bothered with what could not be sent anyway."""
    asked: list[Any] = []

    async def approver(request: Any) -> Any:
        asked.append(request)
        raise AssertionError("nobody should be asked")

    options = FULL | {"permissions": Permissions(write="ask"), "restart": PATIENT, "approver": approver}
    async with McpConnection({"a": bench.stdio()}, **options) as connection:
        await lose(connection)
        assert isinstance(connection.decide(handle(connection, "a", "note")), Ask)
        with pytest.raises(WaitTimeoutError):
            await connection.call_tool("a", "note", timeout_seconds=0.1)

    assert [] == asked


@within(10)
async def test_calls_are_governed_side_by_side(bench: Bench) -> None:
    """A refusal of one call does not touch the twenty beside it."""
    async with McpConnection({"a": bench.stdio()}, **FULL | {"permissions": Permissions()}) as connection:
        outcomes = await asyncio.gather(
            *(connection.call_tool("a", ("echo", "note")[i % 2], {"value": i}) for i in range(20)),
            return_exceptions=True,
        )
        assert [str(i) for i in range(0, 20, 2)] == [getattr(o, "text", None) for o in outcomes[::2]]
        assert {PermissionDeniedError} == {type(outcome) for outcome in outcomes[1::2]}
