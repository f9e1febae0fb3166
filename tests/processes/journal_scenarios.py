"""Programs that write a journal and come to grief; run by `test_journal_kills` in processes of their own.

`die FOLDER`: a child is killed with SIGKILL before, in the middle of and after each system call by which it opens,
writes, cuts, renames and syncs, one child for each; afterwards this process looks at what is left and goes on with it.
`fail FOLDER`: the same calls fail, one in each child, which goes on. `write FILE`: writes until it is killed, and says
which calls it announced. `hold FILE`: opens it and waits. `fork FILE`: a fork of a writer tries to write.

Each child is a fork of one program, because importing takes longer than all of them.
"""

import errno
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import anyio

from deputy_mcp._core.audit_chain import verify_lines
from deputy_mcp._core.errors import ConfigError, JournalUnavailableError
from deputy_mcp._runtime.journal import Journal
from deputy_mcp._runtime.journal_file import read_lines, rotated_files

BATCHES, BATCH = 8, 3
MAX_BYTES = 2_000
"""So that a batch or two fill a file."""

REAL: dict[str, Callable[..., Any]] = {
    name: getattr(os, name) for name in ("open", "write", "rename", "ftruncate", "fdatasync", "dup")
}
"""The system calls at which something happens. `dup` and `fdatasync` are made only with fsync."""


Strike = Callable[[str, tuple[Any, ...]], Any]


class Faults:
    """Stands before the real system calls; instead of number `at` it does what `strike` says, `times` in a row."""

    def __init__(self, at: int, times: int, strike: Strike, out: int) -> None:
        self.struck = range(at, at + times)
        self.strike = strike
        self.out = out
        self.count = 0
        for name in REAL:
            setattr(os, name, lambda *args, _name=name, **options: self.call(_name, args, options))

    def call(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        self.count += 1
        if self.count in self.struck:
            say(self.out, f"struck-{name}", self.count)
            return self.strike(name, args)

        return REAL[name](*args, **options)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_before(name: str, args: tuple[Any, ...]) -> Any:
    die()


def die_after(name: str, args: tuple[Any, ...]) -> Any:
    REAL[name](*args)
    die()


def die_half_way(name: str, args: tuple[Any, ...]) -> Any:
    """Of a write a part is in the file; of the others there is no half."""
    if name == "write":
        REAL["write"](args[0], bytes(args[1])[: len(args[1]) // 2])

    die()


def fail(name: str, args: tuple[Any, ...]) -> Any:
    raise OSError(errno.EIO, "it failed")


def fail_half_way(name: str, args: tuple[Any, ...]) -> Any:
    if name == "write":
        REAL["write"](args[0], bytes(args[1])[: len(args[1]) // 2])

    raise OSError(errno.EIO, "it failed half way")


def fall_short(name: str, args: tuple[Any, ...]) -> Any:
    """A write that takes a part and says so; the others fail."""
    return REAL["write"](args[0], bytes(args[1])[:10]) if name == "write" else fail(name, args)


def say(fd: int, what: str, number: int) -> None:
    REAL["write"](fd, b"%s %d\n" % (what.encode(), number))


async def work(journal: Journal, out: int) -> None:
    """Open, some batches of calls, each with its result, close. Says what it is told before it goes on."""
    journal.open()

    async def one(number: int) -> None:
        try:
            intent = await journal.commit("call", call=number)
        except JournalUnavailableError:
            say(out, "refused", number)
        else:
            say(out, "committed", number)
            journal.append("result", call=number, intent=intent)

    for batch in range(BATCHES):
        async with anyio.create_task_group() as tasks:
            for number in range(batch * BATCH, (batch + 1) * BATCH):
                tasks.start_soon(one, number)

    journal.close()
    say(out, "closed", 0)


def child(path: Path, at: int, times: int, strike: Strike, *, fsync: bool) -> tuple[dict[str, list[int]], int]:
    """What a fork of this process said while it did the work, and how it ended."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            journal = Journal(path, max_bytes=MAX_BYTES, fsync=fsync)
            Faults(at, times, strike, writing)
            try:
                anyio.run(work, journal, writing)
            except (ConfigError, JournalUnavailableError):
                say(writing, "unopened", 0)

            code = 0
        finally:
            os._exit(code)

    os.close(writing)
    said: dict[str, list[int]] = {"committed": [], "refused": []}
    with open(reading, "rb") as stream:
        for line in stream:
            what, number = line.split()
            said.setdefault(what.decode(), []).append(int(number))

    return said, os.waitpid(pid, 0)[1]


def lines(path: Path) -> list[bytes]:
    return [line for file in (*rotated_files(path), path) if file.exists() for line in read_lines(file)]


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(path) if line.endswith(b"\n")]


def calls(path: Path, event: str = "call") -> list[int]:
    return [record["call"] for record in records(path) if record["event"] == event]


def problems_after(path: Path, said: dict[str, list[int]], *, killed: bool) -> list[str]:
    """What is wrong with a journal after its writer came to grief, and after another went on with it."""
    found = []
    verdict = verify_lines(lines(path))
    if not verdict.intact:
        found.append(f"left: {verdict.message}")

    there = calls(path)
    if len(set(there)) != len(there):
        found.append("a line stands there twice")

    if not set(said["committed"]) <= set(there):
        found.append(f"committed and not there: {sorted(set(said['committed']) - set(there))}")

    if set(said["refused"]) & set(there):
        found.append(f"refused and there: {sorted(set(said['refused']) & set(there))}")

    extra = set(there) - set(said["committed"])
    if len(extra) > (BATCH if killed else 0):
        found.append(f"there and never announced: {sorted(extra)}")

    results = calls(path, "result")
    lost = sum(record.get("lost", 0) for record in records(path))
    if not killed and (len(set(results)) != len(results) or len(results) + lost != len(said["committed"])):
        found.append(f"results of {sorted(set(said['committed']) - set(results))} are unaccounted for")

    before = records(path)
    journal = Journal(path, max_bytes=MAX_BYTES)
    try:
        journal.open()
    except ConfigError as error:
        return [*found, f"not continued: {error}"]

    journal.append("result", call=-1)
    journal.close()
    verdict = verify_lines(lines(path))
    if not verdict.intact or verdict.torn_bytes or not verdict.closed:
        found.append(f"continued: {verdict}")

    after = records(path)
    if after[: len(before)] != before or -1 not in calls(path, "result"):
        found.append("what stood there before is not there any more")

    return found


def each_point(folder: Path, strikes: dict[str, tuple[int, Strike]], *, killed: bool) -> dict[str, Any]:
    """One child for each system call and each strike, until there is no further call to strike at."""
    found: list[str] = []
    struck: Counter[str] = Counter()
    for fsync in (False, True):
        for kind, (times, strike) in strikes.items():
            for at in count(1):
                path = folder / f"{kind}-{fsync}-{at}" / "audit.jsonl"
                path.parent.mkdir()
                said, status = child(path, at, times, strike, fsync=fsync)
                names = [what.removeprefix("struck-") for what in said if what.startswith("struck-")]
                struck.update(names)
                found += [
                    f"{kind} {' '.join(names)} {at} fsync={fsync}: {what}"
                    for what in problems_after(path, said, killed=killed)
                ]
                if bool(names and killed) is not (status == signal.SIGKILL):
                    found.append(f"{kind} {' '.join(names)} {at}: it ended with {status}")

                if not names:
                    complete = len(said["committed"]) == BATCHES * BATCH and "closed" in said
                    found += [] if complete else [f"without a fault it said {said}"]
                    break

    return {"problems": found, "struck": struck}


def write_until_killed(path: Path) -> None:
    """Thousands of lines; the number of a call is said when its line is committed."""

    async def main() -> None:
        journal = Journal(path, max_bytes=50_000)
        journal.open()
        number = len(calls(path))

        async def one(number: int) -> None:
            intent = await journal.commit("call", call=number)
            say(1, "committed", number)
            journal.append("result", call=number, intent=intent)

        while True:
            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(one, number)
                    number += 1

    anyio.run(main)


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
    sys.stdout.flush()
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
    command, place = sys.argv[1], Path(sys.argv[2])
    if command == "die":
        kills = {"before": (1, die_before), "half way": (1, die_half_way), "after": (1, die_after)}
        print(json.dumps(each_point(place, kills, killed=True)))
    elif command == "fail":
        failures = {
            "fail": (1, fail),
            "fail half way": (1, fail_half_way),
            "fail half way and again": (2, fail_half_way),
            "fail for a while": (20, fail_half_way),
            "fall short": (1, fall_short),
        }
        print(json.dumps(each_point(place, failures, killed=False)))
    else:
        {"write": write_until_killed, "hold": hold, "fork": write_from_a_fork}[command](place)
