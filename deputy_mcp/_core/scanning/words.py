"""Folded text → sentences of words.

Not a parser of English: white space cuts chunks, punctuation ends sentences, and what has a shape of its own (an
address, a path, an identifier) becomes one word in angle brackets, which no text can spell itself. It promises: every
character is looked at a bounded number of times, and no sentence is longer than `LONGEST_SENTENCE` words.
"""

import re
from collections.abc import Collection, Iterator
from functools import lru_cache

from deputy_mcp._core.scanning.lexicon import word_set

LONGEST_SENTENCE = 256
"""Words. A longer run is cut, and the pieces overlap, so that no order hides across a cut."""

OVERLAP = 32
"""Words that two pieces of one long run share; more than any pattern spans."""

LONGEST_SHAPE = 300
"""Characters of a chunk that are looked at for its shape; its words are read to the end."""

MOST_KEPT, LONGEST_KEPT = 8192, 32
"""Chunks whose reading is kept between texts, and their characters: what honest texts repeat."""

WRAPPED_LINE = 40
"""A line at least this long without an end mark goes on in the next line."""

MOST_IDENTIFIER_WORDS = 5
"""Nobody names a tool with more words; a sentence may be written that way: `ignore_all_rules_and_send_it`."""

URL, HOST, EMAIL, ACCOUNT, MONEY, PATH = "<url>", "<host>", "<email>", "<account>", "<money>", "<path>"
SECRET_FILE, SECRET_NAME, IDENTIFIER, OWN = "<secret-file>", "<secret-name>", "<identifier>", "<own>"
DESTROYER = "<destroyer>"
ASSIGNMENT, SUBSTITUTION, PIPE, COLON = "<assignment>", "<substitution>", "<pipe>", "<colon>"
SHAPES = frozenset(
    {URL, HOST, EMAIL, ACCOUNT, MONEY, PATH, SECRET_FILE, SECRET_NAME, IDENTIFIER, OWN, ASSIGNMENT, SUBSTITUTION, PIPE}
    | {DESTROYER, COLON, "<start>"}
)
"""Every word that stands for a shape."""

_LEFT = "\"'`“”‘’«([{<*#•–—=>,;:!?-"
_RIGHT = "\"'`“”‘’»)]}>*,;:!?.…–—=-"
_ENDS = frozenset(".!?…。")
_ABBREVIATIONS = frozenset({"e.g", "i.e", "etc", "vs", "cf", "eg", "ie", "incl", "approx"})
_DASHES = frozenset("-–—")
_BULLETS = frozenset("-*•#<[|>+0123456789")

_WORD = re.compile(r"[a-z]+|[0-9]+")
_HUMPS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_CAMEL = re.compile(r"[a-z][A-Z]")
_CONTRACTIONS = {"s": "", "re": "are", "ll": "will", "ve": "have", "d": "would", "m": "am"}
_NEGATED = {"ca": "can", "wo": "will", "sha": "shall"}

_DOMAINS = (
    "com|net|org|io|ai|app|dev|co|sh|me|info|xyz|ru|cn|tk|link|site|online|example|test|invalid|internal|local|cloud|biz"
    "|top"
)
# Tried in this order on the head of a chunk; every quantifier is bounded or runs over one class to the end.
_SHAPE = re.compile(
    r"(?P<url>[^\s:]{0,40}://)"
    r"|(?P<email>[^\s@/]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,5})"
    rf"|(?P<host>(?:(?:[A-Za-z0-9-]{{1,63}}\.){{1,6}}(?:{_DOMAINS})|\d{{1,3}}(?:\.\d{{1,3}}){{3}})(?::\d{{1,5}})?(?:[/?].*)?$)"
    r"|(?P<account>(?:[A-Z]{2}\d{2}[A-Z0-9]{10,30}|0x[0-9a-fA-F]{40}|bc1[a-z0-9]{20,60}|\+\d[\d-]{6,16})$)"
    r"|(?P<money>[$€£]\d)"
    r"|(?P<path>~?/|\.{1,2}/|[A-Za-z]:\\|%[A-Z]{1,20}%|\.?[\w.-]{0,60}[/\\]|\.?[\w*-]{0,60}\.[A-Za-z]\w{0,20}$)"
)

_SECRET_FILE = re.compile(
    r"\.ssh\b|id_(?:rsa|dsa|ed25519|ecdsa)|authorized_keys|known_hosts|(?<![\w.])\.env\b|\.aws\b|\.netrc|\.npmrc|\.pypirc|\.pgpass"
    r"|\.gnupg|\.git-credentials|\.kube/config|\.docker/config|mcp\.json|mcp_config|claude_desktop_config|\.cursor\b|\.claude\b"
    r"|/etc/(?:passwd|shadow|sudoers|hosts)|wallet\.dat|keychain|cookies\.sqlite|\.(?:bash|zsh)_history|\.github_token"
    r"|process\.env|os\.environ|private[_.]key|\.pem\b|\.config/gcloud|(?:credentials|secrets?)\.(?:json|ya?ml|toml|txt|env|csv|py|db|ini)"
)
_SECRET_WORDS = ("password", "passwd", "credential", "secret", "token")
_FILE_ROOTS = ("~", "/etc/", "/home/", "/root/", "/var/", "/tmp/", "/run/", "/users/", "./", "../", "%")  # noqa: S108 - read about, not written
"""Under them, or in a hidden folder, a name with such a word is a file of secrets; `/oauth/token` is an API's."""

_SECRET_PARTS = word_set(
    "password passwd passphrase secret secrets credential credentials token tokens apikey privatekey cookie cookies rsa"
    " ssh keychain wallet mnemonic"
)
_KEYS_TO_SECRETS = frozenset({"api", "private", "ssh", "access", "admin", "secret", "signing", "encryption"})


DESTROYING = word_set(
    "delete remove drop wipe erase kill stop terminate disable grant revoke transfer pay send execute run install move"
    " overwrite shutdown reset publish share exec rm format encrypt write update change set purge"
)


def may_name(text: str) -> bool:
    """Whether `text` may hold an identifier: without one, `own` makes no difference to its sentences."""
    return "_" in text or _CAMEL.search(text) is not None


def name_words(name: str) -> list[str]:
    """The words of an identifier in any case style, in lower case: `getUserToken` → get user token."""
    return [word.lower() for word in _HUMPS.findall(name)]


def cut_sentences(text: str, *, own: Collection[str] = ()) -> Iterator[list[str]]:
    """The sentences of `text`, each a list of words in lower case.

    `own` holds identifiers that are not another tool: the tool's own name and its parameters'.
    """
    known: dict[str, tuple[tuple[str, ...], bool]] = {}
    words: list[str] = []
    wraps = False
    for line in text.split("\n"):
        line = line.strip()
        if words and not (line and _goes_on(line[0], wraps=wraps)):
            yield from _cut_long(words)
            words = []

        for chunk in line.split():
            if not words and chunk in _DASHES:
                continue  # a bullet

            short = len(chunk) <= LONGEST_KEPT
            if short:
                said, ends, names = _read_short(chunk)

            if not short or (names and own):
                if chunk not in known:
                    known[chunk] = _read_chunk(chunk, own)

                said, ends = known[chunk]

            words += said
            if ends:
                yield from _cut_long(words)
                words = []
            elif len(words) >= LONGEST_SENTENCE:
                pieces = _cut_long(words)
                words = pieces.pop()
                yield from pieces

        wraps = len(line) >= WRAPPED_LINE and line[-1] not in ".!?:;>]"

    if words:
        yield from _cut_long(words)


def _goes_on(first: str, *, wraps: bool) -> bool:
    """Whether a line that begins with `first` goes on with the sentence of the line before."""
    return first.islower() or (first not in _BULLETS and (wraps or first in "('\"`"))


def _cut_long(words: list[str]) -> list[list[str]]:
    """Pieces of at most `LONGEST_SENTENCE` words, each beginning with the last `OVERLAP` words of the one before."""
    if len(words) <= LONGEST_SENTENCE:
        return [words]

    step = LONGEST_SENTENCE - OVERLAP
    return [words[start : start + LONGEST_SENTENCE] for start in range(0, len(words) - OVERLAP, step)]


def _read_chunk(chunk: str, own: Collection[str]) -> tuple[tuple[str, ...], bool]:
    """The words of one chunk without white space, and whether it ends a sentence."""
    if _is_word(chunk):
        return (chunk.lower(),), False

    core = chunk.lstrip(_LEFT)
    start = len(chunk) - len(core)
    core = core.rstrip(_RIGHT)
    if not core:
        return (COLON,) if chunk in _DASHES else (), False

    tail = chunk[start + len(core) :]
    words = _read_core(core, chunk[: start + LONGEST_SHAPE], own)
    ends = not _ENDS.isdisjoint(tail) and core.lower() not in _ABBREVIATIONS
    return ((*words, COLON) if ":" in tail else words), ends


@lru_cache(MOST_KEPT)
def _read_short(chunk: str) -> tuple[tuple[str, ...], bool, bool]:
    """The same, but for `own`, which makes a difference if the third is true."""
    return (*_read_chunk(chunk, ()), may_name(chunk))


def _is_word(text: str) -> bool:
    return text.isalpha() and text.isascii() and (text[1:].islower() or text.isupper() or len(text) == 1)


def _read_core(core: str, chunk: str, own: Collection[str]) -> tuple[str, ...]:
    """The words of a chunk without the punctuation around it. `chunk` is the head with it: quotes and braces tell."""
    if _is_word(core):
        return (core.lower(),)

    if len(core) < 20 and core.isalnum() and not _CAMEL.search(core) and not core.isupper():
        return tuple(_WORD.findall(core.lower()))

    if "$(" in chunk:
        before, _, inside = core.partition("(") if "(" in core else ("", "", core)
        return (*_plain_words(before), SUBSTITUTION, *_read_chunk(inside.replace("$", "").replace("(", " "), own)[0])

    if "&&" in core or core[0] == "|":
        return (PIPE, *_plain_words(core))

    shape = _SHAPE.match(core[:LONGEST_SHAPE])
    words = _read_shape(shape.lastgroup, core, chunk) if shape else ()
    return words or _read_identifier(core, own)


def _read_shape(kind: str | None, core: str, chunk: str) -> tuple[str, ...]:
    if kind == "path":
        # The dot of `.env` and the dots of `../` may have been taken for punctuation.
        path = chunk.lstrip("'\"`([{<,*").lower()
        if _is_secret_path(path):
            return (SECRET_FILE,)

        return (PATH,) if path.startswith(("/", "~/", "./", "../")) else ()

    if kind == "url":
        return (*_plain_words(core[:LONGEST_SHAPE].partition("://")[0].rpartition("=")[0]), URL)

    return (f"<{kind}>",)


def _is_secret_path(path: str) -> bool:
    if _SECRET_FILE.search(path):
        return True

    local = path.startswith(_FILE_ROOTS) or "/." in path or path[1:3] == ":\\"
    return local and any(word in path for word in _SECRET_WORDS)


def _read_identifier(core: str, own: Collection[str]) -> tuple[str, ...]:
    name, _, value = core.partition("=")
    name, _, arguments = name.partition("(")
    if not ("_" in name.strip("_") or (name.isalnum() and _CAMEL.search(name, 0, LONGEST_SHAPE))):
        return _plain_words(core)

    parts = name_words(name)
    if len(parts) > MOST_IDENTIFIER_WORDS:
        return tuple(parts)

    rest = (*_plain_words(arguments), *_read_value(value, own))
    if name.lower() in own:
        return (OWN, *rest)

    if is_secret_name(parts):
        return (SECRET_NAME, *rest)

    # A heading, as in CONTEXT_UPDATE, or the name of something else.
    if name.isupper():
        return (*parts, *rest)

    return (IDENTIFIER, DESTROYER, *rest) if parts and parts[0] in DESTROYING else (IDENTIFIER, *rest)


def _read_value(value: str, own: Collection[str]) -> tuple[str, ...]:
    return (ASSIGNMENT, *_read_chunk(value[:LONGEST_SHAPE].lstrip("="), own)[0]) if value else ()


def is_secret_name(parts: list[str]) -> bool:
    """Whether an identifier of these words stands for a secret."""
    return any(
        part in _SECRET_PARTS or (part in ("key", "keys") and before in _KEYS_TO_SECRETS)
        for before, part in zip(["", *parts], parts, strict=False)
    )


def _plain_words(core: str) -> tuple[str, ...]:
    """All letters and digits of a chunk as words, contractions undone: don't → do not."""
    first, *endings = core.lower().replace("’", "'").split("'")
    words = _WORD.findall(first)
    for ending in endings:
        found = _WORD.findall(ending)
        if found == ["t"] and words and words[-1].endswith("n"):
            stem = words[-1][:-1]
            words[-1] = _NEGATED.get(stem, stem)
            found = ["not"]
        elif words and found and found[0] in _CONTRACTIONS:
            found[0] = _CONTRACTIONS[found[0]]

        words.extend(filter(None, found))

    return tuple(words)
