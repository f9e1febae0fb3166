"""Deadlines and cancellation: what a call may take, who is told, and that the connection stays usable."""

import asyncio
import os
import signal
from typing import Any

import anyio
import pytest
from workbench import FULL, Bench, handle, reaches, until, within

from deputy_mcp import (
    CallTimeoutError,
    ConfigError,
    Limits,
    McpConnection,
    PinBook,
    RestartPolicy,
    ServerLostError,
    ServerState,
    WaitTimeoutError,
)
from deputy_mcp._core.messages import Message
from deputy_mcp._runtime.transports.link import CallRecord, LossSignal, Traffic
from deputy_mcp._runtime.transports.stream_dispatcher import StreamDispatcher

pytestmark = pytest.mark.anyio

MEGABYTE = "x" * 1_000_000
LATE_SECONDS = 0.5
"""A deadline is kept within so much on a busy machine."""


def options(**limits: Any) -> dict[str, Any]:
    return FULL | {"limits": Limits(**{"call_timeout_seconds": 10, "shutdown_timeout_seconds": 1} | limits)}


def pid_of(connection: McpConnection) -> int:
    pid = connection.status()["a"].pid
    assert pid is not None
    return pid


@within(10)
async def test_calls_of_one_server_end_each_at_its_own_deadline(bench: Bench) -> None:
    """In the order of their deadlines, however they came; who has time left goes on, and is answered."""
    ended: list[float] = []
    all_ended = anyio.Event()

    async def hang(connection: McpConnection, seconds: float) -> None:
        began = anyio.current_time()
        with pytest.raises(CallTimeoutError):
            await connection.call_tool("a", "hang", timeout_seconds=seconds)

        ended.append(seconds)
        assert seconds <= anyio.current_time() - began < seconds + LATE_SECONDS
        if len(ended) == 5:
            all_ended.set()

    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        async with anyio.create_task_group() as tasks:
            for seconds in (5, 0.4, 0.1, 0.3, 0.1, 0.2):
                tasks.start_soon(hang, connection, seconds)

            await all_ended.wait()
            tasks.cancel_scope.cancel()

        assert [0.1, 0.1, 0.2, 0.3, 0.4] == ended
        assert "hello" == (await connection.call_tool("a", "echo", {"value": "hello"})).text


@pytest.mark.parametrize("wire", ["stdio", "http-json", "http-events"])
@pytest.mark.parametrize("era", ["modern", "legacy"])
@within(10)
async def test_a_call_that_is_not_answered_times_out_as_sent_and_the_server_is_told(
    bench: Bench, wire: str, era: str
) -> None:
    """`CallTimeoutError`, outcome unknown; the server hears of it in its era's way, and the next call works."""
    async with bench.http({"sessions": True, "sse": wire == "http-events"}) as http:
        protocol = "legacy" if era == "legacy" else "auto"
        spec = bench.stdio(protocol=protocol) if wire == "stdio" else http.server(protocol=protocol)
        async with McpConnection({"a": spec}, **FULL) as connection:
            pid = (await connection.call_tool("a", "pid")).text
            began = anyio.current_time()
            with pytest.raises(CallTimeoutError) as caught:
                await connection.call_tool("a", "hang", timeout_seconds=0.2)

            assert 0.2 <= anyio.current_time() - began < 0.2 + LATE_SECONDS
            assert isinstance(caught.value, TimeoutError)
            assert ("call_timeout", "unknown", "a", "hang") == (
                caught.value.code,
                caught.value.outcome,
                caught.value.server,
                caught.value.tool,
            )
            reached = await bench.ledger.wait_call("hang")
            if wire != "stdio" and era == "modern":
                # Over HTTP the newer era's sign is that the caller hangs up.
                await bench.ledger.wait("hung_up")
            else:
                await bench.ledger.wait("got", method="notifications/cancelled", cancels=reached["id"])

            assert pid == (await connection.call_tool("a", "pid")).text
            assert (1, 0) == (connection.status()["a"].generation, connection.status()["a"].calls_in_flight)


@pytest.mark.parametrize("how", ["task", "scope"])
@pytest.mark.parametrize("wire", ["stdio", "http"])
@within(10)
async def test_a_cancelled_call_is_cancelled_at_the_server_and_the_same_process_answers_the_next(
    bench: Bench, wire: str, how: str
) -> None:
    """A cancellation is never wrapped; it names the call's own id and is said once."""
    async with bench.http({"sessions": True}) as http:
        spec = bench.stdio() if wire == "stdio" else http.server(protocol="legacy")
        async with McpConnection({"a": spec}, **FULL) as connection:
            pid = (await connection.call_tool("a", "pid")).text
            if how == "task":
                call = asyncio.create_task(connection.call_tool("a", "hang"))
                await bench.ledger.wait_call("hang")
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
            else:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(connection.call_tool, "a", "hang")
                    await bench.ledger.wait_call("hang")
                    tasks.cancel_scope.cancel()

            reached = await bench.ledger.wait_call("hang")
            await bench.ledger.wait("got", method="notifications/cancelled", cancels=reached["id"])
            assert pid == (await connection.call_tool("a", "pid")).text

    assert 1 == len(bench.ledger.read("got", method="notifications/cancelled", cancels=reached["id"]))


@within(10)
async def test_a_deadline_that_passes_before_sending_is_a_wait_timeout(bench: Bench) -> None:
    """While the server backs off, and while other calls hold every slot: nothing was sent, and the error says so."""
    policy = RestartPolicy(backoff_initial_seconds=60, backoff_max_seconds=60)
    async with McpConnection({"a": bench.stdio(restart=policy)}, **options(max_concurrent_calls=1)) as connection:
        holding = asyncio.create_task(connection.call_tool("a", "hang"))
        await bench.ledger.wait_call("hang")
        with pytest.raises(WaitTimeoutError) as caught:
            await connection.call_tool("a", "echo", timeout_seconds=0.2)

        assert ("ready", "not_sent", "wait_timeout") == (caught.value.state, caught.value.outcome, caught.value.code)
        assert isinstance(caught.value, TimeoutError)
        os.kill(pid_of(connection), signal.SIGKILL)
        with pytest.raises(ServerLostError):
            await holding

        await reaches(connection, "a", ServerState.BACKING_OFF)
        with pytest.raises(WaitTimeoutError) as caught:
            await connection.call_tool("a", "echo", timeout_seconds=0.2)

        assert "backing_off" == caught.value.state
        assert "SIGKILL" in (caught.value.reason or "")

    assert [] == bench.ledger.calls("echo")


# -- servers that do not read ------------------------------------------------------------------------------------


@within(10)
async def test_a_server_that_does_not_read_holds_no_caller_past_its_deadline(bench: Bench) -> None:
    """A megabyte for a full pipe: this call ends in time, and so does the next; once it is read again, calls work."""
    async with McpConnection(
        {"a": bench.stdio()}, pins=PinBook(verify="change"), **options(max_timeouts_in_row=None)
    ) as connection:
        echo = handle(connection, "a", "echo")
        pid = pid_of(connection)
        os.kill(pid, signal.SIGSTOP)
        try:
            for value in (MEGABYTE, 1):
                began = anyio.current_time()
                with pytest.raises(CallTimeoutError if value == MEGABYTE else TimeoutError):
                    await echo.call({"value": value}, timeout_seconds=0.2)

                assert anyio.current_time() - began < 0.2 + LATE_SECONDS
        finally:
            os.kill(pid, signal.SIGCONT)

        assert "2" == (await echo(value=2)).text
        assert pid == pid_of(connection)


@within(10)
async def test_a_cancelled_megabyte_does_not_spoil_the_messages_after_it(bench: Bench) -> None:
    """Half of it is in the pipe when its caller leaves: the rest must follow, or no later message can be read."""
    async with McpConnection({"a": bench.stdio()}, **options(max_timeouts_in_row=None)) as connection:
        pid = pid_of(connection)
        os.kill(pid, signal.SIGSTOP)
        before = connection.status()["a"].bytes_out
        call = asyncio.create_task(connection.call_tool("a", "note", {"value": MEGABYTE}))
        while connection.status()["a"].bytes_out == before:
            await asyncio.sleep(0)

        waiting = asyncio.create_task(connection.call_tool("a", "echo", {"value": 1}))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

        os.kill(pid, signal.SIGCONT)
        assert "1" == (await waiting).text
        assert "2" == (await connection.call_tool("a", "echo", {"value": 2})).text


@within(10)
async def test_a_caller_who_leaves_before_anything_was_written_takes_the_call_along(bench: Bench) -> None:
    """Behind a message that fills the pipe a small one is only queued: abandoned, the server never hears of it."""
    async with McpConnection({"a": bench.stdio()}, **options(max_timeouts_in_row=None)) as connection:
        pid = pid_of(connection)
        os.kill(pid, signal.SIGSTOP)
        before = connection.status()["a"].bytes_out
        big = asyncio.create_task(connection.call_tool("a", "note", {"value": MEGABYTE}))
        while connection.status()["a"].bytes_out == before:
            await asyncio.sleep(0)

        with pytest.raises(TimeoutError) as caught:
            await connection.call_tool("a", "jot", timeout_seconds=0.2)

        assert "not_sent" == getattr(caught.value, "outcome", None)
        os.kill(pid, signal.SIGCONT)
        assert MEGABYTE == (await big).text
        await connection.call_tool("a", "echo")

    assert [] == bench.ledger.calls("jot")


# -- idle and hard ends ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", ["stdio", "http"])
@within(10)
async def test_progress_keeps_a_slow_call_alive_and_its_absence_ends_it(bench: Bench, wire: str) -> None:
    """With `idle_timeout_seconds`, a call may take longer than that as long as it reports; silence ends it early."""
    async with bench.http() as http:
        spec = bench.stdio() if wire == "stdio" else http.server()
        async with McpConnection({"a": spec}, **options(idle_timeout_seconds=0.4)) as connection:
            began = anyio.current_time()
            result = await connection.call_tool("a", "progress", {"count": 8, "every": 0.1})
            assert "8 steps" == result.text
            assert anyio.current_time() - began > 0.6

            began = anyio.current_time()
            with pytest.raises(CallTimeoutError) as caught:
                await connection.call_tool("a", "hang")

            assert 0.4 <= anyio.current_time() - began < 0.4 + LATE_SECONDS
            assert "idle_timeout" == caught.value.code


@within(10)
async def test_progress_does_not_move_the_hard_end(bench: Bench) -> None:
    """The call timeout is what a call may take in all, however busy it looks."""
    async with McpConnection({"a": bench.stdio()}, **options(idle_timeout_seconds=0.4)) as connection:
        began = anyio.current_time()
        with pytest.raises(CallTimeoutError) as caught:
            await connection.call_tool("a", "progress", {"count": 100, "every": 0.05}, timeout_seconds=0.6)

        assert 0.6 <= anyio.current_time() - began < 0.6 + LATE_SECONDS
        assert "call_timeout" == caught.value.code


@pytest.mark.parametrize("wire", ["stdio", "http"])
@pytest.mark.parametrize("kind", ["plain", "async"])
@within(10)
async def test_progress_is_told_in_order_before_the_result(bench: Bench, wire: str, kind: str) -> None:
    """The callback, plain or async, gets number, total and text of each report."""
    reports: list[tuple[float, float | None, str | None]] = []

    def plain(done: float, total: float | None, text: str | None) -> None:
        reports.append((done, total, text))

    async def awaited(done: float, total: float | None, text: str | None) -> None:
        await anyio.lowlevel.checkpoint()
        reports.append((done, total, text))

    async with bench.http() as http:
        spec = bench.stdio() if wire == "stdio" else http.server()
        async with McpConnection({"a": spec}, **FULL) as connection:
            callback = plain if kind == "plain" else awaited
            await connection.call_tool("a", "progress", {"count": 3, "every": 0.01}, progress=callback)

    assert [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")] == reports


# -- hung servers ------------------------------------------------------------------------------------------------


@within(10)
async def test_a_timeout_does_not_end_a_server_but_several_in_a_row_do(bench: Bench) -> None:
    """`max_timeouts_in_row` with nothing read in between: it is ended as hung, restarted, and works again."""
    async with McpConnection(
        {"a": bench.stdio()}, pins=PinBook(verify="change"), **options(max_timeouts_in_row=3)
    ) as connection:
        first = pid_of(connection)
        for _ in range(2):
            with pytest.raises(CallTimeoutError):
                await connection.call_tool("a", "hang", timeout_seconds=0.05)

        assert first == pid_of(connection)
        assert "1" == (await connection.call_tool("a", "echo", {"value": 1})).text
        for _ in range(2):
            with pytest.raises(CallTimeoutError):
                await connection.call_tool("a", "hang", timeout_seconds=0.05)

        assert first == pid_of(connection), "something was read in between"
        with pytest.raises(CallTimeoutError):
            await connection.call_tool("a", "hang", timeout_seconds=0.05)

        status = await until(connection, "a", lambda s: s.generation == 2 and s.state is ServerState.READY)
        assert "3 calls in a row timed out" in (status.last_error or "")
        assert 1 == status.restarts
        assert "1" == (await connection.call_tool("a", "echo", {"value": 1})).text


@within(10)
async def test_calls_that_time_out_together_count_as_one(bench: Bench) -> None:
    """Three that waited at the same time say no more of the server than one; what comes after them is in a row."""
    async with McpConnection(
        {"a": bench.stdio()}, pins=PinBook(verify="change"), **options(max_timeouts_in_row=3)
    ) as connection:
        first = pid_of(connection)

        async def hang(seconds: float) -> None:
            with pytest.raises(CallTimeoutError):
                await connection.call_tool("a", "hang", timeout_seconds=seconds)

        for _ in range(2):
            async with anyio.create_task_group() as tasks:
                for seconds in (0.05, 0.06, 0.07):
                    tasks.start_soon(hang, seconds)

        assert (first, 1) == (pid_of(connection), connection.status()["a"].generation)
        await hang(0.05)
        status = await until(connection, "a", lambda s: s.generation == 2 and s.state is ServerState.READY)
        assert "3 calls in a row timed out" in (status.last_error or "")


@within(10)
async def test_with_no_bound_on_timeouts_a_server_is_never_taken_for_hung(bench: Bench) -> None:
    """None: never."""
    async with McpConnection({"a": bench.stdio()}, **options(max_timeouts_in_row=None)) as connection:
        for _ in range(6):
            with pytest.raises(CallTimeoutError):
                await connection.call_tool("a", "hang", timeout_seconds=0.02)

        assert 1 == connection.status()["a"].generation
        assert "1" == (await connection.call_tool("a", "echo", {"value": 1})).text


# -- slots -------------------------------------------------------------------------------------------------------


@within(10)
async def test_no_more_calls_are_under_way_than_there_are_slots(bench: Bench) -> None:
    """With three slots the fourth call is not sent before one of the three has ended, however it ended."""
    async with McpConnection({"a": bench.stdio()}, **options(max_concurrent_calls=3)) as connection:
        held = [asyncio.create_task(connection.call_tool("a", "hang")) for _ in range(3)]
        await bench.ledger.wait_call("hang", count=3)
        waiting = asyncio.create_task(connection.call_tool("a", "echo", {"value": 1}))
        for _ in range(20):
            await asyncio.sleep(0)

        assert (3, []) == (connection.status()["a"].calls_in_flight, bench.ledger.calls("echo"))
        held[0].cancel()
        assert "1" == (await waiting).text
        for call in held[1:]:
            call.cancel()

        await asyncio.wait(held)
        assert ["1"] * 5 == [
            result.text
            for result in await asyncio.gather(*(connection.call_tool("a", "echo", {"value": 1}) for _ in range(5)))
        ]


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "1", True])
@within(10)
async def test_a_timeout_that_is_none_is_refused(bench: Bench, seconds: Any) -> None:
    """Nothing is coerced: zero, less, no number, infinity and text are mistakes, said before anything is sent."""
    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        with pytest.raises(ConfigError):
            await connection.call_tool("a", "echo", timeout_seconds=seconds)

    assert [] == bench.ledger.calls()


class Taken:
    """A channel that takes everything and says nothing."""

    def __init__(self) -> None:
        self.written = b""

    async def receive(self) -> list[Message]:
        await anyio.sleep_forever()
        raise AssertionError

    def write_now(self, data: bytes | memoryview) -> int:
        self.written += bytes(data)
        return len(data)

    async def wait_writable(self) -> None:
        return None


class Deaf:
    """Nobody listens."""

    hash_replies = False

    def on_change(self, kind: str) -> None:
        """A list changed."""

    def on_noise(self, sample: str) -> None:
        """Something came that is no message."""


@within(10)
async def test_a_request_that_was_kept_back_as_its_deadline_passed_is_heard_of_by_nobody() -> None:
    """It was never sent, so there is nothing to cancel."""
    channel = Taken()
    dispatcher = StreamDispatcher(channel, Deaf(), Traffic(), LossSignal())

    async def never(*_: Any) -> Any:
        raise AssertionError

    def keep() -> None:
        raise ZeroDivisionError

    async with anyio.create_task_group() as tasks:
        await tasks.start(dispatcher.run, never, never)
        record = CallRecord()
        tasks.start_soon(dispatcher.send_raw_request, "one", None, {"record": record})
        await anyio.wait_all_tasks_blocked()
        kept = CallRecord()
        kept.last_word, kept.deadline = keep, anyio.current_time()
        with pytest.raises(ZeroDivisionError):
            await dispatcher.send_raw_request("two", None, {"record": kept})

        await anyio.wait_all_tasks_blocked()
        assert (True, False) == (record.sent, kept.sent)
        assert b'{"jsonrpc":"2.0","id":1,"method":"one"}\n' == channel.written
        tasks.cancel_scope.cancel()
