"""kill -9 at every point of asking, approving, resuming and sending: never two executions, never a lost ticket."""

import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from deputy_mcp import (
    ApprovalDeniedError,
    ApprovalPendingError,
    ApprovalStore,
    DeputyError,
    Journal,
    McpConnection,
    Permissions,
)
from deputy_mcp._core.audit_chain import verify_lines
from deputy_mcp._runtime.journal_file import read_lines
from deputy_mcp.testing import ScriptedServer, reply, tool

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PROGRAM = Path(__file__).parent / "approval_scenarios.py"
ASKING = Permissions(web="ask", write="ask")


def program(folder: Path, action: str, point: str = "none", ticket: str = "-") -> subprocess.CompletedProcess[str]:
    (folder / "armed").unlink(missing_ok=True)
    command = (sys.executable, str(PROGRAM), str(folder), action, point, ticket)
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def server(folder: Path) -> ScriptedServer:
    return ScriptedServer(folder, tools=(tool("write", annotations=None),), calls={"write": reply("written")})


async def asked(folder: Path) -> str:
    """The one ticket that a whole run leaves."""
    store = ApprovalStore(folder / "approvals.db")
    async with McpConnection(
        {"a": server(folder).stdio()}, permissions=ASKING, approver=store, journal=folder / "audit.jsonl"
    ) as connection:
        with pytest.raises(ApprovalPendingError) as caught:
            await connection.call_tool("a", "write", {"n": 1})

    return caught.value.ticket


def check_journal(folder: Path) -> None:
    """It verifies up to its last whole line, and whoever comes next continues it."""
    path = folder / "audit.jsonl"
    whole = b"".join(line for line in read_lines(path) if line.endswith(b"\n"))
    assert verify_lines(whole.splitlines(keepends=True)).intact
    journal = Journal(path)
    journal.open()
    journal.append("warning", reason="the next process")
    journal.close()
    assert verify_lines(read_lines(path)).intact


async def resumed(folder: Path, ticket: str) -> str:
    """What a new process makes of the ticket: its result, or the code of the refusal."""
    store = ApprovalStore(folder / "approvals.db")
    async with McpConnection(
        {"a": server(folder).stdio()}, permissions=ASKING, approver=store, journal=folder / "audit.jsonl"
    ) as connection:
        try:
            return (await connection.resume(ticket)).text
        except DeputyError as error:
            return error.code


@pytest.mark.parametrize("point", ["ask-before", "ask-inside", "ask-after", "journal-before", "journal-after"])
async def test_killed_while_it_asks(tmp_path: Path, point: str) -> None:
    """Nothing was sent; the ticket is there wholly or not at all, and asking again gives one that works."""
    assert -signal.SIGKILL == program(tmp_path, "ask", point).returncode

    store = ApprovalStore(tmp_path / "approvals.db")
    left = store.list(None)
    assert len(left) == (point not in ("ask-before", "ask-inside"))
    ticket = await asked(tmp_path)
    assert {ticket} == {one.ticket for one in store.list(None)}
    store.approve(ticket)
    assert "written" == await resumed(tmp_path, ticket)
    assert 1 == server(tmp_path).runs("write")
    check_journal(tmp_path)


@pytest.mark.parametrize("point", ["approve-before", "approve-inside", "approve-after"])
async def test_killed_while_somebody_approves(tmp_path: Path, point: str) -> None:
    """The decision is there wholly or not at all; it can be made (again), and the call runs once."""
    ticket = await asked(tmp_path)
    assert -signal.SIGKILL == program(tmp_path, "approve", point, ticket).returncode

    store = ApprovalStore(tmp_path / "approvals.db")
    assert ("approved" if point == "approve-after" else "pending") == store.get(ticket).state
    if point != "approve-after":
        store.approve(ticket)

    assert "written" == await resumed(tmp_path, ticket)
    assert "approval_used" == await resumed(tmp_path, ticket)
    assert 1 == server(tmp_path).runs("write")


@pytest.mark.parametrize("point", ["spend-before", "spend-inside"])
async def test_killed_before_the_ticket_is_spent(tmp_path: Path, point: str) -> None:
    """Provably not sent: the approval still stands, and the call runs once."""
    ticket = await asked(tmp_path)
    ApprovalStore(tmp_path / "approvals.db").approve(ticket)
    assert -signal.SIGKILL == program(tmp_path, "resume", point, ticket).returncode

    assert 0 == server(tmp_path).runs("write")
    assert "written" == await resumed(tmp_path, ticket)
    assert 1 == server(tmp_path).runs("write")
    check_journal(tmp_path)


@pytest.mark.parametrize(
    "point",
    ["spend-after", "journal-before", "journal-after", "send-before", "send-after", "finish-before", "finish-inside"],
)
async def test_killed_after_the_ticket_is_spent(tmp_path: Path, point: str) -> None:
    """Whether it ran is unknown from here on: the ticket says so, and nothing is ever sent again."""
    ticket = await asked(tmp_path)
    store = ApprovalStore(tmp_path / "approvals.db")
    store.approve(ticket)
    assert -signal.SIGKILL == program(tmp_path, "resume", point, ticket).returncode

    with anyio.fail_after(10):
        # Its server may still be reading what was in the pipe; it ends at the end of its input.
        await server(tmp_path).wait_for(lambda s: len(s.ledger("left")) == len(s.pids()) or not s.ledger("left"))

    assert "spent" == store.get(ticket).state
    before = server(tmp_path).runs("write")
    assert before <= 1
    assert "approval_used" == await resumed(tmp_path, ticket)
    with pytest.raises(ApprovalDeniedError):
        store.approve(ticket)

    assert before == server(tmp_path).runs("write")
    check_journal(tmp_path)


async def test_killed_after_the_end_is_written(tmp_path: Path) -> None:
    """The outcome stands, and the ticket is used up."""
    ticket = await asked(tmp_path)
    store = ApprovalStore(tmp_path / "approvals.db")
    store.approve(ticket)
    assert -signal.SIGKILL == program(tmp_path, "resume", "finish-after", ticket).returncode

    assert ("done", "delivered") == (store.get(ticket).state, store.get(ticket).note)
    assert "approval_used" == await resumed(tmp_path, ticket)
    assert 1 == server(tmp_path).runs("write")
    check_journal(tmp_path)
