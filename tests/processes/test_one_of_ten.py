"""One server of ten is bad: the other nine are READY and work, and the tenth's status says what is wrong with it."""

import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from workbench import FULL, LIMITS, NEVER, PATIENT, Bench, reaches, within

from deputy_mcp import (
    ConfigError,
    HttpServer,
    Limits,
    McpConnection,
    NotAllowlistedError,
    QuarantinedError,
    ServerState,
    StartError,
    StdioServer,
    WaitTimeoutError,
)

pytestmark = pytest.mark.anyio

SHORT = Limits(startup_timeout_seconds=0.5, call_timeout_seconds=10, shutdown_timeout_seconds=1)


PORT = 0
"""Of the loopback; nobody listens there while this module's tests run."""


@pytest.fixture(autouse=True, scope="module")
def closed_port() -> Iterator[None]:
    """A port that is held, but not listened on, is not given to anybody else."""
    global PORT
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        PORT = holder.getsockname()[1]
        yield


@dataclass(frozen=True)
class Fault:
    """A bad server and what its status must say."""

    make: Callable[..., Any]
    says: str
    state: ServerState = ServerState.FAILED
    exit_code: int | None = None
    stderr: str = ""


FAULTS = {
    "missing command": Fault(lambda bench, **f: StdioServer("/nowhere/a-server", **f), "/nowhere/a-server"),
    "missing on the path": Fault(lambda bench, **f: StdioServer("no-such-server-anywhere", **f), "PATH"),
    "not executable": Fault(lambda bench, **f: StdioServer("/etc/hostname", **f), "cannot be run"),
    "missing folder": Fault(lambda bench, **f: StdioServer(sys.executable, cwd="/nowhere", **f), "/nowhere"),
    "silent at start": Fault(
        lambda bench, **f: bench.stdio({"silent": True, "stderr": "waiting for a key"}, limits=SHORT, **f),
        "did not answer the handshake within 0.5 s",
        # Ended by closing its stdin, which it obeys.
        exit_code=0,
        stderr="waiting for a key",
    ),
    "gives no listing in time": Fault(
        lambda bench, **f: bench.stdio({"mute": ["tools/list"]}, limits=SHORT, **f),
        "did not list its tools within 0.5 s",
        exit_code=0,
    ),
    "exits at once": Fault(
        lambda bench, **f: bench.stdio({"exit_at_start": 3, "stderr": "no API key"}, **f),
        "exit code 3",
        exit_code=3,
        stderr="no API key",
    ),
    "invalid listing": Fault(
        lambda bench, **f: bench.stdio({"replies": {"tools/list": {"tools": "nonsense"}}}, **f),
        "tools",
        state=ServerState.QUARANTINED,
        exit_code=0,
    ),
    "listing is an error": Fault(
        lambda bench, **f: bench.stdio({"errors": {"tools/list": [-32603, "the database is down"]}}, **f),
        "the database is down",
        state=ServerState.QUARANTINED,
        exit_code=0,
    ),
    "handshake is an error": Fault(
        lambda bench, **f: bench.stdio(
            {"errors": {"server/discover": [-32601, "no"], "initialize": [-32603, "licence expired"]}}, **f
        ),
        "licence expired",
        exit_code=0,
    ),
    "port closed": Fault(lambda bench, **f: HttpServer(f"http://127.0.0.1:{PORT}/mcp", **f), "connect"),
}


@pytest.mark.parametrize("name", FAULTS)
@within(20)
async def test_the_other_nine_are_ready_and_the_tenth_says_why_it_is_not(bench: Bench, name: str) -> None:
    """Entering returns; nine answer; the tenth's state, reason, last error, exit code and stderr are there."""
    fault = FAULTS[name]
    good = {f"good{i}": bench.stdio({"eras": [("modern", "legacy")[i % 2]]}) for i in range(9)}
    async with McpConnection({"bad": fault.make(bench, restart=NEVER), **good}, **FULL) as connection:
        status = connection.status()
        assert {ServerState.READY} == {status[name].state for name in good}
        answers = [(await connection.call_tool(name, "echo", {"value": name})).text for name in good]
        assert list(good) == answers

        bad = await reaches(connection, "bad", fault.state)
        assert fault.says.lower() in (bad.reason or "").lower()
        assert fault.says.lower() in (bad.last_error or "").lower()
        assert (fault.exit_code, None, 0) == (bad.exit_code, bad.pid, bad.tools)
        assert fault.stderr in bad.stderr_tail
        assert [] == connection.tools("bad")
        with pytest.raises(QuarantinedError if fault.state is ServerState.QUARANTINED else StartError) as caught:
            await connection.call_tool("bad", "echo")

        assert fault.says.lower() in str(caught.value).lower()
        assert ("bad", str(fault.state)) == (caught.value.server, caught.value.state)


@pytest.mark.parametrize(
    "name", ["missing command", "silent at start", "exits at once", "invalid listing", "port closed"]
)
@within(20)
async def test_a_required_server_that_does_not_start_makes_entering_fail_and_stops_everything(
    bench: Bench, name: str
) -> None:
    """The error names server and reason; when it is raised the other nine are stopped and nothing lives."""
    fault = FAULTS[name]
    good = {f"good{i}": bench.stdio() for i in range(9)}
    connection = McpConnection({**good, "bad": fault.make(bench, required=True, restart=PATIENT)}, **FULL)
    with pytest.raises(StartError) as caught:
        await connection.__aenter__()

    assert "bad" == caught.value.server
    assert fault.says.lower() in str(caught.value).lower()
    assert fault.says.lower() in (caught.value.reason or "").lower()
    assert {ServerState.STOPPED} == {status.state for status in connection.status().values()}
    assert set() == bench.living()
    assert 9 <= len(bench.ledger.read("start"))


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
@within(10)
async def test_an_http_server_that_refuses_everything_says_its_status(bench: Bench, status: int) -> None:
    """The reason names the HTTP status, which is what a person needs to mend it."""
    async with (
        bench.http({"always": [status, "the token has expired"]}) as http,
        McpConnection({"good": bench.stdio(), "bad": http.server(restart=NEVER)}, **FULL) as connection,
    ):
        bad = connection.status()["bad"]
        assert ServerState.FAILED is bad.state
        assert str(status) in (bad.reason or "")
        assert str(status) in (bad.last_error or "")
        assert "null" == (await connection.call_tool("good", "echo")).text


@within(10)
async def test_a_required_server_that_is_ready_changes_nothing(bench: Bench) -> None:
    """`required` looks at the end of the first start only: a later loss is handled like any other."""
    async with McpConnection({"a": bench.stdio(required=True)}, **FULL) as connection:
        await connection.stop("a")
        await connection.start("a")
        assert "1" == (await connection.call_tool("a", "echo", {"value": 1})).text


@within(10)
async def test_a_call_to_the_bad_server_waits_inside_its_own_deadline(bench: Bench) -> None:
    """While a server backs off a call waits for it, and is told state and reason when its time is over."""
    async with McpConnection({"a": bench.stdio({"exit_at_start": 3})}, **FULL | {"restart": PATIENT}) as connection:
        with pytest.raises(WaitTimeoutError) as caught:
            await connection.call_tool("a", "echo", timeout_seconds=0.2)

        assert "backing_off" == caught.value.state
        assert "exit code 3" in (caught.value.reason or "")
        assert "not_sent" == caught.value.outcome


@within(20)
async def test_a_silent_server_costs_the_others_no_time_but_entering_waits_for_it(bench: Bench) -> None:
    """The others are READY, and say so in events, before the silent one is given up."""
    servers = {"good": bench.stdio(), "silent": bench.stdio({"silent": True}, limits=SHORT, restart=NEVER)}
    connection = McpConnection(servers, **FULL)
    seen = []

    async def watch() -> None:
        states = [event async for event in connection.events() if event.kind == "state"]
        seen.extend((event.server, event.facts["state"]) for event in states)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await anyio.lowlevel.checkpoint()
        async with connection:
            await reaches(connection, "silent", ServerState.FAILED)

    assert seen.index(("good", "ready")) < seen.index(("silent", "closing"))


@within(10)
async def test_an_unnamed_server_is_never_started(bench: Bench) -> None:
    """A call by a name that was not configured starts nothing and says which names there are."""
    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        with pytest.raises(NotAllowlistedError) as caught:
            await connection.call_tool("b", "echo")

        assert ("unknown_server", "'a'" in str(caught.value)) == (caught.value.code, True)

    assert 1 == len(bench.ledger.read("start"))


def test_constructing_starts_nothing_and_checks_what_it_is_given(tmp_path: Any) -> None:
    """A connection that is only made has no process; a wrong option is a `ConfigError` at once."""
    connection = McpConnection({"a": StdioServer("/nowhere/a-server")}, limits=LIMITS)
    assert ServerState.DORMANT is connection.status()["a"].state
    with pytest.raises(ConfigError):
        McpConnection({"a": "npx some-server"})  # type: ignore[dict-item]
