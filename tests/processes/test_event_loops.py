"""asyncio with uvloop is supported like asyncio alone; what runs on trio through the SDK keeps running there."""

import os
import signal

import anyio
import pytest
from workbench import FULL, Bench, gone, handle, reaches, until, within

from deputy_mcp import CallTimeoutError, McpConnection, ServerLostError, ServerState, UnavailableError

pytestmark = pytest.mark.anyio

LOOPS = [
    pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
    pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
    pytest.param("trio", id="trio"),
]


@pytest.mark.parametrize("anyio_backend", LOOPS)
@within(20)
async def test_a_whole_life_goes_by_on_every_loop(bench: Bench) -> None:
    """Start, call, concurrent calls, progress, a timeout, a death with restart, a reload, a stop, a close."""
    reports: list[float] = []
    connection = McpConnection({"a": bench.stdio({"grandchild": "session"}), "b": bench.stdio()}, **FULL)
    async with connection:
        echo = handle(connection, "a", "echo")
        assert "1" == (await echo(value=1)).text

        answers: dict[int, str] = {}

        async def ask(number: int) -> None:
            answers[number] = (await connection.call_tool("a", "gather", {"of": 10, "value": number})).text

        async with anyio.create_task_group() as callers:
            for number in range(10):
                callers.start_soon(ask, number)

        assert {number: str(number) for number in range(10)} == answers

        await connection.call_tool(
            "a", "progress", {"count": 3, "every": 0.01}, progress=lambda done, total, text: reports.append(done)
        )
        assert [1, 2, 3] == reports

        with pytest.raises(CallTimeoutError):
            await connection.call_tool("a", "hang", timeout_seconds=0.1)

        family = bench.living()
        with pytest.raises(ServerLostError) as caught:
            await connection.call_tool("a", "die", {"code": 5})

        assert 5 == caught.value.exit_code
        await until(connection, "a", lambda status: status.generation == 2 and status.state is ServerState.READY)
        assert "2" == (await echo(value=2)).text
        pid = connection.status()["b"].pid
        assert {pid} == await gone(family, within_seconds=0) & {pid}

        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(connection, "b", lambda status: status.generation == 2 and status.state is ServerState.READY)
        (fresh,) = [tool for tool in await connection.reload("a") if tool.tool == "echo"]
        assert "3" == (await fresh(value=3)).text
        await connection.stop("b")
        with pytest.raises(UnavailableError):
            await connection.call_tool("b", "echo")

    assert set() == bench.living()


@pytest.mark.parametrize("anyio_backend", LOOPS)
@within(20)
async def test_a_start_cancelled_by_a_scope_leaves_nothing_on_every_loop(bench: Bench) -> None:
    """A deadline of anyio's around entering, with a server that never answers."""
    connection = McpConnection({"a": bench.stdio({"silent": True}), "b": bench.stdio()}, **FULL)
    with pytest.raises(TimeoutError), anyio.fail_after(0.3):
        await connection.__aenter__()

    assert set() == bench.living()


@pytest.mark.parametrize("anyio_backend", LOOPS)
# Trio says when a generator is left to the garbage collector; httpx2 does so with each stream of events it reads.
@pytest.mark.filterwarnings("ignore:Async generator 'httpx2:ResourceWarning")
@within(20)
async def test_an_http_server_is_used_and_left_on_every_loop(bench: Bench) -> None:
    """Streamable HTTP in both eras: calls, a forgotten session, a cancelled call, the close."""
    async with bench.http({"sessions": True, "sse": True}) as http:
        servers = {"modern": http.server(), "legacy": http.server(protocol="legacy")}
        async with McpConnection(servers, **FULL) as connection:
            for name in servers:
                assert name == (await connection.call_tool(name, "echo", {"value": name})).text

            with anyio.move_on_after(0.2):
                await connection.call_tool("modern", "hang")

            await connection.call_tool("legacy", "forget")
            assert "2" == (await connection.call_tool("legacy", "echo", {"value": 2})).text
            assert "3" == (await connection.call_tool("modern", "echo", {"value": 3})).text


@pytest.mark.parametrize("anyio_backend", LOOPS)
@within(20)
async def test_a_connection_is_closed_from_another_task_on_every_loop(bench: Bench) -> None:
    """Opened here, closed in a child task while a call is under way."""
    connection = McpConnection({"a": bench.stdio({"lingers": True})}, **FULL)
    await connection.__aenter__()
    outcome: list[str] = []

    async def wait() -> None:
        try:
            await connection.call_tool("a", "hang")
        except ServerLostError as error:
            outcome.append(error.code)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await bench.ledger.wait_call("hang")
        tasks.start_soon(connection.aclose)
        tasks.start_soon(connection.aclose)

    assert ["stopped"] == outcome
    assert ServerState.STOPPED is (await reaches(connection, "a", ServerState.STOPPED)).state
    assert set() == bench.living()
