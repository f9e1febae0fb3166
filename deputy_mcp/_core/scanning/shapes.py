"""What the form of a text gives away, whatever its words are: tags that pose, hidden parts, names that are prose.

Not about words (`patterns`) and not about single characters (`characters`). Every pattern here has a bounded width or
runs over one class of characters, so that it is linear.
"""

import re
from collections.abc import Iterator

from deputy_mcp._core.scanning.lexicon import word_set
from deputy_mcp._core.scanning.places import Role
from deputy_mcp._core.scanning.runs import has_run, table_of, to_bytes
from deputy_mcp._core.scanning.words import name_words

LONGEST_NAME = 128
"""Characters of a tool's name (MCP, tool names)."""

MOST_NAME_WORDS = 9
"""Words of an identifier. The longest of some thousands of honest parameters has seven."""

FEWEST_PROSE_WORDS = 4
"""Words with blanks between them from which on a name, a type or a pattern is taken for prose."""

WIDE_PADDING = 60
"""White space in a row that moves what follows out of sight."""

TALL_PADDING = 12
"""Line breaks in a row that do."""

_LOUD = word_set(
    "important system instruction instructions hidden secret admin administrator critical priority urgent override"
    " directive directives mandatory assistant"
)
"""Words of a tag that speaks to the model, closed or not."""

_SOFT = _LOUD | word_set(
    "information info global policy internal prompt security root attention warning note rule rules developer context"
    " requirement requirements message command commands task"
)
"""Words of a tag that does when it is closed again: in honest texts `<name>` is a gap to fill."""

_TAG = re.compile(r"<(/?)\s{0,4}([A-Za-z][\w:-]{0,60})[^<>]{0,200}>")
_Guarded = tuple[tuple[str, re.Pattern[str]], ...]
"""Patterns, each with what a text must hold for it to match: to look for that costs next to nothing."""


def _guarded(*rows: tuple[str, str]) -> _Guarded:
    return tuple((needle, re.compile(pattern)) for needle, pattern in rows)


_ANNOUNCEMENTS = "message|prompt|notice|note|instruction|directive|override|command|alert|update"
_POSES = _guarded(
    ("<|", r"<\|[^<>|\n]{1,60}\|>"),  # tokens of chat templates
    ("SYS>>", r"<</?SYS>>"),
    ("[", r"\[/?(?:INST|SYS|SYSTEM|ASSISTANT|HIDDEN|SHADOW|ADMIN|OVERRIDE|IMPORTANT)\b[^\[\]\n]{0,60}\]"),
    ("[", r"\[(?:Important|Critical|Urgent|BACKGROUND|GLOBAL|SECRET|MANDATORY)\]"),
    ("[/", r"\[/(?i:hidden|system|secret|admin|instructions?|important)\]"),
    ("[", r"\[[A-Z_ ]{0,40}(?:INSTRUCTION|DIRECTIVE|PROMPT)[A-Z_ ]{0,20}\]"),
    ("##", rf"##\#{{0,4}}\s{{0,3}}\(?(?i:system|assistant|admin)[ _-]?(?i:{_ANNOUNCEMENTS})"),
    ("role", r"[\"']role[\"']\s{0,3}:\s{0,3}[\"'](?:system|developer)[\"']"),
    *((word, rf"{word}(?<![A-Za-z_]{word})\s{{0,2}}:") for word in ("SYSTEM", "ASSISTANT", "ADMIN", "DEVELOPER")),
    *((word, rf"(?:^|\n)\s{{0,4}}{word}\s?: ") for word in ("Human", "Assistant", "System")),
    ("AI", r"(?:^|\n)\s{0,4}AI\s?: "),
)
_TURN = re.compile(r"[.!?\n]\s{1,3}(User|Human|Assistant|AI)\s?: ")
_COMMENT = _guarded(
    ("<!--", "<!--"),
    ("[//]:", r"\[//\]:\s?#"),
    ("[comment]:", r"\[comment\]:\s?#"),
    ("{#", r"\{#"),
    ("/*", r"/\*\s{0,3}(?i:ai|llm|assistant|system|important)\b"),
)
_UNSEEN = _guarded(
    ("display", r"display\s{0,2}:\s{0,2}none"),
    ("visibility", r"visibility\s{0,2}:\s{0,2}hidden"),
    ("opacity", r"opacity\s{0,2}:\s{0,2}0\s{0,2}[;\"']"),
    ("font-size", r"font-size\s{0,2}:\s{0,2}[01](?:px|pt|em|%)?\s{0,2}[;\"']"),
    ("color", r"color\s{0,2}:\s{0,2}(?:white|\#fff|transparent)"),
    ("hidden", r"<[a-z]{1,10}\s[^<>]{0,80}\bhidden\b"),
)
"""Of the text in lower case; `_BEACON`, too."""

_BEACON = _guarded(
    ("](", r"!\[[^\[\]\n]{0,200}\]\(\s{0,4}https?:"),
    ("<img", r"<img\b[^<>]{0,200}\bsrc\s{0,4}=\s{0,4}[\"']?https?:"),
    ("<script", r"<script\b"),
    ("onerror", r"\bonerror\s{0,3}="),
    ("document.cookie", r"document\.cookie"),
)
_BLANKS = re.compile(rf"\s{{{WIDE_PADDING}}}|\n{{{TALL_PADDING}}}")
_WHITE = table_of("?" + "".join(filter(str.isspace, map(chr, range(256)))))
"""With `?`, which stands for all white space that Latin-1 lacks."""

_NAME = re.compile(r"[A-Za-z0-9_./:-]+")
_PROSE = re.compile(rf"(?<![A-Za-z])[A-Za-z]{{2,40}}(?: {{1,4}}[A-Za-z]{{2,40}}){{{FEWEST_PROSE_WORDS - 1}}}")


def odd_shapes(text: str, role: Role) -> Iterator[str]:
    """The codes of what the form of `text` gives away, each once."""
    if role == "list":
        return

    if not _MARKS.isdisjoint(text):
        if _poses(text):
            yield "poses_as_system"

        lower = _lower(text)
        if _matches(text, _COMMENT) or _matches(lower, _UNSEEN):
            yield "hidden_part"

        if _matches(lower, _BEACON):
            yield "remote_content"

    if len(text) > TALL_PADDING and _may_be_padded(text) and _BLANKS.search(text.strip()):
        yield "padding"

    if _is_prose(text, role):
        yield "prose_as_name"


_MARKS = frozenset("<[#:{/=.")
"""Without any of them in a text, no pattern for posing or hidden parts can hold."""


def _poses(text: str) -> bool:
    if _matches(text, _POSES):
        return True

    if "Assistant" in text and "Assistant" in _TURN.findall(text) and len(set(_TURN.findall(text))) > 1:
        return True

    for match in _TAG.finditer(text) if "<" in text else ():
        words = name_words(match[2])
        if not _LOUD.isdisjoint(words) or (match[1] and not _SOFT.isdisjoint(words)):
            return True

    return False


def _matches(text: str, patterns: _Guarded) -> bool:
    for needle, pattern in patterns:  # noqa: SIM110 - a generator costs more than the looks
        if needle in text and pattern.search(text):
            return True

    return False


def _lower(text: str) -> str:
    """`text` in lower case as patterns that ignore it see it, character by character."""
    return text.replace("\u0130", "i").replace("\u0131", "i").replace("\u017f", "s").lower()


def _may_be_padded(text: str) -> bool:
    return "\n" * TALL_PADDING in text or has_run(to_bytes(text), _WHITE, WIDE_PADDING)


def _is_prose(text: str, role: Role) -> bool:
    if role == "name":
        return len(text) > LONGEST_NAME or _NAME.fullmatch(text) is None or len(name_words(text)) > MOST_NAME_WORDS

    if role == "key":
        return _PROSE.search(text) is not None or len(name_words(text)) > MOST_NAME_WORDS

    return role == "keyword" and _PROSE.search(text) is not None
