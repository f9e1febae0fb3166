"""Stopping asks, waits a bounded time, and kills; then nothing is left, launchers and their children included."""

import asyncio
import time
from typing import Any

import pytest
from workbench import FULL, Bench, gone, reaches, within

from deputy_mcp import Limits, McpConnection, ServerState

pytestmark = pytest.mark.anyio

BUDGET_SECONDS = 1.0
SLACK_SECONDS = 0.5
OPTIONS = FULL | {"limits": Limits(shutdown_timeout_seconds=BUDGET_SECONDS)}


@within(10)
async def test_a_polite_server_is_only_asked(bench: Bench) -> None:
    """Stdin is closed, the server leaves by itself, and no signal is sent."""
    async with McpConnection({"a": bench.stdio()}, **OPTIONS) as connection:
        began = time.monotonic()
        await connection.stop("a")
        assert time.monotonic() - began < BUDGET_SECONDS * 0.4
        assert 0 == connection.status()["a"].exit_code

    assert (1, 0) == (len(bench.ledger.read("eof")), len(bench.ledger.read("term")))


@within(10)
async def test_a_server_that_ignores_the_end_of_its_input_gets_a_term(bench: Bench) -> None:
    """Asked first, then told; it may still clean up, and its exit code is its own."""
    async with McpConnection({"a": bench.stdio({"lingers": True})}, **OPTIONS) as connection:
        await connection.stop("a")
        assert 143 == connection.status()["a"].exit_code

    assert (1, 1) == (len(bench.ledger.read("eof")), len(bench.ledger.read("term")))


TREES: dict[str, dict[str, Any]] = {
    "a server that ignores both": {"stubborn": True},
    "a launcher and its leaf": {"stubborn": True, "leaf": "group"},
    "a launcher and a leaf in a session of its own": {"stubborn": True, "leaf": "session"},
    "a polite launcher and a stubborn grandchild": {"grandchild": "group"},
    "a polite server and a grandchild in a session of its own": {"grandchild": "session"},
}


@pytest.mark.parametrize("tree", TREES)
@within(10)
async def test_whatever_ignores_being_asked_is_gone_within_the_budget(bench: Bench, tree: str) -> None:
    """Closing takes at most `shutdown_timeout_seconds`, and no descendant is left, wherever it moved to."""
    connection = McpConnection({"a": bench.stdio(TREES[tree])}, **OPTIONS)
    await connection.__aenter__()
    family = bench.living()
    assert len(family) == (1 if tree == "a server that ignores both" else 2)
    began = time.monotonic()
    await connection.aclose()
    assert time.monotonic() - began < BUDGET_SECONDS + SLACK_SECONDS
    assert set() == await gone(family, within_seconds=0.1)


@within(20)
async def test_ten_stubborn_servers_take_one_budget_together(bench: Bench) -> None:
    """Servers are stopped side by side."""
    connection = McpConnection({f"s{i}": bench.stdio({"stubborn": True}) for i in range(10)}, **OPTIONS)
    await connection.__aenter__()
    assert 10 == len(bench.living())
    began = time.monotonic()
    await connection.aclose()
    assert time.monotonic() - began < 2 * BUDGET_SECONDS
    assert set() == bench.living()


@within(10)
async def test_a_kill_is_no_courtesy_and_takes_no_time(bench: Bench) -> None:
    """The whole tree at once: no closed stdin is waited for, no TERM is sent, and it is not restarted."""
    spec = bench.stdio({"stubborn": True, "grandchild": "session"})
    async with McpConnection({"a": spec}, **OPTIONS) as connection:
        family = bench.living()
        assert 2 == len(family)
        began = time.monotonic()
        await connection.kill("a")
        assert time.monotonic() - began < 0.3
        assert set() == await gone(family, within_seconds=0.1)
        status = connection.status()["a"]
        assert (ServerState.STOPPED, -9, None) == (status.state, status.exit_code, status.pid)

    assert 1 == len(bench.ledger.read("start"))


@within(10)
async def test_a_kill_cuts_a_stop_short(bench: Bench) -> None:
    """Somebody who waited long enough for a polite end may kill; both return."""
    spec = bench.stdio({"stubborn": True}, limits=Limits(shutdown_timeout_seconds=60))
    async with McpConnection({"a": spec}, **OPTIONS) as connection:
        stopping = asyncio.create_task(connection.stop("a"))
        await reaches(connection, "a", ServerState.CLOSING)
        await connection.kill("a")
        await stopping
        assert set() == bench.living()
        assert -9 == connection.status()["a"].exit_code


@within(10)
async def test_what_a_server_left_running_is_ended_before_its_successor_starts(bench: Bench) -> None:
    """After a reload only the new tree lives."""
    async with McpConnection({"a": bench.stdio({"grandchild": "session"})}, **OPTIONS) as connection:
        before = bench.living()
        await connection.reload("a")
        assert set() == await gone(before, within_seconds=0.1)
        assert 2 == len(bench.living())


@within(10)
async def test_stopping_one_server_touches_no_other(bench: Bench) -> None:
    """Groups, marks and parentage are each server's own."""
    async with McpConnection({"a": bench.stdio({"grandchild": "session"}), "b": bench.stdio()}, **OPTIONS) as both:
        other = both.status()["b"].pid
        await both.kill("a")
        assert {other} == bench.living()
        assert "1" == (await both.call_tool("b", "echo", {"value": 1})).text
