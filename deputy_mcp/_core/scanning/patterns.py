"""The small language in which rules say what they look for, and its evaluation.

Not regular expressions: a pattern speaks of concepts (`lexicon`), and is matched over sentences by arithmetic on bit
sets, one bit a word, so that no text can make it slow. It promises a bounded number of steps a sentence.

    overrule 4 guidance         both in one sentence, the second at most 4 words after the first (5 when not said)
    secrecy & user              both in one sentence, in any order
    send destination ~ secret   the part after `~` stands in this sentence or in one of the two before or after it
    order read !example         no word of `example` in the sentence
"""

from collections.abc import Mapping, Sequence

from attrs import frozen

GAP = 5
"""How far the next concept of a part may be, in words, when the pattern does not say."""

NEIGHBOURS = 2
"""How many sentences before and after one are near it."""

Bits = Mapping[str, int]
"""Concept → bit set of the words of one sentence that carry it."""


@frozen
class Part:
    """Concepts in this order, each within its gap of the one before."""

    concepts: tuple[str, ...]
    gaps: tuple[int, ...]
    near: bool
    absent: bool


@frozen
class Pattern:
    """Parts that must all hold."""

    parts: tuple[Part, ...]
    needs: frozenset[str]
    """Concepts without any of which in the sentence it cannot hold."""
    key: str
    """The one of them by which the pattern is looked up: the rarest. Every sentence has a start."""
    second: str
    """The next one, or the same if there is no other."""


def compile_pattern(source: str, sizes: Mapping[str, int]) -> Pattern:
    """The pattern written as `source`. `sizes` tells how many words a concept has; the rarest is the key.

    Raises `KeyError` on a concept that is not in `sizes`.
    """
    parts: list[Part] = []
    for word in source.replace("~", " ~ ").replace("&", " & ").split():
        if word in "~&":
            parts.append(Part((), (), near=word == "~", absent=False))
        elif word.startswith("!"):
            parts.append(_grow(Part((), (), near=False, absent=True), word[1:], sizes))
        elif not parts or parts[-1].absent:
            parts.append(_grow(Part((), (), near=False, absent=False), word, sizes))
        else:
            parts[-1] = _grow(parts[-1], word, sizes)

    here = frozenset(name for part in parts if not part.near and not part.absent for name in part.concepts)
    by_size = sorted(sorted(here), key=lambda name: (name == "start", sizes[name]))
    return Pattern(tuple(parts), needs=here, key=by_size[0], second=by_size[1 % len(by_size)])


def _grow(part: Part, word: str, sizes: Mapping[str, int]) -> Part:
    if word.isdigit():
        return Part(part.concepts, (*part.gaps[:-1], int(word)), part.near, part.absent)

    sizes[word]
    return Part((*part.concepts, word), (*part.gaps, GAP), part.near, part.absent)


def holds(pattern: Pattern, sentences: Sequence[Bits], index: int) -> bool:
    """Whether the pattern holds at the sentence of that index."""
    here = sentences[index]
    if not pattern.needs <= here.keys():
        return False

    for part in pattern.parts:
        if part.near:
            around = sentences[max(0, index - NEIGHBOURS) : index + NEIGHBOURS + 1]
            if not any(_found(part, bits) for bits in around):
                return False
        elif _found(part, here) == part.absent:
            return False

    return True


def _found(part: Part, bits: Bits) -> bool:
    reach = bits.get(part.concepts[0], 0)
    for name, gap in zip(part.concepts[1:], part.gaps, strict=False):
        if not reach:
            return False

        reach = _smear(reach, gap) & bits.get(name, 0)

    return reach != 0


def _smear(bits: int, gap: int) -> int:
    """Every position 1 to `gap` after a set one."""
    bits <<= 1
    width = 1
    while width < gap:
        step = min(width, gap - width)
        bits |= bits << step
        width += step

    return bits
