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
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import rfc8785

from deputy_mcp._core.sanitizing import clean_line


class NotCanonicalError(ValueError):
    """The value has no canonical form: it holds NaN or an infinity."""


class PinVerdict(StrEnum):
    """How a tool compares with its pin."""

    SAME = "same"
    CHANGED = "pin_changed"
    UNKNOWN = "pin_unknown"


def tool_digest(tool: Mapping[str, Any]) -> str:
    """SHA-256, in hex, over the canonical JSON of the whole tool. Raises `NotCanonicalError`."""
    return hashlib.sha256(canonical_json(_with_sorted_sets(tool))).hexdigest()


def canonical_json(value: Any) -> bytes:
    """The canonical encoding of a JSON value. Raises `NotCanonicalError` for NaN and the infinities."""
    value, plain = _normal(value)
    if not plain:
        # Fractions and keys beyond U+D7FF, which RFC 8785 spells and sorts its own way.
        try:
            return bytes(rfc8785.dumps(value))
        except (rfc8785.CanonicalizationError, UnicodeError):
            pass  # an integer beyond 2**53 or a lone surrogate beside them: outside RFC 8785's domain

    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


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


MOST_DIFFERENCES = 20
"""Lines of a readable difference; more are counted."""


def describe_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What changed between two definitions, a line a place, as a person reads it."""
    lines: list[str] = []
    _collect_differences(before, now, "", lines)
    if len(lines) > MOST_DIFFERENCES:
        lines[MOST_DIFFERENCES:] = [f"… and {len(lines) - MOST_DIFFERENCES} more"]

    return "\n".join(lines)


def _collect_differences(before: Any, now: Any, place: str, lines: list[str]) -> None:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted({*before, *now}):
            here = f"{place}/{clean_line(key, 60)}"
            if key not in now:
                lines.append(f"{here}: removed, was {_short(before[key])}")
            elif key not in before:
                lines.append(f"{here}: added, {_short(now[key])}")
            else:
                _collect_differences(before[key], now[key], here, lines)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for i, (old, new) in enumerate(zip(before, now, strict=True)):
            _collect_differences(old, new, f"{place}/{i}", lines)
    elif canonical_json(before) != canonical_json(now):
        lines.append(f"{place or '/'}: {_short(before)} → {_short(now)}")


def _short(value: Any) -> str:
    return clean_line(json.dumps(value, ensure_ascii=False), 120)
