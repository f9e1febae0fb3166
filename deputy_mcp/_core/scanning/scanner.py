"""The text scanner: an untrusted text or a raw tool definition in, findings out.

Not a judge of what follows (a *flag* makes the gate ask a person) and no promise that what it lets through is harmless:
`benchmarks/scanning.py` measures how much it finds. It promises: linear time on any input; at most `MOST_FINDINGS`,
one for a code and place; messages of our own words only; places that resolve and are safe to print.

The order for every text: its characters, its form, then its words in every reading that `decoding` gives.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from deputy_mcp._core.annotations import Finding
from deputy_mcp._core.scanning.characters import odd_characters
from deputy_mcp._core.scanning.decoding import read_text
from deputy_mcp._core.scanning.lexicon import SIZES, read_bits
from deputy_mcp._core.scanning.limits import MOST_CHARACTERS, MOST_FINDINGS
from deputy_mcp._core.scanning.patterns import Bits, Pattern, compile_pattern, holds
from deputy_mcp._core.scanning.places import Role, walk_tool
from deputy_mcp._core.scanning.rules import RULES
from deputy_mcp._core.scanning.shapes import odd_shapes
from deputy_mcp._core.scanning.words import cut_sentences, may_name, name_words

LONG_NAME = 40
"""Characters of a name from which on it is read like any text, in every encoding."""

SHORTEST_TEXT = 8
"""Shorter texts of plain letters say nothing to a model."""

MOST_KEPT, LONGEST_KEPT = 4096, 64
"""Texts whose codes are kept between scans, and their characters: the names and values that all tools have."""

_BY_CODE = {rule.code: rule for rule in RULES}


def _by_key() -> dict[str, tuple[tuple[str, str, Pattern], ...]]:
    table: dict[str, list[tuple[str, str, Pattern]]] = {}
    for rule in RULES:
        for source in rule.patterns:
            pattern = compile_pattern(source, SIZES)
            table.setdefault(pattern.key, []).append((rule.code, pattern.second, pattern))

    return {key: tuple(patterns) for key, patterns in table.items()}


_PATTERNS = _by_key()
"""Concept → the patterns that cannot hold without it and another one, so that most are never tried."""


def scan_tool(tool: Mapping[str, Any]) -> tuple[Finding, ...]:
    """The findings on a tool as it came over the wire. Places are JSON pointers into it."""
    scan = _Scan(own=_own_names(tool))
    for text in walk_tool(tool):
        scan.look_at(text.text, place=text.place, role=text.role)

    return scan.findings()


def scan_text(text: str, *, place: str = "") -> tuple[Finding, ...]:
    """The findings on one text: instructions, a prompt, a resource, a result. `place` is theirs."""
    scan = _Scan(own=frozenset())
    scan.look_at(text, place=place, role="prose")
    return scan.findings()


class _Scan:
    # Mutable state: what was found so far, the texts already judged, and how many characters may still be looked at.
    __slots__ = ("_found", "_left", "_own", "_seen")

    def __init__(self, *, own: Collection[str]) -> None:
        self._own = own
        self._found: dict[tuple[str, str], Finding] = {}
        self._seen: set[tuple[str, Role]] = set()
        self._left = MOST_CHARACTERS

    def findings(self) -> tuple[Finding, ...]:
        flags = sorted(self._found.values(), key=lambda finding: finding.severity != "flag")
        return tuple(flags[:MOST_FINDINGS])

    def look_at(self, text: str, *, place: str, role: Role) -> None:
        # The same text at another place would only say the same again.
        if (len(text) < SHORTEST_TEXT and text.isascii() and text.isprintable()) or (text, role) in self._seen:
            return

        if len(text) > self._left:
            self._add("not_scanned", place)
            text = text[: self._left]

        self._left -= len(text)
        self._seen.add((text, role))
        for code, said, how in _look_at_short(text, role) if len(text) <= LONGEST_KEPT else _look_at(text, role):
            for found in (code,) if code else self._judge(said):
                self._add(found, place, how=how)

    def _judge(self, text: str) -> Iterable[str]:
        # What a text says of the tool's own names is another matter for each tool.
        if len(text) <= LONGEST_KEPT and not (self._own and may_name(text)):
            return _judge_short(text)

        return _judge(text, self._own)

    def _add(self, code: str, place: str, *, how: str = "") -> None:
        rule = _BY_CODE[code]
        message = f"{rule.message} ({how})" if how else rule.message
        self._found.setdefault((code, place), Finding(code, severity=rule.severity, place=place, message=message))


_Step = tuple[str, str, str]
"""A code that was found, or else words to be judged; and what had to be undone to come by them."""


def _look_at(text: str, role: Role) -> Iterator[_Step]:
    """What is odd about a text, and what it says, in every reading."""
    for code in odd_characters(text) if role != "list" else ():
        yield code, "", ""

    for code in odd_shapes(text, role):
        yield code, "", ""

    if role in ("name", "key"):
        # A name says something too: `ignore_previous_instructions`.
        yield "", " ".join(name_words(text)), ""
        if len(text) < LONG_NAME and text.isascii():
            return

    for reading in read_text(text):
        if reading.encoded and role != "list":
            yield "encoded_text", "", reading.how

        if reading.how:
            for code in odd_shapes(reading.text, "prose"):
                yield code, "", reading.how

        yield "", reading.text, reading.how


@lru_cache(MOST_KEPT)
def _look_at_short(text: str, role: Role) -> tuple[_Step, ...]:
    return tuple(_look_at(text, role))


@lru_cache(MOST_KEPT)
def _judge_short(text: str) -> list[str]:
    return _judge(text, ())


def _judge(text: str, own: Collection[str]) -> list[str]:
    """The codes of the rules whose patterns hold somewhere in a text."""
    sentences: Sequence[Bits] = [read_bits(words) for words in cut_sentences(text, own=own)]
    found: list[str] = []
    for index, bits in enumerate(sentences):
        for concept in bits:
            for code, second, pattern in _PATTERNS.get(concept, ()):
                if second in bits and code not in found and holds(pattern, sentences, index):
                    found.append(code)

    return found


def _own_names(tool: Mapping[str, Any]) -> frozenset[str]:
    """The names by which a description speaks of the tool itself: its name and its parameters'."""
    names = {str(tool.get("name")).lower()}
    for member in ("inputSchema", "outputSchema"):
        schema = tool.get(member)
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        if isinstance(properties, Mapping):
            names.update(key.lower() for key in properties)

    return frozenset(names)
