"""The connection's own journal as a third book, against ours and the ledgers.

Its chain is whole; every call in it ended exactly once there too, and as our book says; nothing arrived anywhere that
had not been announced in it before.
"""

import json
from array import array
from collections import Counter
from pathlib import Path
from typing import Any

from deputy_mcp._core.audit_chain import verify_lines

from .books import REFUSING, Books, Ending

OUTCOMES = {"not_sent": Ending.NOT_SENT, "refused": Ending.REFUSED, "unknown": Ending.UNKNOWN}


def compare_journal(path: Path, books: Books) -> None:
    """Every line, once, when the connection is closed and all ledgers were read to their end."""
    with path.open("rb") as lines:
        verdict = verify_lines(lines)

    if not (verdict.intact and verdict.closed):
        books.differ(f"the journal is {verdict.code}: {verdict.message or 'not closed'}")

    numbers: dict[int, int | None] = {}
    """The journal's own numbers to ours; None where it was refused before its arguments mattered."""
    announced = array("B", bytes(len(books)))
    ends: Counter[int] = Counter()
    with path.open("rb") as lines:
        for line in lines:
            entry: dict[str, Any] = json.loads(line)
            number: int | None = entry.get("call")
            if number is None:
                continue

            arguments: dict[str, int] = entry.get("arguments") or {}
            ours = numbers[number] = arguments.get("call", numbers.get(number))
            if entry["event"] == "call" and ours is not None:
                announced[ours] = min(announced[ours] + 1, 255)
            elif entry["event"] in ("result", "refusal"):
                ends[number] += 1
                if ours is not None:
                    _compare_end(ours, entry, books)

    for number, ours in numbers.items():
        if ends[number] != 1:
            books.differ(f"call {ours} has {ends[number]} ends in the journal")

    for call, (arrived, lines_before) in enumerate(zip(books.arrived, announced, strict=True)):
        if arrived > lines_before:
            books.differ(f"call {call} arrived {arrived} times and was announced {lines_before} times in the journal")


def _compare_end(call: int, entry: dict[str, Any], books: Books) -> None:
    ending = Ending(books.ending[call])
    code: str | None = entry.get("error_code")
    outcome = str(entry.get("outcome"))
    if code == "cancelled":
        told = Ending.CANCELLED
        # What was sent again after a no, and did not go out the second time, was not run either.
        if outcome == "not_sent" and books.arrived[call] and not books.flags[call] & REFUSING:
            books.differ(f"call {call} was cancelled, arrived, and stands in the journal as not sent")
    else:
        told = Ending.RESULT if code is None else OUTCOMES[outcome]

    if told is not ending and ending is not Ending.WRONG:
        books.differ(f"call {call} ended as {ending.name} and stands in the journal as {told.name} ({code})")
