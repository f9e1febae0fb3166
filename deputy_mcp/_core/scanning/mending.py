"""Words taken apart or written with other signs, put back: `i g n o r e`, `ig-no-re`, `ig nore`, `1gn0r3`, `ignoreall`.

Not a spelling checker: only words that the lexicon knows are put back, everything else stays as it was. Linear: each
chunk is joined with a bounded number of neighbours, and only `LONGEST_RUN` letters without a gap are cut into words.
"""

import re
import string
from collections.abc import Iterable, Iterator
from functools import lru_cache

from deputy_mcp._core.scanning.lexicon import ENGLISH
from deputy_mcp._core.scanning.runs import has_run, table_of, to_bytes

LONGEST_RUN = 4_000
"""Letters without a gap, in all, that are cut into words in one text."""

SHORTEST_RUN = 24
"""Letters from which on one word is taken for several. The longest of honest English has fewer."""

LONGEST_WORD = 16
"""Letters of the longest word that is put back."""

SHORTEST_WORD = 4
"""Shorter words come about by chance."""

MOST_KEPT, LONGEST_KEPT = 8192, 32
"""Chunks whose reading is kept between texts, and their characters: what honest texts repeat."""

_LEET = str.maketrans("013457@$!|", "oieastasii")
_LEET_L = str.maketrans("013457@$!|", "oleastasll")
_EDGES = "\"'`“”‘’«»()[]{}<>*,;:.?#-–—_~"
_LAST = _EDGES + "!"
_SPACED = re.compile(
    r"(?<![A-Za-z0-9@$])(?:[A-Za-z0-9@$!][ \t\n._\-*|/·,~+:]{1,4}){4,1000}[A-Za-z0-9@$!](?![A-Za-z0-9])"
)
_RUN = re.compile(rf"[A-Za-z]{{{SHORTEST_RUN},{LONGEST_RUN}}}")
_LETTER = re.compile(r"[A-Za-z0-9@$!]")
_IN_SPACED = bytes(
    ord(
        "a"
        if sign.isascii() and sign.isalnum()
        else "b"
        if sign in "@$!"
        else " "
        if sign in " \t\n._-*|/·,~+:"
        else "."
    )
    for sign in map(chr, range(256))
)
_FIRST = "|".join(f"(?<=[ab]{gap}[ab] )(?<!a[ab]{gap}[ab] )" for gap in (" ", "  ", "   ", "    "))
_SPACED_ROUGHLY = re.compile(rf" [ab] (?:{_FIRST}) {{0,3}}[ab] {{1,4}}[ab] {{1,4}}[ab](?!a)")
"""The five letters that `_SPACED` has at least, so translated; from the second on, for a search skips to a blank."""

_IN_RUN = table_of(string.ascii_letters)
_DIGIT_FOR_LETTER = re.compile(r"[a-z][0-9]{1,2}[a-z]|^[0-9][a-z]|[a-z][0-9]$")
_NO_LETTERS = re.compile(r"[^A-Za-z]+")
_SIGNS = frozenset("013457@$!|")
_BEGINNINGS = frozenset(word[:size] for word in ENGLISH for size in range(1, len(word) + 1))
"""With what known words begin, themselves included: what no known word begins with is not joined further."""


def mend_words(text: str) -> tuple[str, int]:
    """`text` with its broken words put back, and how many different ones there were."""
    mended: set[str] = set()
    budget = [LONGEST_RUN]
    signs = to_bytes(text)
    # Letters that stand apart may come together to a run, so both are looked for before either is mended.
    apart = _SPACED_ROUGHLY.search(signs.translate(_IN_SPACED).decode())
    if apart:
        text = _SPACED.sub(lambda match: _join_letters(match[0], mended, budget), text)

    if apart or has_run(signs, _IN_RUN, SHORTEST_RUN):
        text = _RUN.sub(lambda match: _cut_letters(match[0], mended, budget), text)

    lines = [" ".join(_mend_line(line.split(), mended)) for line in text.split("\n")]
    return "\n".join(lines), len(mended)


def _join_letters(run: str, mended: set[str], budget: list[int]) -> str:
    """A run of single letters as words: the longer gaps end words; without longer gaps, the lexicon does."""
    letters = _LETTER.findall(run)
    gaps = [len(gap) for gap in _LETTER.split(run)[1:]]
    narrow = min(gaps[:-1])
    joined = "".join(letter + " " if gap > narrow else letter for letter, gap in zip(letters, gaps, strict=True))
    words = joined.split()
    if len(words) == 1:
        return _cut_run(run, words[0], mended, budget)

    known = [word for word in words if word.translate(_LEET).lower() in ENGLISH]
    if not any(len(word) >= SHORTEST_WORD for word in known):
        return run

    mended.update(word.lower() for word in known)
    return joined


def _cut_letters(run: str, mended: set[str], budget: list[int]) -> str:
    """The words of a long word, unless its capitals show that it is an identifier."""
    return run if sum(map(str.isupper, run[1:])) * 20 > len(run) else _cut_run(run, run, mended, budget)


def _cut_run(original: str, letters: str, mended: set[str], budget: list[int]) -> str:
    """Letters without gaps as the words of the lexicon that cover most of them; what it does not know stays between."""
    letters = letters.translate(_LEET).lower()
    if len(letters) > budget[0]:
        return original

    budget[0] -= len(letters)
    words = _best_cut(letters)
    known = [word for word in words if len(word) >= SHORTEST_WORD and word in ENGLISH]
    if sum(map(len, known)) * 2 < len(letters):
        return original

    mended.update(known)
    return " ".join(words)


def _best_cut(letters: str) -> list[str]:
    # Best covering by dynamic programming: `best[end]` is the cost up to there, where a letter that no word covers
    # costs most and a word costs little, so that long words win.
    best = [0] * (len(letters) + 1)
    starts = [0] * (len(letters) + 1)
    for end in range(1, len(letters) + 1):
        best[end], starts[end] = best[end - 1] + 10, end - 1
        for start in range(max(0, end - LONGEST_WORD), end - 1):
            if best[start] + 3 < best[end] and letters[start:end] in ENGLISH:
                best[end], starts[end] = best[start] + 3, start

    words: list[str] = []
    end = len(letters)
    while end:
        words.append(letters[starts[end] : end])
        end = starts[end]

    return words[::-1]


_Chunk = tuple[str, str, bool]
"""Its letters in lower case, empty if it has other signs between them; the known word that it stands for, if it has;
whether it may be the first fragment of a word."""


def _read_chunks(chunks: list[str]) -> list[_Chunk]:
    if max(map(len, chunks), default=0) <= LONGEST_KEPT:
        return list(map(_read_short, chunks))

    return [_read_short(chunk) if len(chunk) <= LONGEST_KEPT else _read_long(chunk) for chunk in chunks]


def _read_long(chunk: str) -> _Chunk:
    core = chunk.lstrip(_EDGES).rstrip(_LAST).lower()
    if core.isalpha() and core.isascii():
        return core, "", core in _BEGINNINGS and not (core in ENGLISH and len(core) > 3)

    return "", _mend_chunk(core), False


_read_short = lru_cache(MOST_KEPT)(_read_long)


def _is_whole(read: list[_Chunk]) -> bool:
    """Whether there is nothing to mend: a quick look that may take a whole line for a broken one."""
    first = ""
    for core, word, opens in read:
        if word or (first and core and first + core in _BEGINNINGS):
            return False

        first = core if opens else ""

    return True


def _mend_line(chunks: list[str], mended: set[str]) -> Iterable[str]:
    read = _read_chunks(chunks)
    return chunks if _is_whole(read) else _mend_chunks(chunks, read, mended)


def _mend_chunks(chunks: list[str], read: list[_Chunk], mended: set[str]) -> Iterator[str]:
    at = 0
    while at < len(chunks):
        chunk = chunks[at]
        _, word, opens = read[at]
        parts = _count_fragments([core for core, _, _ in read[at : at + 5]]) if opens else 0
        if parts:
            word = "".join(core for core, _, _ in read[at : at + parts])
            mended.add(word)
            yield _keep_edges(chunk, chunks[at + parts - 1], word)
            at += parts
            continue

        if word:
            if len(word) >= SHORTEST_WORD:
                mended.add(word)

            yield _keep_edges(chunk, chunk, word)
        else:
            yield chunk

        at += 1


def _keep_edges(first: str, last: str, word: str) -> str:
    """The mended word with the punctuation that stood around it: it ends sentences."""
    return first[: len(first) - len(first.lstrip(_EDGES))] + word + last[len(last.rstrip(_LAST)) :]


def _count_fragments(cores: list[str]) -> int:
    """How many of the fragments make up one known word; 0 if none do."""
    joined = cores[0]
    for count, core in enumerate(cores[1:], 2):
        joined += core
        if not core or joined not in _BEGINNINGS:
            return 0

        if len(joined) > SHORTEST_WORD and joined in ENGLISH:
            # `in to` and `some one` are two words in honest texts: at least one fragment must be no word.
            return count if any(part not in ENGLISH for part in cores[:count]) else 0

    return 0


def _mend_chunk(core: str) -> str:
    """The known word that a chunk with signs in it stands for, or an empty string."""
    if not 3 <= len(core) <= 3 * LONGEST_WORD:
        return ""

    if core.isalnum() and not _DIGIT_FOR_LETTER.search(core):
        return ""

    if not _SIGNS.isdisjoint(core):
        for table in (_LEET, _LEET_L) if "1" in core or "|" in core else (_LEET,):
            word = _NO_LETTERS.sub("", core.translate(table))
            if word in ENGLISH and len(word) > 2:
                return word

    parts = _NO_LETTERS.split(core)
    letters = "".join(parts)
    if len(letters) <= SHORTEST_WORD or letters not in ENGLISH:
        return ""

    return letters if any(part not in ENGLISH for part in parts if part) else ""
