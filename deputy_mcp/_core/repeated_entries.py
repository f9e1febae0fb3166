"""A listing that differs a little from the one before: what is the same text is taken over, and not read again.

Servers move their tools about, or describe one of them anew at each listing. Then nearly all of the text is known, and
an entry whose text is known is the identical object again. It promises the value that parsing the whole would give:
what stands before the entries is the same text, so that a parser would expect an entry there; an entry is an object,
which ends where its text ends; what stands behind them is the same text again. Everything else is left to the parser.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from attrs import evolve, frozen
from pydantic_core import from_json

from deputy_mcp._core.messages import Reply

MEMBERS = ("tools", "resources", "resourceTemplates", "prompts")
"""Of a result: the lists that are listings."""

MOST_PLACES = 3
"""Where a text reads like the beginning of the list, so many are tried; the first usually is it."""

HEAD_CHARACTERS = 200
MOST_ALIKE = 3
"""By its first characters, in which the name usually stands, an entry is looked for; so many that begin alike are."""

MOST_FRESH = 50
"""Entries that are not known: where there are more, parsing the whole is cheaper."""

_GAP = re.compile(r"[ \t\r\n]*,[ \t\r\n]*")
_DECODER = json.JSONDecoder()


@frozen(kw_only=True)
class Split:
    """The reply to a listing, and its text taken apart."""

    reply: Reply
    member: str
    head: bytes
    """What stands before the entries."""
    start: int
    """Its characters."""
    texts: Sequence[str]
    """Of the entries, in order."""
    gap: str
    """What stands between two of them."""
    tail: bytes
    """What stands behind them."""

    def fits(self, line: bytes) -> bool:
        """Whether `line` differs in the entries at most."""
        return line.startswith(self.head) and line.endswith(self.tail) and len(line) >= len(self.head) + len(self.tail)

    def read(self, line: bytes) -> "Split | None":
        """The reply in a line that fits, taken apart; None where a parser must look at it."""
        try:
            text = line[: len(line) - len(self.tail)].decode()
        except UnicodeDecodeError:
            return None

        found = self._entries(text)
        if found is None:
            return None

        texts, entries = found
        result = self.reply.result | {self.member: entries}
        return evolve(self, texts=texts, reply=Reply(self.reply.id, result, size_bytes=len(line)))

    def _entries(self, text: str) -> tuple[list[str], list[Any]] | None:
        """The texts and values of the entries that `text` ends with; None where it does not end with one."""
        known, order, usual_gap, begins = self.reply.result[self.member], self.texts, self.gap, text.startswith
        texts: list[str] = []
        entries: list[Any] = []
        length, alike = 0, None
        at, end, number, most, fresh = self.start, len(text), 0, len(known), 0
        while at < end:
            if texts:
                gap = usual_gap if begins(usual_gap, at) else _gap(text, at)
                at += len(gap)
                if not gap or at >= end:
                    return None

            if number >= most or not begins(order[number], at):
                length, alike = self._by_head() if alike is None else (length, alike)
                moved = alike.get(text[at : at + length], ())
                number = next((i for i in moved if begins(order[i], at)), number)

            if number < most and begins(order[number], at):
                piece, entry = order[number], known[number]
            else:
                piece, entry = _read_entry(text, at)
                fresh += 1
                if not piece or fresh > MOST_FRESH:
                    return None

            texts.append(piece)
            entries.append(entry)
            at += len(piece)
            number += 1

        return texts, entries

    def _by_head(self) -> tuple[int, Mapping[str, Iterable[int]]]:
        """How many characters the heads have, and the numbers of the entries by their heads."""
        length = min((HEAD_CHARACTERS, *map(len, self.texts)))
        found: dict[str, list[int]] = {}
        for i, text in enumerate(self.texts):
            alike = found.setdefault(text[:length], [])
            if len(alike) < MOST_ALIKE:
                alike.append(i)

        return length, found


def split_reply(line: bytes, reply: Reply) -> Split | None:
    """Take apart what `reply` was read from; None where it is no listing, an empty one, or oddly written."""
    member = next((name for name in MEMBERS if isinstance(reply.result.get(name), list)), None)
    if member is None or reply.repaired:
        return None

    text = line.decode()
    places = re.finditer(rf'"{member}"\s*:\s*\[\s*', text)
    splits = (_split_at(place.end(), text, reply, member) for place in islice(places, MOST_PLACES))
    return next((split for split in splits if split is not None), None)


def _split_at(place: int, text: str, reply: Reply, member: str) -> Split | None:
    texts: list[str] = []
    gap, at = "", place
    try:
        while True:
            piece, _ = _read_entry(text, at)
            texts.append(piece)
            at += len(piece)
            follows = _gap(text, at)
            if not piece or not follows:
                break

            gap = gap or follows
            at += len(follows)

        rest = from_json(text[:place] + text[at:])
    except ValueError:
        return None

    # It is the list that counts where this is empty without these entries: what is read of it hangs on nothing else.
    result = rest.get("result") if isinstance(rest, dict) else None
    if not isinstance(result, dict) or result.get(member) != [] or len(texts) != len(reply.result[member]):
        return None

    return Split(
        reply=reply,
        member=member,
        head=text[:place].encode(),
        start=place,
        texts=texts,
        gap=gap,
        tail=text[at:].encode(),
    )


def _gap(text: str, at: int) -> str:
    found = _GAP.match(text, at)
    return "" if found is None else found[0]


def _read_entry(text: str, at: int) -> tuple[str, Any]:
    """The object that begins there, its text and its value; no text where none does."""
    try:
        end = _DECODER.raw_decode(text, at)[1] if text.startswith("{", at) else at
        return (text[at:end], from_json(text[at:end])) if end > at else ("", None)
    except (ValueError, RecursionError):
        return "", None
