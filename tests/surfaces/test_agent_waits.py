"""An agent and the host's own tools while somebody waits: callbacks that never answer, leaving while loading."""

import anyio
import pytest
from anyio.lowlevel import checkpoint
from conftest import Scene
from workbench import within

from deputy_mcp import Agent, ClosedError, PermissionDeniedError, Permissions, host_tool
from deputy_mcp.testing import hold, reply

pytestmark = pytest.mark.anyio

READS = {"readOnlyHint": True, "openWorldHint": False}


@within(5)
async def test_a_callback_that_never_answers_denies_a_host_tool_within_the_deadline(anyio_backend: object) -> None:
    """As with a server's tool, the deadline includes it, and the function does not run."""
    runs: list[str] = []

    async def never(*_: object) -> None:
        await anyio.sleep_forever()

    tool = host_tool(lambda: runs.append("ran"), name="h", annotations=READS)
    agent = Agent([tool], permissions=Permissions(can_use_tool=never))
    start = anyio.current_time()
    with pytest.raises(PermissionDeniedError) as caught:
        await agent.tools["h"].call({}, timeout_seconds=0.2)

    assert ("callback", "not_sent") == (caught.value.code, caught.value.outcome)
    assert anyio.current_time() - start < 1.5
    assert [] == runs


@within(5)
async def test_a_plain_function_that_gives_a_coroutine_is_awaited(anyio_backend: object) -> None:
    """A lambda around a coroutine function is no coroutine function; its value is the coroutine's all the same."""

    async def work(q: str) -> str:
        await checkpoint()
        return f"did {q}"

    function = host_tool(lambda q: work(q), name="h", annotations=READS)
    agent = Agent([function])
    result = await agent.call_tool("h", {"q": "it"})

    assert (False, "did it") == (result.is_error, result.text)


@within(10)
async def test_leaving_an_agent_while_it_loads_leaves_no_process(scene: Scene) -> None:
    """Who loads is told that the agent was left, and what was started meanwhile is stopped."""
    answer = hold("go") + reply()
    server = scene.scripted(methods={"server/discover": answer})
    config = scene.config(s=server)
    agent = Agent()

    async def load() -> None:
        with pytest.raises(ClosedError):
            await agent.load_mcp(config)

    async with anyio.create_task_group() as tasks:
        async with agent:
            tasks.start_soon(load)
            await server.wait_for(lambda s: s.ledger("holding"))

        server.release("go")

    assert 1 == len(server.pids())
    assert set() == scene.living()
    assert {} == dict(agent.tools)
