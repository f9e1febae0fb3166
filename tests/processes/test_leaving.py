"""A connection may be left in any way an application finds, and nothing of it stays behind.

What stayed behind is looked for by the `bench` fixture after each test: tasks, threads, descriptors, living children.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

import anyio
import pytest
from workbench import FULL, Bench, handle, reaches, within

from deputy_mcp import (
    CallTimeoutError,
    ClosedError,
    McpConnection,
    RestartPolicy,
    ServerLostError,
    ServerState,
    StartError,
)

pytestmark = pytest.mark.anyio


async def closed(connection: McpConnection) -> None:
    """Return when the connection is closed, whoever closes it."""
    async for _ in connection.events():
        pass


# -- closing -----------------------------------------------------------------------------------------------------


@within(10)
async def test_a_connection_may_be_closed_from_another_task_than_it_was_opened_in(bench: Bench) -> None:
    """The task that closes need not be the one that opened, and everything is stopped when `aclose` returns."""
    connection = McpConnection({"a": bench.stdio(), "b": bench.stdio()}, **FULL)
    await asyncio.create_task(connection.__aenter__())
    assert "1" == (await connection.call_tool("a", "echo", {"value": 1})).text
    await asyncio.create_task(connection.aclose())

    assert set() == bench.living()
    assert {"a": "stopped", "b": "stopped"} == {name: str(s.state) for name, s in connection.status().items()}


@within(10)
async def test_closing_twice_is_the_same_as_closing_once(bench: Bench) -> None:
    """A second `aclose` returns, whether the first is over or under way; so does leaving the block after it."""
    async with McpConnection({"a": bench.stdio({"lingers": True})}, **FULL) as connection:
        await asyncio.gather(connection.aclose(), connection.aclose(), connection.aclose())
        assert set() == bench.living()
        await connection.aclose()

    assert ServerState.STOPPED is connection.status()["a"].state


@within(10)
async def test_two_connections_may_be_closed_first_opened_first(bench: Bench) -> None:
    """Connections do not nest: each may be closed while a later one stays open and works."""
    first, second = (McpConnection({"s": bench.stdio()}, **FULL) for _ in range(2))
    await first.__aenter__()
    await second.__aenter__()
    await first.aclose()
    assert "1" == (await second.call_tool("s", "echo", {"value": 1})).text
    await second.aclose()


@within(10)
async def test_a_connection_over_http_may_be_closed_first_opened_first_from_other_tasks(bench: Bench) -> None:
    """What holds for child processes holds for HTTP, whose SDK client keeps task groups of its own."""
    async with bench.http({"sessions": True, "sse": True, "get_stream": True}) as http:
        first, second = (McpConnection({"s": http.server(protocol="legacy")}, **FULL) for _ in range(2))
        await asyncio.create_task(first.__aenter__())
        await asyncio.create_task(second.__aenter__())
        assert "1" == (await first.call_tool("s", "echo", {"value": 1})).text
        await asyncio.create_task(first.aclose())
        assert "2" == (await second.call_tool("s", "echo", {"value": 2})).text
        await asyncio.create_task(second.aclose())


@within(10)
async def test_closing_before_entering_leaves_a_connection_that_cannot_be_entered(bench: Bench) -> None:
    """`aclose` is legal at once; what was closed is not opened again."""
    connection = McpConnection({"a": bench.stdio()}, **FULL)
    await connection.aclose()
    with pytest.raises(ClosedError):
        await connection.__aenter__()

    assert [] == bench.ledger.read("start")


@within(10)
async def test_an_error_in_the_block_comes_out_as_it_is(bench: Bench) -> None:
    """Leaving by an exception stops everything and changes nothing about the exception."""
    error = KeyError("ours")
    with pytest.raises(KeyError) as caught:
        async with McpConnection({"a": bench.stdio()}, **FULL):
            raise error

    assert error is caught.value
    assert set() == bench.living()


@within(10)
async def test_a_call_under_way_at_the_close_fails_as_stopped(bench: Bench) -> None:
    """Closing is a stop: whoever still waits is told so by our own error."""
    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        call = asyncio.create_task(connection.call_tool("a", "hang"))
        await bench.ledger.wait_call("hang")

    with pytest.raises(ServerLostError) as caught:
        await call

    assert "stopped" == caught.value.code


# -- opening under a timeout -------------------------------------------------------------------------------------

TIMEOUTS: dict[str, Callable[[float], AbstractAsyncContextManager[Any]]] = {
    "asyncio.timeout": asyncio.timeout,
    "anyio.fail_after": lambda seconds: as_async(anyio.fail_after(seconds)),
}


class as_async:  # noqa: N801 - reads as a verb
    """A synchronous context manager as an asynchronous one."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def __aenter__(self) -> Any:
        return self.inner.__enter__()

    async def __aexit__(self, *error: Any) -> Any:
        return self.inner.__exit__(*error)


@pytest.mark.parametrize("timeout", TIMEOUTS)
@within(10)
async def test_a_timeout_around_entering_is_a_plain_timeout(bench: Bench, timeout: str) -> None:
    """A server that never answers is given up with the timeout's own error; what was started is stopped."""
    connection = McpConnection({"good": bench.stdio(), "silent": bench.stdio({"silent": True})}, **FULL)
    with pytest.raises(TimeoutError) as caught:
        async with TIMEOUTS[timeout](0.3):
            await connection.__aenter__()

    assert TimeoutError is type(caught.value)
    assert set() == bench.living()
    with pytest.raises(ClosedError):
        await connection.call_tool("good", "echo")


@within(10)
async def test_wait_for_around_entering_is_a_plain_timeout(bench: Bench) -> None:
    """`asyncio.wait_for` runs what it is given in a task of its own; that task may end."""
    connection = McpConnection({"silent": bench.stdio({"silent": True, "stubborn": True})}, **FULL)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(connection.__aenter__(), 0.3)

    assert set() == bench.living()


@pytest.mark.parametrize("timeout", TIMEOUTS)
@within(10)
async def test_a_connection_opened_inside_a_timeout_outlives_it(bench: Bench, timeout: str) -> None:
    """The scope in which a connection was entered may end; the connection stands on its own."""
    connection = McpConnection({"a": bench.stdio()}, **FULL)
    async with TIMEOUTS[timeout](5):
        await connection.__aenter__()

    assert "1" == (await connection.call_tool("a", "echo", {"value": 1})).text
    await connection.aclose()


@within(10)
async def test_wait_for_around_a_good_start_gives_a_connection_that_works(bench: Bench) -> None:
    """Entered in `wait_for`'s task, used and closed in ours."""
    connection = McpConnection({"a": bench.stdio()}, **FULL)
    await asyncio.wait_for(connection.__aenter__(), 5)
    assert "1" == (await asyncio.wait_for(connection.call_tool("a", "echo", {"value": 1}), 5)).text
    await asyncio.wait_for(connection.aclose(), 5)


# -- generators --------------------------------------------------------------------------------------------------


async def answers(connection: McpConnection) -> AsyncIterator[str]:
    """Holds the connection open while it is read."""
    async with connection:
        while True:
            yield (await connection.call_tool("a", "echo", {"value": 1})).text


@within(10)
async def test_a_generator_that_holds_the_connection_may_be_closed_early(bench: Bench) -> None:
    """`aclosing` ends the generator in our task; the connection is closed when it returns."""
    connection = McpConnection({"a": bench.stdio()}, **FULL)
    async with aclosing(answers(connection)) as texts:
        async for text in texts:
            assert "1" == text
            break

    assert set() == bench.living()


@within(10)
async def test_a_generator_that_is_only_dropped_closes_its_connection(bench: Bench) -> None:
    """Broken out of and garbage collected, a generator is finalised by the loop in a task of its own."""
    connection = McpConnection({"a": bench.stdio()}, **FULL)
    watcher = asyncio.create_task(closed(connection))
    async for text in answers(connection):
        assert "1" == text
        break

    gc.collect()
    await watcher
    assert set() == bench.living()


@within(10)
async def test_a_generator_may_be_advanced_by_one_task_and_closed_by_another(bench: Bench) -> None:
    """A web framework opens a dependency in one task and finalises it in another."""
    texts = answers(McpConnection({"a": bench.stdio()}, **FULL))
    assert "1" == await asyncio.create_task(anext(texts))
    assert "1" == await asyncio.create_task(anext(texts))
    await asyncio.create_task(texts.aclose())
    assert set() == bench.living()


# -- cancelling --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [{"silent": True}, {"mute": ["tools/list"]}, {"silent": True, "stubborn": True}])
@within(10)
async def test_cancelled_in_the_middle_of_the_start_stops_what_was_started(
    bench: Bench, trouble: dict[str, Any]
) -> None:
    """A start cancelled before the handshake, or before the listing, ends as a cancellation and nothing else."""
    connection = McpConnection({"good": bench.stdio(), "slow": bench.stdio(trouble)}, **FULL)
    opening = asyncio.create_task(connection.__aenter__())
    await bench.ledger.wait("start", count=2)
    await reaches(connection, "good", ServerState.READY)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening

    assert set() == bench.living()


@within(10)
async def test_cancelled_in_the_middle_of_a_call_leaves_the_connection_usable(bench: Bench) -> None:
    """The cancellation is never wrapped, reaches the server, and the same process answers the next call."""
    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        pid = handle(connection, "a", "pid")
        before = (await pid()).text
        call = asyncio.create_task(connection.call_tool("a", "hang"))
        reached = await bench.ledger.wait_call("hang")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

        await bench.ledger.wait("got", method="notifications/cancelled", cancels=reached["id"])
        assert before == (await pid()).text
        assert 0 == connection.status()["a"].calls_in_flight


@within(10)
async def test_cancelled_in_the_middle_of_the_close_the_servers_still_end(bench: Bench) -> None:
    """Whoever closes may be cancelled; the closing goes on, and a second `aclose` waits for its end."""
    connection = McpConnection({"a": bench.stdio({"stubborn": True})}, **FULL)
    await connection.__aenter__()
    closing = asyncio.create_task(connection.aclose())
    await reaches(connection, "a", ServerState.CLOSING)
    closing.cancel()
    await asyncio.wait([closing])
    await connection.aclose()
    assert set() == bench.living()


@within(10)
async def test_a_deadline_around_the_close_does_not_leave_it_half_done(bench: Bench) -> None:
    """A scope of anyio's that is cancelled while a connection closes waits for the end, which is bounded."""
    connection = McpConnection({"a": bench.stdio({"stubborn": True})}, **FULL)
    await connection.__aenter__()
    with anyio.move_on_after(0.05):
        await connection.aclose()

    assert set() == bench.living()


@within(10)
async def test_a_cancelled_block_closes_its_connection(bench: Bench) -> None:
    """The usual case: the task that holds the block is cancelled, in the middle of a call."""

    async def work() -> None:
        async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
            await connection.call_tool("a", "hang")

    working = asyncio.create_task(work())
    await bench.ledger.wait_call("hang")
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working

    assert set() == bench.living()


@within(10)
async def test_a_sibling_that_fails_in_the_same_task_group_gives_only_its_own_error(bench: Bench) -> None:
    """In a task group with a failing sibling, the group holds that failure and nothing of ours."""

    async def work() -> None:
        async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
            await connection.call_tool("a", "hang")

    async def fail() -> None:
        await bench.ledger.wait_call("hang")
        raise KeyError("the sibling's")

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(work())
            group.create_task(fail())

    with pytest.raises(ExceptionGroup) as caught:
        await both()

    assert [KeyError] == [type(error) for error in caught.value.exceptions]
    assert set() == bench.living()


# -- several at once ---------------------------------------------------------------------------------------------


@within(20)
async def test_connections_gathered_each_in_a_task_of_its_own_do_not_meet(bench: Bench) -> None:
    """Five connections opened, used and closed at the same time by `asyncio.gather`."""

    async def work(number: int) -> str:
        async with McpConnection({"a": bench.stdio(), "b": bench.stdio()}, **FULL) as connection:
            return (await connection.call_tool("b", "echo", {"value": number})).text

    assert ["0", "1", "2", "3", "4"] == await asyncio.gather(*(work(number) for number in range(5)))
    assert set() == bench.living()


@within(20)
async def test_connections_entered_by_gather_may_be_closed_by_gather_in_reverse(bench: Bench) -> None:
    """Entering by `gather` runs each in a task that ends at once; the connections stay, and close in any order."""
    connections = [McpConnection({"a": bench.stdio()}, **FULL) for _ in range(5)]
    await asyncio.gather(*(connection.__aenter__() for connection in connections))
    calls = (connection.call_tool("a", "echo", {"value": i}) for i, connection in enumerate(connections))
    assert ["0", "1", "2", "3", "4"] == [result.text for result in await asyncio.gather(*calls)]
    await asyncio.gather(*(connection.aclose() for connection in reversed(connections)))


@within(10)
async def test_one_gathered_connection_that_fails_leaves_the_others_alone(bench: Bench) -> None:
    """A required server that cannot start fails its own connection only."""
    good = McpConnection({"a": bench.stdio()}, **FULL)
    bad = McpConnection({"a": bench.stdio({"exit_at_start": 3}, required=True, restart=RestartPolicy(when="never"))})
    outcomes = await asyncio.gather(good.__aenter__(), bad.__aenter__(), return_exceptions=True)
    assert good is outcomes[0]
    assert isinstance(outcomes[1], StartError)
    assert "1" == (await good.call_tool("a", "echo", {"value": 1})).text
    await good.aclose()


@within(10)
async def test_a_timeout_in_one_of_two_gathered_calls_leaves_the_other_alone(bench: Bench) -> None:
    """Calls of one connection in several tasks share nothing but the server."""
    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        late, good = await asyncio.gather(
            connection.call_tool("a", "hang", timeout_seconds=0.1),
            connection.call_tool("a", "echo", {"value": 1}),
            return_exceptions=True,
        )

    assert isinstance(late, CallTimeoutError)
    assert not isinstance(good, BaseException)
    assert "1" == good.text
