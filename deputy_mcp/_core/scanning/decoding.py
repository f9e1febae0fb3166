"""What a text says once it is decoded: the readings that a model is able to make and a person is not likely to.

Not a general decoder. A reading counts only if it comes out as English, and every step is bounded: at most `ROUNDS`
layers, and all readings of one text together are no longer than `GROWTH` times the text and `MOST_DECODED`.
"""

import base64
import binascii
import codecs
import re
from collections.abc import Callable, Iterator

from attrs import frozen

from deputy_mcp._core.scanning.folding import fold
from deputy_mcp._core.scanning.lexicon import ENGLISH
from deputy_mcp._core.scanning.mending import mend_words
from deputy_mcp._core.scanning.runs import has_run, table_of, to_bytes

ROUNDS = 3
"""Layers of encoding that are taken off. A model follows two at most."""

GROWTH = 4
"""All readings of a text together are at most this many times as long as the text itself,"""

MOST_DECODED = 100_000
"""and at most this many characters. What is encoded past them is not read."""

FEWEST_LETTERS = 8
"""Letters written as escapes from which on a text counts as encoded: an honest one escapes signs, not letters."""

FEWEST_WORDS = 3
"""English words that must have come out before a reading counts as encoded."""

STRAY_BYTES = 3
"""Bytes of a text that may be broken: what stood right before an encoded text was decoded with it."""

LONG_MESSAGE = 40
"""Readable characters that came out of bytes, from which on they count whatever they say: an example is shorter."""


@frozen
class Reading:
    """One way to read a text."""

    text: str
    how: str = ""
    """What was undone, in words; empty for the text as it stands."""
    encoded: bool = False
    """Whether it says something in English that could not be read before: nobody encodes a description by accident."""


# It begins with a class of its own, for a search skips to one much faster than to any of several patterns.
_ESCAPE = re.compile(
    r"[&%=U\\](?:(?<=&)#(\d{2,7});?|(?<=&)#[xX]([0-9a-fA-F]{2,6});?"
    r"|(?<=\\)\\{0,3}u\{?([0-9a-fA-F]{4})\}?|(?<=\\)\\{0,3}x([0-9a-fA-F]{2})"
    r"|(?<=%)u([0-9a-fA-F]{4})|(?<=%)([0-9a-fA-F]{2})|(?<==)([0-9A-F]{2})|(?<=\\)([0-7]{3})"
    r"|(?<=U)\+([0-9a-fA-F]{4})[ ,]?|(?<=&)(lt|gt|amp|quot|apos|nbsp);)"
)
_BASES = (10, 16, 16, 16, 16, 16, 16, 8, 16)
_ENTITIES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'", "nbsp": " "}

_BASE32 = re.compile(r"[A-Z2-7]{24,}={0,6}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){12,}|(?:(?:0[xX]|\\x)?[0-9a-fA-F]{2}[ ,:]{1,2}){10,}[0-9a-fA-F]{2}")
_DECIMAL = re.compile(r"(?:[0-9]{2,3}[ ,]{1,2}){10,}[0-9]{2,3}")
_BINARY = re.compile(r"(?:[01]{8}[ ,]?){8,}")
_HEX_DIGITS = re.compile(r"(?:0[xX]|\\x)?([0-9a-fA-F]{2})")
_HEX_SIGNS = "0123456789abcdefABCDEF"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_IN_BASE64 = table_of(f"{_LETTERS}{_LETTERS.upper()}0123456789+/_-")
_IN_NUMBERS = table_of(f"{_HEX_SIGNS}xX\\ ,:")
_IN_WORDS = bytes.maketrans(
    bytes(range(256)),
    "".join(
        "\n" if sign in ".!:;\n" else sign.lower() if sign.isascii() and sign.isalpha() else " "
        for sign in map(chr, range(256))
    ).encode(),
)
"""What ends a segment becomes a line break, what is no letter a space."""

SHORTEST_BASE64 = 16
"""Letters and digits in a row that are tried as Base64."""

SHORTEST_SEGMENT = 16
"""Characters of a sentence from which on it may be a cipher's."""

_TELLING = frozenset(word for word in ENGLISH if len(word) > 1)
_WORD = re.compile(r"[a-z]+")
_TAG = re.compile(r"<[^<>\n]{0,200}>")


def read_text(text: str) -> Iterator[Reading]:
    """Every reading of `text`, the folded text itself first."""
    folded = fold(text)
    yield Reading(folded)

    left = min(len(folded) * GROWTH, MOST_DECODED)
    sources = [folded]
    for _ in range(ROUNDS):
        found: list[str] = []
        for source in sources:
            for how, decode in _DECODERS:
                decoded, encoded = decode(source)
                decoded = decoded[:left]
                if not decoded:
                    continue

                left -= len(decoded)
                decoded = fold(decoded)
                yield Reading(decoded, how=how, encoded=encoded)
                found.append(decoded)

        sources = found


def _undo_escapes(text: str) -> tuple[str, bool]:
    if not ("&" in text or "%" in text or "\\" in text or "=" in text or "U+" in text):
        return "", False

    letters = 0

    def undo(match: re.Match[str]) -> str:
        nonlocal letters
        at = match.lastindex or 0
        if at > len(_BASES):
            return _ENTITIES[match[at]]

        code = int(match[at], _BASES[at - 1])
        letters += code < 128 and chr(code).isalpha()
        return chr(code) if code < 0xD800 else " "

    undone = _ESCAPE.sub(undo, text)
    return (undone, letters >= FEWEST_LETTERS) if undone != text else ("", False)


def _strip_tags(text: str) -> tuple[str, bool]:
    """The text as a page would show it: words broken by tags and comments come together."""
    if "<" not in text:
        return "", False

    first, *others = text.split("<!--")
    stripped = _TAG.sub("", first + "".join(other.partition("-->")[2] for other in others))
    return (stripped, False) if stripped != text else ("", False)


def _undo_bytes(text: str) -> tuple[str, bool]:
    """Whatever of the text is bytes in writing and comes out as English."""
    signs = to_bytes(text)
    found = list(map(_from_base64, _find_base64(text, signs)))
    for shape, decode, table, size in _BYTES:
        if has_run(signs, table, size):
            found += [decode(match[0]) for match in shape.finditer(text)]

    read = list(filter(None, map(_readable, found)))
    return "\n\n".join(read), any(map(_is_message, read))


def _find_base64(text: str, signs: bytes) -> Iterator[str]:
    marks = signs.translate(_IN_BASE64) + b"."
    end = 0
    while (start := marks.find(b"x" * SHORTEST_BASE64, end)) >= 0:
        end = marks.index(b".", start)
        yield text[start:end]


def _is_message(text: str) -> bool:
    return len(text) >= LONG_MESSAGE or _english_words(_WORD.findall(text.lower())) >= FEWEST_WORDS


def _from_base64(text: str) -> bytes:
    plain = text.translate(_URL_SIGNS)
    # A word in front of it, as in `base64/SGVs…`, shifts the groups of four.
    for shift in range(4):
        size = len(plain) - shift
        size -= size % 4 == 1
        data = binascii.a2b_base64(plain[shift : shift + size] + "=="[: -size % 4])
        if _readable(data):
            return data

    return b""


_URL_SIGNS = str.maketrans("-_", "+/")


def _from_base32(text: str) -> bytes:
    try:
        text = text.rstrip("=")
        text = text[: len(text) - (len(text) % 8 == 1)]
        return base64.b32decode(text + "=" * (-len(text) % 8))
    except binascii.Error:
        return b""


def _from_hex(text: str) -> bytes:
    return bytes.fromhex("".join(_HEX_DIGITS.findall(text)))


def _from_decimal(text: str) -> bytes:
    return bytes(code for code in map(int, re.findall(r"[0-9]+", text)) if code < 256)


def _from_binary(text: str) -> bytes:
    return bytes(int(code, 2) for code in re.findall(r"[01]{8}", text))


_BYTES: tuple[tuple[re.Pattern[str], Callable[[str], bytes], bytes, int], ...] = (
    (_BASE32, _from_base32, _IN_BASE64, 24),
    (_HEX, _from_hex, _IN_NUMBERS, 24),
    (_DECIMAL, _from_decimal, _IN_NUMBERS, 32),
    (_BINARY, _from_binary, _IN_NUMBERS, 64),
)
"""Shape, what undoes it, and the run of signs without which there is none."""


def _readable(data: bytes) -> str:
    """The bytes as a text, if that is what they are; otherwise an empty string."""
    data = data.replace(b"\0", b"")
    text = data.decode(errors="ignore")
    if len(text) + STRAY_BYTES < len(data) and len(text.encode()) + STRAY_BYTES < len(data):
        return ""

    plain = "".join(fold(text).split())
    return text if plain.isprintable() and sum(map(str.isascii, plain)) * 4 > len(plain) * 3 else ""


def _english_words(words: list[str]) -> int:
    return sum(map(_TELLING.__contains__, words))


def _undo_ciphers(text: str) -> tuple[str, bool]:
    """Sentences that hold hardly an English word, and mostly English ones once letters or their order are turned."""
    found: list[str] = []
    end = -1
    # A question mark reads as a full stop here: as bytes, it stands for what Latin-1 lacks.
    for plain in to_bytes(text.replace("?", ".")).translate(_IN_WORDS).decode().split("\n"):
        start, end = end + 1, end + 1 + len(plain)
        words = plain.split()
        if len(plain) < SHORTEST_SEGMENT or len(words) < FEWEST_WORDS or _english_words(words) * 4 > len(words):
            continue

        segment = text[start:end].lower()
        for turned in (codecs.encode(segment, "rot13"), segment[::-1]):
            count = _english_words(_WORD.findall(turned))
            if count >= FEWEST_WORDS and count * 5 >= len(words) * 2:
                found.append(turned)
                break

    return ".\n".join(found), bool(found)


def _put_back(text: str) -> tuple[str, bool]:
    mended, words = mend_words(text)
    return (mended, words >= FEWEST_WORDS) if words >= 2 else ("", False)


_DECODERS: tuple[tuple[str, Callable[[str], tuple[str, bool]]], ...] = (
    ("escapes undone", _undo_escapes),
    ("tags taken out", _strip_tags),
    ("bytes decoded", _undo_bytes),
    ("a cipher undone", _undo_ciphers),
    ("words put back together", _put_back),
)
