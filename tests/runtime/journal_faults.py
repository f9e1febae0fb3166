"""A journal over system calls that fail at random; run by `test_journal_faults` in a process of its own.

`python journal_faults.py FOLDER SEED ROUNDS` prints what was wrong, a line each with the seed that shows it again. In a
round a journal is opened, written to and closed while its writes fail, fall short or are cut off, and truncating,
syncing, renaming and opening fail; now and then it all works for a while. After a time of work the file must account
for everything.
"""

import errno
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from deputy_mcp._core.audit_chain import verify_lines
from deputy_mcp._core.errors import ConfigError, JournalUnavailableError
from deputy_mcp._runtime import journal as journal_module
from deputy_mcp._runtime.journal import Journal
from deputy_mcp._runtime.journal_file import read_lines, rotated_files

REAL: dict[str, Callable[..., Any]] = {
    name: getattr(os, name) for name in ("open", "write", "rename", "ftruncate", "fdatasync", "stat", "fstat", "dup")
}
TURNS = 30
journal_module.KEPT_BYTES = 700  # so that an outage of some turns loses lines


class Faults:
    """Stands before the system calls on files of a folder."""

    # Mutable state: how often a call fails now.
    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.rate = 0.0
        self._folder, self._random = str(folder), chance
        self._fds: set[int] = set()
        for name in REAL:
            setattr(os, name, lambda *args, _name=name, **options: self._call(_name, args, options))

    def undo(self) -> None:
        for name, function in REAL.items():
            setattr(os, name, function)

    def _call(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        ours = args[0] in self._fds if isinstance(args[0], int) else str(args[0]).startswith(self._folder)
        strikes = ours and self._random.random() < self.rate
        if strikes and name == "write":
            data = bytes(args[1])
            part = data[: self._random.randrange(len(data) + 1)]
            written = REAL["write"](args[0], part) if part else 0
            if part and self._random.random() < 0.5:
                return written  # it fell short and says so; the next may fail

        if strikes:
            code = self._random.choice((errno.ENOSPC, errno.EIO))
            raise OSError(code, os.strerror(code))

        result = REAL[name](*args, **options)
        if ours and name in ("open", "dup"):
            self._fds.add(result)

        return result


class Round:
    """One file's life, and what its writer was told."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.path = folder / f"{seed}.jsonl"
        self.faults = Faults(folder, self.random)
        self.committed: list[int] = []
        self.refused: list[int] = []
        self.appended: list[int] = []
        self.left: list[int] = []
        self.number = 0

    async def live(self) -> None:
        """Open it (at last without faults), work, work without faults, close."""
        options: dict[str, Any] = {
            "max_bytes": self.random.choice((None, 1_500, 6_000)),
            "fsync": self.random.random() < 0.2,
            "key": self.random.choice((None, "key")),
        }
        journal = Journal(self.path, **options)
        for rate in (0.5, 0.3, 0.0):
            self.faults.rate = rate
            try:
                journal.open()
                break
            except (ConfigError, JournalUnavailableError):
                pass

        for _ in range(TURNS):
            self.faults.rate = self.random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
            await self._turn(journal)

        self.faults.rate = 0.0
        for _ in range(3):  # one failure of the syncing thread may still be to be told
            await self._turn(journal)

        journal.close()

    async def _turn(self, journal: Journal) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(self.random.randrange(1, 6)):
                self.number += 1
                what = self.random.random()
                if what < 0.4:
                    self.appended.append(self.number)
                    journal.append("result", call=self.number, reason="x" * self.random.choice((1, 100)))
                else:
                    tasks.start_soon(self._commit, journal, self.number, what > 0.9)

    async def _commit(self, journal: Journal, number: int, leaves: bool) -> None:
        """Announce, and secure it in this turn or after the next; or leave before or after it was written."""
        line = journal.announce("call", call=number)
        if self.random.random() < 0.5:
            await anyio.lowlevel.checkpoint()

        if leaves:
            journal.withdraw(line)
            self.left.append(number)
            return

        try:
            journal.secure(line)
        except JournalUnavailableError:
            self.refused.append(number)
        else:
            self.committed.append(number)

    def problems(self, key: bytes | None) -> list[str]:
        raw = [line for file in (*rotated_files(self.path), self.path) for line in read_lines(file)]
        verdict = verify_lines(raw, key=key)
        if not verdict.intact or verdict.torn_bytes or not verdict.closed:
            return [str(verdict)]

        lines = [json.loads(line) for line in raw]
        by_seq = {line["seq"]: line for line in lines}
        called = [line["call"] for line in lines if line["event"] == "call"]
        withdrawn = [by_seq[line["intent"]]["call"] for line in lines if line["event"] == "withdrawn"]
        results = [line["call"] for line in lines if line["event"] == "result"]
        gaps = [line for line in lines if line["event"] == "gap"]
        lost = sum(gap["lost"] for gap in gaps)
        stood = Counter(called) - Counter(withdrawn)
        found = []
        if stood != Counter(self.committed):
            found.append(f"committed {self.committed}, there {called}, withdrawn {withdrawn}")

        if set(self.refused) & set(called):
            found.append(f"refused and there: {set(self.refused) & set(called)}")

        if results != sorted(set(results)) or not set(results) <= set(self.appended):
            found.append(f"results are {results}")

        # What was lost may also be a `withdrawn` line; there is at most one for each who left.
        missing = len(self.appended) - len(results)
        if not missing <= lost <= missing + len(self.left):
            found.append(f"{missing} results are missing, and {lost} lines are counted as lost")

        # Whoever left may have been refused before.
        refused = sum(gap["refused_calls"] for gap in gaps)
        if not len(self.refused) <= refused <= len(self.refused) + len(self.left):
            found.append(f"{len(self.refused)} calls were refused, the gaps say {refused}")

        return found


def main() -> None:
    folder, seed, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    told: Counter[str] = Counter()
    for number in range(seed, seed + rounds):
        one = Round(folder, number)
        try:
            anyio.run(one.live)
        finally:
            one.faults.undo()

        with open(one.path, "rb") as file:
            key = b"key" if b"hmac" in file.readline() else None

        for problem in one.problems(key):
            print(f"seed {number}: {problem}")

        text = "".join(file.read_text() for file in (*rotated_files(one.path), one.path))
        told.update({event: text.count(f'"event":"{event}"') for event in ("gap", "withdrawn", "call", "begin")})
        told["lost"] += text.count('"lost":') - text.count('"lost":0,')

    print(json.dumps(told))


if __name__ == "__main__":
    main()
