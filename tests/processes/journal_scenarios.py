"""Programs that write a journal and come to grief; run by `test_journal_kills` in processes of their own.

`die FOLDER LIFE`: a child is killed with SIGKILL before, in the middle of and after each system call by which it opens,
cuts, writes, renames and syncs a journal, one child for each; afterwards this process looks at what is left and goes on
with it. LIFE says what the child found: nothing, a torn line, or a rotation that was interrupted.
`call FOLDER N WHERE`: a connection makes calls and is killed at the Nth write of its journal.
`hold FILE`: opens it and waits. `fork FILE`: a fork of a writer tries to write.

Each child of `die` is a fork of one program, because importing takes longer than all of them.
"""

import json
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from deputy_mcp import Limits, McpConnection, Permissions
from deputy_mcp._core.audit_chain import verify_lines
from deputy_mcp._core.errors import ConfigError, JournalUnavailableError
from deputy_mcp._runtime.journal import Journal
from deputy_mcp._runtime.journal_file import read_lines, rotated_files
from deputy_mcp.testing import ScriptedServer, reply, tool

BATCHES, BATCH = 6, 3
MAX_BYTES = 3_000
"""So that a few batches fill a file."""
PARTS = {"in its first line": slice(9), "in its last line": slice(-9)}
"""Of a write that is killed in the middle, what is in the file."""
MOST_ALIKE = 2
"""Of system calls that do the same, the first few are points."""

REAL: dict[str, Callable[..., Any]] = {
    name: getattr(os, name) for name in ("open", "write", "rename", "ftruncate", "fdatasync", "dup", "close")
}


class Points:
    """Stands before the system calls on a journal's files, names each, and kills this process at one of them.

    A point is (step, number, where), such as ("rotation: rename", 1, "before").
    """

    # Mutable state: the stage of the journal's life; whether it is in the middle of a rotation; the calls so far, by
    # step; the descriptors of the journal's files.
    def __init__(self, path: Path, at: tuple[str, int, str] | None, out: int | None) -> None:
        self.stage = "opening"
        self._path, self._at, self._out = str(path), at, out
        self._rotating = False
        self._fds: set[int] = set()
        self._seen: Counter[str] = Counter()
        for name in REAL:
            setattr(os, name, lambda *args, _name=name, **options: self._call(_name, args, options))

    def _call(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        ours = str(args[0]).startswith(self._path) if name in ("open", "rename") else args[0] in self._fds
        if not ours:
            return REAL[name](*args, **options)

        if name == "close":
            self._fds.discard(args[0])
            return REAL[name](*args, **options)

        self._rotating = self._rotating or name == "rename"
        what = f"{name} lock" if name == "open" and str(args[0]).endswith(".lock") else name
        step = f"{'rotation' if self._rotating else self.stage}: {what}"
        self._seen[step] += 1
        at = (step, self._seen[step])
        if self._out is not None:
            say(self._out, f"{at[1]} {step}")

        where = self._at[2] if self._at is not None and self._at[:2] == at else None
        if where == "before":
            die()

        if where in PARTS:
            REAL[name](args[0], bytes(args[1])[PARTS[where]])
            die()

        result = REAL[name](*args, **options)
        if where == "after":
            die()

        if name in ("open", "dup"):
            self._fds.add(result)

        self._rotating = self._rotating and name != "write"
        return result


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def say(fd: int, what: str) -> None:
    REAL["write"](fd, f"{what}\n".encode())


async def live(path: Path, points: Points, out: int, fsync: bool) -> None:
    """Open, some batches of calls, each with its result, close. Says what it is told before it goes on."""
    journal = Journal(path, max_bytes=MAX_BYTES, fsync=fsync)
    journal.open()
    points.stage = "calls"

    async def one(number: int) -> None:
        announced = journal.announce("call", call=number)
        await anyio.lowlevel.checkpoint()
        intent = journal.secure(announced)
        say(out, f"{number} committed")
        journal.append("result", call=number, intent=intent)

    for batch in range(BATCHES):
        async with anyio.create_task_group() as tasks:
            for number in range(batch * BATCH, (batch + 1) * BATCH):
                tasks.start_soon(one, number)

    points.stage = "closing"
    journal.close()


def child(path: Path, at: tuple[str, int, str] | None, *, fsync: bool) -> tuple[list[int], list[tuple[str, int]], int]:
    """Of a fork of this process: the calls it was told are committed, the steps it came to, and how it ended."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            anyio.run(live, path, Points(path, at, writing), writing, fsync)
            code = 0
        except Exception:  # noqa: BLE001 # told, and the child ends
            traceback.print_exc()
        finally:
            os._exit(code)

    os.close(writing)
    committed, steps = [], []
    with open(reading) as stream:
        for line in stream:
            number, _, what = line.rstrip("\n").partition(" ")
            if what == "committed":
                committed.append(int(number))
            else:
                steps.append((what, int(number)))

    return committed, steps, os.waitpid(pid, 0)[1]


def raw_lines(path: Path) -> list[bytes]:
    return [line for file in (*rotated_files(path), path) if file.exists() for line in read_lines(file)]


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in raw_lines(path) if line.endswith(b"\n")]


def calls(path: Path) -> list[int]:
    return [record["call"] for record in records(path) if record["event"] == "call"]


def begin(path: Path, life: str) -> None:
    """What the child finds."""
    path.parent.mkdir()
    if life == "new":
        return

    journal = Journal(path)
    journal.open()
    journal.append("warning", reason="from before")
    journal.close()
    if life == "torn":
        with path.open("ab") as stream:
            stream.write(b'{"seq":5,"time":"2026-01-01T00:')
    else:
        path.rename(f"{path}.000001")
        path.write_bytes(b'{"seq":5,"ti')


def problems_after(path: Path, before: list[dict[str, Any]], committed: list[int]) -> list[str]:
    """What is wrong with a journal after its writer was killed, and after another went on with it."""
    found = []
    left = raw_lines(path)
    torn = [line for line in left if not line.endswith(b"\n")]
    whole, verdict = records(path), verify_lines(left)
    if not verdict.intact or sum(map(len, torn)) != verdict.torn_bytes:
        found.append(f"left: {verdict}")

    if whole[: len(before)] != before:
        found.append("what stood there before is gone")

    there = calls(path)
    if len(set(there)) != len(there) or there != sorted(there):
        found.append(f"calls stand there as {there}")

    if there[: len(committed)] != committed or len(there) - len(committed) > BATCH:
        found.append(f"committed were {committed}, there are {there}")

    journal = Journal(path, max_bytes=MAX_BYTES)
    try:
        journal.open()
    except ConfigError as error:
        return [*found, f"not continued: {error}"]

    journal.append("warning", reason="the next")
    journal.close()
    verdict = verify_lines(raw_lines(path))
    if not verdict.intact or verdict.torn_bytes or not verdict.closed:
        found.append(f"continued: {verdict}")

    after = records(path)
    if after[: len(whole)] != whole or after[-2].get("reason") != "the next":
        found.append("what was left is not there any more")

    told = [record["torn_bytes"] for record in after[len(whole) :] if record["event"] == "recovered"]
    if told != [len(line) for line in torn]:
        found.append(f"torn were {torn}, recovered is told as {told}")

    return found


def each_point(folder: Path, life: str) -> dict[str, Any]:
    """One child for each step it comes to, and each place before, in and after it."""
    problems: list[str] = []
    struck: set[str] = set()
    for fsync in (False, True):
        path = folder / f"{life}-{fsync}" / "audit.jsonl"
        begin(path, life)
        committed, steps, status = child(path, None, fsync=fsync)
        if (len(committed), status) != (BATCHES * BATCH, 0):
            problems.append(f"without a kill it committed {committed} and ended with {status}")

        for step, number in steps:
            for where in ("before", *(PARTS if step.endswith("write") else ()), "after"):
                if number > MOST_ALIKE:
                    continue

                point = f"{step} {number} {where} fsync={fsync}"
                path = folder / point.replace(":", "") / "audit.jsonl"
                begin(path, life)
                before = records(path)
                committed, _, status = child(path, (step, number, where), fsync=fsync)
                problems += [f"{point}: {what}" for what in problems_after(path, before, committed)]
                if status == signal.SIGKILL:
                    struck.add(step)
                elif "fdatasync" not in step:  # how many of those there are is the thread's affair
                    problems.append(f"{point}: it ended with {status}")

    return {"problems": problems, "steps": sorted(struck)}


async def call_and_die(folder: Path, number: int, where: str) -> None:
    """Thirty calls at once; the journal's writes are the intents of one or more of them, and results."""
    server = ScriptedServer(folder, tools=(tool("echo"),), calls={"echo": reply("ok")})
    path = folder / "audit.jsonl"
    journal = Journal(path, record_arguments=True)
    points = Points(path, ("calls: write", number, where), None)
    async with McpConnection(
        {"a": server.stdio()}, permissions=Permissions.full(), journal=journal, limits=Limits(max_concurrent_calls=10)
    ) as connection:
        points.stage = "calls"
        async with anyio.create_task_group() as tasks:
            for n in range(30):
                tasks.start_soon(connection.call_tool, "a", "echo", {"n": n})


def hold(path: Path) -> None:
    journal = Journal(path)
    try:
        journal.open()
    except ConfigError as error:
        print(f"refused: {error}", flush=True)
        return

    print("open", flush=True)
    sys.stdin.read()
    journal.close()


def write_from_a_fork(path: Path) -> None:
    journal = Journal(path)
    journal.open()
    journal.append("result", call=1)
    journal.flush()
    pid = os.fork()
    if pid == 0:
        journal.append("result", call=2)
        try:
            journal.flush()
        except JournalUnavailableError as error:
            print(error, flush=True)

        journal.close()
        os._exit(0)

    os.waitpid(pid, 0)
    journal.append("result", call=3)
    journal.close()


if __name__ == "__main__":
    command, place, more = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    if command == "die":
        print(json.dumps(each_point(place, more[0])))
    elif command == "call":
        anyio.run(call_and_die, place, int(more[0]), more[1])
    else:
        {"hold": hold, "fork": write_from_a_fork}[command](place)
