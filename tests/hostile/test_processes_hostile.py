"""Child processes that do not want to end, that start slowly, or that talk on stderr."""

import os
import signal

import anyio
import pytest
from bounds import BOUND_SECONDS, NEVER, connected, is_alive, until, wait_gone

from deputy_mcp import Limits, McpConnection, ServerState
from deputy_mcp.testing import ScriptedServer, be_stubborn, freeze, reply, spawn, wait, write_stderr

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("own_session", [False, True], ids=["same group", "own session"])
async def test_nothing_that_a_server_started_outlives_the_connection(tmp_path, own_session):
    """The whole tree goes: a descendant that ignores TERM, in the server's group or in a session of its own.

    https://github.com/agiletec-inc/airis-mcp-gateway/issues/232
    """
    server = ScriptedServer(tmp_path, at_start=spawn(own_session=own_session, ignores_term=True))
    async with connected({"a": server.stdio()}):
        (child,) = [entry["pid"] for entry in server.ledger("child")]
        before = is_alive(child)

    assert before
    assert not is_alive(child)


@pytest.mark.parametrize("own_session", [False, True], ids=["same group", "own session"])
async def test_a_launcher_killed_from_outside_leaves_no_orphan(tmp_path, own_session):
    """When the first process is gone already, what it started is still found and ended.

    https://github.com/agiletec-inc/airis-mcp-gateway/issues/232
    """
    server = ScriptedServer(tmp_path, at_start=spawn(own_session=own_session, ignores_term=True))
    async with connected({"a": server.stdio(restart=NEVER)}) as connection:
        os.kill(server.pids()[0], signal.SIGKILL)
        await until(connection, lambda status: status["a"].state is ServerState.FAILED)
        (child,) = [entry["pid"] for entry in server.ledger("child")]
        await wait_gone(child)


async def test_closing_stubborn_servers_takes_one_budget_for_all(tmp_path):
    """Servers that ignore TERM and the end of stdin are killed side by side within `shutdown_timeout_seconds`.

    https://github.com/modelcontextprotocol/python-sdk/pull/555
    """
    servers = [ScriptedServer(tmp_path, name=f"s{i}", at_start=be_stubborn()) for i in range(4)]
    limits = Limits(shutdown_timeout_seconds=1)
    with anyio.fail_after(BOUND_SECONDS):
        connection = McpConnection({s.name: s.stdio() for s in servers}, limits=limits)
        async with connection:
            began = anyio.current_time()
            await connection.aclose()
            took = anyio.current_time() - began

    assert took < 2
    assert [False] * 4 == [is_alive(pid) for server in servers for pid in server.pids()]


@pytest.mark.parametrize("data", [b"x" * 99 + b"\n", b"y" * 100], ids=["lines", "one line"])
async def test_a_server_that_floods_stderr_is_drained_and_its_tail_kept(tmp_path, data):
    """stderr is read as it comes, so the server never blocks on it; the end of it is kept, bounded.

    https://github.com/mark3labs/mcp-go/issues/956
    """
    flood = write_stderr(data, times=3_000) + write_stderr("the end")
    server = ScriptedServer(tmp_path, calls={"echo": flood + reply("fine")})
    limits = Limits(call_timeout_seconds=6, max_stderr_bytes=10_000, shutdown_timeout_seconds=1)
    async with connected({"a": server.stdio()}, limits=limits) as connection:
        result = await connection.call_tool("a", "echo")

    tail = connection.status()["a"].stderr_tail
    assert "fine" == result.text
    assert tail.endswith("the end")
    assert len(tail) <= 10_000


async def test_a_late_starter_becomes_usable_afterwards_and_blocks_nobody(tmp_path):
    """Past the start deadline a server is tried again by itself; a call then waits for it.

    https://github.com/github/copilot-cli/issues/4421
    """
    late = ScriptedServer(tmp_path, name="late", at_start=freeze("installed"))
    good = ScriptedServer(tmp_path, name="good")
    impatient = Limits(startup_timeout_seconds=0.3, shutdown_timeout_seconds=0.5)
    async with connected({"late": late.stdio(limits=impatient), "good": good.stdio()}) as connection:
        state = connection.status()["late"].state
        first = await connection.call_tool("good", "echo")
        late.release("installed")
        second = await connection.call_tool("late", "echo")

    assert ServerState.READY != state
    assert (False, False) == (first.is_error, second.is_error)


async def test_a_start_may_take_longer_than_a_call(tmp_path):
    """The start deadline is its own: a slow start is no failure because calls must be fast.

    https://github.com/github/copilot-cli/issues/4421
    """
    server = ScriptedServer(tmp_path, era="legacy", methods={"initialize": wait(0.4) + reply()})
    limits = Limits(call_timeout_seconds=0.2, startup_timeout_seconds=6, shutdown_timeout_seconds=1)
    async with connected({"a": server.stdio()}, limits=limits) as connection:
        state = connection.status()["a"].state

    assert ServerState.READY == state
