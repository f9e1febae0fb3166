"""Folded text → sentences of words.

Not a parser of English: white space cuts chunks, punctuation ends sentences, and what has a shape of its own (an
address, a path, an identifier) becomes one word in angle brackets, which no text can spell itself. It promises: every
character is looked at a bounded number of times, and no sentence is longer than `LONGEST_SENTENCE` words.
"""

import re
from collections.abc import Collection, Iterator

LONGEST_SENTENCE = 256
"""Words. A longer run is cut, and the pieces overlap, so that no order hides across a cut."""

OVERLAP = 32
"""Words that two pieces of one long run share; more than any pattern spans."""

LONGEST_CHUNK = 300
"""Characters of a chunk that are looked at for its shape; its words are read to the end."""

WRAPPED_LINE = 40
"""A line at least this long without an end mark goes on in the next line."""

_LEFT = "\"'`“”‘’«([{<*#•–—=+>,;:!?-"
_RIGHT = "\"'`“”‘’»)]}>*,;:!?.…–—=-"
_ENDS = frozenset(".!?…。")
_ABBREVIATIONS = frozenset({"e.g", "i.e", "etc", "vs", "cf", "eg", "ie", "incl", "approx"})
_DASHES = ("-", "–", "—")
_BULLETS = frozenset("-*•#<[|>+0123456789")

_WORD = re.compile(r"[a-z]+|[0-9]+", re.IGNORECASE)
_HUMPS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_CAMEL = re.compile(r"[a-z][A-Z]")
_HOST = re.compile(
    r"(?:[a-z0-9-]{1,63}\.){1,6}(?:com|net|org|io|ai|app|dev|co|sh|me|info|xyz|ru|cn|tk|link|site|online|example|test"
    r"|invalid|internal|local|cloud|biz|top)(?::\d{1,5})?(?:[/?].*)?",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?(?:/.*)?")
_ACCOUNT = re.compile(r"[A-Z]{2}\d{2}[A-Z0-9]{10,30}|0x[0-9a-fA-F]{40}|bc1[a-z0-9]{20,60}")
_PHONE = re.compile(r"\+\d[\d-]{6,16}")
_MONEY = re.compile(r"[$€£]\d[\d,.]{0,15}")

SECRET_FILES = (
    ".ssh", "id_rsa", "id_ed25519", "id_ecdsa", "id_dsa", "authorized_keys", "known_hosts", ".env", ".aws", ".netrc", ".npmrc",
    ".pypirc", ".pgpass", ".gnupg", ".git-credentials", ".kube/config", ".docker/config", "mcp.json", "mcp_config",
    "claude_desktop_config", ".cursor", ".claude", "/etc/passwd", "/etc/shadow", "/etc/sudoers", "etc/hosts", "credentials.json",
    "credentials.y", "secrets.", "wallet.dat", "keychain", "cookies.sqlite", "login data", ".bash_history", ".zsh_history",
    ".github_token", "private_key", "private.key", ".pem", "/.config/gcloud",
)  # fmt: skip
"""What the path of a file with secrets in it holds somewhere."""

SECRET_WORDS = ("password", "passwd", "credential", "secret", "token")
"""What the name of such a file holds, in a path of a file system; `/oauth/token` is one of an API."""

_ROOTS = ("~", "/etc/", "/home/", "/root/", "/var/", "/tmp/", "/run/", "/users/", "c:\\", "./", "%", "$")

SECRET_PARTS = frozenset(
    "password passwd passphrase secret secrets credential credentials token apikey privatekey cookie cookies rsa ssh"
    " keychain wallet mnemonic".split()
)
"""Parts of an identifier that stands for a secret. `key` counts only after `api`, `private`, `ssh`, `access` or `admin`."""

_KEY_KINDS = frozenset({"api", "private", "ssh", "access", "admin", "secret", "signing", "encryption"})

URL, HOST, EMAIL, PATH, SECRET_FILE = "<url>", "<host>", "<email>", "<path>", "<secret-file>"
IDENTIFIER, SECRET_NAME, OWN = "<identifier>", "<secret-name>", "<own>"
ASSIGNMENT, COLON = "<assignment>", "<colon>"
SUBSTITUTION, PIPE, ACCOUNT, MONEY, PLACEHOLDER = "<substitution>", "<pipe>", "<account>", "<money>", "<placeholder>"


def name_words(name: str) -> list[str]:
    """The words of an identifier in any case style, in lower case: `getUserToken` → get user token."""
    return [match[0].lower() for match in _HUMPS.finditer(name)]


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
            read = known.get(chunk)
            if read is None:
                read = known[chunk] = read_chunk(chunk, own)

            words.extend(read[0])
            if read[1] and words:
                yield from _cut_long(words)
                words = []
            elif len(words) >= LONGEST_SENTENCE:
                pieces = list(_cut_long(words))
                words = pieces.pop()
                yield from pieces

        wraps = len(line) >= WRAPPED_LINE and line[-1] not in ".!?:;>]"

    if words:
        yield from _cut_long(words)


def _cut_long(words: list[str]) -> Iterator[list[str]]:
    """Pieces of at most `LONGEST_SENTENCE` words, each beginning with the last `OVERLAP` words of the one before."""
    step = LONGEST_SENTENCE - OVERLAP
    for start in range(0, max(1, len(words) - OVERLAP), step):
        yield words[start : start + LONGEST_SENTENCE]


def _goes_on(first: str, *, wraps: bool) -> bool:
    return first.islower() or (first not in _BULLETS and (wraps or first in "('\"`"))


def read_chunk(chunk: str, own: Collection[str] = ()) -> tuple[tuple[str, ...], bool]:
    """The words of one chunk without white space, and whether it ends a sentence."""
    if chunk.isalpha() and chunk.isascii() and (chunk[1:].islower() or chunk.isupper()):
        return (chunk.lower(),), False

    core = chunk.lstrip(_LEFT).rstrip(_RIGHT)
    start = chunk.find(core)
    tail = chunk[start + len(core) :]
    words = _read_core(core, own, chunk)
    ends = not _ENDS.isdisjoint(tail) and core.lower() not in _ABBREVIATIONS
    return ((*words, COLON) if core and ":" in tail else words), ends and bool(core)


def _read_core(core: str, own: Collection[str], chunk: str) -> tuple[str, ...]:
    if not core:
        return (PIPE,) if "|" in chunk or "&&" in chunk else (COLON,) if chunk in _DASHES else ()

    if core.isalpha() and core.isascii() and (core[1:].islower() or core.isupper()):
        return (core.lower(),)

    if "$(" in chunk or "${" in chunk[:2]:
        before, _, inner = chunk.partition("$")
        rest = read_chunk(inner.lstrip("({"), own)[0] if "$(" not in inner[:LONGEST_CHUNK] else ()
        return (*_plain_words(before), SUBSTITUTION, *rest)

    if "&&" in core or core.startswith("|"):
        return (PIPE, *_plain_words(core))

    return _read_shape(core, own, chunk)


def _read_shape(core: str, own: Collection[str], chunk: str) -> tuple[str, ...]:  # noqa: PLR0911 - one line a shape
    head = core[:LONGEST_CHUNK]
    lower = head.lower()
    if "://" in head:
        return (*_plain_words(head[: head.index("://")].rpartition("=")[0]), URL)

    if "@" in head and "." in head.rpartition("@")[2] and not head.startswith("@"):
        return (EMAIL,)

    if (head[0] in "/~.$%" or "/" in head or "\\" in head or "." in head) and (
        "/" in chunk or "\\" in chunk or chunk.lstrip("'\"`([{<").startswith(".") or _is_file(lower)
    ):
        if _is_secret_file(lower) or (chunk.lstrip("'\"`([{<")[:4].lower() == ".env"):
            return (SECRET_FILE,)

        if _HOST.fullmatch(head):
            return (HOST,)

        if head[0] in "/~" or chunk.lstrip("'\"`([{<")[:2] in ("./", "..", "~/"):
            return (PATH,)

    if _ADDRESS.fullmatch(head) or ("." in head and _HOST.fullmatch(head)):
        return (HOST,)

    if _ACCOUNT.fullmatch(head):
        return (ACCOUNT,)

    if _PHONE.fullmatch(head):
        return (ACCOUNT,)

    if _MONEY.fullmatch(head):
        return (MONEY,)

    return _read_identifier(core, own, chunk)


def _is_secret_file(lower: str) -> bool:
    if any(mark in lower for mark in SECRET_FILES):
        return True

    return any(word in lower for word in SECRET_WORDS) and (lower.startswith(_ROOTS) or "/." in lower)


def _is_file(lower: str) -> bool:
    return any(mark in lower for mark in (".env", "mcp.json", "id_rsa", "wallet.dat", "credentials.", "secrets."))


def _read_identifier(core: str, own: Collection[str], chunk: str) -> tuple[str, ...]:
    if "{" in chunk and "}" in chunk:
        return (*_plain_words(core), PLACEHOLDER)

    name, _, value = core.partition("=")
    bare = name.partition("(")[0]
    if "_" in bare.strip("_") or (_CAMEL.search(bare) and bare.isalnum()):
        parts = name_words(bare)
        if len(parts) >= 6:
            # Nobody names a tool with six words; a sentence may be written this way.
            return tuple(parts)

        rest = (*_plain_words(name.partition("(")[2]), *_read_value(value, own))
        if value:
            rest = (ASSIGNMENT, *rest)

        if bare.isupper() and not is_secret_name(parts):
            return (*parts, *rest)  # a heading, as in CONTEXT_UPDATE

        if bare.lower() in own:
            return (OWN, *rest)

        return (SECRET_NAME if is_secret_name(parts) else IDENTIFIER, *rest)

    return _plain_words(core)


def _read_value(value: str, own: Collection[str]) -> tuple[str, ...]:
    return read_chunk(value[:LONGEST_CHUNK], own)[0] if value and not value.startswith("=") else ()


def is_secret_name(parts: list[str]) -> bool:
    """Whether an identifier of these words stands for a secret."""
    return any(
        part in SECRET_PARTS or (part in ("key", "keys") and index > 0 and parts[index - 1] in _KEY_KINDS)
        for index, part in enumerate(parts)
    )


def _plain_words(core: str) -> tuple[str, ...]:
    words: list[str] = []
    for piece in core.replace("’", "'").split("'"):
        found = [match[0].lower() for match in _WORD.finditer(piece)]
        if words and found:
            found[0] = _undo_contraction(words, found[0])

        words.extend(found)

    return tuple(word for word in words if word)


def _undo_contraction(words: list[str], ending: str) -> str:
    """The word for what follows an apostrophe, after mending the one before: do, not; user; you, are."""
    before = words[-1]
    if ending == "t" and before.endswith("n"):
        words[-1] = {"can": "can", "wo": "will", "sha": "shall"}.get(before[:-1], before[:-1]) or before
        if before == "can":
            words[-1] = "can"

        return "not"

    return {"s": "", "re": "are", "ll": "will", "ve": "have", "d": "would", "m": "am"}.get(ending, ending)
