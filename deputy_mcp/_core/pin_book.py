"""What was pinned of each server, and the text of the file that keeps it.

The rules:
- a file that cannot be understood wholly is refused, and never read as an empty one;
- the definition is kept whole beside its digest, so that a change can be shown the way a person reads it; a digest
  that is not its definition's means that somebody edited the file by hand, and refuses it;
- no time and no version of ours stands in it: the same pins give the same bytes, in any order of writing.

Not a reader or writer of files: `_runtime.pin_book`.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from deputy_mcp._core.errors import ConfigError
from deputy_mcp._core.frozen import FrozenMapping
from deputy_mcp._core.pinning import NotCanonicalError, Pinned, canonical_json, definition_digest, tool_digest
from deputy_mcp._core.sanitizing import clean_line

FORMAT = 1
"""The number in the file; another one is refused."""


@frozen(kw_only=True)
class ServerPins:
    """What one server was when it was pinned."""

    tools: Mapping[str, Pinned] = field(factory=FrozenMapping)
    """By wire name: every well-formed tool it offered."""
    prompts: Mapping[str, Pinned] = field(factory=FrozenMapping)
    """By name: the allowed ones that it listed."""
    resources: Mapping[str, Pinned] = field(factory=FrozenMapping)
    """By URI: the allowed ones that it listed."""
    instructions: str | None = field(default=None, repr=False)
    """None: it gave none."""


def pins_digest(pins: ServerPins) -> str:
    """SHA-256, in hex, over all that a server offered: by it a person names a whole server that he saw."""
    return hashlib.sha256(canonical_json(_encode_server(pins))).hexdigest()


def encode_pins(servers: Mapping[str, ServerPins]) -> str:
    """The file's text: indented, sorted, ASCII (what hides must not hide in a review)."""
    return join_servers({name: encode_server(name, pins) for name, pins in servers.items()})


def encode_server(name: str, pins: ServerPins) -> str:
    """One server's part of the file's text, for `join_servers`."""
    text = json.dumps({name: _encode_server(pins)}, indent=2, sort_keys=True, ensure_ascii=True)
    # Without the braces around it; a line break stands between lines alone, in strings it is escaped.
    return text[2:-2].replace("\n", "\n  ")


def join_servers(parts: Mapping[str, str]) -> str:
    """The file's text from the parts of its servers."""
    servers = ",\n".join(f"  {parts[name]}" for name in sorted(parts))
    shown = f"{{\n{servers}\n  }}" if parts else "{}"
    return f'{{\n  "deputy_mcp_pins": {FORMAT},\n  "servers": {shown}\n}}\n'


def _encode_server(pins: ServerPins) -> dict[str, Any]:
    members: dict[str, Any] = {"tools": {name: _encode_pinned(pinned) for name, pinned in pins.tools.items()}}
    for kind, items in (("prompts", pins.prompts), ("resources", pins.resources)):
        if items:
            members[kind] = {name: _encode_pinned(pinned) for name, pinned in items.items()}

    if pins.instructions is not None:
        members["instructions"] = pins.instructions

    return members


def _encode_pinned(pinned: Pinned) -> dict[str, Any]:
    accepted = {"accepted": sorted(pinned.accepted)} if pinned.accepted else {}
    return {"digest": pinned.digest, "definition": pinned.raw} | accepted


def decode_pins(text: str) -> dict[str, ServerPins]:
    """The pins in a file's text, by server. Raises `ConfigError`."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"it is no JSON: {error}") from None

    if not isinstance(document, dict) or document.get("deputy_mcp_pins") != FORMAT:
        raise ConfigError(f'it has no "deputy_mcp_pins": {FORMAT}; is it a pin file?')

    servers = _object(document.get("servers"), "servers")
    return {name: _decode_server(raw, f"servers/{name}") for name, raw in servers.items()}


def _decode_server(raw: object, place: str) -> ServerPins:
    members = _object(raw, place)
    unknown = set(members) - {"tools", "prompts", "resources", "instructions"}
    if unknown:
        raise ConfigError(f"{_shown(place)} holds {_shown(min(unknown))}, which is no kind of pin")

    instructions = members.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise ConfigError(f"{_shown(place)}/instructions is no text")

    kinds = {
        kind: FrozenMapping(
            {
                name: _decode_pinned(item, f"{place}/{kind}/{name}", kind)
                for name, item in _object(members.get(kind, {}), f"{place}/{kind}").items()
            }
        )
        for kind in ("tools", "prompts", "resources")
    }
    return ServerPins(**kinds, instructions=instructions)


def _decode_pinned(raw: object, place: str, kind: str) -> Pinned:
    members = _object(raw, place)
    definition = _object(members.get("definition"), f"{place}/definition")
    accepted = members.get("accepted", [])
    if not isinstance(accepted, list) or not all(isinstance(code, str) for code in accepted):
        raise ConfigError(f"{_shown(place)}/accepted is no list of finding codes")

    try:
        digest = tool_digest(definition) if kind == "tools" else definition_digest(definition)
    except NotCanonicalError as error:
        raise ConfigError(f"{_shown(place)}/definition has no canonical form: {error}") from None

    if members.get("digest") != digest:
        raise ConfigError(f"{_shown(place)}: its digest is not that of its definition; one of them was edited by hand")

    return Pinned(digest=digest, raw=definition, accepted=frozenset(accepted))


def _object(value: object, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{_shown(place)} is no object")

    return value


def _shown(place: str) -> str:
    return clean_line(place, 200)
