"""What a flooding server says: the sane answers, the prebuilt hostile results, and the listings.

Imported by the servers beside it, which are run as scripts; nothing but the standard library. Bytes are made by
repetition and kept, so that a flood costs the one who sends it next to nothing.
"""

import json
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

PIECE = b"a" * 65536
HEAD = b'{"jsonrpc":"2.0","id":%s,"result":'
BEGIN = b'{"resultType":"complete","content":'
FLOOD_HEAD = HEAD + BEGIN + b'[{"type":"text","text":"'
NOTE = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"a line of a log"}}'
BOMB_BLOCK_BYTES = 1024 * 1024
"""What one compressed block of the gzip bomb stands for."""

COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
MOST_VALUES = 990_000
"""A little less than the default `max_message_values`."""
MOST_MEMBERS = 399_000
"""A little less than what one object may have."""


def tool(name: str = "play", **members: Any) -> dict[str, Any]:
    """A well-formed tool."""
    raw: dict[str, Any] = {
        "name": name,
        "description": "Does what its arguments say.",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }
    return raw | members


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The sane answer, but for listings; None: no such method."""
    capabilities: dict[str, Any] = {"capabilities": {"tools": {}}}
    if method == "server/discover":
        return {"supportedVersions": ["2026-07-28"]} | capabilities | COMPLETE
    if method == "initialize":
        info = {"name": "flood", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "serverInfo": info} | capabilities
    if method == "tools/call":
        return {"content": [{"type": "text", "text": "fine"}]} | COMPLETE
    return {} if method == "ping" else None


@cache
def listing(name: str) -> bytes:
    """A whole `tools/list` result as bytes."""
    head, tail = b'{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[', b"]}"
    return head + LISTINGS[name]() + tail


def _described(count: int, size: int) -> bytes:
    words = ("It reads notes of the given kind and gives them back. " * (size // 54 + 1))[:size]
    properties = {f"field_{i}": {"type": "string", "description": f"the field {i}"} for i in range(8)}
    schema = {"type": "object", "properties": properties, "required": ["field_0"]}
    tools = [tool(f"read_{i}", description=words, inputSchema=schema) for i in range(count)]
    return b",".join([json.dumps(one).encode() for one in [tool(), *tools]])


def _play_and(schema: bytes) -> bytes:
    """The tool `play` and one with this input schema."""
    return (
        json.dumps(tool()).encode() + b',{"name":"odd","inputSchema":{"type":"object","properties":{"x":%s}}}' % schema
    )


def _checked(output: dict[str, Any]) -> bytes:
    return json.dumps(tool(outputSchema={"type": "object", "properties": {"x": output}})).encode()


def _doubling() -> bytes:
    definitions: dict[str, Any] = {"d0": {"type": "integer"}}
    for i in range(1, 40):
        definitions[f"d{i}"] = {"allOf": [{"$ref": f"#/$defs/d{i - 1}"}, {"$ref": f"#/$defs/d{i - 1}"}]}

    return json.dumps({"$defs": definitions, "$ref": "#/$defs/d39"}).encode()


LISTINGS: dict[str, Callable[[], bytes]] = {
    "plain": lambda: json.dumps(tool()).encode(),
    "tools": lambda: _described(1_999, 1_000),
    "long tools": lambda: _described(1_999, 7_000),
    "enum": lambda: _play_and(b'{"enum":[' + b",".join(b'"%07d"' % i for i in range(MOST_VALUES)) + b"]}"),
    "nested schema": lambda: _play_and(b'{"not":' * 100_000 + b"{}" + b"}" * 100_000),
    "references": lambda: _play_and(_doubling()),
    "pattern": lambda: _checked({"type": "string", "pattern": "^(a+)+$"}),
    "back-reference": lambda: _checked({"type": "string", "pattern": r"^(a+)+\1$"}),
    "items": lambda: _checked({"type": "array", "items": {"type": "integer", "maximum": 5}}),
    "unique items": lambda: _checked({"type": "array", "uniqueItems": True}),
}


@cache
def result(name: str, size: int) -> bytes:
    """A whole `tools/call` result as bytes; `size` of it where it can be as large as one likes."""
    return RESULTS[name](size)


def _text(piece: bytes, size: int) -> bytes:
    return BEGIN + b'[{"type":"text","text":"' + piece * (size // len(piece)) + b'"}]}'


def _structured(value: bytes) -> bytes:
    return BEGIN + b'[{"type":"text","text":"x"}],"structuredContent":{"x":' + value + b"}}"


def _values(item: bytes, size: int, count: int = MOST_VALUES) -> bytes:
    """An array of as many items as fit into `size`, at most `count`."""
    return b"[" + (item + b",") * min(size // (len(item) + 1), count) + item + b"]"


def _blocks(block: bytes, count: int) -> bytes:
    return BEGIN + b"[" + (block + b",") * (count - 1) + block + b"]}"


def _keys(size: int, count: int = MOST_VALUES) -> bytes:
    room = max(size // count - 12, 1)
    return b"{" + b",".join(b'"%07d%s":0' % (i, b"k" * room) for i in range(count)) + b"}"


RESULTS: dict[str, Callable[[int], bytes]] = {
    "prose": lambda size: _text(
        b"The quick brown fox jumps over the lazy dog, and the dog lets it pass by once again.\\n", size
    ),
    "text": lambda size: _text(b"a" * 64, size),
    "control characters": lambda size: _text(b"\\u001b", size),
    "surrogates": lambda size: _text(b"\\ud800", size),
    "broken UTF-8": lambda size: _text(b"\xff" * 64, size),
    "wide characters": lambda size: _text("鬼".encode() * 20, size),
    "image": lambda size: BEGIN + b'[{"type":"image","mimeType":"image/png","data":"%s"}]}' % (b"QUJD" * (size // 4)),
    "more than a million zeros": lambda size: _structured(_values(b"0", size, size)),
    "a million zeros": lambda size: _structured(_values(b"0", size)),
    "a million strings": lambda size: _structured(_values(b'"abcdefghijkl"', size)),
    "a million empty lists": lambda size: _structured(_values(b"[]", size, MOST_VALUES // 2)),
    "a million floats": lambda size: _structured(_values(b"3.1415926535897", size)),
    "a million keys": lambda size: _structured(_keys(size)),
    "400,000 keys": lambda size: _structured(_keys(size, MOST_MEMBERS)),
    "long integers": lambda size: _structured(_values(b"9" * 4_000, size)),
    "a million values, broken UTF-8": lambda size: _structured(_values(b'"\xff"', size)),
    "a million values, cut off": lambda size: _structured(_values(b'"abcdefghijkl"', size))[:-3],
    "commas in strings": lambda size: _structured(_values(b'","', size, size)),
    "strings side by side": lambda size: _structured(b'","' * (size // 3)),
    "pairs of strings with commas": lambda size: _structured(b"{" + b'",,,,":",,,,",' * MOST_VALUES + b'"":0}'),
    "100,000 deep": lambda size: _structured(b"[" * 100_000 + b"]" * 100_000),
    "brackets only": lambda size: _structured(b"[" * (size // 2) + b"]" * (size // 2)),
    "330,000 blocks": lambda size: _blocks(b'{"type":"text","text":""}', MOST_VALUES // 3),
    "330,000 unknown blocks": lambda size: _blocks(b'{"type":"odd","text":""}', MOST_VALUES // 3),
    "a million non-blocks": lambda size: _blocks(b"0", MOST_VALUES),
    "catastrophic match": lambda size: _structured(b'"' + b"a" * (size - 1) + b'!"'),
}

RAW: dict[str, Callable[[int], bytes]] = {
    "notifications": lambda count: (NOTE + b"\n") * count,
    "list changes": lambda count: b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n' * count,
    "empty objects": lambda count: b"{}\n" * count,
    "single digits": lambda count: b"1\n" * count,
    "blank lines": lambda count: b"\n" * count,
    "pings": lambda count: b'{"jsonrpc":"2.0","id":"p","method":"ping"}\n' * count,
    "late replies": lambda count: b'{"jsonrpc":"2.0","id":99999999,"result":{}}\n' * count,
    "a batch of a million": lambda count: _values(b"0", count * 2) + b"\n",
    "a batch of notifications": lambda count: _values(NOTE, count * (len(NOTE) + 1)) + b"\n",
    "no JSON": lambda count: b"x" * count + b"\n",
}
"""Lines that are sent before a sane answer; as large as `count` says."""


@cache
def raw(name: str, count: int) -> bytes:
    """Such lines."""
    return RAW[name](count)


@cache
def bomb(wire_id: bytes) -> tuple[bytes, bytes]:
    """The beginning of a gzip body, and a block to be repeated for ever: a kilobyte that stands for a megabyte.

    After a full flush a compressor starts anew, so that the block may follow itself.
    """
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    head = squeeze.compress(FLOOD_HEAD % wire_id) + squeeze.flush(zlib.Z_FULL_FLUSH)
    return head, squeeze.compress(b"a" * BOMB_BLOCK_BYTES) + squeeze.flush(zlib.Z_FULL_FLUSH)
