"""Durable approvals: tickets that outlive the process, are for one thing only, and are used at most once."""

import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from deputy_mcp import (
    Agent,
    ApprovalDeniedError,
    ApprovalExpiredError,
    ApprovalPendingError,
    ApprovalStore,
    CallTimeoutError,
    ConfigError,
    McpConnection,
    NotAllowlistedError,
    Permissions,
    RestartPolicy,
    StdioServer,
    UnavailableError,
)
from deputy_mcp.testing import ScriptedServer, change_tools, freeze, reply, tool

pytestmark = pytest.mark.anyio

WRITE, OTHER = tool("write", annotations=None), tool("other")
ASKING = Permissions(web="ask", write="ask")


@pytest.fixture
def store(tmp_path: Path) -> ApprovalStore:
    return ApprovalStore(tmp_path / "approvals.db")


@pytest.fixture
def server(tmp_path: Path) -> ScriptedServer:
    return ScriptedServer(tmp_path, tools=(WRITE, OTHER), calls={"write": reply("written")})


@asynccontextmanager
async def opened(
    server: ScriptedServer | StdioServer, store: ApprovalStore, **options: Any
) -> AsyncIterator[McpConnection]:
    options.setdefault("permissions", ASKING)
    entry = server if isinstance(server, StdioServer) else server.stdio()
    with anyio.fail_after(20):
        async with McpConnection({"a": entry}, approver=store, **options) as connection:
            yield connection


async def asked(connection: McpConnection, arguments: Any = None) -> str:
    with pytest.raises(ApprovalPendingError) as caught:
        await connection.call_tool("a", "write", arguments or {"n": 1})

    return caught.value.ticket


async def refused(connection: McpConnection, ticket: str) -> str:
    with pytest.raises(ApprovalDeniedError) as caught:
        await connection.resume(ticket)

    assert "not_sent" == caught.value.outcome
    return caught.value.code


async def test_a_ticket_outlives_its_process_and_is_used_once(server: ScriptedServer, store: ApprovalStore) -> None:
    """Asked in one connection, approved in none, resumed in another: sent once, with exactly the approved bytes."""
    async with opened(server, store) as connection:
        ticket = await asked(connection, {"text": "ä", "b": 1.0, "a": None})

    assert "pending" == store.get(ticket).state
    store.approve(ticket)
    async with opened(server, ApprovalStore(store.path)) as connection:
        assert "written" == (await connection.resume(ticket)).text
        assert "approval_used" == await refused(connection, ticket)

    sent = server.received("tools/call")
    assert [{"text": "ä", "b": 1.0, "a": None}] == [message["params"]["arguments"] for message in sent]
    assert ("done", "delivered") == (store.get(ticket).state, store.get(ticket).note)


async def test_a_ticket_shows_all_a_person_needs(server: ScriptedServer, store: ApprovalStore) -> None:
    """Who, what, why, until when; the text complete and safe on a terminal; the file for its owner alone."""
    async with opened(server, store) as connection:
        ticket = await asked(connection, {"text": "a\x1b[2J\u202e" + "x" * 5000 + "rm"})

    found = store.get(ticket)
    assert ("a", "tools/call", "write", "a__write", "web") == (
        found.server,
        found.method,
        found.tool,
        found.public_name,
        found.code,
    )
    assert "\x1b" not in found.arguments_text
    assert found.arguments_text.rstrip().rstrip("}").rstrip().endswith('rm"')
    assert (False, True) == (found.effects.read_only, found.effects.destructive)
    assert 0 < (found.expires_at - found.asked_at).total_seconds() <= 86_400
    assert 0o600 == stat.S_IMODE(store.path.stat().st_mode)
    assert (found,) == store.list()


async def test_the_same_question_is_the_same_ticket_until_it_is_decided(
    server: ScriptedServer, store: ApprovalStore
) -> None:
    """A model that asks ten times leaves one question; another argument, or a new question, is another."""
    async with opened(server, store) as connection:
        tickets = {await asked(connection) for _ in range(3)}
        other = await asked(connection, {"n": 2})
        (first,) = tickets
        store.approve(first)
        third = await asked(connection)

    assert 3 == len({first, other, third})


async def test_a_rejected_ticket_is_refused_with_its_reason(server: ScriptedServer, store: ApprovalStore) -> None:
    """Also one that was approved and not used yet: a yes can be taken back."""
    async with opened(server, store) as connection:
        ticket = await asked(connection)
        store.approve(ticket)
        store.reject(ticket, "not on\x1b[2J Sundays")
        with pytest.raises(ApprovalDeniedError, match="not on") as caught:
            await connection.resume(ticket)

    assert ("rejected", False) == (caught.value.code, "\x1b" in str(caught.value))
    with pytest.raises(ApprovalDeniedError):
        store.approve(ticket)

    assert 0 == server.runs("write")


async def test_a_ticket_expires(server: ScriptedServer, tmp_path: Path) -> None:
    """Past its time it is neither decided nor used."""
    store = ApprovalStore(tmp_path / "short.db", ttl_seconds=0.01)
    async with opened(server, store) as connection:
        ticket = await asked(connection)
        await anyio.sleep(0.02)  # the thing itself: time passes
        with pytest.raises(ApprovalDeniedError):
            store.approve(ticket)

        with pytest.raises(ApprovalExpiredError):
            await connection.resume(ticket)

    assert "expired" == store.get(ticket).state


async def test_a_second_decision_says_what_the_ticket_is(server: ScriptedServer, store: ApprovalStore) -> None:
    """The same one changes nothing, whoever makes it; another one is refused by what the ticket is by now."""
    async with opened(server, store) as connection:
        used, rejected, void = [await asked(connection, {"n": number}) for number in range(3)]
        assert store.approve(used) == store.approve(used)
        assert store.reject(rejected, "no") == store.reject(rejected, "again, no")
        store.approve(void)
        await connection.resume(used)
        store.void(void, "pin_changed")

    said = {}
    for ticket in (used, rejected, void):
        for decide in (store.approve, store.reject):
            try:
                decide(ticket)
            except ApprovalDeniedError as error:
                said[ticket, decide.__name__] = (error.code, str(error))

    assert {
        (used, "approve"): "approval_used",
        (used, "reject"): "approval_used",
        (rejected, "approve"): "rejected",
        (void, "approve"): "approval_void",
        (void, "reject"): "approval_void",
    } == {key: code for key, (code, _) in said.items()}
    assert "delivered" in said[used, "approve"][1]
    assert "rejected: no" in said[rejected, "approve"][1]
    assert "no" == store.get(rejected).note


async def test_the_newest_tickets_come_first(server: ScriptedServer, store: ApprovalStore) -> None:
    """What was asked last is what somebody waits for."""
    async with opened(server, store) as connection:
        tickets = [await asked(connection, {"n": number}) for number in range(3)]

    assert tickets[::-1] == [ticket.ticket for ticket in store.list()]
    store.approve(tickets[0])
    assert tickets[::-1] == [ticket.ticket for ticket in store.list(None)]


async def test_old_settled_tickets_are_removed_and_no_other(server: ScriptedServer, store: ApprovalStore) -> None:
    """Thirty days after their time, by the next question; never one whose outcome is unknown, or that is young."""
    states = ("rejected", "expired", "done", "void", "spent", "pending", "approved")
    async with opened(server, store) as connection:
        old = [await asked(connection, {"old": number}) for number in range(7)]
        young = [await asked(connection, {"young": number}) for number in range(7)]
        with sqlite3.connect(store.path) as database:
            for tickets, age in ((old, 31), (young, 29)):
                for ticket, state in zip(tickets, states, strict=True):
                    gone = f"expires_at = expires_at - {(age + 1) * 86_400}"
                    database.execute(f"UPDATE tickets SET state = ?, {gone} WHERE ticket = ?", (state, ticket))  # ours

        database.close()
        last = await asked(connection)

    left = {ticket.ticket: ticket.state for ticket in store.list(None)}
    assert left == {last: "pending", old[4]: "spent"} | dict(zip(young, states[:5] + ("expired",) * 2, strict=True))


async def test_an_undecided_or_unknown_ticket_sends_nothing(server: ScriptedServer, store: ApprovalStore) -> None:
    """Pending says so again; a made-up one is unknown."""
    async with opened(server, store) as connection:
        ticket = await asked(connection)
        with pytest.raises(ApprovalPendingError):
            await connection.resume(ticket)

        assert "unknown_ticket" == await refused(connection, "made up")

    assert 0 == server.runs("write")


async def test_a_deny_meanwhile_voids_the_ticket(server: ScriptedServer, store: ApprovalStore) -> None:
    """What was approved under wider permissions is not sent under narrower ones, then or ever."""
    async with opened(server, store) as connection:
        ticket = await asked(connection)

    store.approve(ticket)
    async with opened(server, store, permissions=Permissions()) as connection:
        assert "approval_void" == await refused(connection, ticket)

    async with opened(server, store) as connection:
        assert "approval_void" == await refused(connection, ticket)

    assert ("void", 0) == (store.get(ticket).state, server.runs("write"))


@pytest.mark.parametrize("change", [{"description": "another"}, {"annotations": {"readOnlyHint": True}}])
async def test_a_changed_tool_voids_the_ticket(tmp_path: Path, store: ApprovalStore, change: Any) -> None:
    """The approval was for another definition, even if the new one would need none."""
    calls = {"other": change_tools(WRITE | change, OTHER) + reply()}
    server = ScriptedServer(tmp_path, tools=(WRITE, OTHER), calls=calls)
    async with opened(server, store, permissions=Permissions(web="ask", write="ask")) as connection:
        ticket = await asked(connection)
        store.approve(ticket)
        await connection.call_tool("a", "other")
        assert "approval_void" == await refused(connection, ticket)
        await connection.reload("a", repin=True)
        assert "approval_void" == await refused(connection, ticket)

    assert 0 == server.runs("write")


async def test_another_server_under_the_same_name_voids_the_ticket(tmp_path: Path, store: ApprovalStore) -> None:
    """The same tool, offered by another command: it was not approved to go there."""
    first, second = (ScriptedServer(tmp_path, name=name, tools=(WRITE,)) for name in ("first", "second"))
    async with opened(first, store) as connection:
        ticket = await asked(connection)

    store.approve(ticket)
    async with opened(second, store) as connection:
        assert "approval_void" == await refused(connection, ticket)

    assert (0, 0) == (first.runs("write"), second.runs("write"))


async def test_what_was_provably_not_sent_gives_the_ticket_back(server: ScriptedServer, store: ApprovalStore) -> None:
    """The server is down: nothing went out, and the person need not be asked again."""
    async with opened(server, store, restart=RestartPolicy(when="never")) as connection:
        ticket = await asked(connection)
        store.approve(ticket)
        await connection.stop("a")
        with pytest.raises(UnavailableError):
            await connection.resume(ticket)

        assert "approved" == store.get(ticket).state
        await connection.start("a")
        assert "written" == (await connection.resume(ticket)).text

    assert 1 == server.runs("write")


async def test_an_unknown_outcome_uses_the_ticket_up(tmp_path: Path, store: ApprovalStore) -> None:
    """It was sent and not answered: it may have run, so it is never sent again."""
    from deputy_mcp import Limits

    server = ScriptedServer(tmp_path, tools=(WRITE,), calls={"write": [freeze()]})
    limits = Limits(call_timeout_seconds=0.5, shutdown_timeout_seconds=1)
    async with opened(server, store, limits=limits) as connection:
        ticket = await asked(connection)
        store.approve(ticket)
        with pytest.raises(CallTimeoutError):
            await connection.resume(ticket)

        assert "approval_used" == await refused(connection, ticket)

    assert ("done", "call_timeout") == (store.get(ticket).state, store.get(ticket).note)


async def test_two_who_resume_at_once_send_once(server: ScriptedServer, store: ApprovalStore) -> None:
    """Also over several connections: one wins, the others are told that it was used."""
    outcomes: list[str] = []

    async with opened(server, store) as one, opened(server, store) as two:
        ticket = await asked(one)
        store.approve(ticket)

        async def resume(connection: McpConnection) -> None:
            try:
                outcomes.append((await connection.resume(ticket)).text)
            except ApprovalDeniedError as error:
                outcomes.append(error.code)

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(resume, one)
                tasks.start_soon(resume, two)

    assert ["approval_used"] * 7 + ["written"] == sorted(outcomes)
    assert 1 == server.runs("write")


SPEND = """
import sys
from deputy_mcp import ApprovalStore, DeputyError
path, ticket = sys.argv[1:]
store = ApprovalStore(path)
found = store.get(ticket)
print("ready", flush=True)
sys.stdin.read()
try:
    store.spend(ticket, arguments_json=found.arguments_json, digest=found.digest, identity=found.identity)
except DeputyError as error:
    print(error.code)
else:
    print("won")
"""


async def test_of_many_processes_one_spends_a_ticket(server: ScriptedServer, store: ApprovalStore) -> None:
    """One transaction, which only one of them can win."""
    async with opened(server, store) as connection:
        ticket = await asked(connection)

    store.approve(ticket)
    command = (sys.executable, "-c", SPEND, str(store.path), ticket)
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for process in processes:
        assert process.stdout is not None
        assert "ready\n" == process.stdout.readline()

    for process in processes:
        assert process.stdin is not None
        process.stdin.close()

    said = [process.stdout.read().strip() for process in processes if process.stdout is not None]
    for process in processes:
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

    assert ["approval_used"] * 3 + ["won"] == sorted(said)
    assert "spent" == store.get(ticket).state


async def test_an_agent_resumes_under_its_own_permissions(server: ScriptedServer, store: ApprovalStore) -> None:
    """Its share counts at the time of resuming, and its calls are counted."""
    async with opened(server, store) as connection:
        agent = Agent(connection.tools(), permissions=ASKING, max_tool_calls=3)
        tickets = []
        for number in range(2):
            with pytest.raises(ApprovalPendingError) as caught:
                await agent.call_tool("a__write", {"n": number})

            tickets.append(caught.value.ticket)
            store.approve(caught.value.ticket)

        assert "written" == (await agent.resume(tickets[0])).text
        with pytest.raises(PermissionError):
            await agent.resume(tickets[1])

        narrow = Agent(connection.tools(), permissions=Permissions())
        with pytest.raises(ApprovalDeniedError) as denied:
            await narrow.resume(tickets[1])

        other = Agent([handle for handle in connection.tools() if handle.tool == "other"])
        with pytest.raises(NotAllowlistedError):
            await other.resume(tickets[1])

        with pytest.raises(ApprovalDeniedError, match="no connection"):
            await Agent().resume(tickets[1])

    assert ("approval_void", 1) == (denied.value.code, server.runs("write"))


async def test_without_a_store_there_is_nothing_to_resume(server: ScriptedServer) -> None:
    """It says what is missing."""
    async with McpConnection({"a": server.stdio()}) as connection:
        with pytest.raises(ConfigError, match="ApprovalStore"):
            await connection.resume("x")


def no_folder(path: Path) -> Path:
    return path / "missing" / "a.db"


def no_database(path: Path) -> Path:
    (path / "a.db").write_text("this is no database, and long enough to be looked at" * 10)
    return path / "a.db"


def foreign_database(path: Path) -> Path:
    with sqlite3.connect(path / "a.db") as connection:
        connection.execute("CREATE TABLE tickets (ticket TEXT)")

    connection.close()
    return path / "a.db"


@pytest.mark.parametrize("make", [no_folder, no_database, foreign_database])
async def test_a_store_that_cannot_be_used_refuses_the_call(
    server: ScriptedServer, tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    """Fail closed, with the file and the mend."""
    store = ApprovalStore(make(tmp_path))
    async with opened(server, store) as connection:
        with pytest.raises(ConfigError, match=r"approval store .*a\.db"):
            await connection.call_tool("a", "write")

    assert 0 == server.runs("write")


@pytest.mark.parametrize("options", [{"path": ""}, {"path": 3}, {"path": "x", "ttl_seconds": 0}])
def test_a_wrong_store_is_refused(options: Any) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigError):
        ApprovalStore(**options)
