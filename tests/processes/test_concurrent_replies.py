"""Fifty calls at once, answered in reverse order."""

from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from workbench import FULL, Bench, handle, within

from deputy_mcp import Limits, McpConnection

pytestmark = pytest.mark.anyio

CALLS = 50
WIDE = FULL | {"limits": Limits(call_timeout_seconds=10, shutdown_timeout_seconds=1, max_concurrent_calls=CALLS)}


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("wire", ["stdio", "http-json", "http-events"])
@within(30)
async def test_fifty_replies_in_reverse_order_reach_their_own_callers(bench: Bench, wire: str, era: str) -> None:
    """However a server orders its replies, every value goes to the caller who asked for it."""
    behaviour: dict[str, Any] = {"eras": [era], "offers": ["gather"], "sse": wire == "http-events", "sessions": True}
    answers: dict[int, str] = {}
    async with AsyncExitStack() as stack:
        if wire == "stdio":
            server: Any = bench.stdio(behaviour)
        else:
            server = (await stack.enter_async_context(bench.http(behaviour))).server()

        connection = await stack.enter_async_context(McpConnection({"s": server}, **WIDE))
        gather = handle(connection, "s", "gather")

        async def ask(number: int) -> None:
            answers[number] = (await gather(of=CALLS, value=number)).text

        async with anyio.create_task_group() as callers:
            for number in range(CALLS):
                callers.start_soon(ask, number)

    assert {number: str(number) for number in range(CALLS)} == answers
    assert CALLS == len(bench.ledger.calls("gather"))
