"""One line or body of JSON → one typed message. Untrusted bytes in, a value out, never an exception.

Not a correlator: whether an id is outstanding is the dispatcher's knowledge. It promises that a message that names
an id but is no valid answer is `Invalid` with that id, so that its call can fail at once, and that one that names
none is `Noise`. Broken UTF-8 and lone surrogates are repaired and marked, not lost.
"""

import gc
import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from attrs import field, frozen
from pydantic_core import from_json

from deputy_mcp._core.framing import HEAD_BYTES, TAIL_BYTES, Oversized

MessageId = int | str


@frozen
class Reply:
    """A result. `repaired`: its bytes were no valid UTF-8 or held lone surrogates. `size_bytes`: of the message.

    `sha256`: over the message's bytes, where that was asked for.
    """

    id: MessageId
    result: dict[str, Any]
    repaired: bool = False
    size_bytes: int = 0
    sha256: str | None = field(default=None, eq=False)


@frozen
class Failure:
    """A JSON-RPC error. `id` None: the peer could not tell which request it answers."""

    id: MessageId | None
    code: int
    text: str
    details: Any = None
    sha256: str | None = field(default=None, eq=False)


@frozen
class Request:
    """A request from the server to us."""

    id: MessageId
    method: str
    params: dict[str, Any] | None


@frozen
class Notification:
    """A notification from the server."""

    method: str
    params: dict[str, Any] | None


@frozen
class Invalid:
    """Names an id, and is no valid answer."""

    id: MessageId
    reason: str


@frozen
class TooLarge:
    """Past a limit; `id` None when none could be found."""

    id: MessageId | None
    reason: str
    seen_bytes: int


@frozen
class Noise:
    """Names no id: a banner, a log line, an empty object. `framing` is set when no message can ever come this way."""

    reason: str
    framing: str | None = None
    sample: str = field(default="", eq=False)
    """The beginning of what it was, raw: for the log, which cleans and masks it."""


SAMPLE_BYTES = 400
"""Of a line that is no message, for the log."""

MOST_BATCH = 1_000
"""Messages in one batch; sorting more of them would hold the event loop."""

Message = Reply | Failure | Request | Notification | Invalid | TooLarge | Noise


def plain_id(value: object) -> MessageId | None:
    """A wire id as we correlate it: a string of digits is the integer it spells, a boolean is no id."""
    if type(value) is int:
        return value

    if isinstance(value, bool):
        return None

    if isinstance(value, float):
        # JSON has one kind of number, and some encoders write every one as a float.
        return int(value) if value.is_integer() else None

    if isinstance(value, str):
        # isdecimal() takes other scripts' digits and int() takes spaces and signs; an echo of our id has neither.
        return int(value) if value.isascii() and value.isdecimal() and len(value) < 19 else value

    return None


def read_message(line: bytes, max_values: int, *, hashed: bool = False) -> list[Message]:
    """The messages in one line: one, or the members of a batch (JSON-RPC 2.0 section 6; 2025-03-26 allows it).

    `hashed`: whether the SHA-256 of the line is wanted with an answer that stands alone in it.
    """
    if len(line) <= FEW_BYTES and len(line) <= max_values:
        # None of the bounds below can be passed, and no collection is set off.
        try:
            value = from_json(line, cache_strings="all")
        except ValueError:
            value = None

        if isinstance(value, dict):
            return [_classify(value, line, hashed=hashed)]

    if too_many_values(line, max_values):
        return [TooLarge(_sniff_line(line), f"more than {max_values} JSON values", len(line))]

    if has_giant_object(line):
        return [TooLarge(_sniff_line(line), f"an object of more than {MOST_MEMBERS} members", len(line))]

    repaired = False
    # Half a million new containers would set off collection after collection, ten times the work of parsing.
    collects = gc.isenabled()
    gc.disable()
    try:
        # Remembering names costs more than it saves where each is another.
        value = from_json(line, cache_strings="all" if line.count(b":") < FEW_NAMES else "none")
    except ValueError:
        try:
            text = line.decode("utf-8", "replace")
            value = json.loads(text)
            repaired = text.encode() != line or _holds_surrogates(value)
        except (ValueError, RecursionError) as error:
            value = _several(line)
            if value is None:
                return [_unreadable(line, error)]
    finally:
        if collects:
            gc.enable()

    if isinstance(value, list):
        if len(value) > MOST_BATCH:
            return [TooLarge(None, f"a batch of more than {MOST_BATCH} messages", len(line))]

        alone = hashed and len(value) == 1
        return [_classify(item, line, repaired=repaired, hashed=alone) for item in value] or [Noise("an empty batch")]

    return [_classify(value, line, repaired=repaired, hashed=hashed)]


FEW_NAMES = 100_000
FEW_BYTES = 4_096
"""A message of so many is a parse and no more: nearly all of them."""


def _several(line: bytes) -> list[Any] | None:
    """The messages of a line that holds several, as two threads write that print at once; None where it does not."""
    text = line.decode("utf-8", "replace")
    values: list[Any] = []
    at = 0
    try:
        while at < len(text) and len(values) <= MOST_BATCH:
            value, end = _DECODER.raw_decode(text, at)
            values.append(value)
            at = _SPACES.match(text, end).end()  # type: ignore[union-attr] # it matches nothing as well
    except (ValueError, RecursionError):
        return None

    return values if values and all(isinstance(value, dict) for value in values) else None


_DECODER = json.JSONDecoder()
_SPACES = re.compile(r"\s*")


def read_oversized(line: Oversized, limit: int) -> TooLarge | Noise:
    """What is left of a line past the limit: the id it answers, where one can be found."""
    if _names_a_method(line.head):
        # A request or a notification of the server's, drained: it answers nothing, whatever id it has.
        return Noise(f"a request or notification of {line.seen_bytes} bytes (more than {limit})")

    return TooLarge(sniff_id(line.head, line.tail), f"more than {limit} bytes", line.seen_bytes)


def _holds_surrogates(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True

    return False


def _classify(value: object, line: bytes, *, repaired: bool = False, hashed: bool = False) -> Message:
    if not isinstance(value, dict):
        return Noise("JSON, but no object")

    method = value.get("method")
    params = value.get("params")
    # Some libraries repeat the method beside the result.
    if isinstance(method, str) and not ("id" in value and ("result" in value or "error" in value)):
        if params is not None and not isinstance(params, dict):
            params = None

        if "id" not in value:
            return Notification(method, params)

        request_id = value["id"]
        if isinstance(request_id, str | int) and not isinstance(request_id, bool):
            # Verbatim: we answer under the id as it was spelled.
            return Request(request_id, method, params)

        return Noise("a request whose id is neither string nor integer")

    message_id = plain_id(value.get("id"))
    error = value.get("error")
    sha256 = hashlib.sha256(line).hexdigest() if hashed else None
    if error is not None:
        return _failure(message_id, error, has_id="id" in value, sha256=sha256)

    if message_id is None:
        return Noise("an object without id, method and error")

    result = value.get("result")
    if isinstance(result, dict):
        return Reply(message_id, result, repaired, len(line), sha256)

    if "result" not in value:
        return Invalid(message_id, "neither result nor error")

    return Invalid(message_id, f"its result is {_kind(result)}, not an object")


def _failure(message_id: MessageId | None, error: object, *, has_id: bool, sha256: str | None) -> Message:
    if isinstance(error, dict):
        code = error.get("code")
        text = error.get("message")
        if isinstance(code, int) and not isinstance(code, bool):
            if message_id is None and not has_id:
                return Noise("an error without id")

            return Failure(message_id, code, text if isinstance(text, str) else "", error.get("data"), sha256)

    if message_id is None:
        return Noise("an error that is none")

    return Invalid(message_id, "its error has no integer code")


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__


def _unreadable(line: bytes, error: Exception) -> Message:
    message_id = _sniff_line(line)
    reason = "nested too deeply" if isinstance(error, RecursionError) else "no valid JSON"
    if message_id is not None and _may_be_answer(line):
        return Invalid(message_id, reason)

    sample = line[:SAMPLE_BYTES].decode("utf-8", "replace")
    return Noise(reason, framing=hopeless_framing(line), sample=sample)


_PRETTY = re.compile(rb'"jsonrpc"\s*:\s*"2\.0"\s*,?')
"""A line of a message, not of any object: settings are printed that way too, and cost nothing."""


def hopeless_framing(line: bytes) -> str | None:
    """Why no message can ever arrive this way, when a line shows it; None for ordinary noise."""
    if line[:15].lower() == b"content-length:":
        return "length-prefixed messages (as in the Language Server Protocol); MCP's stdio wants one JSON object a line"

    if line[:2] in (b"{\0", b"\0{"):
        return "UTF-16; MCP's stdio wants UTF-8"

    if _PRETTY.fullmatch(line):
        return "pretty-printed JSON over several lines; MCP's stdio wants one JSON object a line"

    return None


_WINDOW_BYTES = 256 * 1024
"""Taken apart at a time, so that the pieces of a line never fill the memory."""


def too_many_values(line: bytes, limit: int) -> bool:
    """Whether `line` holds more than `limit` JSON values; linear, and cheap where it holds few.

    Every value but the outermost follows a comma or is the first of its container. A line is not walked through value
    by value, for that would take longer than parsing it: what runs for each string runs in C.
    """
    if len(line) <= limit:
        return False

    if line.count(b",") + line.count(b"[") + line.count(b"{") < limit:
        return False

    # The separators may stand inside strings; what is between two quotes is left out.
    plain = _without_escapes(line)
    if plain.count(b'"') > 4 * limit:
        return True  # each string is a value or the name of one

    seen = 0
    for outside in _outside_strings(plain):
        seen += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        seen -= outside.count(b"[]") + outside.count(b"{}")
        if seen >= limit:
            return True

    return False


def has_giant_object(line: bytes) -> bool:
    """Whether there are more than `MOST_MEMBERS` members in few objects: making a name costs far more than a value
    where all of them go into one table; linear.
    """
    if line.count(b":") <= MOST_MEMBERS:
        return False

    names = objects = 0
    for outside in _outside_strings(_without_escapes(line)):
        names += outside.count(b":")
        objects += outside.count(b"{")

    return names > MOST_MEMBERS and names > _MEMBERS_OF_A_SMALL_ONE * objects


MOST_MEMBERS = 400_000
_MEMBERS_OF_A_SMALL_ONE = 1_000


def _without_escapes(line: bytes) -> bytes:
    return line.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in line else line


def _outside_strings(plain: bytes) -> Iterator[bytes]:
    """`plain`, without escapes, window by window: each string is an `s`, and there are no spaces."""
    inside, held = 0, b""
    for at in range(0, len(plain), _WINDOW_BYTES):
        pieces = plain[at : at + _WINDOW_BYTES].split(b'"')
        outside = b"s".join(pieces[inside::2]).translate(None, b" \t\r\n")
        # A container that begins at the very end may be empty: its end is in the next window.
        outside = held + (b"s" if inside else b"") + outside
        inside ^= (len(pieces) - 1) & 1
        held = outside[-1:] if outside[-1:] in (b"[", b"{") and not inside else b""
        yield outside[: len(outside) - len(held)]

    yield held


def more_values_than(value: Any, limit: int) -> bool:
    """Whether there are more JSON values in it than `limit`; stops as soon as that is known."""
    seen = 0
    waiting = [value]
    while waiting and seen <= limit:
        seen += 1
        one = waiting.pop()
        if isinstance(one, dict | list):
            if len(one) > limit:
                return True

            waiting.extend(one.values() if isinstance(one, dict) else one)

    return seen > limit


_ID_FIRST = re.compile(rb'\A\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(-?\d{1,18}|"[^"\\]{1,200}")\s*,')
_ID_LAST = re.compile(rb'(?<!\\)"id"\s*:\s*(-?\d{1,18}|"[^"\\]{1,200}")\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[{}\[\]:,]|[^\s"{}\[\]:,]++', re.DOTALL)


def sniff_id(head: bytes, tail: bytes) -> MessageId | None:
    """The top-level `id` of a message that cannot be parsed, from its first 64 KiB or its last 512 bytes.

    `tail` is empty where `head` is all of it: then the scan alone is right, also when the message was cut off and a
    nested id only looks like its last member.

    Only at the top level: an `id` inside the result must not fail another call. The whole line is never scanned;
    in Python that would take a quarter of a second for a megabyte.
    """
    match = _ID_FIRST.match(head) or _ID_LAST.search(tail)
    raw = match.group(1) if match else _scan_id(head[:HEAD_BYTES])
    if raw is None:
        return None

    text = raw.decode("utf-8", "replace")
    return plain_id(text[1:-1] if text.startswith('"') else int(text))


_BEGINS_MESSAGE = re.compile(rb"\s*+(?:\[\s*+)?\{")
_LOOK_BYTES = 1024
"""How far the names of a message's members are looked at."""


def _top_names(head: bytes) -> set[bytes]:
    """The member names of the outermost object, as far as `head` shows them."""
    depth = 0
    before = b""
    names = set()
    for token in _TOKEN.finditer(head[:_LOOK_BYTES]):
        text = token.group()
        depth += (text in (b"{", b"[")) - (text in (b"}", b"]"))
        if depth == 1 and text == b":":
            names.add(before)

        before = text

    return names


def _names_a_method(head: bytes) -> bool:
    names = _top_names(head)
    return b'"method"' in names and not names & {b'"result"', b'"error"'}


def _may_be_answer(line: bytes) -> bool:
    """Whether a line that cannot be read may be a broken reply; else it is a log line that quotes an id."""
    names = _top_names(line)
    if names & {b'"result"', b'"error"'}:
        return True

    return b'"method"' not in names and _BEGINS_MESSAGE.match(line) is not None


def _sniff_line(line: bytes) -> MessageId | None:
    return sniff_id(line[:HEAD_BYTES], line[-TAIL_BYTES:] if len(line) > HEAD_BYTES else b"")


def _scan_id(head: bytes) -> bytes | None:
    depth = 0
    key: bytes | None = None
    before: bytes | None = None
    for token in _TOKEN.finditer(head):
        text = token.group()
        if text in (b"{", b"["):
            depth += 1
        elif text in (b"}", b"]"):
            depth -= 1
        elif depth == 1 and text == b":":
            key = before
        elif depth == 1 and key == b'"id"' and before == b":":
            whole = token.end() < len(head)
            return text if whole and re.fullmatch(rb'-?\d{1,18}|"[^"\\]{1,200}"', text) else None

        before = text

    return None
