"""Where references inside one schema document lead.

Not a resolver of the specification's base URIs: a schema with embedded documents is reported as such, and references to
other documents lead to None.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote


def mend(part: dict[str, Any], *, draft4: bool) -> None:
    """Take out of `part` what the meta-schema forbids and servers are known to send; nothing else is changed.

    `"required": true` on a property (draft 3), null in place of a list or an object, a property that is no schema,
    draft 4's ban on an empty `required`, and its `exclusiveMinimum: true` under a later draft (kept, in the later
    spelling). The engine would refuse the whole schema, and with it every call.
    """
    required = part.get("required", ...)
    if required is not ... and (not is_text_list(required) or (draft4 and not required)):
        del part["required"]

    properties = part.get("properties", ...)
    if properties is not ... and not isinstance(properties, dict):
        del part["properties"]
    elif isinstance(properties, dict):
        for name in [name for name, value in properties.items() if not isinstance(value, dict | bool)]:
            del properties[name]

    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if not draft4 and isinstance(part.get(exclusive), bool):
            strict = part.pop(exclusive)
            if strict and bound in part:
                part[exclusive] = part[bound]


def is_text_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def find_anchors(schema: dict[str, Any]) -> tuple[dict[str, list[dict[str, Any]]], bool]:
    """Named subschemas, and whether any subschema is a document of its own (references in it mean something else)."""
    names: dict[str, list[dict[str, Any]]] = {}
    embedded = False
    waiting: list[Any] = [schema]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, dict):
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(name := item.get(keyword), str):
                    names.setdefault(name, []).append(item)

            # Up to draft 7 an anchor is an id that begins with "#"; draft 4 spells it without the dollar.
            for keyword in ("$id", "id"):
                name = item.get(keyword)
                if isinstance(name, str) and name.startswith("#"):
                    names.setdefault(name[1:], []).append(item)
                elif isinstance(name, str) and keyword == "$id" and item is not schema:
                    embedded = True

            waiting.extend(item.values())

    return names, embedded


def follow_reference(
    reference: object, schema: dict[str, Any], names: Mapping[str, Sequence[dict[str, Any]]]
) -> Sequence[dict[str, Any] | bool] | None:
    """Where a reference may lead: nowhere (empty), to one or several subschemas, or None for another document."""
    if not isinstance(reference, str):
        return ()

    own = schema.get("$id", schema.get("id"))
    document, _, fragment = reference.partition("#")
    if document and not (isinstance(own, str) and document == own.partition("#")[0]):
        return None

    fragment = unquote(fragment)
    if not fragment:
        return (schema,)

    if not fragment.startswith("/"):
        return names.get(fragment, ())

    target: Any = schema
    for piece in fragment[1:].split("/"):
        key = piece.replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict) and key in target:
            target = target[key]
        elif isinstance(target, list) and key.isascii() and key.isdigit() and len(key) < 9 and int(key) < len(target):
            target = target[int(key)]
        else:
            return ()

    return (target,) if isinstance(target, dict | bool) else ()
