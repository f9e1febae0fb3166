"""What a tool was when it was pinned, and whether it still is.

The rules:
- the digest covers the whole tool as it came over the wire, members we do not know included: what a model may read
  tomorrow must not change unseen today;
- key order, white space and a number's spelling (`1`, `1.0`) do not matter; nor does the order of `required`, `enum`
  and `type` where they are schema keywords, because real servers emit those as sets in changing order;
- a member that disappears is a change; a tool that was never pinned is unknown; no listing is no proof.

Encoding: RFC 8785, beyond which integers of any size keep their digits and lone surrogates their code point.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from attrs import field, frozen

from deputy_mcp._core.sanitizing import clean_line


class NotCanonicalError(ValueError):
    """The value has no canonical form: it holds NaN or an infinity."""


@frozen(kw_only=True)
class PinDifference:
    """What a server offers otherwise than it was pinned."""

    server: str
    name: str
    """A tool's, or `#instructions`, `#prompts/NAME`, `#resources/URI`."""
    code: str
    """`pin_changed`, `pin_gone` or `pin_unknown`."""
    difference: str
    """What changed, a line each; empty for what is new or gone."""
    digest: str
    """Of the new definition; empty for what is gone."""
    definition: Mapping[str, Any] | None = field(repr=False)


class PinVerdict(StrEnum):
    """How a tool compares with its pin."""

    SAME = "same"
    CHANGED = "pin_changed"
    UNKNOWN = "pin_unknown"


@frozen(kw_only=True)
class Pinned:
    """A tool, a prompt or a resource as it was when it was pinned."""

    digest: str
    raw: Mapping[str, Any] = field(repr=False)
    accepted: frozenset[str] = frozenset()
    """Codes of findings that a person accepted for this very definition."""


MOVING = ("/size", "/annotations/lastModified")
"""Of a resource: facts about its content, which changes by nature, and not part of what is pinned."""


def definition_digest(definition: Mapping[str, Any]) -> str:
    """SHA-256, in hex, over the canonical JSON of a prompt or a resource as listed, without what moves by nature."""
    return hashlib.sha256(canonical_json(leave_out(definition, MOVING))).hexdigest()


def leave_out(value: Mapping[str, Any], pointers: Iterable[str]) -> dict[str, Any]:
    """A copy without the members that the JSON pointers (RFC 6901) name; one that names nothing changes nothing."""
    copy: Any = dict(value)
    for pointer in pointers:
        *path, last = (part.replace("~1", "/").replace("~0", "~") for part in pointer.removeprefix("/").split("/"))
        copy = _without(copy, path, last)

    return copy  # type: ignore[no-any-return] # an object stays an object


def _without(value: Any, path: list[str], last: str) -> Any:
    if isinstance(value, list):
        if not path:
            return [item for i, item in enumerate(value) if str(i) != last]

        return [_without(item, path[1:], last) if str(i) == path[0] else item for i, item in enumerate(value)]

    if not isinstance(value, dict):
        return value

    if not path:
        return {key: item for key, item in value.items() if key != last}

    return {key: _without(item, path[1:], last) if key == path[0] else item for key, item in value.items()}


def tool_digest(tool: Mapping[str, Any], ignored: Iterable[str] = ()) -> str:
    """SHA-256, in hex, over the canonical JSON of the whole tool but what `ignored` names. Raises `NotCanonicalError`.

    `ignored`: JSON pointers, the host's `pin_ignore`.
    """
    try:
        sortable = _with_sorted_sets(leave_out(tool, ignored) if ignored else tool)
    except RecursionError:
        raise NotCanonicalError("it is nested too deeply") from None

    return hashlib.sha256(canonical_json(sortable)).hexdigest()


def canonical_json(value: Any) -> bytes:
    """The canonical encoding of a JSON value. Raises `NotCanonicalError` for NaN and the infinities."""
    try:
        value, plain = _normal(value)
        if not plain:
            return _spell(value)

        text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    except RecursionError:
        raise NotCanonicalError("it is nested too deeply") from None

    return text.encode("utf-8", "surrogatepass")


def _spell(value: Any) -> bytes:
    """RFC 8785's own spelling of fractions and order of keys, which the standard library does not have.

    Not `rfc8785.dumps` over the whole: it refuses integers beyond 2**53 and lone surrogates, which tools do hold.
    """
    if isinstance(value, float):
        import rfc8785  # here: few tools hold a fraction

        return bytes(rfc8785.dumps(value))

    if isinstance(value, list):
        return b"[" + b",".join(map(_spell, value)) + b"]"

    if isinstance(value, dict):
        # Section 3.2.3: by UTF-16 code units.
        keys = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
        return b"{" + b",".join(_spell(key) + b":" + _spell(value[key]) for key in keys) + b"}"

    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _normal(value: Any) -> tuple[Any, bool]:
    """`value` with whole floats as integers, and whether the standard library already spells it canonically."""
    if isinstance(value, dict):
        plain = True
        items = {}
        for key, item in value.items():
            items[key], same = _normal(item)
            plain = plain and same and (key.isascii() or max(key) < "\ud800")

        return items, plain

    if isinstance(value, list | tuple):
        pairs = [_normal(item) for item in value]
        return [item for item, _ in pairs], all(same for _, same in pairs)

    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotCanonicalError("NaN and the infinities are no JSON numbers")

        return (int(value), True) if value.is_integer() else (value, False)

    return value, True


_SETS = frozenset({"required", "enum", "type"})
_DATA = frozenset({"default", "const", "examples"})
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})


def _with_sorted_sets(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _sorted_sets(value) if key in ("inputSchema", "outputSchema") else value for key, value in tool.items()
    }


def _sorted_sets(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_sorted_sets(item) for item in schema]

    if not isinstance(schema, dict):
        return schema

    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _SETS and isinstance(value, list):
            out[key] = sorted(value, key=canonical_json)
        elif key in _DATA or key == "enum":
            out[key] = value
        elif key in _NAMED and isinstance(value, dict):
            # Here `required` or `type` may be a property's name; its value is a schema like any other.
            out[key] = {name: _sorted_sets(sub) for name, sub in value.items()}
        else:
            out[key] = _sorted_sets(value)

    return out


def compare_pin(pinned: str | None, current: str) -> PinVerdict:
    """The verdict over two digests; `pinned` None: the tool was not there when the server was pinned."""
    if pinned is None:
        return PinVerdict.UNKNOWN

    return PinVerdict.SAME if pinned == current else PinVerdict.CHANGED


KNOWN_MEMBERS = (
    "annotations",
    "arguments",
    "description",
    "icons",
    "inputSchema",
    "instructions",
    "mimeType",
    "outputSchema",
    "title",
    "_meta",
)
"""Of a definition, as MCP spells them. Any other name is the server's text."""


def changed_members(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Which members of a definition changed, in words of ours alone: a model may read this, and what a server wrote
    into a changed definition must not reach it through the refusal.
    """
    changed = {name for name in {*before, *now} if not _same(before.get(name, ...), now.get(name, ...))}
    known = [name for name in KNOWN_MEMBERS if name in changed]
    return ", ".join(known + ["members we do not know"] * (len(known) < len(changed)))


def _same(before: Any, now: Any) -> bool:
    if before is ... or now is ...:
        return before is now

    try:
        return canonical_json(before) == canonical_json(now)
    except NotCanonicalError:
        return False


MOST_DIFFERENCES = 20
"""Lines of a readable difference; more are counted."""


def describe_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What changed between two definitions, a line a place, as a person reads it."""
    lines: list[str] = []
    try:
        _collect_differences(before, now, "", lines)
    except (RecursionError, NotCanonicalError):
        lines.append("a difference nested too deeply to show")

    if len(lines) > MOST_DIFFERENCES:
        lines[MOST_DIFFERENCES:] = [f"… and {len(lines) - MOST_DIFFERENCES} more"]

    return "\n".join(lines)


def _collect_differences(before: Any, now: Any, place: str, lines: list[str]) -> None:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted({*before, *now}):
            here = f"{place}/{clean_line(key, 60)}"
            if key not in now:
                lines.append(f"{_place(here)}: removed, was {_short(before[key])}")
            elif key not in before:
                lines.append(f"{_place(here)}: added, {_short(now[key])}")
            else:
                _collect_differences(before[key], now[key], here, lines)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for i, (old, new) in enumerate(zip(before, now, strict=True)):
            _collect_differences(old, new, f"{place}/{i}", lines)
    elif canonical_json(before) != canonical_json(now):
        start = 0
        if isinstance(before, str) and isinstance(now, str):
            # A change deep inside a long text: its surroundings, not the text's beginning.
            start = max(0, _first_difference(before, now) - 40)

        lines.append(f"{_place(place)}: {_short(before, start)} → {_short(now, start)}")


def _first_difference(before: str, now: str) -> int:
    pairs = enumerate(zip(before, now, strict=False))
    return next((i for i, (old, new) in pairs if old != new), min(len(before), len(now)))


def _place(place: str) -> str:
    return place if len(place) <= 200 else f"{place[:100]}…{place[-99:]}"


def _short(value: Any, start: int = 0) -> str:
    if start:
        return clean_line("…" + json.dumps(value[start : start + 200], ensure_ascii=False), 120)

    return clean_line(json.dumps(value, ensure_ascii=False), 120)
