"""A server that dies: what its callers are told, when it comes back, and when it is given up."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from workbench import FAST, FULL, LIMITS, NEVER, Bench, gone, handle, reaches, until, within

from deputy_mcp import (
    McpConnection,
    RestartLimitError,
    RestartPolicy,
    ServerLostError,
    ServerState,
    StartError,
)

pytestmark = pytest.mark.anyio

AT_ONCE_SECONDS = 1
"""Within so long after a death its calls have failed."""


def pid_of(connection: McpConnection, server: str = "a") -> int:
    pid = connection.status()[server].pid
    assert pid is not None
    return pid


@pytest.mark.parametrize("grandchild", [None, "group", "session"])
@within(20)
async def test_a_server_killed_in_the_middle_of_a_call_is_told_within_a_second_and_comes_back(
    bench: Bench, grandchild: str | None
) -> None:
    """The call fails with exit code and the end of stderr; the same handle works after the restart.

    Also when a grandchild, even one in a session of its own, keeps stdout open; then the grandchild is gone as well.
    """
    spec = bench.stdio({"stderr": "the last words\n", "grandchild": grandchild})
    async with McpConnection({"a": spec}, **FULL) as connection:
        echo = handle(connection, "a", "echo")
        first = await echo(value=1)
        family = bench.living()
        call = asyncio.create_task(connection.call_tool("a", "hang"))
        await bench.ledger.wait_call("hang")
        killed_at = anyio.current_time()
        os.kill(pid_of(connection), signal.SIGKILL)
        with pytest.raises(ServerLostError) as caught:
            await call

        assert anyio.current_time() - killed_at < AT_ONCE_SECONDS
        assert -9 == caught.value.exit_code
        assert "the last words" in caught.value.stderr_tail
        assert ("server_lost", "unknown") == (caught.value.code, caught.value.outcome)
        assert ("a", "hang") == (caught.value.server, caught.value.tool)

        second = await echo(value=2)
        assert "2" == second.text
        assert first.generation + 1 == second.generation
        status = connection.status()["a"]
        assert (1, second.generation, -9) == (status.restarts, status.generation, status.exit_code)
        assert set() == await gone(family)
        assert 1 == len(bench.ledger.calls("hang"))


@within(10)
async def test_the_next_call_waits_for_the_restart_without_being_told_of_it(bench: Bench) -> None:
    """A call made right after a death, before anybody noticed, runs once on the server that comes back."""
    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        note = handle(connection, "a", "note")
        os.kill(pid_of(connection), signal.SIGKILL)
        await reaches(connection, "a", ServerState.CLOSING, ServerState.BACKING_OFF, ServerState.STARTING)
        assert "1" == (await note(value=1)).text
        assert 2 == connection.status()["a"].generation

    assert [("note", '{"value": 1}')] == bench.ledger.calls()


@pytest.mark.parametrize("code", [0, 7])
@within(10)
async def test_every_end_that_nobody_asked_for_is_a_loss(bench: Bench, code: int) -> None:
    """A server that exits by itself in a call, with whatever code, is lost and restarted."""
    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        with pytest.raises(ServerLostError) as caught:
            await connection.call_tool("a", "die", {"code": code, "words": "why I go"})

        assert code == caught.value.exit_code
        assert "why I go" in caught.value.stderr_tail
        assert "1" == (await connection.call_tool("a", "echo", {"value": 1})).text
        assert 1 == connection.status()["a"].restarts


@within(10)
async def test_all_calls_under_way_fail_at_a_death_and_none_hangs(bench: Bench) -> None:
    """Twenty callers wait on a server that is killed; each of them is told."""
    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        calls = [asyncio.create_task(connection.call_tool("a", "hang")) for _ in range(20)]
        await bench.ledger.wait_call("hang", count=20)
        os.kill(pid_of(connection), signal.SIGKILL)
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {ServerLostError} == {type(outcome) for outcome in outcomes}
        assert {-9} == {outcome.exit_code for outcome in outcomes if isinstance(outcome, ServerLostError)}


@within(10)
async def test_a_server_that_closes_its_stdout_and_lives_on_is_replaced(bench: Bench) -> None:
    """It can never answer again; its process is taken down before the next one is started."""
    async with McpConnection({"a": bench.stdio({"eras": ["legacy"]})}, **FULL) as connection:
        before = pid_of(connection)
        with pytest.raises(ServerLostError):
            await connection.call_tool("a", "mute")

        await until(connection, "a", lambda status: status.generation == 2 and status.state is ServerState.READY)
        assert set() == await gone({before})
        assert "1" == (await connection.call_tool("a", "echo", {"value": 1})).text


DEATHS = {
    "before its listing": {"exit_on": {"tools/list": 3}},
    "after its listing": {"exit_after": {"tools/list": 3}},
    "after its handshake": {"exit_after": {"initialize": 3, "server/discover": 3}},
}


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("era", ["modern", "legacy"])
@within(20)
async def test_a_server_that_dies_after_every_handshake_is_started_as_often_as_the_policy_says(
    bench: Bench, death: str, era: str, tmp_path: Path
) -> None:
    """One start and `max_restarts` more, then FAILED; a call is refused until the cooldown is over, and then starts it.

    A handshake that succeeds does not make good for the deaths before it.
    """
    trouble = tmp_path / "trouble"
    trouble.touch()
    policy = RestartPolicy(max_restarts=3, backoff_initial_seconds=0.01, backoff_max_seconds=0.02, cooldown_seconds=0.5)
    spec = bench.stdio({"eras": [era], "troubled_by": str(trouble), **DEATHS[death]}, protocol=PROTOCOL[era])
    async with McpConnection({"a": spec}, **FULL | {"restart": policy}) as connection:
        status = await reaches(connection, "a", ServerState.FAILED)
        assert 1 + 3 == len(bench.ledger.read("start"))
        assert 3 == status.restarts
        with pytest.raises(RestartLimitError) as caught:
            await connection.call_tool("a", "echo", {"value": 1})

        assert "failed" == caught.value.state
        assert "exit code 3" in str(caught.value)
        assert "not_sent" == caught.value.outcome
        assert 1 + 3 == len(bench.ledger.read("start"))

        # The clock itself is what is waited for.
        await anyio.sleep_until(status.since + policy.cooldown_seconds)
        assert ServerState.FAILED is connection.status()["a"].state
        # A server that lives long enough to be READY may take the call with it.
        with pytest.raises((RestartLimitError, ServerLostError)):
            await connection.call_tool("a", "echo", {"value": 1})

        status = await reaches(connection, "a", ServerState.FAILED)
        assert 2 * (1 + 3) == len(bench.ledger.read("start"))

        trouble.unlink()
        await anyio.sleep_until(status.since + policy.cooldown_seconds)
        assert "1" == (await connection.call_tool("a", "echo", {"value": 1})).text
        assert 2 * (1 + 3) + 1 == len(bench.ledger.read("start"))


PROTOCOL = {"modern": "2026-07-28", "legacy": "legacy"}


@within(10)
async def test_a_server_that_dies_over_and_over_while_it_serves_is_given_up_as_well(bench: Bench) -> None:
    """Each life serves a call; the deaths still count, because none of them was READY for as long as the window."""
    policy = RestartPolicy(max_restarts=2, backoff_initial_seconds=0.01, backoff_max_seconds=0.02)
    async with McpConnection({"a": bench.stdio()}, **FULL | {"restart": policy}) as connection:
        for _ in range(3):
            with pytest.raises(ServerLostError):
                await connection.call_tool("a", "die")

        await reaches(connection, "a", ServerState.FAILED)
        with pytest.raises(RestartLimitError):
            await connection.call_tool("a", "echo")

    assert 3 == len(bench.ledger.read("start"))


@within(10)
async def test_a_server_that_exits_on_discover_is_started_once_more_and_that_is_no_restart(bench: Bench) -> None:
    """The second start says `initialize`; the era is remembered, so later starts do not ask again."""
    async with McpConnection({"a": bench.stdio({"exit_on": {"server/discover": 1}})}, **FULL) as connection:
        status = connection.status()["a"]
        assert (ServerState.READY, 0, "2025-11-25") == (status.state, status.restarts, status.protocol_version)
        assert 2 == len(bench.ledger.read("start"))
        os.kill(pid_of(connection), signal.SIGKILL)
        status = await until(connection, "a", lambda s: s.state is ServerState.READY and s.restarts == 1)
        assert 3 == len(bench.ledger.read("start"))
        assert 1 == len(bench.ledger.read("got", method="server/discover"))


@within(10)
async def test_a_server_that_exits_on_anything_is_started_once_more_than_the_policy_says_and_not_oftener(
    bench: Bench,
) -> None:
    """The second try with `initialize` happens once in the life of the connection, not once a restart."""
    policy = RestartPolicy(max_restarts=3, backoff_initial_seconds=0.01, backoff_max_seconds=0.02)
    spec = bench.stdio({"exit_on": {"server/discover": 1, "initialize": 1}})
    async with McpConnection({"a": spec}, **FULL | {"restart": policy}) as connection:
        await reaches(connection, "a", ServerState.FAILED)

    assert 1 + 1 + 3 == len(bench.ledger.read("start"))


@within(10)
async def test_under_the_policy_never_a_lost_server_stays_down_until_somebody_starts_it(bench: Bench) -> None:
    """One start, no more; a call says so and `start` brings it back for the same handle."""
    async with McpConnection({"a": bench.stdio(restart=NEVER)}, **FULL) as connection:
        echo = handle(connection, "a", "echo")
        with pytest.raises(ServerLostError):
            await connection.call_tool("a", "die")

        await reaches(connection, "a", ServerState.FAILED)
        with pytest.raises(StartError) as caught:
            await echo(value=1)

        assert "failed" == caught.value.state
        assert 1 == len(bench.ledger.read("start"))
        await connection.start("a")
        assert "1" == (await echo(value=1)).text


@within(10)
async def test_a_launcher_that_dies_takes_the_server_behind_it_along(bench: Bench) -> None:
    """A launcher is not the server: killed, it leaves a leaf that still answers; the leaf is ended all the same."""
    async with McpConnection({"a": bench.stdio({"leaf": "session"})}, **FULL) as connection:
        family = bench.living()
        assert 2 == len(family)
        os.kill(pid_of(connection), signal.SIGKILL)
        await until(connection, "a", lambda status: status.generation == 2 and status.state is ServerState.READY)
        assert set() == await gone(family)
        assert "1" == (await connection.call_tool("a", "echo", {"value": 1})).text


@within(20)
async def test_an_http_server_that_dies_is_waited_for_and_used_again(bench: Bench) -> None:
    """Killed in a call it is a dropped connection; a call made while it is down waits until it is back."""
    async with bench.http() as first:
        options = FULL | {"restart": RestartPolicy(max_restarts=1000, backoff_initial_seconds=0.02)}
        async with McpConnection({"a": first.server()}, **options) as connection:
            echo = handle(connection, "a", "echo")
            call = asyncio.create_task(connection.call_tool("a", "hang"))
            await bench.ledger.wait_call("hang")
            os.kill(first.pid, signal.SIGKILL)
            with pytest.raises(ServerLostError) as caught:
                await call

            assert "connection_dropped" == caught.value.code
            # All of its sockets, not only the call's: a call over one that is about to close has been sent.
            assert set() == await gone({first.pid})
            waiting = asyncio.create_task(echo.call({"value": 1}))
            await reaches(connection, "a", ServerState.BACKING_OFF)
            async with bench.http({"port": first.port}):
                assert "1" == (await waiting).text

    assert 1 == len(bench.ledger.calls("hang"))
    assert 1 == len(bench.ledger.calls("echo"))


def options(**changed: Any) -> dict[str, Any]:
    return FULL | changed


@within(10)
async def test_losing_one_server_does_not_disturb_calls_on_another(bench: Bench) -> None:
    """A call that waits on one server is not touched when its neighbour is killed and restarted."""
    async with McpConnection({"a": bench.stdio(), "b": bench.stdio()}, **options(restart=FAST, limits=LIMITS)) as both:
        waiting = asyncio.create_task(both.call_tool("b", "gather", {"of": 2, "value": 1}))
        await bench.ledger.wait_call("gather")
        os.kill(pid_of(both), signal.SIGKILL)
        await until(both, "a", lambda status: status.generation == 2 and status.state is ServerState.READY)
        assert not waiting.done()
        assert "2" == (await both.call_tool("b", "gather", {"of": 2, "value": 2})).text
        assert "1" == (await waiting).text
