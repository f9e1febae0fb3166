"""`Agent(taint=True)`: after text from the open world, what is not read-only is asked for, until the next run."""

import contextlib
from pathlib import Path

import anyio
import pytest

from deputy_mcp import Agent, Approve, McpConnection, Permissions, RefusedError, RemoteError
from deputy_mcp.testing import FixedApprover, ScriptedServer, fail, reply, tool

pytestmark = pytest.mark.anyio

WEB = tool("web", annotations={"readOnlyHint": True, "openWorldHint": True})
LOCAL = tool("local")
WRITE = tool("write", annotations={"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False})


@pytest.mark.parametrize("answer", [reply("page"), fail(-32000, "its text is the server's")])
async def test_after_the_open_world_a_write_is_asked_for(tmp_path: Path, answer: object) -> None:
    """A result or an error of an open-world tool taints; a local one does not; a new run begins clean."""
    server = ScriptedServer(tmp_path, tools=(WEB, LOCAL, WRITE), calls={"web": answer})  # type: ignore[dict-item] # an action
    approver = FixedApprover(Approve())
    with anyio.fail_after(20):
        async with McpConnection(
            {"a": server.stdio()}, permissions=Permissions.full(), approver=approver
        ) as connection:
            agent = Agent(connection.tools(), taint=True)
            plain = Agent(connection.tools())
            await agent.call_tool("a__local")
            await agent.call_tool("a__write")
            assert 0 == len(approver.arguments)
            for one in (agent, plain):
                with contextlib.suppress(RemoteError):
                    await one.call_tool("a__web")

            await plain.call_tool("a__write")
            await agent.call_tool("a__local")
            assert 0 == len(approver.arguments), "reading stays free, and another agent is another context"
            await agent.call_tool("a__write")
            assert 1 == len(approver.arguments)
            agent.new_run()
            await agent.call_tool("a__write")
            assert 1 == len(approver.arguments)

    assert 4 == server.runs("write")


async def test_what_was_refused_taints_nothing(tmp_path: Path) -> None:
    """Nothing was sent, so nothing was read."""
    server = ScriptedServer(tmp_path, tools=(WEB, WRITE))
    with anyio.fail_after(20):
        async with McpConnection({"a": server.stdio()}, permissions=Permissions(write=True)) as connection:
            agent = Agent(connection.tools(), taint=True)
            with pytest.raises(RefusedError):
                await agent.call_tool("a__web")

            assert not (await agent.call_tool("a__write")).is_error


def test_taint_only_ever_tightens() -> None:
    """It asks where all was allowed, and lifts no denial; combined, either is enough."""
    tainted = Permissions.full() & Permissions(web=True, write=True, taint=True)
    assert tainted.taint
    assert not (Permissions() & Permissions()).taint
    assert "tainted" in repr(tainted)
