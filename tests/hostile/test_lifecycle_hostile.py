"""Opening and closing from whichever task, and servers that fail while the others start."""

import asyncio
import socket

import anyio
import pytest
from bounds import AT_ONCE_SECONDS, BOUND_SECONDS, EAGER, NEVER, QUICK, connected, is_alive

from deputy_mcp import HttpServer, Limits, McpConnection, ServerState, StartError, UnavailableError
from deputy_mcp.testing import ScriptedServer, hold, list_changed, reply, silence, wait

pytestmark = pytest.mark.anyio


@pytest.fixture
def closed_port():
    """A port on which nobody listens, kept so for the test."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


async def test_a_connection_closes_from_another_task_and_twice(tmp_path):
    """One task owns what it opened; closing is a request that any task may make, again and at the same time.

    https://github.com/modelcontextprotocol/python-sdk/issues/79
    """
    server = ScriptedServer(tmp_path)
    with anyio.fail_after(BOUND_SECONDS):
        connection = await asyncio.create_task(McpConnection({"a": server.stdio()}, limits=QUICK).__aenter__())
        (pid,) = server.pids()
        await asyncio.gather(
            asyncio.create_task(connection.aclose()), asyncio.create_task(connection.aclose()), connection.aclose()
        )
        await connection.aclose()

    assert not is_alive(pid)


async def test_connections_opened_side_by_side_close_in_any_order(tmp_path):
    """No stack of contexts ties one connection's end to another's.

    https://github.com/modelcontextprotocol/python-sdk/issues/79
    """
    servers = [ScriptedServer(tmp_path, name=f"s{i}") for i in range(3)]
    with anyio.fail_after(BOUND_SECONDS):
        connections = await asyncio.gather(
            *(McpConnection({"a": server.stdio()}, limits=QUICK).__aenter__() for server in servers)
        )
        for connection in connections:  # first in, first out
            await connection.aclose()

    assert [False] * 3 == [is_alive(pid) for server in servers for pid in server.pids()]


async def test_a_connection_entered_under_wait_for_closes_outside_it(tmp_path):
    """A timeout around entering leaves nothing behind that breaks the close.

    https://github.com/modelcontextprotocol/python-sdk/issues/79
    """
    server = ScriptedServer(tmp_path)
    with anyio.fail_after(BOUND_SECONDS):
        connection = McpConnection({"a": server.stdio()}, limits=QUICK)
        await asyncio.wait_for(connection.__aenter__(), 10)
        result = await connection.call_tool("a", "echo")
        await connection.aclose()

    assert not result.is_error
    assert not is_alive(server.pids()[0])


async def test_entering_cancelled_by_wait_for_leaves_no_process(tmp_path):
    """A deadline of the host's around entering ends the half-started servers too.

    https://github.com/pincerhq/pincer/issues/96
    """
    server = ScriptedServer(tmp_path, methods={"server/discover": silence(), "initialize": silence()})
    with anyio.fail_after(BOUND_SECONDS):
        connection = McpConnection({"a": server.stdio()}, limits=QUICK)
        entering = asyncio.create_task(connection.__aenter__())
        await server.wait_for(lambda s: s.received("server/discover"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(entering, 0.01)

        await asyncio.sleep(0)
        await connection.aclose()

    assert not is_alive(server.pids()[0])


async def test_parallel_calls_of_many_tasks_get_their_own_results(tmp_path):
    """Answers that come in another order than the calls reach their own callers, and nobody's leaving closes anything.

    https://github.com/pydantic/pydantic-ai/issues/2355
    """
    delays = [wait((10 - i) * 0.02) + reply() for i in range(10)]
    server = ScriptedServer(tmp_path, calls={"echo": delays})
    async with connected({"a": server.stdio()}) as connection:
        results = await asyncio.gather(*(connection.call_tool("a", "echo", {"n": i}) for i in range(10)))
        after = await connection.call_tool("a", "echo", {"n": 10})

    assert [f'{{"tool": "echo", "arguments": {{"n": {i}}}}}' for i in range(10)] == [r.text for r in results]
    assert not after.is_error
    assert 1 == len(server.pids())


async def test_a_refused_connection_leaves_later_awaits_alone(closed_port):
    """A failed connect is one state with its cause; no cancellation lingers in the task that met it.

    https://github.com/openai/openai-agents-python/issues/1288
    """
    server = HttpServer(f"http://127.0.0.1:{closed_port}/mcp")
    with anyio.fail_after(BOUND_SECONDS):
        async with McpConnection({"dead": server}, limits=QUICK, restart=NEVER) as connection:
            await asyncio.sleep(0.01)
            status = connection.status()["dead"]
            with pytest.raises(UnavailableError, match="dead"):
                await connection.call_tool("dead", "echo")

        await asyncio.sleep(0.01)

    assert ServerState.FAILED == status.state
    assert "ConnectError" in (status.last_error or "")


async def test_a_required_server_that_refuses_fails_entering_with_one_typed_error(closed_port):
    """The error names server and cause and stands in no exception group.

    https://github.com/openai/openai-agents-python/issues/1288
    """
    server = HttpServer(f"http://127.0.0.1:{closed_port}/mcp", required=True)
    with anyio.fail_after(BOUND_SECONDS):
        with pytest.raises(StartError, match="ConnectError") as caught:
            await McpConnection({"dead": server}, limits=QUICK).__aenter__()

        await asyncio.sleep(0.01)

    assert "dead" == caught.value.server


async def test_an_unreachable_server_is_reported_and_its_sibling_works(tmp_path, closed_port):
    """What fails is told per server, and leaving the block is silent.

    https://github.com/modelcontextprotocol/python-sdk/issues/915
    """
    alive = ScriptedServer(tmp_path)
    dead = HttpServer(f"http://127.0.0.1:{closed_port}/mcp", restart=NEVER)
    async with connected({"a": alive.stdio(), "b": dead}) as connection:
        status = connection.status()
        result = await connection.call_tool("a", "echo")

    assert (ServerState.READY, ServerState.FAILED) == (status["a"].state, status["b"].state)
    assert "ConnectError" in (status["b"].reason or "")
    assert not result.is_error


async def test_a_connection_lives_across_the_turns_of_a_notebook(tmp_path):
    """Opened in one task, used in a second, closed in a third, each ended before the next begins.

    https://github.com/openai/openai-agents-python/issues/2005
    """
    server = ScriptedServer(tmp_path)
    with anyio.fail_after(BOUND_SECONDS):
        connection = McpConnection({"a": server.stdio()}, limits=QUICK)
        await asyncio.create_task(connection.__aenter__())
        result = await asyncio.create_task(connection.call_tool("a", "echo"))
        await asyncio.create_task(connection.aclose())
        await asyncio.create_task(connection.aclose())

    assert not result.is_error
    assert not is_alive(server.pids()[0])


async def test_a_silent_server_costs_its_own_start_deadline_and_nobody_else_s(tmp_path):
    """The start deadline ends a server that never answers; its process is gone, its siblings serve.

    https://github.com/pincerhq/pincer/issues/96
    """
    silent = ScriptedServer(tmp_path, name="silent", methods={"server/discover": silence(), "initialize": silence()})
    others = [ScriptedServer(tmp_path, name=f"good{i}") for i in range(2)]
    impatient = Limits(startup_timeout_seconds=0.5, shutdown_timeout_seconds=1)
    servers = {"silent": silent.stdio(limits=impatient, restart=NEVER)} | {s.name: s.stdio() for s in others}
    async with connected(servers) as connection:
        status = connection.status()["silent"]
        gone = not is_alive(silent.pids()[0])
        results = [await connection.call_tool(s.name, "echo") for s in others]

    assert ServerState.FAILED == status.state
    assert "within 0.5 s" in (status.reason or "")
    assert gone
    assert [False, False] == [result.is_error for result in results]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_listing_that_changes_under_a_call_does_not_block_its_answer(tmp_path, transport):
    """The list is fetched again outside the receive path: the call in flight still gets its answer.

    https://github.com/microsoft/agent-framework/pull/4898
    """
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": list_changed() + hold("go") + reply("answer")})

    async def check(entry):
        async with connected({"a": entry}) as connection, anyio.create_task_group() as tasks:
            results = []

            async def call():
                results.append(await connection.call_tool("a", "echo"))

            tasks.start_soon(call)
            await server.wait_for(lambda s: len(s.received("tools/list")) == 2)
            server.release("go")

        assert ["answer"] == [result.text for result in results]

    if transport == "stdio":
        await check(server.stdio())
    else:
        async with server.http() as entry:
            await check(entry)


async def test_a_call_waits_for_a_restarting_server_only_inside_its_deadline(closed_port):
    """Nothing hangs on a server that never comes: the wait ends at the call's own deadline.

    https://github.com/openai/openai-agents-python/issues/1288
    """
    async with connected({"dead": HttpServer(f"http://127.0.0.1:{closed_port}/mcp")}, restart=EAGER) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(UnavailableError) as caught:
            await connection.call_tool("dead", "echo", timeout_seconds=0.2)

    assert "not_sent" == caught.value.outcome
