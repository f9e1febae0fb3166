"""The state machine as a connection shows it: what `start`, `stop`, `reload`, `kill` and `release` do where."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from behaviour import CATALOGUE
from workbench import FULL, NEVER, PATIENT, Bench, gone, handle, reaches, until, within

from deputy_mcp import (
    ClosedError,
    Limits,
    McpConnection,
    PinMismatchError,
    QuarantinedError,
    ServerLostError,
    ServerState,
    StaleToolError,
    StdioServer,
    UnavailableError,
)

pytestmark = pytest.mark.anyio

Verb = Callable[[McpConnection], Awaitable[Any]]
VERBS: dict[str, Verb] = {
    "start": lambda connection: connection.start("a"),
    "stop": lambda connection: connection.stop("a"),
    "reload": lambda connection: connection.reload("a"),
    "kill": lambda connection: connection.kill("a"),
    "release": lambda connection: connection.release("a"),
}


ASKED = {ServerState.STARTING: "server/discover", ServerState.VETTING: "tools/list"}


class Stand:
    """A server that can be brought into each state, and whose trouble can be ended."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench = bench
        self.trouble = folder / "trouble"
        self.trouble.touch()
        self.tools = folder / "tools.json"
        self.tools.write_text(json.dumps([CATALOGUE["echo"]]))
        self.stack = AsyncExitStack()

    def spec(self, state: ServerState) -> StdioServer:
        behaviour: dict[str, Any] = {"troubled_by": str(self.trouble)}
        match state:
            case ServerState.STARTING:
                return self.bench.stdio(behaviour | {"silent": True})
            case ServerState.VETTING:
                return self.bench.stdio(behaviour | {"silent_for": ["tools/list"]})
            case ServerState.BACKING_OFF:
                return self.bench.stdio(behaviour, restart=PATIENT)
            case ServerState.FAILED:
                return self.bench.stdio(behaviour, restart=NEVER)
            case ServerState.QUARANTINED:
                self.tools.write_text(json.dumps([CATALOGUE["pid"]]))
                return self.bench.stdio({"tools_file": str(self.tools)}, tools=("echo",))
            case ServerState.CLOSING:
                return self.bench.stdio({"lingers": True})

        return self.bench.stdio(behaviour)

    async def bring(self, state: ServerState) -> McpConnection:
        """A connection whose server "a" stands in `state`, for as long as nobody does anything."""
        connection = McpConnection({"a": self.spec(state)}, **FULL)
        entering = asyncio.create_task(connection.__aenter__())
        # Entering waits for the end of the first start; where that does not come, closing ends it.
        self.stack.push_async_callback(asyncio.wait, [entering])
        self.stack.push_async_callback(connection.aclose)
        match state:
            case ServerState.STARTING | ServerState.VETTING:
                # Not before the server has been asked: the first turn of a start is another test's.
                await self.bench.ledger.wait("got", method=ASKED[state])
                await reaches(connection, "a", state)
                return connection
            case ServerState.STOPPED:
                await entering
                await connection.stop("a")
            case ServerState.BACKING_OFF | ServerState.FAILED:
                await entering
                pid = connection.status()["a"].pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
            case ServerState.CLOSING:
                await entering
                stopping = asyncio.create_task(connection.stop("a"))
                self.stack.push_async_callback(asyncio.wait, [stopping])
            case _:
                await entering

        await reaches(connection, "a", state)
        return connection

    def mend(self) -> None:
        self.trouble.unlink(missing_ok=True)
        self.tools.write_text(json.dumps([CATALOGUE["echo"]]))


@pytest.fixture
async def stand(bench: Bench, tmp_path: Path) -> Any:
    stand = Stand(bench, tmp_path)
    async with stand.stack:
        yield stand


S = ServerState
READY, STOPPED = S.READY, S.STOPPED
OUTCOMES: dict[tuple[ServerState, str], Any] = {
    **{(state, "stop"): STOPPED for state in S if state is not S.DORMANT},
    **{(state, "kill"): STOPPED for state in S if state is not S.DORMANT},
    **{(state, "reload"): READY for state in (S.STARTING, S.VETTING, S.READY, S.BACKING_OFF, S.FAILED, S.STOPPED)},
    **{(state, "start"): READY for state in (S.READY, S.BACKING_OFF, S.FAILED, S.STOPPED, S.CLOSING)},
    **{(state, "release"): READY for state in (S.READY, S.QUARANTINED, S.FAILED)},
    (S.CLOSING, "reload"): READY,
    (S.QUARANTINED, "start"): QuarantinedError,
    (S.QUARANTINED, "reload"): QuarantinedError,
    (S.STOPPED, "release"): UnavailableError,
}
"""What a verb leads to, the server's trouble being over: a state, or an error that leaves the state as it is."""


@pytest.mark.parametrize(("state", "verb"), OUTCOMES, ids=lambda value: str(value))
@within(20)
async def test_each_verb_in_each_state_ends_where_the_table_says_and_twice_as_well(
    stand: Stand, state: ServerState, verb: str
) -> None:
    """From any state, and again from where it led; nothing hangs and no process is left over."""
    connection = await stand.bring(state)
    stand.mend()
    outcome = OUTCOMES[state, verb]
    if isinstance(outcome, ServerState):
        await VERBS[verb](connection)
        assert outcome is connection.status()["a"].state
        again = OUTCOMES[outcome, verb]
        await VERBS[verb](connection)
        assert again is connection.status()["a"].state
    else:
        for _ in range(2):
            with pytest.raises(outcome):
                await VERBS[verb](connection)

            assert state is connection.status()["a"].state

    assert (1 if connection.status()["a"].state is READY else 0) == len(stand.bench.living())


FIVE_TIMES = [
    *((state, verb) for state in (S.READY, S.BACKING_OFF, S.FAILED, S.STOPPED) for verb in ("stop", "kill", "start")),
    # From the states of rest the second one meets the first turn of a start: see `test_interpreter_exit`.
    (S.READY, "reload"),
]


@pytest.mark.parametrize(("state", "verb"), FIVE_TIMES, ids=lambda value: str(value))
@within(20)
async def test_a_verb_said_by_five_tasks_at_once_is_said_once(stand: Stand, state: ServerState, verb: str) -> None:
    """All five return, and the server stands where one of them would have brought it."""
    connection = await stand.bring(state)
    stand.mend()
    await asyncio.gather(*(VERBS[verb](connection) for _ in range(5)))
    assert OUTCOMES[state, verb] is connection.status()["a"].state
    assert (1 if connection.status()["a"].state is READY else 0) == len(stand.bench.living())


@pytest.mark.parametrize("state", [S.READY, S.STARTING, S.VETTING, S.BACKING_OFF, S.FAILED, S.QUARANTINED, S.CLOSING])
@within(20)
async def test_closing_ends_every_state_in_stopped(stand: Stand, state: ServerState) -> None:
    """After `aclose` nothing leaves STOPPED, and every verb says that the connection is closed."""
    connection = await stand.bring(state)
    await connection.aclose()
    assert STOPPED is connection.status()["a"].state
    assert set() == stand.bench.living()
    for verb in VERBS.values():
        with pytest.raises(ClosedError):
            await verb(connection)


# -- calls and verbs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["stop", "reload", "kill"])
@within(10)
async def test_calls_under_way_fail_as_stopped_when_the_server_is_ended_on_request(bench: Bench, verb: str) -> None:
    """Each gets a `ServerLostError` with code `stopped`; nothing is sent again."""
    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        calls = [asyncio.create_task(connection.call_tool("a", "hang", retry=True)) for _ in range(3)]
        await bench.ledger.wait_call("hang", count=3)
        await VERBS[verb](connection)
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [ServerLostError] * 3 == [type(outcome) for outcome in outcomes]
        assert {"stopped"} == {outcome.code for outcome in outcomes if isinstance(outcome, ServerLostError)}

    assert 3 == len(bench.ledger.calls("hang"))


@within(10)
async def test_a_call_to_a_stopped_server_is_refused_at_once_and_names_the_mend(bench: Bench) -> None:
    """Nobody waits for a server that was stopped on request."""
    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        echo = handle(connection, "a", "echo")
        await connection.stop("a")
        with pytest.raises(UnavailableError) as caught:
            await echo(value=1)

        assert ("stopped", "stopped", "not_sent") == (caught.value.code, caught.value.state, caught.value.outcome)
        await connection.start("a")
        assert "1" == (await echo(value=1)).text


@within(10)
async def test_a_call_that_waits_for_a_restart_is_told_when_the_server_is_stopped_instead(bench: Bench) -> None:
    """A waiting call was not sent; it ends at once with the server's end."""
    async with McpConnection({"a": bench.stdio(restart=PATIENT)}, **FULL) as connection:
        with pytest.raises(ServerLostError):
            await connection.call_tool("a", "die")

        await reaches(connection, "a", ServerState.BACKING_OFF)
        waiting = asyncio.create_task(connection.call_tool("a", "echo"))
        await asyncio.sleep(0)
        await connection.stop("a")
        with pytest.raises(UnavailableError) as caught:
            await waiting

        assert "stopped" == caught.value.code


@within(10)
async def test_calls_made_while_a_server_backs_off_run_once_it_is_back(bench: Bench) -> None:
    """Five callers wait during BACKING_OFF; a `start` cuts the wait short and all of them are answered."""
    async with McpConnection({"a": bench.stdio(restart=PATIENT)}, **FULL) as connection:
        with pytest.raises(ServerLostError):
            await connection.call_tool("a", "die")

        await reaches(connection, "a", ServerState.BACKING_OFF)
        waiting = [asyncio.create_task(connection.call_tool("a", "echo", {"value": i})) for i in range(5)]
        await asyncio.sleep(0)
        assert [] == bench.ledger.calls("echo")
        await connection.start("a")
        assert ["0", "1", "2", "3", "4"] == [result.text for result in await asyncio.gather(*waiting)]


# -- handles -----------------------------------------------------------------------------------------------------


@within(10)
async def test_handles_survive_an_automatic_restart_and_go_stale_at_a_reload(bench: Bench) -> None:
    """After a loss the same handle works; after a reload it says that there is a new one."""
    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        echo = handle(connection, "a", "echo")
        with pytest.raises(ServerLostError):
            await connection.call_tool("a", "die")

        assert 2 == (await echo(value=1)).generation
        fresh = {tool.tool: tool for tool in await connection.reload("a")}
        with pytest.raises(StaleToolError) as caught:
            await echo(value=1)

        assert ("a", "echo", "replace=True" in str(caught.value)) == (
            caught.value.server,
            caught.value.tool,
            True,
        )
        assert "1" == (await fresh["echo"](value=1)).text
        assert set(fresh) == {tool.tool for tool in connection.tools("a")}


@within(10)
async def test_a_reload_gives_a_new_process_and_counts_as_no_restart(bench: Bench) -> None:
    """The old process is gone before the new one serves; generation goes up, `restarts` does not."""
    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        before = connection.status()["a"]
        await connection.reload("a")
        after = connection.status()["a"]
        assert before.pid != after.pid
        assert (before.generation + 1, 0, READY) == (after.generation, after.restarts, after.state)
        assert before.pid is not None
        assert set() == await gone({before.pid}, within_seconds=0)


@within(10)
async def test_a_handle_waiting_for_a_server_that_is_reloaded_meanwhile_is_stale(bench: Bench) -> None:
    """A call that had not been sent is judged again after the reload."""
    async with McpConnection({"a": bench.stdio(restart=PATIENT)}, **FULL) as connection:
        echo = handle(connection, "a", "echo")
        with pytest.raises(ServerLostError):
            await connection.call_tool("a", "die")

        await reaches(connection, "a", ServerState.BACKING_OFF)
        waiting = asyncio.create_task(echo.call({"value": 1}))
        await asyncio.sleep(0)
        await connection.reload("a")
        with pytest.raises(StaleToolError):
            await waiting

    assert [] == bench.ledger.calls("echo")


@within(10)
async def test_a_reload_keeps_the_pins_and_repin_takes_the_new_listing_as_first(bench: Bench, tmp_path: Path) -> None:
    """A changed tool stays refused over a reload, until a person says that the new listing counts."""
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([CATALOGUE["echo"], CATALOGUE["pid"]]))
    async with McpConnection({"a": bench.stdio({"tools_file": str(tools)})}, **FULL) as connection:
        tools.write_text(json.dumps([CATALOGUE["echo"] | {"description": "Another one."}, CATALOGUE["hang"]]))
        assert [] == await connection.reload("a")
        refused = {tool: code for tool, (code, _) in connection.status()["a"].refused.items()}
        assert {"echo": "pin_changed", "pid": "pin_gone", "hang": "pin_unknown"} == refused
        with pytest.raises(PinMismatchError):
            await connection.call_tool("a", "echo")

        fresh = await connection.reload("a", repin=True)
        assert ["echo", "hang"] == [tool.tool for tool in fresh]
        assert {} == dict(connection.status()["a"].refused)
        assert "1" == (await fresh[0](value=1)).text


# -- quarantine --------------------------------------------------------------------------------------------------


@within(10)
async def test_an_allowlisted_tool_that_is_missing_quarantines_the_server_until_it_is_released(
    bench: Bench, tmp_path: Path
) -> None:
    """The process is taken down, calls say why, nothing restarts it; released in order, it serves."""
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([CATALOGUE["echo"]]))
    spec = bench.stdio({"tools_file": str(tools)}, tools=("echo", "pid"))
    async with McpConnection({"a": spec}, **FULL) as connection:
        status = connection.status()["a"]
        assert S.QUARANTINED is status.state
        assert "pid" in (status.reason or "")
        assert set() == bench.living()
        with pytest.raises(QuarantinedError) as caught:
            await connection.call_tool("a", "echo")

        assert ("quarantined", "pid" in str(caught.value)) == (caught.value.state, True)
        with pytest.raises(QuarantinedError):
            await connection.release("a")

        assert S.QUARANTINED is connection.status()["a"].state
        tools.write_text(json.dumps([CATALOGUE["echo"], CATALOGUE["pid"], CATALOGUE["hang"]]))
        await connection.release("a")
        assert ["echo", "pid"] == [tool.tool for tool in connection.tools("a")]
        assert "1" == (await connection.call_tool("a", "echo", {"value": 1})).text

    assert 3 == len(bench.ledger.read("start"))


@within(10)
async def test_an_allowlisted_tool_that_vanishes_later_is_refused_alone(bench: Bench, tmp_path: Path) -> None:
    """Quarantine is for the first vetting; after a restart without the tool its siblings go on."""
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([CATALOGUE["echo"], CATALOGUE["die"]]))
    spec = bench.stdio({"tools_file": str(tools)}, tools=("echo", "die"))
    async with McpConnection({"a": spec}, **FULL) as connection:
        tools.write_text(json.dumps([CATALOGUE["die"]]))
        with pytest.raises(ServerLostError):
            await connection.call_tool("a", "die")

        await until(connection, "a", lambda status: status.generation == 2 and status.state is READY)
        with pytest.raises(PinMismatchError) as caught:
            await connection.call_tool("a", "echo")

        assert "pin_gone" == caught.value.code
        assert ["die"] == [tool.tool for tool in connection.tools("a")]


# -- eras --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "eras", "spoken"),
    [
        ("auto", ["modern", "legacy"], "2026-07-28"),
        ("auto", ["legacy"], "2025-11-25"),
        ("auto", ["modern"], "2026-07-28"),
        ("legacy", ["modern", "legacy"], "2025-11-25"),
        ("2025-06-18", ["modern", "legacy"], "2025-06-18"),
        ("2024-11-05", ["legacy"], "2024-11-05"),
        ("2026-07-28", ["modern"], "2026-07-28"),
    ],
)
@within(10)
async def test_the_protocol_is_agreed_as_asked(bench: Bench, protocol: str, eras: list[str], spoken: str) -> None:
    """`auto` takes the newer era where there is one; a version is proposed as it stands."""
    async with McpConnection({"a": bench.stdio({"eras": eras}, protocol=protocol)}, **FULL) as connection:
        assert (READY, spoken) == (connection.status()["a"].state, connection.status()["a"].protocol_version)
        assert "1" == (await connection.call_tool("a", "echo", {"value": 1})).text


@within(10)
async def test_a_server_that_answers_with_another_version_than_asked_is_refused(bench: Bench) -> None:
    """A version in the configuration is no suggestion; the server is not tried again and again."""
    answer = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "x", "version": "1"},
    }
    spec = bench.stdio({"replies": {"initialize": answer}}, protocol="2025-06-18")
    async with McpConnection({"a": spec}, **FULL) as connection:
        status = connection.status()["a"]
        assert S.QUARANTINED is status.state
        assert "2025-06-18" in (status.reason or "")
        assert "2025-11-25" in (status.reason or "")

    assert 1 == len(bench.ledger.read("start"))


@within(10)
async def test_a_server_that_leaves_discover_unanswered_is_greeted_beside_it_and_not_asked_again(bench: Bench) -> None:
    """One second of patience, once: the era is remembered for later starts."""
    async with McpConnection({"a": bench.stdio({"mute": ["server/discover"]})}, **FULL) as connection:
        assert "2025-11-25" == connection.status()["a"].protocol_version
        await connection.reload("a")
        with pytest.raises(ServerLostError):
            await connection.call_tool("a", "die")

        await until(connection, "a", lambda status: status.generation == 3 and status.state is READY)

    assert 1 == len(bench.ledger.read("got", method="server/discover"))
    assert [] == bench.ledger.read("got", method="notifications/cancelled")


# -- forgotten sessions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sse", [False, True])
@within(10)
async def test_a_forgotten_http_session_is_opened_anew_and_the_call_runs_once(bench: Bench, sse: bool) -> None:
    """A 404 for a session id is proof that nothing ran: a new generation, the same handle, one line in the ledger."""
    async with (
        bench.http({"sessions": True, "sse": sse}) as http,
        McpConnection({"a": http.server(protocol="legacy")}, **FULL) as connection,
    ):
        note = handle(connection, "a", "note")
        await connection.call_tool("a", "forget")
        result = await note(value=1)
        assert ("1", 2) == (result.text, result.generation)
        status = connection.status()["a"]
        assert (READY, 2, 0) == (status.state, status.generation, status.restarts)

    assert 1 == len(bench.ledger.calls("note"))
    assert 2 == len(bench.ledger.read("got", method="initialize"))


@within(10)
async def test_a_session_that_is_forgotten_again_and_again_is_not_repaired_for_ever(bench: Bench) -> None:
    """Sent once more, not oftener; the call fails as `session_lost`, other calls work, and in the end it is a loss."""
    async with (
        bench.http({"sessions": True, "forgets": ["note"]}) as http,
        McpConnection({"a": http.server(protocol="legacy")}, **FULL) as connection,
    ):
        for count in range(1, 5):
            with pytest.raises(ServerLostError) as caught:
                await connection.call_tool("a", "note", {"value": 1})

            assert "session_lost" == caught.value.code
            assert 2 * count == len(bench.ledger.read("not_found", method="tools/call"))
            assert "1" == (await connection.call_tool("a", "echo", {"value": 1})).text

        assert connection.status()["a"].restarts >= 1

    assert [] == bench.ledger.calls("note")


@within(10)
async def test_a_forgotten_session_with_a_changed_tool_is_noticed_before_the_call_is_repeated(
    bench: Bench, tmp_path: Path
) -> None:
    """The new session is listed and compared first; a tool that came back different is not called."""
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([CATALOGUE["note"], CATALOGUE["forget"]]))
    async with (
        bench.http({"sessions": True, "sse": True, "tools_file": str(tools)}) as http,
        McpConnection({"a": http.server(protocol="legacy")}, **FULL) as connection,
    ):
        await connection.call_tool("a", "forget")
        tools.write_text(json.dumps([CATALOGUE["note"] | {"title": "Another"}, CATALOGUE["forget"]]))
        with pytest.raises(PinMismatchError):
            await connection.call_tool("a", "note")

    assert [] == bench.ledger.calls("note")


# -- entering ----------------------------------------------------------------------------------------------------


@within(10)
async def test_a_connection_is_used_only_between_entering_and_leaving(bench: Bench) -> None:
    """Before: `ClosedError`. After: `ClosedError`, for handles too. Entered twice: `ClosedError`."""
    connection = McpConnection({"a": bench.stdio()}, **FULL)
    for look in (connection.tools, connection.differences, lambda: connection.instructions("a")):
        with pytest.raises(ClosedError, match="not entered yet"):
            look()

    with pytest.raises(ClosedError):
        await connection.call_tool("a", "echo")

    async with connection:
        echo = handle(connection, "a", "echo")
        with pytest.raises(ClosedError):
            await connection.__aenter__()

        assert "1" == (await echo(value=1)).text

    for use in (echo(value=1), connection.call_tool("a", "echo"), connection.discover("a", "tools")):
        with pytest.raises(ClosedError):
            await use


@within(10)
async def test_a_start_deadline_covers_handshake_and_listing_together(bench: Bench) -> None:
    """`startup_timeout_seconds` is from spawn to READY: half of it for each is not enough for both."""
    spec = bench.stdio(
        {"mute": ["tools/list"]}, restart=NEVER, limits=Limits(startup_timeout_seconds=0.3, shutdown_timeout_seconds=1)
    )
    async with McpConnection({"a": spec}, **FULL) as connection:
        status = connection.status()["a"]
        assert S.FAILED is status.state
        assert "0.3 s" in (status.reason or "")
