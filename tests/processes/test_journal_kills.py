"""kill -9 at every step of the journal's own writes: it verifies to its last whole line, and the next one goes on."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from deputy_mcp import Journal
from deputy_mcp._core.audit_chain import verify_lines
from deputy_mcp._runtime.journal_file import read_lines
from deputy_mcp.testing import ScriptedServer

pytestmark = pytest.mark.anyio

PROGRAM = str(Path(__file__).parent / "journal_scenarios.py")

OPENING = {"opening: open lock", "opening: open", "opening: write"}
CALLS = {"calls: write", "closing: write"}
ROTATION = {"rotation: rename", "rotation: open", "rotation: write"}
SYNCING = {"opening: dup", "rotation: dup"}
LIVES = {
    # Nothing was there: its lock, its file, its `begin` line; intents and results; rotations; its `close` line.
    "new": OPENING | CALLS | ROTATION | SYNCING,
    # A torn line was there, which is cut off first.
    "torn": OPENING | CALLS | ROTATION | SYNCING | {"opening: ftruncate"},
    # A rotation was interrupted in the middle of the new file's `begin` line.
    "half rotated": OPENING | CALLS | ROTATION | SYNCING | {"opening: ftruncate"},
}


def program(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, PROGRAM, *map(str, arguments))
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_lines(path) if line.endswith(b"\n")]


@pytest.mark.parametrize("life", LIVES)
def test_killed_at_every_step_of_its_own_writes(tmp_path: Path, life: str) -> None:
    """Before, in the middle of and after each: whoever was told that his line stands there finds it; no line that was
    there is lost or stands there twice; the chain holds over all files; what is torn is cut off and told.
    """
    run = program("die", tmp_path, life)

    assert 0 == run.returncode, run.stderr
    said = json.loads(run.stdout)
    assert [] == said["problems"]
    assert LIVES[life] <= set(said["steps"])


@pytest.mark.parametrize("where", ["before", "in its last line", "after"])
@pytest.mark.parametrize("number", [1, 3])
async def test_each_call_that_reached_a_server_has_its_intent(tmp_path: Path, number: int, where: str) -> None:
    """Killed at a write of the journal under thirty calls at once: the server's ledger shows none without a line."""
    run = program("call", tmp_path, number, where)
    assert -signal.SIGKILL == run.returncode, run.stderr

    server, path = ScriptedServer(tmp_path), tmp_path / "audit.jsonl"
    with anyio.fail_after(10):
        # It may still be reading what was in the pipe; it ends at the end of its input.
        await server.wait_for(lambda s: len(s.ledger("left")) == len(s.pids()))

    announced = [record["arguments"]["n"] for record in records(path) if record["event"] == "call"]
    ran = [entry["arguments"]["n"] for entry in server.ledger("ran")]
    assert set(ran) <= set(announced)
    assert len(ran) == len(set(ran))
    assert bool(ran) is (number > 1)
    journal = Journal(path)
    journal.open()
    journal.close()
    verdict = verify_lines(read_lines(path))
    assert verdict.intact
    assert verdict.closed
    assert (where == "in its last line") is ("recovered" in [record["event"] for record in records(path)])


def test_of_processes_that_race_for_a_file_one_has_it(tmp_path: Path) -> None:
    """The others are told that it is in use and leave it alone; after a kill the next one has it."""
    path = tmp_path / "audit.jsonl"
    command = (sys.executable, PROGRAM, "hold", str(path))
    racing = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        said = {process: process.stdout.readline() for process in racing if process.stdout is not None}
        (holder,) = [process for process, line in said.items() if line == "open\n"]
        assert 2 == sum("another process" in line for line in said.values())
        assert ["begin", "open"] == [record["event"] for record in records(path)]
        holder.kill()
        holder.wait()
        Journal(path).open()
    finally:
        for process in racing:
            process.kill()
            process.communicate()

    assert ["begin", "open", "open"] == [record["event"] for record in records(path)]
    assert verify_lines(read_lines(path)).intact


def test_a_fork_of_the_writer_writes_nothing(tmp_path: Path) -> None:
    """It is refused, and lets the writer's file and lock alone."""
    path = tmp_path / "audit.jsonl"
    run = program("fork", path)

    assert 0 == run.returncode, run.stderr
    assert "of which this is a fork" in run.stdout
    assert [1, 3] == [record["call"] for record in records(path) if record["event"] == "result"]
    assert verify_lines(read_lines(path)).closed
