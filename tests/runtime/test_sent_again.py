"""What is sent again: nothing that may have run, unless its caller and its effects both say that it may."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from workbench import FULL, Bench, handle, within

from deputy_mcp import HttpStatusError, McpConnection, RestartPolicy, ServerLostError, ServerState

pytestmark = pytest.mark.anyio

IDEMPOTENT = {"idempotentHint": True}
ONCE_OR_TWICE: dict[str, tuple[str, dict[str, Any], dict[str, Any], int]] = {
    "a write": ("jot", {}, {}, 1),
    "a write that is to be repeated": ("jot", {"retry": True}, {}, 1),
    "a write that the host calls idempotent": ("jot", {"retry": True}, {"annotations": {"jot": IDEMPOTENT}}, 2),
    "an idempotent one without a word of the caller": ("put", {}, {}, 1),
    "an idempotent one that is to be repeated": ("put", {"retry": True}, {}, 2),
    "a read-only one without a word of the caller": ("die", {}, {}, 1),
    "a read-only one that is to be repeated": ("die", {"retry": True}, {}, 2),
    "a read-only one of a server that is not trusted": ("die", {"retry": True}, {"trust_annotations": False}, 1),
}


@pytest.mark.parametrize("case", ONCE_OR_TWICE)
@within(10)
async def test_a_call_whose_server_dies_in_it_is_repeated_only_when_both_sides_say_so(bench: Bench, case: str) -> None:
    """The server dies in each call: the ledger has one line, or two where `retry=True` meets trusted effects."""
    tool, call, fields, lines = ONCE_OR_TWICE[case]
    async with McpConnection({"a": bench.stdio(**fields)}, **FULL) as connection:
        with pytest.raises(ServerLostError) as caught:
            await connection.call_tool("a", tool, {"code": 9}, **call)

        assert ("unknown", 9) == (caught.value.outcome, caught.value.exit_code)
        assert "1" == (await connection.call_tool("a", "echo", {"value": 1})).text

    assert lines == len(bench.ledger.calls(tool))


@within(10)
async def test_a_repeated_call_that_succeeds_is_a_success(bench: Bench, tmp_path: Path) -> None:
    """Lost once, answered the second time, by the next generation of the server."""
    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        put = handle(connection, "a", "put")
        result = await put.call({"code": 9, "flag": str(tmp_path / "flag")}, retry=True)

    assert ("put", 2) == (result.text, result.generation)
    assert 2 == len(bench.ledger.calls("put"))


@pytest.mark.parametrize("retry", [False, True])
@within(10)
async def test_a_connection_dropped_after_sending_is_told_and_the_server_stays_ready(bench: Bench, retry: bool) -> None:
    """Over HTTP without a session only the call is lost; a write is not repeated, whatever its caller says."""
    async with bench.http({"drop": ["jot"]}) as http, McpConnection({"a": http.server()}, **FULL) as connection:
        with pytest.raises(ServerLostError) as caught:
            await connection.call_tool("a", "jot", retry=retry)

        assert ("connection_dropped", "unknown") == (caught.value.code, caught.value.outcome)
        status = connection.status()["a"]
        assert (ServerState.READY, 1, 0) == (status.state, status.generation, status.restarts)
        assert "1" == (await connection.call_tool("a", "echo", {"value": 1})).text

    assert 1 == len(bench.ledger.calls("jot"))


@within(10)
async def test_a_429_with_a_time_that_fits_is_sent_once_more_by_itself(bench: Bench) -> None:
    """The server said no before it ran anything; it is asked again after the time it named."""
    async with (
        bench.http({"status": {"note": [429, {"retry_after": "0.2"}]}}) as http,
        McpConnection({"a": http.server()}, **FULL) as connection,
    ):
        result = await connection.call_tool("a", "note", {"value": 1})

    assert "1" == result.text
    assert result.duration_seconds >= 0.2
    assert (1, 1) == (len(bench.ledger.read("refused")), len(bench.ledger.calls("note")))


@pytest.mark.parametrize("headers", [{}, {"retry_after": "60"}, {"retry_after": "soon"}])
@within(10)
async def test_a_429_without_a_time_that_fits_is_told(bench: Bench, headers: dict[str, str]) -> None:
    """Status, excerpt and time are in the error; nothing ran and nothing is sent again."""
    async with (
        bench.http({"status": {"note": [429, headers]}}) as http,
        McpConnection({"a": http.server()}, **FULL) as connection,
    ):
        with pytest.raises(HttpStatusError) as caught:
            await connection.call_tool("a", "note", {"value": 1})

        assert (429, "not now", "refused") == (caught.value.status, caught.value.excerpt, caught.value.outcome)
        assert {None: None, "60": 60, "soon": None}[headers.get("retry_after")] == caught.value.retry_after_seconds
        assert "2" == (await connection.call_tool("a", "note", {"value": 2})).text

    assert [("note", '{"value": 2}')] == bench.ledger.calls()


@pytest.mark.parametrize(
    ("status", "outcome"), [(401, "refused"), (403, "refused"), (500, "unknown"), (503, "unknown")]
)
@within(10)
async def test_an_http_error_is_told_with_its_status_and_not_repeated(bench: Bench, status: int, outcome: str) -> None:
    """Also with `retry=True`: what a server answered is an answer."""
    async with (
        bench.http({"status": {"echo": [status, {}]}}) as http,
        McpConnection({"a": http.server()}, **FULL) as connection,
    ):
        with pytest.raises(HttpStatusError) as caught:
            await connection.call_tool("a", "echo", {"value": 1}, retry=True)

        assert (status, outcome) == (caught.value.status, caught.value.outcome)
        assert ServerState.READY is connection.status()["a"].state

    assert (1, []) == (len(bench.ledger.read("refused")), bench.ledger.calls())


@within(10)
async def test_a_401_is_answered_with_freshly_resolved_headers_once(bench: Bench) -> None:
    """A header callable is asked for each request, and once more after a 401; the call then runs once."""
    tokens: list[str] = []

    def token() -> str:
        tokens.append(f"Bearer number-{len(tokens)}")
        return tokens[-1]

    async with (
        bench.http({"status": {"note": [401, {}]}}) as http,
        McpConnection({"a": http.server(headers={"Authorization": token})}, **FULL) as connection,
    ):
        before = len(tokens)
        assert "1" == (await connection.call_tool("a", "note", {"value": 1})).text
        assert before + 2 <= len(tokens)

    assert (1, 1) == (len(bench.ledger.read("refused")), len(bench.ledger.calls("note")))


@within(20)
async def test_a_refused_connection_is_waited_for_like_a_restart(bench: Bench) -> None:
    """Nothing was sent; the call waits inside its deadline until somebody listens again, and runs once."""
    tireless = RestartPolicy(max_restarts=1000, backoff_initial_seconds=0.02, backoff_max_seconds=0.05)
    async with (
        bench.http() as first,
        McpConnection({"a": first.server()}, **FULL | {"restart": tireless}) as connection,
    ):
        note = handle(connection, "a", "note")
        os.kill(first.pid, signal.SIGKILL)
        waiting = asyncio.create_task(note.call({"value": 1}))
        async with bench.http({"port": first.port}):
            assert "1" == (await waiting).text

    assert 1 == len(bench.ledger.calls("note"))
