"""The words of `concepts_speech` and `concepts_reach` as tables, and the concepts of a sentence as bit sets.

Not a dictionary of English: it knows what rules ask for. It promises a bounded number of look-ups a word.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import product

from attrs import frozen

from deputy_mcp._core.scanning.concepts_reach import REACH
from deputy_mcp._core.scanning.concepts_speech import SPEECH

_ALTERNATIVES = re.compile(r"\(([^()]*)\)")
_DOUBLED = frozenset(
    {
        "log",
        "plug",
        "drop",
        "stop",
        "run",
        "put",
        "set",
        "get",
        "let",
        "forget",
        "transfer",
        "grab",
        "submit",
        "transmit",
        "admit",
    }
)


def word_set(text: str) -> frozenset[str]:
    """The words of `text`."""
    return frozenset(text.split())


@frozen
class Entry:
    """What the lexicon knows of one word: the concepts it carries, and the phrases it begins."""

    concepts: tuple[str, ...]
    phrases: Mapping[str, tuple[tuple[tuple[str, ...], str], ...]]
    """By the second word: the words after the first, and the concept that the whole carries."""


def inflect(verb: str) -> tuple[str, ...]:
    """A regular English verb's forms."""
    if verb.endswith("e"):
        return verb, verb + "s", verb + "d", verb[:-1] + "ing"

    if verb.endswith(("s", "x", "z", "ch", "sh")):
        return verb, verb + "es", verb + "ed", verb + "ing"

    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb, verb[:-1] + "ies", verb[:-1] + "ied", verb + "ing"

    stem = verb + verb[-1] if verb in _DOUBLED else verb
    return verb, verb + "s", stem + "ed", stem + "ing"


def _expand(entry: str) -> Iterator[tuple[str, ...]]:
    """Every phrase that one entry stands for, as words."""
    inner = _ALTERNATIVES.search(entry)
    if inner is not None:
        for choice in inner[1].split("|"):
            yield from _expand(entry[: inner.start()] + choice + entry[inner.end() :])

        return

    forms = [inflect(word[:-1]) if word.endswith("*") else (word,) for word in entry.split()]
    yield from product(*forms)


def _read_concepts() -> tuple[dict[str, Entry], dict[str, int]]:
    phrases: dict[str, set[tuple[str, ...]]] = {}
    for name, text in _split_concepts():
        found: set[tuple[str, ...]] = set()
        for entry in filter(None, map(str.strip, text.split(","))):
            found |= phrases[entry[1:]] if entry.startswith("@") else set(_expand(entry))

        phrases[name] = found

    words: dict[str, tuple[list[str], dict[str, list[tuple[tuple[str, ...], str]]]]] = {}
    for name, found in phrases.items():
        for first, *others in sorted(found):
            single, longer = words.setdefault(first, ([], {}))
            if others:
                longer.setdefault(others[0], []).append((tuple(others), name))
            else:
                single.append(name)

    entries = {
        word: Entry(tuple(single), {second: tuple(rest) for second, rest in longer.items()})
        for word, (single, longer) in words.items()
    }
    return entries, {name: len(found) for name, found in phrases.items()}


def _split_concepts() -> Iterator[tuple[str, str]]:
    lines = [line for line in f"{SPEECH}\n{REACH}".splitlines() if line and not line.startswith("#")]
    for block in re.split(r"\n(?=\S)", "\n".join(lines)):
        name, _, text = block.partition(":")
        yield name, " ".join(text.split())


LEXICON, SIZES = _read_concepts()
"""Word → what is known of it; concept → how many words and phrases it has."""

COMMON = word_set(
    "the of and to a in is it that this for with as on be are or an by from at not you your if when all any before"
    " after use do must will can have has should then into its also which what these their other only first using no so"
    " one each new more than user"
)
"""The words by which English is told from what is no English."""

ENGLISH = COMMON | {
    word
    for first, entry in LEXICON.items()
    for phrase in ((first,), *(rest for longer in entry.phrases.values() for rest, _ in longer))
    for word in phrase
    if word.isalpha()
}
"""Every word that the scanner knows."""


def read_bits(words: list[str]) -> dict[str, int]:
    """The concepts of one sentence, each as the bit set of the words that carry it."""
    words = ["<start>", *words]
    bits: dict[str, int] = {}
    for index, entry in enumerate(map(LEXICON.get, words)):
        if entry is None:
            continue

        bit = 1 << index
        for name in entry.concepts:
            bits[name] = bits.get(name, 0) | bit

        if not entry.phrases or index + 1 == len(words):
            continue

        for rest, name in entry.phrases.get(words[index + 1], ()):
            size = len(rest)
            if size == 1 or tuple(words[index + 1 : index + 1 + size]) == rest:
                bits[name] = bits.get(name, 0) | (((2 << size) - 1) << index)

    return bits
