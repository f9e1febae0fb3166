"""MCP servers that other people wrote, each through our own connection: it starts, answers, and leaves nothing.

The servers, their pins and the calls are in `provision.py`. One that cannot be had here is skipped with the reason.
"""

import os
import signal
import socket
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest
from provision import SERVERS, Call, Missing, RealServer, provided, provision_all
from survivors import PROC, Process, living_descendants, wait_gone

from deputy_mcp import (
    ApprovalRequest,
    Approve,
    HttpServer,
    Limits,
    McpConnection,
    McpTool,
    Permissions,
    RemoteError,
    ServerState,
    StdioServer,
)
from deputy_mcp.testing import FixedApprover

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.network,
    # The first test of a server may install it: up to two commands, each bounded by INSTALL_TIMEOUT_SECONDS.
    pytest.mark.timeout(600),
    pytest.mark.skipif(not (PROC / "self" / "stat").exists(), reason="who is left is read from /proc"),
]

BY_NAME = {server.name: server for server in SERVERS}
CALLED = tuple(server for server in SERVERS if server.call is not None)
LIMITS = Limits(startup_timeout_seconds=60)
WHOLE_TEST_SECONDS = 110
KILLED_AT_MOST_SECONDS = 1
"""What was killed may need a moment until the kernel has taken it down; a survivor has all the time in the world."""
LISTENING_AT_MOST_SECONDS = 30

MARK_VARIABLE = "DEPUTY_MCP_REAL_TEST"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def mark() -> str:
    """A line in the environment of everything that this test's servers start."""
    return f"{MARK_VARIABLE}={uuid.uuid4().hex}"


Launch = Callable[[RealServer], StdioServer]


@pytest.fixture
def launch(tmp_path: Path, mark: str) -> Launch:
    """Makes the entry that starts a server on a scratch folder of its own; installs it first where it is missing."""

    def make(server: RealServer) -> StdioServer:
        scratch = tmp_path / server.name
        found = provided(server, scratch)
        if isinstance(found, Missing):
            pytest.skip(found.reason)

        command, args, env = found
        name, _, value = mark.partition("=")
        return StdioServer(command, args=args, env=env | {name: value}, cwd=str(scratch))

    return make


@pytest.fixture
async def everything_url(anyio_backend: str, launch: Launch) -> AsyncIterator[str]:
    """The everything-server, listening on a port of the loopback."""
    entry = launch(BY_NAME["everything"])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    process = await anyio.open_process(
        [entry.command, "streamableHttp"],
        env={**os.environ, "PORT": str(port)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with anyio.fail_after(LISTENING_AT_MOST_SECONDS):
            while True:
                assert process.returncode is None, "the everything-server ended before it listened"
                try:
                    stream = await anyio.connect_tcp("127.0.0.1", port)
                except OSError:
                    await anyio.sleep(0.05)  # nothing tells us when a stranger's port opens
                else:
                    await stream.aclose()
                    break

        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()

            await process.aclose()


def handle(connection: McpConnection, name: str, tool: str) -> McpTool:
    (found,) = [each for each in connection.tools(name) if each.tool == tool]
    return found


async def check_call(tool: McpTool, call: Call) -> None:
    """Makes the call through the handle and checks that what comes of it is what the server is known to answer."""
    if call.outcome == "remote_error":
        with pytest.raises(RemoteError) as caught:
            await tool.call(call.arguments)

        assert -32603 == caught.value.rpc_code
        assert call.answer in caught.value.message
        return

    result = await tool.call(call.arguments)
    assert call.answer in result.text
    assert (call.outcome == "tool_error") == result.is_error


async def left_over(mark: str, before: frozenset[Process]) -> frozenset[Process]:
    return await wait_gone(living_descendants(mark) - before, within_seconds=KILLED_AT_MOST_SECONDS)


@pytest.mark.parametrize("server", CALLED, ids=lambda server: server.name)
async def test_a_server_that_others_wrote_starts_answers_and_leaves_nothing(
    server: RealServer, launch: Launch, mark: str, tmp_path: Path
) -> None:
    """A real server becomes READY in its own era, one call is answered, and after `stop` no process of it is left."""
    entry = launch(server)
    assert server.call is not None
    before = living_descendants(mark)
    with anyio.fail_after(WHOLE_TEST_SECONDS):
        # What a description says may be a flag, and is asked about.
        async with McpConnection(
            {server.name: entry}, permissions=Permissions.full(), limits=LIMITS, approver=FixedApprover(Approve())
        ) as connection:
            status = connection.status()[server.name]
            assert (ServerState.READY, None) == (status.state, status.last_error)
            assert server.era == status.protocol_version
            assert {} == dict(status.refused)
            assert server.min_tools <= status.tools
            assert status.tools == len(connection.tools(server.name))
            assert status.pid in {process.pid for process in living_descendants(mark) - before}

            call = server.call(tmp_path / server.name)
            await check_call(handle(connection, server.name, call.tool), call)

            await connection.stop(server.name)
            assert ServerState.STOPPED == connection.status()[server.name].state
            assert frozenset() == await left_over(mark, before)

    assert frozenset() == await left_over(mark, before)


async def test_a_server_with_malformed_schemas_is_ready_and_no_tool_of_it_is_lost_in_silence(
    launch: Launch, mark: str
) -> None:
    """Each tool of a listing that breaks the specification is a handle or is refused with a code; the server stays."""
    server = BY_NAME["gitlab"]
    entry = launch(server)
    before = living_descendants(mark)
    with anyio.fail_after(WHOLE_TEST_SECONDS):
        async with McpConnection({"gitlab": entry}, permissions=Permissions.full(), limits=LIMITS) as connection:
            status = connection.status()["gitlab"]
            assert (ServerState.READY, server.era) == (status.state, status.protocol_version)
            offered = {tool.tool for tool in connection.tools("gitlab")}
            assert server.min_tools == len(offered) + len(status.refused)
            assert offered.isdisjoint(status.refused)

    assert frozenset() == await left_over(mark, before)


async def test_a_killed_launcher_takes_its_child_with_it_and_the_next_call_works(
    launch: Launch, mark: str, tmp_path: Path
) -> None:
    """SIGKILL to a launcher leaves no child answering in its place: all of it is replaced, and the handle lives on."""
    server = BY_NAME["kubernetes"]
    entry = launch(server)
    assert server.call is not None
    before = living_descendants(mark)
    with anyio.fail_after(WHOLE_TEST_SECONDS):
        async with McpConnection({"kubernetes": entry}, permissions=Permissions.full(), limits=LIMITS) as connection:
            call = server.call(tmp_path / server.name)
            tool = handle(connection, "kubernetes", call.tool)
            status = connection.status()["kubernetes"]
            first_life = living_descendants(mark) - before
            assert len(first_life) > 1, "the launcher is expected to have a child"
            assert status.pid is not None

            os.kill(status.pid, signal.SIGKILL)
            assert frozenset() == await wait_gone(first_life, within_seconds=10)
            await check_call(tool, call)

            assert status.generation + 1 == connection.status()["kubernetes"].generation

    assert frozenset() == await left_over(mark, before)


async def test_all_of_them_side_by_side_answer_and_leave_nothing(
    everything_url: str, launch: Launch, mark: str, tmp_path: Path
) -> None:
    """One connection holds them all, one of them over HTTP; each answers a call made at once, and then none is left."""
    # What is missing is left out here; the test of that one server says why.
    there = [server for server in SERVERS if provision_all()[server.name] is None]
    before = living_descendants(mark)

    async def approve(request: ApprovalRequest) -> Approve:
        # Two of them offer tools of the same name, which may make a call ask first.
        return Approve()

    async with McpConnection(
        {server.name: launch(server) for server in there} | {"everything-http": HttpServer(everything_url)},
        permissions=Permissions.full(),
        limits=LIMITS,
        approver=approve,
    ) as connection:
        with anyio.fail_after(WHOLE_TEST_SECONDS):
            states = {name: status.state for name, status in connection.status().items()}
            names = {*(server.name for server in there), "everything-http"}
            assert dict.fromkeys(names, ServerState.READY) == states

            async with anyio.create_task_group() as calls:
                for server in there:
                    if server.call is not None:
                        call = server.call(tmp_path / server.name)
                        calls.start_soon(check_call, handle(connection, server.name, call.tool), call)

                echo = Call("echo", {"message": "over HTTP"}, answer="Echo: over HTTP")
                calls.start_soon(check_call, handle(connection, "everything-http", "echo"), echo)

    assert frozenset() == await left_over(mark, before)
