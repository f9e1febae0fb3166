"""What a connection writes into its journal: every decision, call, result and refusal, and no secret."""

import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import evolve

from deputy_mcp import (
    Agent,
    Approve,
    ConfigError,
    DeputyError,
    Journal,
    JournalUnavailableError,
    Limits,
    McpConnection,
    NotAllowlistedError,
    PermissionDeniedError,
    Permissions,
    PinBook,
    StdioServer,
    WaitTimeoutError,
)
from deputy_mcp._core.audit_chain import verify_lines
from deputy_mcp._core.errors import CallError
from deputy_mcp._core.permissions import Allow
from deputy_mcp._runtime.journal_file import read_lines
from deputy_mcp._runtime.recording import CallLines, Recorder
from deputy_mcp._runtime.transports.link import CallRecord
from deputy_mcp.testing import FixedApprover, ScriptedServer, change_tools, die, fail, reply, tool

pytestmark = pytest.mark.anyio

WRITE = tool("write", annotations=None)
ASKING = Permissions(web=True, write="ask", destructive="ask")
SECRET = "s3cret-value-of-the-environment"


@asynccontextmanager
async def opened(servers: dict[str, StdioServer], path: Path, **options: Any) -> AsyncIterator[McpConnection]:
    options.setdefault("permissions", Permissions.full())
    with anyio.fail_after(60):
        async with McpConnection(servers, journal=path, **options) as connection:
            yield connection


def lines(path: Path, *events: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in read_lines(path)]
    assert verify_lines(read_lines(path)).intact
    return [line for line in found if not events or line["event"] in events]


async def test_a_call_is_announced_before_and_told_after(tmp_path: Path) -> None:
    """The intent and the outcome, with digests of exactly what went out and came back."""
    server = ScriptedServer(tmp_path, calls={"echo": reply("hello")})
    path = tmp_path / "audit.jsonl"
    async with opened({"a": server.stdio()}, path) as connection:
        result = await connection.call_tool("a", "echo", {"x": "ä"})

    call, outcome = lines(path, "call", "result")
    sent = b'{"x":"\\u00e4"}'
    assert (call["event"], outcome["event"], outcome["intent"]) == ("call", "result", call["seq"])
    for line in (call, outcome):
        assert ("a", "echo", "a__echo", "tools/call", "allow", "allowed") == tuple(
            line[key] for key in ("server", "tool", "public_name", "method", "decision", "code")
        )
        assert (hashlib.sha256(sent).hexdigest(), len(sent)) == (line["arguments_sha256"], line["arguments_bytes"])
        assert result.tool_digest == line["digest"]
        assert "arguments" not in line

    assert (result.size_bytes, False) == (outcome["reply_bytes"], outcome["is_error"])
    assert 64 == len(outcome["reply_sha256"])


async def test_every_refusal_stands_there_with_its_code(tmp_path: Path) -> None:
    """Whoever said no, and at which step: one line each, and nothing that was sent."""
    path = tmp_path / "audit.jsonl"
    typed = tool("typed", inputSchema={"type": "object", "properties": {"n": {"type": "integer"}}})
    server = ScriptedServer(
        tmp_path,
        tools=(tool("echo"), WRITE, typed),
        calls={"echo": [change_tools(tool("echo", description="other"), WRITE, typed) + reply(), reply()]},
    )
    asking = Permissions(web="ask", write="ask", tool_denylist=["a__typed"])
    approver = FixedApprover(False)
    async with opened({"a": server.stdio()}, path, permissions=asking, approver=approver) as connection:
        agent = Agent(connection.tools(), max_tool_calls=0)
        echo = connection.tools()[0]
        expected = []
        for attempt in (
            lambda: connection.call_tool("nobody", "echo"),
            lambda: connection.call_tool("a", "nothing"),
            lambda: connection.call_tool("a", "echo", {"x": float("nan")}),
            lambda: connection.call_tool("a", "typed", {}),
            lambda: connection.call_tool("a", "write"),
            lambda: connection.read_resource("a", "memo://x"),
            lambda: agent.call_tool("a__write"),
            lambda: connection.call_tool("a", "echo"),
            lambda: connection.call_tool("a", "echo"),
            lambda: connection.reload("a", repin=True),
            lambda: echo(),
            lambda: connection.stop("a"),
            lambda: connection.call_tool("a", "write"),
        ):
            try:
                await attempt()
            except DeputyError as error:
                expected.append(error.code)

    refusals = lines(path, "refusal")
    assert expected == [line["error_code"] for line in refusals]
    assert {
        "unknown_server",
        "unknown_tool",
        "invalid_arguments",
        "tool_denylist",
        "rejected",
        "not_allowlisted",
    } < set(expected)
    assert {"max_tool_calls", "pin_changed", "stale_tool", "stopped"} < set(expected)
    assert {"not_sent"} == {line["outcome"] for line in refusals}


async def test_an_approval_stands_there_as_asked_and_answered(tmp_path: Path) -> None:
    """Both with the ticket, the code of why, and the digest of the arguments."""
    path = tmp_path / "audit.jsonl"
    server = ScriptedServer(tmp_path, tools=(WRITE,), calls={"write": reply()})
    asking = Permissions(web=True, write="ask")
    async with opened({"a": server.stdio()}, path, permissions=asking, approver=FixedApprover(Approve())) as connection:
        await connection.call_tool("a", "write")

    asked, answered = lines(path, "approval")
    assert ("ask", "write", "approve") == (asked["decision"], asked["code"], answered["decision"])
    assert asked["ticket"] == answered["ticket"]
    assert asked["arguments_sha256"] == lines(path, "call")[0]["arguments_sha256"]


async def test_what_goes_wrong_on_the_way_stands_there_with_its_outcome(tmp_path: Path) -> None:
    """A server's own error, a death in the middle, a caller who left."""
    path = tmp_path / "audit.jsonl"
    server = ScriptedServer(tmp_path, calls={"echo": [fail(-32602, "no"), die(), reply()]}, tools=(tool("echo"),))
    async with opened({"a": server.stdio()}, path) as connection:
        for _ in range(2):
            with pytest.raises(DeputyError):
                await connection.call_tool("a", "echo")

        await connection.call_tool("a", "echo")
        with anyio.move_on_after(0):
            await connection.call_tool("a", "echo")

    ends = [(line["error_code"], line["outcome"]) for line in lines(path, "result") if "error_code" in line]
    assert [("remote_error", "refused"), ("server_lost", "unknown"), ("cancelled", "not_sent")] == ends
    assert "restart" in {line["event"] for line in lines(path)}


async def test_no_secret_stands_anywhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the server echoes back: journal, log, errors, events and status show `***`."""
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "audit.jsonl"
    odd = tool(SECRET, description=SECRET)
    server = ScriptedServer(
        tmp_path,
        tools=(tool("echo", description=SECRET), odd),
        calls={
            "echo": [
                fail(-32000, f"the key {SECRET} is wrong", data={"key": SECRET}),
                change_tools(tool("echo", description=SECRET + "!"), odd) + reply(SECRET),
                reply(SECRET),
            ]
        },
        capabilities={"experimental": {SECRET: {}}},
    )
    entry = evolve(server.stdio(), env={"KEY": SECRET})
    seen: list[str] = []
    journal = Journal(path, record_arguments=True)
    async with opened({"a": entry}, journal, approver=FixedApprover(False)) as connection:  # type: ignore[arg-type] # a Journal as well
        events = connection.events()
        for arguments in ({"password": SECRET}, {"x": SECRET}, {"x": SECRET}):
            try:
                await connection.call_tool("a", "echo", arguments)
            except DeputyError as error:
                seen += [str(error), error.diagnostics()]

        seen.append(str(connection.status()))

    async for event in events:
        seen.append(str(dict(event.facts)))

    seen += [path.read_text(), caplog.text]
    assert not [text for text in seen if SECRET in text]
    assert "***" in path.read_text()


async def test_a_journal_that_cannot_be_written_stops_calls_and_loses_no_result(tmp_path: Path) -> None:
    """Nothing is sent that could not be announced; what had been sent is delivered; afterwards all is as before."""
    server = ScriptedServer(tmp_path, calls={"echo": reply("ok")})
    path = tmp_path / "audit.jsonl"
    journal = Journal(path)
    async with opened({"a": server.stdio()}, journal) as connection:  # type: ignore[arg-type] # a Journal as well
        await connection.call_tool("a", "echo")
        good = journal._file
        assert good is not None
        write, failing = good.append, [True]

        def append(bodies: Any) -> Any:
            if failing[0]:
                raise OSError(28, "No space left on device")

            return write(bodies)

        good.append = append  # type: ignore[method-assign] # a disk that is full cannot be had in a test
        with pytest.raises(JournalUnavailableError) as caught:
            await connection.call_tool("a", "echo")

        failing[0] = False
        await connection.call_tool("a", "echo")

    assert ("not_sent", 2) == (caught.value.outcome, server.runs("echo"))
    assert 1 == len(lines(path, "gap"))
    assert 2 == len(lines(path, "call"))


async def test_one_connection_a_journal(tmp_path: Path) -> None:
    """A second one is refused with the file's name, and starts nothing."""
    path = tmp_path / "audit.jsonl"
    server = ScriptedServer(tmp_path)
    async with opened({"a": server.stdio()}, path):
        with pytest.raises(ConfigError, match=r"audit\.jsonl"):
            async with McpConnection({"a": server.stdio()}, journal=path):
                pass

    assert 1 == len(server.pids())


@pytest.mark.parametrize("value", [3, b"x", ""])
def test_a_wrong_journal_is_refused(value: Any) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigError):
        McpConnection({}, journal=value)


@pytest.mark.slow
async def test_ten_thousand_calls_are_all_accounted_for(tmp_path: Path) -> None:
    """Over four servers, in the journal and in the servers' own ledgers: the same calls, each once."""
    path = tmp_path / "audit.jsonl"
    servers = {
        name: ScriptedServer(tmp_path, name=name, tools=(tool("echo"), WRITE))
        for name in ("one", "two", "three", "four")
    }
    permissions = Permissions(write=False)
    denied: Counter[str] = Counter()
    entries = {name: server.stdio() for name, server in servers.items()}
    pins, limits = PinBook(verify="change"), Limits(max_concurrent_calls=64)
    with anyio.fail_after(110):
        async with McpConnection(
            entries, journal=path, permissions=permissions, pins=pins, limits=limits
        ) as connection:

            async def call_many(name: str, first: int) -> None:
                for number in range(first, 2_500, 25):
                    if number % 10 == 0:
                        try:
                            await connection.call_tool(name, "write", {"n": number})
                        except PermissionDeniedError:
                            denied[name] += 1
                    else:
                        await connection.call_tool(name, "echo", {"n": number})

            async with anyio.create_task_group() as tasks:
                for name in servers:
                    for first in range(25):
                        tasks.start_soon(call_many, name, first)

    told = Counter((line["event"], line.get("server")) for line in lines(path, "call", "result", "refusal"))
    for name, server in servers.items():
        ran = Counter(json.dumps(entry["arguments"]) for entry in server.ledger("ran"))
        assert (2_250, 1, 250) == (len(ran), max(ran.values()), denied[name])
        assert (2_250, 2_250, 250) == (told["call", name], told["result", name], told["refusal", name])


# -- announced, and not sent -----------------------------------------------------------------------------------------


def attempts(path: Path, *, secured: tuple[bool, ...]) -> list[dict[str, Any]]:
    """The lines of a call that was announced so often, each time on its way or not, and then failed."""
    journal = Journal(path)
    journal.open()
    call = CallLines(Recorder(journal), server="s", tool="t", method="tools/call")
    call.decided(Allow("t is allowed"), public_name="s__t", digest=None, arguments=b"{}")
    for number, leaves in enumerate(secured):
        call.announce(generation=number, sent_again=number > 0)
        if leaves:
            call.secure()

    call.failed(CallError("gone", server="s", tool="t", outcome="unknown"), seconds=1, record=CallRecord())
    journal.close()
    return lines(path, "call", "result")


@pytest.mark.parametrize("secured", [(True, False), (True, False, False), (False, True), (False, False, True, False)])
def test_the_end_of_a_call_names_the_attempt_that_left(tmp_path: Path, secured: tuple[bool, ...]) -> None:
    """An attempt that never left stands nowhere, and hides none that did."""
    call, result = attempts(tmp_path / "j", secured=secured)
    assert (secured.index(True), call["seq"]) == (call["generation"], result["intent"])


async def test_narrowed_right_before_it_leaves_a_call_is_asked_for(tmp_path: Path) -> None:
    """The last word comes after the announcement: what it holds back is sent only as approved, and announced once."""
    server = ScriptedServer(tmp_path, tools=[WRITE], calls={"write": reply("written")})
    approver = FixedApprover(Approve())
    asked = 0

    def live() -> tuple[Permissions | None, Permissions | None]:
        nonlocal asked
        asked += 1
        return Permissions.full() if asked < 3 else ASKING, None

    async with opened({"a": server.stdio()}, tmp_path / "j", approver=approver) as connection:
        (handle,) = connection.tools()
        result = await evolve(handle, live=live)()

    calls = lines(tmp_path / "j", "call")
    assert ("written", 1, 1) == (result.text, server.runs("write"), len(approver.requests))
    assert 1 == len(calls)


@pytest.mark.parametrize("later", [2, 3])
async def test_who_narrows_a_call_on_its_way_by_a_callback_is_asked(tmp_path: Path, later: int) -> None:
    """While it waited, or right before it leaves: the call goes back to where callbacks are asked, and stays here."""
    server = ScriptedServer(tmp_path, calls={"echo": reply("hello")})
    asked = 0

    def live() -> tuple[Permissions | None, Permissions | None]:
        nonlocal asked
        asked += 1
        narrowing = Permissions(web=True, write=True, destructive=True, can_use_tool=lambda *_: False)
        return Permissions.full(), narrowing if asked >= later else None

    async with opened({"a": server.stdio()}, tmp_path / "j") as connection:
        (handle,) = connection.tools()
        with pytest.raises(PermissionDeniedError):
            await evolve(handle, live=live)()

    assert 0 == server.runs("echo")
    assert ["refusal"] == [line["event"] for line in lines(tmp_path / "j", "call", "result", "refusal")]


async def test_a_call_whose_deadline_passed_where_nothing_can_cut_it_off_is_not_sent(tmp_path: Path) -> None:
    """A host's callback holds the loop: the deadline is looked at again before the first byte."""
    server = ScriptedServer(tmp_path, calls={"echo": reply("hello")})
    permissions = Permissions(web=True, write=True, destructive=True, can_use_tool=lambda *_: time.sleep(0.2))
    async with opened({"a": server.stdio()}, tmp_path / "j", permissions=permissions) as connection:
        with pytest.raises(WaitTimeoutError):
            await connection.call_tool("a", "echo", {}, timeout_seconds=0.1)

        assert "hello" == (await connection.call_tool("a", "echo", {})).text

    assert 1 == server.runs("echo")
    assert [None, "wait_timeout"] == sorted(
        (line.get("error_code") for line in lines(tmp_path / "j", "result", "refusal")), key=str
    )


async def test_a_server_that_is_no_text_is_refused_like_one_that_is_unknown(tmp_path: Path) -> None:
    """A model may ask for anything; the line holds it as text."""
    async with opened({"a": ScriptedServer(tmp_path).stdio()}, tmp_path / "j") as connection:
        with pytest.raises(NotAllowlistedError):
            await connection.call_tool(5, "x")  # type: ignore[arg-type] # that is the point

    (line,) = lines(tmp_path / "j", "refusal")
    assert ("5", "x", "unknown_server") == (line["server"], line["tool"], line["error_code"])


async def test_a_journal_that_its_host_closed_refuses_by_name(tmp_path: Path) -> None:
    """The error says which call was not sent."""
    journal = Journal(tmp_path / "j")
    server = ScriptedServer(tmp_path, calls={"echo": reply("hello")})
    async with McpConnection({"a": server.stdio()}, permissions=Permissions.full(), journal=journal) as connection:
        journal.close()
        with pytest.raises(JournalUnavailableError) as caught:
            await connection.call_tool("a", "echo", {})

    assert ("a", "echo", 0) == (caught.value.server, caught.value.tool, server.runs("echo"))
