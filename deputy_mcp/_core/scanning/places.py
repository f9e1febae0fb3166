"""Every text of a tool definition that a model may read, each with where it stands.

Not a validator: a definition of any shape is walked, without recursion. A place is a JSON pointer that resolves in the
definition and is safe to print: below a name that is unclean or long, or past `LONGEST_PLACE`, it stops at what holds
that name.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from attrs import frozen

from deputy_mcp._core.sanitizing import clean_text

LONGEST_PLACE = 300
"""Characters of a pointer. Deeper texts are placed at the last ancestor that fits."""

LONGEST_KEY = 80
"""Characters of a name within a pointer."""

Role = Literal["name", "key", "keyword", "prose", "value", "list"]
"""`name`: the tool's name. `key`: a member's name. `keyword`: a value for machines, such as `type` and `pattern`.
`value`: within an example, a default, `_meta`. `list`: the strings of one array, together. `prose`: all else."""

KEYWORDS = frozenset(
    {"type", "format", "pattern", "required", "$ref", "$dynamicRef", "$id", "$schema", "$anchor", "$dynamicAnchor",
     "contentEncoding", "contentMediaType", "mimeType", "sizes", "theme", "dependentRequired"}
)  # fmt: skip
"""Members whose strings are for machines."""

VALUES = frozenset({"default", "const", "enum", "example", "examples", "_meta"})
"""Members below which names and values are the server's own, not JSON Schema's."""

KNOWN_KEYS = KEYWORDS | {
    "name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "_meta", "src", "execution",
    "properties", "patternProperties", "additionalProperties", "propertyNames", "items", "prefixItems", "contains",
    "anyOf", "oneOf", "allOf", "not", "if", "then", "else", "$defs", "definitions", "dependentSchemas", "dependencies",
    "enum", "const", "default", "example", "examples", "$comment", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties",
    "maxProperties", "nullable", "readOnly", "writeOnly", "deprecated", "discriminator", "unevaluatedProperties",
    "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint", "anyof", "unevaluatedItems", "minContains",
}  # fmt: skip
"""Names that MCP and JSON Schema gave, not the server. They need no look."""


def _is_clean(key: str) -> bool:
    return len(key) <= LONGEST_KEY and key.isprintable() and clean_text(key) == key


@frozen
class Text:
    """One text and its place."""

    place: str
    text: str
    role: Role


_Spot = tuple[str, bool]
"""Where the walk is: the place, and whether it stays the same for everything below."""


def _below(spot: _Spot, key: str) -> _Spot:
    place, ends = spot
    if ends or not (key in KNOWN_KEYS or _is_clean(key)):
        return place, True

    longer = f"{place}/{key.replace('~', '~0').replace('/', '~1')}"
    return (longer, False) if len(longer) <= LONGEST_PLACE else (place, True)


_MUTE = frozenset({int, float, bool, type(None)})
"""What most values of a schema are, and no text."""


def walk_tool(tool: Mapping[str, Any]) -> Iterator[Text]:
    """The texts of a raw tool definition, in its order."""
    # What is still to do, the next last: (value, where it stands, role of a string).
    stack: list[tuple[Any, _Spot, Role]] = [(tool, ("", False), "prose")]
    while stack:
        value, spot, role = stack.pop()
        if isinstance(value, str):
            yield Text(spot[0], value, role)
        elif isinstance(value, Mapping):
            below: list[tuple[Any, _Spot, Role]] = []
            for key, item in value.items():
                known = key in KNOWN_KEYS
                if known and type(item) in _MUTE:
                    continue

                here = _below(spot, key)
                if not known:
                    yield Text(here[0], key, "value" if role == "value" else "key")

                below.append((item, here, "name" if value is tool and key == "name" else _role(key, role)))

            stack.extend(reversed(below))
        elif isinstance(value, list | tuple):
            strings = [item for item in value if isinstance(item, str)]
            if len(strings) > 1:
                yield Text(spot[0], " ".join(strings), "list")

            stack.extend((value[i], _below(spot, str(i)), role) for i in reversed(range(len(value))))


def _role(key: str, role: Role) -> Role:
    if role == "value" or key in VALUES:
        return "value"

    return "keyword" if key in KEYWORDS else "prose"
