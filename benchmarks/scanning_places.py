"""One text in every place of a tool where a model would read it."""

from collections.abc import Callable
from typing import Any


def _tool(**members: Any) -> dict[str, Any]:
    plain = {
        "name": "add",
        "description": "Adds two numbers.",
        "inputSchema": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
    }
    return plain | members


def _schema(value: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": value, "b": {"type": "number"}}}


def _input(**members: Any) -> dict[str, Any]:
    return _tool(inputSchema=_schema({"type": "string"} | members))


def _in_schema(**members: Any) -> dict[str, Any]:
    return _tool(inputSchema=_schema({"type": "number"}) | members)


PLACES: dict[str, Callable[[str], dict[str, Any]]] = {
    "description": lambda text: _tool(description=text),
    "title": lambda text: _tool(title=text),
    "annotations.title": lambda text: _tool(annotations={"title": text}),
    "_meta": lambda text: _tool(_meta={"example.org/note": text}),
    "parameter name": lambda text: _tool(inputSchema={"type": "object", "properties": {text: {"type": "string"}}}),
    "parameter name, joined": lambda text: _tool(
        inputSchema={"type": "object", "properties": {"_".join(text.split()): {"type": "string"}}}
    ),
    "parameter title": lambda text: _input(title=text),
    "parameter description": lambda text: _input(description=text),
    "default": lambda text: _input(default=text),
    "enum value": lambda text: _input(enum=["none", text]),
    "const": lambda text: _input(const=text),
    "examples": lambda text: _input(examples=["none", text]),
    "pattern": lambda text: _input(pattern=text),
    "comment": lambda text: _in_schema(**{"$comment": text}),
    "unknown keyword": lambda text: _in_schema(**{"x-note": text}),
    "schema description": lambda text: _in_schema(description=text),
    "$defs": lambda text: _in_schema(**{"$defs": {"number": {"type": "number", "description": text}}}),
    "nested items": lambda text: _input(
        type="array", items={"type": "array", "items": {"type": "string", "description": text}}
    ),
    "anyOf": lambda text: _input(anyOf=[{"type": "null"}, {"type": "string", "description": text}]),
    "required": lambda text: _in_schema(required=["a", text]),
    "type": lambda text: _input(type=text),
    "output schema": lambda text: _tool(outputSchema=_schema({"type": "number", "description": text})),
    "split over an enum": lambda text: _input(enum=text.split("\n") if "\n" in text else text.split(". ")),
}
"""By name: a text → a tool that holds it there and is harmless otherwise."""
