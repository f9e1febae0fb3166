"""Untrusted text → text that is safe on a terminal, in a log and before a model.

Not a scanner for meaning. It promises: linear time; what could move a cursor, turn a line around, hide, or break an
encoder comes out as a visible `\\uXXXX`; nothing else changes.
"""

import re
from collections.abc import Mapping
from typing import Any

CUT_MARK = "… [cut: {seen} bytes in all]"
"""Ends a text that was cut, with the size of the whole."""

SHORTEST_SECRET = 8
"""Shorter values are not masked: they stand in ordinary words, and masking them would garble every text."""

_UNSAFE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1 but tab and newline: ESC and CSI drive terminals
    "\u00ad\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"  # invisible
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # invisible, in shorthand and in music
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional controls: text that reads as another text
    "\u2028\u2029"  # line breaks that JSON strings may hold and terminals may obey
    "\ud800-\udfff"  # lone surrogates: no encoder takes them
    "\U000e0000-\U000e0fff"  # tags and variation selectors beyond the plane: hidden writing
    "]+"
)


class _Escapes(dict[int, str]):
    def __missing__(self, code: int) -> str:
        self[code] = shown = f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
        return shown


_ESCAPES = _Escapes()


def _visible(match: re.Match[str]) -> str:
    return match.group().translate(_ESCAPES)


_HARMLESS = bytes(code for code in range(128) if 32 <= code < 127 or code in b"\t\n")
_SLICE = 256 * 1024


def _is_harmless(text: str) -> bool:
    """Whether there is nothing but printable ASCII, tab and newline in it; ten times as fast as the pattern."""
    return text.isascii() and not any(
        text[at : at + _SLICE].encode().translate(None, _HARMLESS) for at in range(0, len(text), _SLICE)
    )


def clean_text(text: str) -> str:
    """`text` with every unsafe character shown as its escape; tab and newline stay, CRLF becomes LF."""
    if (text.isascii() and text.isprintable()) or _is_harmless(text):
        return text

    return _UNSAFE.sub(_visible, text.replace("\r\n", "\n"))


def clean_line(text: str, most: int = 200) -> str:
    """`text` cleaned onto one line of at most `most` characters, for messages and logs."""
    if len(text) <= most and text.isascii() and text.isprintable():
        return text

    line = clean_text(text[: most + 1]).replace("\n", "\\n").replace("\t", " ")
    return line if len(line) <= most else line[: most - 1] + "…"


def cut_text(text: str, max_bytes: int, *, seen: int | None = None) -> str:
    """`text` itself, or its beginning with `CUT_MARK`, never longer than `max_bytes` in UTF-8, cut between characters.

    `text` must be clean: it is encoded.
    """
    # Four bytes a character at most; most texts need no encoding to know that they fit.
    if len(text) * 4 <= max_bytes:
        return text

    encoded = text.encode()
    if len(encoded) <= max_bytes:
        return text

    mark = CUT_MARK.format(seen=seen or len(encoded))
    room = max_bytes - len(mark.encode())
    if room < 0:
        return encoded[:max_bytes].decode("utf-8", "ignore")

    return encoded[:room].decode("utf-8", "ignore") + mark


def mask_secrets(text: str, secrets: tuple[str, ...]) -> str:
    """`text` with every secret of eight characters or more shown as `***`. `secrets` as `known_secrets` gives them."""
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, "***")

    return text


def masked_line(text: str, secrets: tuple[str, ...], most: int = 500) -> str:
    """`text` masked and cleaned onto one line. In this order: cut first, half a secret would be no secret any more."""
    room = most + max(map(len, secrets), default=0)
    return clean_line(mask_secrets(text[:room], secrets), most)


def known_secrets(values: tuple[str, ...]) -> tuple[str, ...]:
    """The values long enough to mask, longest first, so that one inside another leaves no rest."""
    return tuple(sorted({value for value in values if len(value) >= SHORTEST_SECRET}, key=len, reverse=True))


class UncleanSchemaError(ValueError):
    """Cleaning would change something that a validator or a caller reads; the message names the place."""


_EXACT = frozenset(
    {"enum", "const", "default", "pattern", "required", "dependentRequired", "$ref", "$dynamicRef", "$id", "$anchor"}
)
"""Keywords whose values a caller must reproduce or a validator obeys: changed, the schema is another one."""

_NAMES = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
"""Keywords whose keys are names chosen by the server."""

_SCHEMAS = frozenset(
    {"items", "prefixItems", "contains", "not", "if", "then", "else", "anyOf", "oneOf", "allOf", "propertyNames"}
)
"""Keywords that hold a schema or a list of them. Not `additionalProperties` and its kin: those stay booleans."""


def clean_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema as a model may see it: texts cleaned, `true` and `false` sub-schemas as objects, `properties` present.

    Raises `UncleanSchemaError` where cleaning would change a name, `enum`, `const`, `default` or `pattern`.
    The depth must have been bounded before.
    """
    clean = _clean_value(schema, "", schema=True)
    kinds = clean.get("type")
    if kinds == "object" or (isinstance(kinds, list) and "object" in kinds):
        # Some providers refuse an object schema without them (smolagents, OpenAI).
        clean.setdefault("properties", {})

    return clean  # type: ignore[no-any-return] # an object stays an object


def _clean_value(value: Any, place: str, *, schema: bool) -> Any:
    if isinstance(value, str):
        return clean_text(value)

    if isinstance(value, list):
        return [_clean_value(item, f"{place}/{i}", schema=schema) for i, item in enumerate(value)]

    if not isinstance(value, dict):
        return value

    clean: dict[str, Any] = {}
    for key, item in value.items():
        here = f"{place}/{key}"
        if clean_text(key) != key:
            raise UncleanSchemaError(f"the name {clean_line(key, 60)!r} at {clean_line(place) or '/'}")

        if schema and key in _EXACT:
            _check_exact(item, here)
            clean[key] = item
        elif schema and key in _NAMES and isinstance(item, dict):
            clean[key] = {}
            for name, sub in item.items():
                if clean_text(name) != name:
                    raise UncleanSchemaError(f"the name {clean_line(name, 60)!r} at {clean_line(here)}")

                clean[key][name] = _clean_subschema(sub, f"{here}/{name}")
        elif schema and key in _SCHEMAS:
            subs = isinstance(item, list)
            clean[key] = (
                [_clean_subschema(sub, f"{here}/{i}") for i, sub in enumerate(item)]
                if subs
                else _clean_subschema(item, here)
            )
        else:
            clean[key] = _clean_value(item, here, schema=schema)

    return clean


def _clean_subschema(value: Any, place: str) -> Any:
    if isinstance(value, list):
        _check_exact(value, place)  # draft 7's `dependencies`: names
        return value

    if value is True or value is None:
        return {}

    if value is False:
        return {"not": {}}

    return _clean_value(value, place, schema=True)


def _check_exact(value: Any, place: str) -> None:
    if isinstance(value, str):
        if clean_text(value) != value:
            raise UncleanSchemaError(f"a value at {clean_line(place)}")
    elif isinstance(value, list):
        for item in value:
            _check_exact(item, place)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_exact(key, place)
            _check_exact(item, place)
