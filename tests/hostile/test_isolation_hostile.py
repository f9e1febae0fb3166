"""One bad server, one lost server, one bad call: what it costs the others, and what is never run twice."""

import os
import signal

import anyio
import pytest
from bounds import AT_ONCE_SECONDS, BOUND_SECONDS, NEVER, QUICK, connected, is_alive, until, wait_gone

from deputy_mcp import (
    McpConnection,
    Permissions,
    RestartLimitError,
    RestartPolicy,
    ServerLostError,
    ServerState,
    StartError,
    StdioServer,
    UnavailableError,
)
from deputy_mcp.testing import (
    ScriptedServer,
    close_stdout,
    die,
    hang_up,
    hold,
    leave,
    note,
    reply,
    spawn,
    tool,
    write_stderr,
)

pytestmark = pytest.mark.anyio


async def test_a_missing_command_takes_no_other_server_s_tools(tmp_path):
    """Failing to start is one server's state; the healthy one's tools are all there.

    https://github.com/langchain-ai/langchain-mcp-adapters/issues/492
    """
    healthy = ScriptedServer(tmp_path, tools=[tool("echo"), tool("other")])
    servers = {"broken": StdioServer("no-such-command-anywhere", restart=NEVER), "healthy": healthy.stdio()}
    async with connected(servers) as connection:
        names = [handle.name for handle in connection.tools()]
        status = connection.status()["broken"]

    assert ["healthy__echo", "healthy__other"] == names
    assert ServerState.FAILED == status.state
    assert "not on its PATH: no-such-command-anywhere" in (status.reason or "")


async def test_a_server_that_greets_and_exits_is_started_a_bounded_number_of_times(tmp_path):
    """A handshake forgives no death: past the window's limit the server is FAILED, not started again.

    https://github.com/can1357/oh-my-pi/pull/1596
    """
    server = ScriptedServer(tmp_path, methods={"tools/list": reply() + leave(0)})
    policy = RestartPolicy(max_restarts=3, backoff_initial_seconds=0.01, backoff_max_seconds=0.05)
    async with connected({"a": server.stdio(protocol="legacy")}, restart=policy) as connection:
        await until(connection, lambda status: status["a"].state is ServerState.FAILED)
        with pytest.raises(RestartLimitError) as caught:
            await connection.call_tool("a", "echo")

    assert "a" == caught.value.server
    assert 4 == len(server.pids())


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_that_dies_under_a_call_fails_it_at_once_and_is_started_again(tmp_path, era):
    """The call in flight learns exit code and last words; the next one is answered by a new process.

    https://github.com/MoonshotAI/kimi-code/issues/2109
    """
    death = write_stderr("out of cheese\n") + leave(7)
    server = ScriptedServer(tmp_path, era=era, calls={"echo": [death, reply("back")]})
    async with connected({"a": server.stdio()}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(ServerLostError) as caught:
            await connection.call_tool("a", "echo")

        again = await connection.call_tool("a", "echo")

    assert ("server_lost", "unknown", 7) == (caught.value.code, caught.value.outcome, caught.value.exit_code)
    assert "out of cheese" in caught.value.stderr_tail
    assert "back" == again.text


async def test_a_death_that_a_write_notices_first_is_told_with_its_exit_code(tmp_path):
    """Whoever notices, the writer or the watcher: the call in flight learns how the process ended.

    https://github.com/MoonshotAI/kimi-code/issues/2109
    """
    slow = write_stderr("last words\n") + note("silent")
    server = ScriptedServer(tmp_path, tools=[tool("slow"), tool("fast")], calls={"slow": slow})
    errors = []
    async with connected({"a": server.stdio()}) as connection, anyio.create_task_group() as tasks:

        async def call_slow():
            with pytest.raises(ServerLostError) as caught:
                await connection.call_tool("a", "slow")

            errors.append(caught.value)

        tasks.start_soon(call_slow)
        await server.wait_for(lambda s: s.ledger("note"))
        (pid,) = server.pids()
        os.kill(pid, signal.SIGKILL)
        while is_alive(pid):
            pass  # without a turn of the loop, so that the next write is what meets the death

        after = await connection.call_tool("a", "fast")

    assert ["server_lost"] == [error.code for error in errors]
    assert [-9] == [error.exit_code for error in errors]
    assert "last words" in errors[0].stderr_tail
    assert not after.is_error


async def test_a_server_killed_while_idle_is_back_for_the_next_call(tmp_path):
    """A death between calls is seen when it happens, and the next call waits for the restart.

    https://github.com/MoonshotAI/kimi-code/issues/2109
    """
    server = ScriptedServer(tmp_path)
    async with connected({"a": server.stdio()}) as connection:
        (pid,) = server.pids()
        os.kill(pid, signal.SIGKILL)
        await until(connection, lambda status: status["a"].generation == 2 and status["a"].state is ServerState.READY)
        result = await connection.call_tool("a", "echo")
        status = connection.status()["a"]

    assert not result.is_error
    assert (1, -9) == (status.restarts, status.exit_code)


async def test_a_grandchild_that_holds_the_pipes_does_not_hide_a_death(tmp_path):
    """The process's own end counts, not the end of its pipes.

    https://github.com/MoonshotAI/kimi-code/issues/2109
    """
    server = ScriptedServer(tmp_path, calls={"echo": spawn() + die()})
    async with connected({"a": server.stdio(restart=NEVER)}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS + 1), pytest.raises(ServerLostError) as caught:
            await connection.call_tool("a", "echo")

        await until(connection, lambda status: status["a"].state is ServerState.FAILED)
        (child,) = [entry["pid"] for entry in server.ledger("child")]
        await wait_gone(child)

    assert -9 == caught.value.exit_code


async def test_cancelling_one_call_leaves_the_server_running(tmp_path):
    """The caller who leaves takes only his own call with him; the same process answers the next.

    https://github.com/QwenLM/qwen-code/issues/11272
    """
    server = ScriptedServer(tmp_path, tools=[tool("slow"), tool("fast")], calls={"slow": hold("never") + reply()})
    async with connected({"a": server.stdio()}) as connection:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.call_tool, "a", "slow")
            await server.wait_for(lambda s: s.runs("slow"))
            tasks.cancel_scope.cancel()

        result = await connection.call_tool("a", "fast")
        await server.wait_for(lambda s: s.received("notifications/cancelled"))

    assert not result.is_error
    assert 1 == len(server.pids())


LOSSES = {"stdout closed": close_stdout(), "killed": die()}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("retry", [False, True])
async def test_a_call_that_may_have_run_is_not_sent_again(tmp_path, loss, retry):
    """A writing tool runs once, whatever the caller asks for; the caller learns that the outcome is unknown.

    https://github.com/tya5/reyn/pull/2600
    """
    writing = tool("pay", annotations={"readOnlyHint": False, "openWorldHint": False})
    server = ScriptedServer(tmp_path, tools=[writing], calls={"pay": note("paid") + LOSSES[loss]})
    async with connected({"a": server.stdio()}, permissions=Permissions.full()) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(ServerLostError) as caught:
            await connection.call_tool("a", "pay", retry=retry)

        await until(connection, lambda status: status["a"].generation == 2 and status["a"].state is ServerState.READY)

    assert "unknown" == caught.value.outcome
    assert 1 == len(server.ledger("note"))


@pytest.mark.parametrize("trusted", [False, True])
async def test_a_repeatable_call_is_sent_again_only_on_request_and_trusted_hints(tmp_path, trusted):
    """`retry=True` counts where the effects say read-only and whoever says so is trusted.

    https://github.com/tya5/reyn/pull/2600
    """
    server = ScriptedServer(tmp_path, calls={"echo": [note("ran") + die(), note("ran") + reply("second")]})
    entry = server.stdio(trust_annotations=trusted)
    async with connected({"a": entry}, permissions=Permissions.full()) as connection:
        if trusted:
            outcome = (await connection.call_tool("a", "echo", retry=True)).text
        else:
            with pytest.raises(ServerLostError):
                await connection.call_tool("a", "echo", retry=True)

            outcome = "lost"

    assert (("second", 2) if trusted else ("lost", 1)) == (outcome, len(server.ledger("note")))


async def test_a_connection_dropped_after_the_tool_ran_is_not_replayed(tmp_path):
    """Over HTTP as well: once on the wire is once, and the outcome is unknown.

    https://github.com/tya5/reyn/pull/2600
    """
    server = ScriptedServer(tmp_path, calls={"echo": note("ran") + hang_up()})
    async with server.http() as entry, connected({"a": entry}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(ServerLostError) as caught:
            await connection.call_tool("a", "echo")

    assert ("connection_dropped", "unknown") == (caught.value.code, caught.value.outcome)
    assert 1 == len(server.ledger("note"))


async def test_a_call_to_a_failed_server_says_unavailable_and_why():
    """A server that did not start is a state with a reason and a time; its tools are not merely unknown.

    https://github.com/nanocoai/nanoclaw/issues/2968
    """
    async with connected({"srv": StdioServer("/nonexistent/server", restart=NEVER)}) as connection:
        status = connection.status()["srv"]
        with pytest.raises(UnavailableError, match="/nonexistent/server") as caught:
            await connection.call_tool("srv", "add")

    assert ServerState.FAILED == status.state
    assert "/nonexistent/server" in (status.reason or "")
    assert status.since > 0
    assert ("failed", "not_sent") == (caught.value.state, caught.value.outcome)


async def test_a_required_server_that_does_not_start_fails_entering_and_stops_the_rest(tmp_path):
    """`required` makes a missing server loud, and nothing half-started stays.

    https://github.com/nanocoai/nanoclaw/issues/2968
    """
    healthy = ScriptedServer(tmp_path)
    servers = {"need": StdioServer("/nonexistent/server", required=True), "healthy": healthy.stdio()}
    with anyio.fail_after(BOUND_SECONDS):
        with pytest.raises(StartError) as caught:
            await McpConnection(servers, limits=QUICK).__aenter__()

    assert "need" == caught.value.server
    assert [False] == [is_alive(pid) for pid in healthy.pids()]
