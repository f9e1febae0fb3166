"""From what was seen to a word. Pure.

A situation gets the gravest word of its steps: a lie misleads, a dead client or a dead process ends the work, a hang
holds it up, an error is only a nuisance.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from attrs import field, frozen

from benchmarks.compare.drivers.playing import short
from benchmarks.compare.values import (
    LATE_SECONDS,
    START_SECONDS,
    Abandon,
    Anything,
    AtDeadline,
    Call,
    Cancelled,
    Delivered,
    Fails,
    List,
    Names,
    OneOf,
    Opens,
    Right,
    Situation,
    Text,
    Together,
    ToolFails,
)

Json = Mapping[str, Any]

EARLY_SHARE = 0.95
"""What takes this much of a deadline was ended by it."""
CLOSE_SECONDS = 6.0
REMARK_CHARACTERS = 110


class Word(StrEnum):
    """The verdicts, the gravest last."""

    RIGHT = "right"
    LEAKS = "leaks"
    ERROR = "error"
    HANGS = "hangs"
    DIES = "dies"
    LIES = "lies"


ORDER = tuple(Word)

MEANINGS = {
    Word.RIGHT: "the value that the source asks for, in time, and the client is as good as before",
    Word.LIES: "a success with a wrong value or another call's, a failure in the tool's name where the tool "
    "succeeded, an incomplete listing as if it were all, or an effect that happened twice",
    Word.HANGS: f"no return before the deadline although an answer or a failure was to be had (without a deadline it "
    f"would have waited on), or none more than {LATE_SECONDS} s after it",
    Word.DIES: "the process crashed or passed its memory bound, the caller's own task was cancelled, or the client "
    "cannot be used afterwards although the server can",
    Word.ERROR: "an error at once where the value was to be had, or one that does not say what happened; the client "
    "stays usable",
    Word.LEAKS: "all values right, but processes of the server are left when the client's process has ended",
}


@frozen
class Verdict:
    """A word and, unless it is *right*, what was seen."""

    word: Word
    remark: str = ""

    @property
    def grave(self) -> int:
        return ORDER.index(self.word)


@frozen(kw_only=True)
class Seen:
    """All that is known of one run."""

    record: Sequence[Json]
    """The lines that the process wrote: `place`, `seconds`, `kind`, and what the kind has."""
    ended: str = ""
    """How the process was ended from outside: `"bound"` (time), `"memory"`, or empty."""
    exit_code: int = 0
    notes: int = 0
    """Lines of the kind `note` in the server's ledger."""
    left: int = 0
    """Processes of the servers that were still there afterwards."""
    hidden: Sequence[str] = field(default=())
    """Texts that must not stand in a remark, such as folders."""


def judge(situation: Situation, seen: Seen) -> Verdict:
    """The gravest word, with the remarks of the steps that earned it."""
    verdicts = list(_verdicts(situation, seen))
    worst = max(verdicts, key=lambda verdict: verdict.grave)
    remarks = dict.fromkeys(verdict.remark for verdict in verdicts if verdict.word is not Word.RIGHT)
    return Verdict(worst.word, _clean("; ".join(remarks), seen.hidden))


def _verdicts(situation: Situation, seen: Seen) -> Iterator[Verdict]:
    found = {_key(line["place"]): line for line in seen.record}
    yield Verdict(Word.RIGHT)
    if seen.ended == "memory":
        yield Verdict(Word.DIES, "passed the memory bound")
        return

    if not seen.ended and (seen.exit_code != 0 or "task" not in found):
        yield Verdict(Word.DIES, f"its process ended with {seen.exit_code}")

    opened = found.get("open")
    yield _judged("connecting", situation.opens, opened, START_SECONDS)
    if opened is not None and opened["kind"] == "value":
        yield from _steps(situation, found)
        closed = found.get("close")
        if closed is not None and closed["kind"] == "error":
            yield Verdict(Word.ERROR, f"closing: {closed['error']}")
        elif closed is not None and closed["seconds"] > CLOSE_SECONDS:
            yield Verdict(Word.HANGS, f"closing took {closed['seconds']:.1f} s")
        elif closed is None and seen.ended and not _stuck(situation, found):
            yield Verdict(Word.HANGS, "closing did not return")

    task = found.get("task")
    if task is not None and task["kind"] == "torn":
        yield Verdict(Word.DIES, "the caller's task is cancelled afterwards")

    if situation.notes is not None and seen.notes > situation.notes:
        yield Verdict(Word.LIES, f"the effect happened {seen.notes} times")

    if seen.left and not seen.ended:
        yield Verdict(Word.LEAKS, f"{seen.left} process(es) left")


def _steps(situation: Situation, found: Mapping[str, Json]) -> Iterator[Verdict]:
    for place, name, step in _judgeable(situation):
        outcome = found.get(place)
        verdict = _judged(name, step.right, outcome, step.deadline_seconds if isinstance(step, Call) else START_SECONDS)
        if verdict.word is Word.RIGHT or not (isinstance(step, Call) and step.afterwards):
            yield verdict
        elif (again := found.get(f"{place}.again")) is not None and _judged(
            name, step.right, again, step.deadline_seconds
        ).word is Word.RIGHT:
            yield Verdict(Word.ERROR, f"{verdict.remark}, the one after it works")
        elif outcome is not None and verdict.word in (Word.ERROR, Word.HANGS):
            yield Verdict(Word.DIES, verdict.remark)
        else:
            yield verdict

        if outcome is None or outcome["kind"] == "torn":
            return  # what came after it was never begun


def _judgeable(situation: Situation) -> Iterator[tuple[str, str, Call | List]]:
    for i, step in enumerate(situation.all_steps):
        match step:
            case Call():
                yield str(i), _name(step), step
            case Together():
                for j, call in enumerate(step.calls):
                    yield f"{i}.{j}", _name(call), call
            case Abandon():
                yield str(i), "the cancelled call", step.call
            case List():
                yield str(i), "listing", step


def _name(call: Call) -> str:
    return "the next call" if call.afterwards else "the call"


def _stuck(situation: Situation, found: Mapping[str, Json]) -> bool:
    return any(place not in found for place, _, _ in _judgeable(situation))


def _judged(name: str, right: Right, outcome: Json | None, deadline: float) -> Verdict:
    if isinstance(right, OneOf):
        verdicts = [_judged(name, one, outcome, deadline) for one in right.rights]
        return min(verdicts, key=lambda verdict: verdict.grave)

    if outcome is None:
        return Verdict(Word.HANGS, f"{name} never returned")

    seconds = outcome["seconds"]
    kind = outcome["kind"]
    error = outcome.get("error", "")
    if kind == "torn":
        return Verdict(Word.DIES, f"{name} tore down the caller's block: {error}")

    if isinstance(right, Opens):
        deadline = right.within_seconds

    if seconds > deadline + (right.grace_seconds if isinstance(right, AtDeadline) else LATE_SECONDS):
        return Verdict(Word.HANGS, f"{name} returned after {seconds:.1f} s, with a deadline of {deadline:g} s")

    if isinstance(right, Anything):
        return _RIGHT

    if kind == "cancelled":
        return Verdict(Word.RIGHT if isinstance(right, Cancelled) else Word.DIES, f"{name} was cancelled")

    if kind == "value":
        return _valued(name, right, outcome)

    if seconds >= deadline * EARLY_SHARE:
        return Verdict(Word.RIGHT if isinstance(right, AtDeadline) else Word.HANGS, f"{name} waited for its deadline")

    if isinstance(right, Fails):
        unsaid = [text for text in right.says if text not in error]
        return Verdict(Word.ERROR, f"{name} does not say {', '.join(unsaid)}: {error}") if unsaid else _RIGHT

    return Verdict(Word.ERROR, f"{name}: {error}")


_RIGHT = Verdict(Word.RIGHT)


def _valued(name: str, right: Right, outcome: Json) -> Verdict:
    if "names" in outcome:
        names = outcome["names"]
        holds = isinstance(right, Names) and sorted(right.names) == sorted(names)
        return _RIGHT if holds else Verdict(Word.LIES, f"{name} gave {len(names)} tools: {', '.join(names[:4])}")

    if "text" not in outcome:
        return _RIGHT if isinstance(right, Opens) else Verdict(Word.LIES, f"{name} succeeded")

    match right:
        case Text(text):
            holds = not outcome["failed"] and outcome["text"] == short(text)
        case Delivered(text):
            holds = not outcome["failed"] and text in outcome["content"]
        case ToolFails(text):
            holds = outcome["failed"] and outcome["text"] == text
        case _:
            holds = False

    kind = "a tool's failure" if outcome["failed"] else "the result"
    return _RIGHT if holds else Verdict(Word.LIES, f"{name} gave {kind} {(outcome['text'] or outcome['content'])!r}")


def _key(place: Any) -> str:
    """`3`, `[2, 7]` and `[3, "again"]` as they stand in the record → `"3"`, `"2.7"`, `"3.again"`; `[[2, 7], …]` too."""
    return ".".join(_key(one) for one in place) if isinstance(place, list) else str(place)


def _clean(remark: str, hidden: Sequence[str]) -> str:
    """One short line for a page: no folder, no port, no control character, no table's bar."""
    for text in hidden:
        remark = remark.replace(text, "…")

    remark = re.sub(r"(127\.0\.0\.1|localhost):\d+", r"\1:…", remark)
    remark = re.sub(r"\b[0-9a-f]{10,}\b", "…", remark)
    line = " ".join(remark.split())
    return line if len(line) <= REMARK_CHARACTERS else line[: REMARK_CHARACTERS - 1] + "…"
