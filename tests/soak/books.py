"""Our book of calls, the servers' ledgers, and the comparison of both.

The rules, for a call that was not declared repeatable (one that was may have arrived once more):

    it ended with           and stands in the ledger of its server
    a result, its own       exactly once
    not_sent                never
    refused                 never as run; what the script refuses may stand there as asked
    unknown, a cancellation at most once

A call ends exactly once and in time, and stands in no other ledger. Nothing stands in a ledger that was never called.
"""

import json
from array import array
from collections import Counter
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any

from .plan import Planned


class Ending(IntEnum):
    """How a call ended, as far as the books care."""

    OPEN = 0
    RESULT = 1
    NOT_SENT = 2
    REFUSED = 3
    UNKNOWN = 4
    CANCELLED = 5
    WRONG = 6
    """In a way that is a difference already."""


ALLOWED = {
    Ending.RESULT: (1, 1),
    Ending.NOT_SENT: (0, 0),
    Ending.REFUSED: (0, 0),
    Ending.UNKNOWN: (0, 1),
    Ending.CANCELLED: (0, 1),
    Ending.OPEN: (0, 255),
    Ending.WRONG: (0, 255),
}
"""How often a call that ended so may have run."""

REPEATABLE, REFUSING = 1, 2
MOST_SHOWN = 50
"""Differences kept in full; further ones are only counted."""


class Books:
    """Every call and how it ended. A few bytes a call stay in memory; the rest goes to `book.jsonl`, for people."""

    # Mutable state: five columns with a row for each call, the differences, the counts of the report.
    def __init__(self, servers: list[Planned], path: Path) -> None:
        self.servers = servers
        self._numbers = {server.name: number for number, server in enumerate(servers)}
        self._file = path.open("w")
        self.path = path
        self.server = array("B")
        self.flags = array("B")
        self.asked = array("B")
        """How often the script may be asked before it has said its last no."""
        self.ending = array("B")
        self.arrived = array("B")
        self.differences: list[str] = []
        self.more_differences = 0
        self.endings: Counter[tuple[str, str]] = Counter()
        """By tool and by the ending in words."""

    def __len__(self) -> int:
        return len(self.ending)

    def close(self) -> None:
        self._file.close()

    def differ(self, text: str) -> None:
        """Note a difference."""
        if len(self.differences) < MOST_SHOWN:
            self.differences.append(text)
        else:
            self.more_differences += 1

    def open(self, server: str, tool: str, *, repeatable: bool) -> int:
        """A call begins; its number goes with it as an argument."""
        number = self._numbers[server]
        what = self.servers[number].tools[tool]
        self.server.append(number)
        self.flags.append((REPEATABLE if repeatable else 0) | (0 if what.runs else REFUSING))
        self.asked.append(what.arrivals)
        self.ending.append(Ending.OPEN)
        self.arrived.append(0)
        return len(self.ending) - 1

    def end(self, call: int, ending: Ending, words: str, **facts: Any) -> None:
        """A call has ended."""
        if self.ending[call] != Ending.OPEN:
            self.differ(f"call {call} ended twice: as {Ending(self.ending[call]).name}, then as {ending.name} {words}")
            return

        self.ending[call] = ending
        self.endings[facts.get("tool", ""), words] += 1
        self._file.write(json.dumps({"call": call, "ending": ending.name, "words": words, **facts}) + "\n")

    # -- comparing -----------------------------------------------------------------------------------------------

    def count(self, server: str, call: object) -> None:
        """A ledger says that a call arrived."""
        if type(call) is not int or not 0 <= call < len(self):
            self.differ(f"the ledger of {server} holds a call that was never made: {call!r:.80}")
        elif self.server[call] != self._numbers[server]:
            self.differ(f"call {call} was for {self.servers[self.server[call]].name} and arrived at {server}")
        else:
            self.arrived[call] = min(self.arrived[call] + 1, 255)

    def compare(self) -> None:
        """Every call against what arrived; once, when all ledgers were read to their end."""
        self._file.flush()
        wrong = {call: problem for call in range(len(self)) if (problem := self._problem(call))}
        if wrong:
            known = self._known(set(wrong))
            for call, problem in sorted(wrong.items()):
                self.differ(f"call {call} {problem}: {known.get(call, self.servers[self.server[call]].name)}")

    def _problem(self, call: int) -> str:
        ending = Ending(self.ending[call])
        arrived = self.arrived[call]
        again = 1 if self.flags[call] & REPEATABLE else 0
        if ending is Ending.OPEN:
            return f"never ended; it arrived {arrived} times"

        if self.flags[call] & REFUSING:
            # The script says no whenever it is asked: it ran nothing, but a result would be invented.
            if ending is Ending.RESULT:
                return "gave a result though its server refuses it"

            # `not_sent` after a no that may be asked about again: it is as good as the no.
            most = self.asked[call] + again - (1 if ending is Ending.NOT_SENT else 0)
            return f"was asked for {arrived} times, more than {most}" if arrived > most else ""

        least, most = ALLOWED[ending]
        if ending in (Ending.RESULT, Ending.UNKNOWN, Ending.CANCELLED):
            most += again

        if least <= arrived <= most:
            return ""

        return f"ended as {ending.name} and ran {arrived} times instead of {least} to {most}"

    def _known(self, calls: set[int]) -> dict[int, str]:
        """The lines of the book about these calls."""
        found: dict[int, str] = {}
        with self.path.open() as lines:
            for line in lines:
                call = json.loads(line)["call"]
                if call in calls:
                    found[call] = line.strip()

        return found


class Ledger:
    """What one server wrote down, read line by line as it grows."""

    # Mutable state: how far it was read; the pids so far.
    def __init__(self, planned: Planned, arrived: Callable[[str, object], None]) -> None:
        self.name = planned.name
        self.pids: list[int] = []
        self.runs = 0
        self.torn = 0
        """Lines that are no JSON: their writer was killed in the middle."""
        self._path = planned.script.ledger_path
        self._arrived = arrived
        self._offset = 0

    def read(self) -> None:
        """Everything whole that was written since the last time."""
        if not self._path.exists():
            return

        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break

                self._offset += len(line)
                self._take(line)

    def _take(self, line: bytes) -> None:
        # Only what counts is parsed: it is written by `json.dumps`, kind first.
        if line.startswith(b'{"kind": "ran"'):
            entry = self._parsed(line)
            if entry is not None:
                self.runs += 1
                arguments = entry.get("arguments")
                self._arrived(self.name, arguments.get("call") if isinstance(arguments, dict) else None)
        elif line.startswith(b'{"kind": "started"'):
            entry = self._parsed(line)
            if entry is not None:
                self.pids.append(entry["pid"])

    def _parsed(self, line: bytes) -> dict[str, Any] | None:
        try:
            entry: dict[str, Any] = json.loads(line)
        except ValueError:
            self.torn += 1
            return None

        return entry
