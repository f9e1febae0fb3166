"""Declared hints become effects: what a tool may do, read the cautious way.

Not a judge of what is allowed (that is `permissions`), and no search for instructions (that is `scanning`).

- A hint counts only when it is a JSON boolean. The SDK's models coerce `"true"`; we read the wire's own JSON.
- What nobody declared is the worst: not read-only, destructive, not idempotent, open-world. Only a read-only tool
  that says nothing of destruction is taken as not destructive.
- The host's word comes first, hint by hint; the server's counts only if trusted; then the defaults.
- Read-only and destructive at once is a contradiction: the tool is read as destructive and not read-only.
- A read-only claim beside a name or a description that begins with a writing verb stands, and gets a finding that
  asks a person.

Clauses: MCP's schema, `ToolAnnotations`, whose defaults these are, and its warning that hints are untrusted.
"""

import re
from collections.abc import Mapping
from typing import Literal

from attrs import field, frozen

from deputy_mcp._core.errors import ConfigError
from deputy_mcp._core.frozen import FrozenMapping, check_flag, check_mapping

Severity = Literal["note", "warn", "flag"]
"""`note`: for the record. `warn`: worth a look. `flag`: turns an Allow into an Ask."""

HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
"""The hints that count, as MCP spells them on the wire."""

READ_ONLY, DESTRUCTIVE, IDEMPOTENT, OPEN_WORLD = HINTS


@frozen(kw_only=True)
class Finding:
    """One thing that is odd about what a server supplied."""

    code: str = field(kw_only=False)
    """Its kind; never changes between releases."""
    severity: Severity
    """`flag` asks a person before the tool runs."""
    place: str
    """JSON pointer into the tool, such as `/annotations/readOnlyHint`."""
    message: str
    """For people; holds no text of the server."""


@frozen(kw_only=True)
class Effects:
    """What a tool may do, as far as it must be assumed."""

    read_only: bool
    """It changes nothing. True only where somebody who counts said so."""
    destructive: bool
    """It may delete or overwrite."""
    idempotent: bool
    """Calling it twice does no more than calling it once."""
    open_world: bool
    """It reaches beyond a closed domain: the web, other people."""


CAUTIOUS = Effects(read_only=False, destructive=True, idempotent=False, open_world=True)
"""The effects of a tool of which nobody said anything."""


@frozen(kw_only=True)
class Reading:
    """How one tool's hints were read."""

    effects: Effects = field(kw_only=False)
    findings: tuple[Finding, ...] = field(default=())
    missing: tuple[str, ...] = field(default=())
    """The hints that neither host nor server declared as a boolean, in the order of `HINTS`."""


def check_host_annotations(value: object) -> FrozenMapping[FrozenMapping[bool]]:
    """The host's own word, per tool and hint, as a read-only copy; `ConfigError` where it is not one.

    Whether the tools exist is not known here; a name that matches none is a warning event later.
    """
    return FrozenMapping(
        {tool: _host_hints(f"annotations.{tool}", hints) for tool, hints in check_mapping("annotations", value).items()}
    )


def _host_hints(key: str, value: object) -> FrozenMapping[bool]:
    hints = check_mapping(key, value)
    for hint in hints:
        if hint not in HINTS:
            raise ConfigError(f"{key}: {hint!r} is no known hint{_nearest(hint)}; known: {', '.join(HINTS)}", key=key)

    checked = FrozenMapping({hint: check_flag(f"{key}.{hint}", flag) for hint, flag in hints.items()})
    if checked.get(READ_ONLY) and checked.get(DESTRUCTIVE):
        raise ConfigError(f"{key}: {READ_ONLY} and {DESTRUCTIVE} cannot both be true; remove one", key=key)

    return checked


def _nearest(hint: str) -> str:
    from difflib import get_close_matches  # here: only what is misspelt needs it

    spellings = {known.removesuffix("Hint").lower(): known for known in HINTS}
    plain = hint.replace("_", "").replace("-", "").lower().removesuffix("hint")
    near = get_close_matches(plain, spellings, n=1)
    return f", did you mean {spellings[near[0]]}?" if near else ""


def read_annotations(
    declared: object, *, host: Mapping[str, bool], trusted: bool, name: str = "", description: str = ""
) -> Reading:
    """The effects of a tool whose `annotations` are `declared`, the wire's own JSON (None: there are none).

    `host` is the host's word on this tool, `trusted` says whether the server's hints count at all, `name` and
    `description` are the tool's own on the wire.
    """
    findings: list[Finding] = []
    server = _server_hints(declared, findings)
    missing = tuple(hint for hint in HINTS if hint not in host and hint not in server)
    # An untrusted server's hints count for nothing, and so they contradict nothing either.
    hints = {**(server if trusted else {}), **host}
    if host.get(READ_ONLY) and DESTRUCTIVE not in host:
        # The host has looked at the tool; it need not refute each of the server's hints as well.
        hints.pop(DESTRUCTIVE, None)

    read_only = hints.get(READ_ONLY, CAUTIOUS.read_only)
    destructive = hints.get(DESTRUCTIVE, not read_only)
    if read_only and destructive:
        # Not a flag: the worst of both claims is assumed, so there is nothing left that a person must be asked.
        findings.append(
            Finding(
                "annotation_contradiction",
                severity="warn",
                place="/annotations",
                message=f"{READ_ONLY} and {DESTRUCTIVE} are both true; read as destructive and not read-only",
            )
        )
        read_only = False

    if read_only and READ_ONLY not in host:
        findings.extend((*_check_name(name), *_check_description(description)))

    effects = Effects(
        read_only=read_only,
        destructive=destructive,
        idempotent=hints.get(IDEMPOTENT, CAUTIOUS.idempotent),
        open_world=hints.get(OPEN_WORLD, CAUTIOUS.open_world),
    )
    return Reading(effects, findings=tuple(findings), missing=missing)


def _server_hints(declared: object, findings: list[Finding]) -> dict[str, bool]:
    """The hints that are booleans; for the others a finding each."""
    if declared is None:
        return {}

    if not isinstance(declared, Mapping):
        findings.append(_odd("/annotations", "annotations are no object; they count as absent"))
        return {}

    hints: dict[str, bool] = {}
    for hint in HINTS:
        value = declared.get(hint, ...)
        if isinstance(value, bool):
            hints[hint] = value
        elif value is not ...:
            findings.append(_odd(f"/annotations/{hint}", f"{hint} is neither true nor false; it counts as missing"))

    return hints


def _odd(place: str, message: str) -> Finding:
    return Finding("annotation_type", severity="warn", place=place, message=message)


# --- Names and descriptions that disagree with a read-only claim ------------------------------------------------------
#
# Vendors mark whole servers read-only by mistake; `send_email` then runs unasked. The rule needs no malice to be of
# use, and a false alarm costs a question, so the verbs are those that mean writing wherever they stand. Left out,
# because tools that only read carry them: run, execute, start, stop, open, export, convert, generate, manage, deploy.


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


READING_VERBS = _words(
    "analyze browse check compare count describe diff download explain fetch find get has inspect is list lookup"
    " preview query read retrieve search show simulate suggest validate verify view"
)
"""The first of them ends the search: what follows is what is read (`get_update`, `check_delete_permission`)."""

WRITING_VERBS = _words(
    "add append approve assign cancel create delete destroy disable drop edit enable erase insert install invite modify"
    " overwrite publish purge reboot remove rename replace reset restart revoke send terminate unassign uninstall"
    " unpublish update upload wipe write"
)
"""Verbs that mean a change wherever they stand before a reading verb."""

NOUN_LIKE_VERBS = _words("commit merge move patch post push put reply set transfer")
"""Verbs that are nouns as well. They mean a change only in a name without any reading verb: `slack_post_message`,
but not `post_search`."""

# The alternatives never overlap after a mismatch, so a name of any length is cut in linear time.
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


def _check_name(name: str) -> list[Finding]:
    verb = _writing_verb(name)
    if verb is None:
        return []

    # `verb` is a word of our own list; the name itself is the server's text and stays out.
    message = f'the name says "{verb}" beside {READ_ONLY}: true'
    return [Finding("name_contradicts_read_only", severity="flag", place="/name", message=message)]


def _writing_verb(name: str) -> str | None:
    noun_like = None
    for match in _WORD.finditer(name):
        word = match[0].lower()
        if word in READING_VERBS:
            return None

        if word in WRITING_VERBS:
            return word

        if noun_like is None and word in NOUN_LIKE_VERBS:
            noun_like = word

    return noun_like


# A description is judged by its first verb alone: further on, real readers speak of what others create and delete.
READ_CHARACTERS = 400
"""Of a description; its first verb stands within them or counts for nothing."""

_TOOL_NOUNS = _words("tool function action endpoint operation command api")
_FILLERS = _TOOL_NOUNS | _words("this the a an use used call is be that which can will lets allows you it to")
_ARTICLES = _words("this the a an")
_NOT_AFTER_VERBS = _words("of for from history status")
_OBJECTS = _words("a an the one your this that these new multiple some all any")
# `[beta] `, `Notion | `, `Purpose: `: not the sentence yet.
_LABEL = re.compile(r"\W{0,20}(?:\[[^\[\]]{0,40}\]|[\w ]{1,30}[|:](?=\s))")
_TOKEN = re.compile(r"[A-Za-z][\w'-]*")


def _check_description(description: str) -> list[Finding]:
    verb = _leading_verb(description[:READ_CHARACTERS])
    if verb is None:
        return []

    message = f'the description begins with "{verb}" beside {READ_ONLY}: true'
    return [Finding("description_contradicts_read_only", severity="flag", place="/description", message=message)]


def _leading_verb(text: str) -> str | None:
    """The writing verb that the text begins with (`Sends a mail`, `Use this tool to delete …`), None: another one."""
    label = _LABEL.match(text)
    words = [match[0].lower() for match in _TOKEN.finditer(text, label.end() if label is not None else 0)]
    start = 0
    while start < len(words) and (words[start] in _FILLERS or words[start].endswith("ly")):
        start += 1

    skipped, rest = set(words[:start]), words[start : start + 2]
    # An article without a tool begins a noun: `The set of labels`.
    if len(rest) < 2 or rest[1] in _NOT_AFTER_VERBS or (skipped & _ARTICLES and not skipped & _TOOL_NOUNS):
        return None

    said, following = rest
    for verb in (said, said.removesuffix("s"), said.removesuffix("es")):
        if verb in WRITING_VERBS or (verb in NOUN_LIKE_VERBS and following in _OBJECTS):
            return verb

    return None
