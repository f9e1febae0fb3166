"""Audit records: an event and its fields in, the body of one line of the journal out.

A line is one JSON object, its keys in one order, of which a record is the middle (the ends are `audit_chain`'s):

    {"seq":12,"time":"2026-01-02T03:04:05.678901Z","event":"call", … ,"prev":"<64 hex>","hash":"<64 hex>"}

Not a writer, and no judge of what is worth a line. It promises
- ASCII without control characters, on one line, never longer than `MAX_LINE_BYTES`;
- that no secret it was told of stands in a value that came from outside: those are masked, then cut;
- arguments only where that was asked for, and then redacted; a call's bytes stand in it as their SHA-256;
- that reading a line back never raises, whatever the bytes.
"""

import functools
import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii
from typing import Any, Literal, TypedDict, get_args

from deputy_mcp._core.redaction import Redact, masked_text, recorded_arguments
from deputy_mcp._core.sanitizing import known_secrets

EventKind = Literal[
    "decision",
    "approval",
    "call",
    "result",
    "refusal",
    "withdrawn",
    "listing",
    "restart",
    "state",
    "pin",
    "server_request",
    "warning",
    "begin",
    "open",
    "recovered",
    "gap",
    "close",
]
"""What a line is about; docs/reference/journal.md explains each. From `begin` on they are the journal's own."""

EVENTS = frozenset(get_args(EventKind))
FORMAT_VERSION = 1
"""Of the lines; stands in every `begin`."""
MAX_LINE_BYTES = 256 * 1024
"""No line is longer: what is written stays below by the bounds on its parts; what is read and longer is no line."""
MAX_NAME = 256
"""Characters of a name; the rest is cut."""
MAX_TEXT = 2_048
"""Characters of a text; the rest is cut."""
MAX_CODE = 64
"""Characters of what stands in a code's place and is none; the rest is cut."""
MOST_CODES = 64
"""Codes in one list; the rest is left out."""
_MOST_CACHED = 2_048
_MOST_KEPT = 2_048
"""Characters of a text that is kept."""


class RecordFields(TypedDict, total=False):
    """The fields of a line, in the order in which they stand there. None: left out.

    What is no code, hash or number is masked. Sizes are in bytes, times in seconds.
    """

    call: int
    """A number that the lines of one call share."""
    intent: int | None
    """The `seq` of the `call` line that this one belongs to."""
    judged: "Judgement"
    """The fields of `JUDGED`, in one."""
    server: str | None
    tool: str | None
    """As on the wire; a resource's URI or a prompt's name where the method says so."""
    public_name: str | None
    method: str | None
    """`tools/call`, `resources/read`, `prompts/get`; of a server's own request, its method."""
    digest: str | None
    """Of the tool."""
    decision: str | None
    """`allow`, `ask`, `deny`; of an approval `approve`, `reject`, `expired` and so on."""
    code: str | None
    """The decision's."""
    generation: int | None
    arguments_sha256: str | None
    """Of the bytes as sent."""
    arguments_bytes: int | None
    reply_sha256: str | None
    """Of the bytes as received."""
    reply_bytes: int | None
    duration_seconds: float | None
    error_code: str | None
    outcome: str | None
    """`not_sent`, `refused`, `unknown`, as errors have it."""
    ticket: str | None
    findings: Sequence[str]
    """Their codes."""
    is_error: bool | None
    truncated: bool | None
    sent_again: bool | None
    state: str | None
    protocol_version: str | None
    tools: int | None
    refused: int | None
    restarts: int | None
    exit_code: int | None
    reason: str | None
    version: int
    chain: str
    continues: str | None
    pid: int
    closed: bool | None
    torn_bytes: int
    torn_sha256: str
    torn: str
    lost: int
    kept: int
    refused_calls: int
    seconds: float
    arguments_left_out: str | None
    arguments: bytes | None
    """The JSON of the arguments as sent: hashed, measured, and recorded only by a journal told to."""


JUDGED = ("server", "tool", "public_name", "method", "digest", "decision", "code")
"""What the lines of one call say alike, and those of most calls of a tool."""

Judgement = tuple[str | None, ...]
"""The values of `JUDGED`, None where one is left out."""

_PLAIN, _CODE, _CODES, _NAME, _TEXT, _SECONDS, _JUDGED, _HASH = range(8)
_SHAPES: dict[str, int] = {
    # Numbers, flags, and the hashes and tickets that we make ourselves.
    **dict.fromkeys(RecordFields.__annotations__, _PLAIN),
    **dict.fromkeys(("method", "decision", "code", "error_code", "outcome", "state"), _CODE),
    "findings": _CODES,
    **dict.fromkeys(("server", "tool", "public_name", "protocol_version", "continues"), _NAME),
    **dict.fromkeys(("reason", "torn"), _TEXT),
    **dict.fromkeys(("duration_seconds", "seconds"), _SECONDS),
    **dict.fromkeys(("arguments_sha256", "reply_sha256"), _HASH),
    "judged": _JUDGED,
}
_PLAIN_CODE = re.compile(r"[A-Za-z0-9_./:-]{1,128}+")
"""Codes as we write them. A host may put something else in their place, which is treated as text from outside."""

_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def _encode(value: Any) -> str:
    if type(value) is bool:
        return "true" if value else "false"

    # Of the control characters, JSON leaves one as it is.
    text = encode_basestring_ascii(value) if isinstance(value, str) else _encoder.encode(value)
    return text.replace("\x7f", "\\u007f")


class RecordEncoder:
    """Makes the bodies of lines. `record_arguments`, `redact`: see `Journal`."""

    # Mutable state: the secrets; caches of names, judgements and plain codes as they stand in a line, of orders of
    # fields.
    def __init__(self, *, record_arguments: bool = False, redact: Redact | None = None) -> None:
        self._record_arguments = record_arguments
        self._redact = redact
        self._secrets: tuple[str, ...] = ()
        self._servers: frozenset[str] = frozenset()
        self._names: dict[str, str] = {}
        self._judgements: dict[Judgement, str] = {}
        self._codes: dict[str, str] = {}
        self._orders: dict[tuple[str, ...], tuple[tuple[str, int, str], ...]] = {}

    def add_secrets(self, secrets: Iterable[str], *, servers: Iterable[str] = ()) -> None:
        """Mask these from now on. `servers`: configured names, shown even where one is also a secret's value."""
        self._secrets = known_secrets((*self._secrets, *secrets))
        self._servers |= frozenset(servers)
        self._names, self._judgements = {}, {}

    def encode(self, event: EventKind, seconds: float, fields: Any) -> str:
        """The body of a line: its JSON without braces, `seq`, `prev` and `hash`. `seconds` since 1970, UTC.

        `fields` as in `RecordFields`; it is changed. A name that is not there, or a value that is no JSON, is the
        caller's mistake: `ValueError`, `TypeError`.
        """
        if event not in EVENTS:
            raise ValueError(f"there is no event {event!r}")

        recorded = self._take_arguments(fields)
        names, codes = self._names, self._codes
        parts = [f'"time":"{iso_time(seconds)}","event":"{event}"']
        for name, shape, key in self._order(tuple(fields)):
            value = fields[name]
            if value is None:
                continue

            # The common shapes without a further call: a line has a dozen fields, a second thousands of lines.
            if shape == _PLAIN:
                shown = str(value) if type(value) is int else _encode(value)
            elif shape == _HASH:
                shown = f'"{value}"' if value.isalnum() and value.isascii() else _encode(value)
            elif shape == _JUDGED:
                key, shown = "", self._judgements.get(value) or self._judgement(value)
                if not shown:
                    continue

            elif shape == _NAME:
                # A caller may have asked for a tool by something that is no text, and was refused.
                text = value if isinstance(value, str) else str(value)
                shown = names.get(text) or self._name(text)
            elif shape == _CODE:
                shown = codes.get(value) or self._code(value)
            else:
                shown = self._rarer(shape, value)

            parts.append(key + shown)

        if recorded is not None:
            parts.append(f'"arguments":{recorded}')

        return ",".join(parts)

    def _take_arguments(self, fields: dict[str, Any]) -> str | None:
        arguments = fields.pop("arguments", None)
        if arguments is None:
            return None

        if "arguments_sha256" not in fields:
            fields["arguments_sha256"] = hashlib.sha256(arguments).hexdigest()

        fields["arguments_bytes"] = len(arguments)
        if not self._record_arguments:
            return None

        recorded, fields["arguments_left_out"] = recorded_arguments(
            arguments, secrets=self._secrets, redact=self._redact
        )
        return recorded.replace("\x7f", "\\u007f") if recorded is not None else None

    def _order(self, names: tuple[str, ...]) -> tuple[tuple[str, int, str], ...]:
        order = self._orders.get(names)
        if order is None:
            unknown = [name for name in names if name not in _SHAPES]
            if unknown:
                raise ValueError(f"a line of the journal has no field {', '.join(unknown)}")

            _bound(self._orders)
            order = self._orders[names] = tuple(
                (name, shape, f'"{name}":') for name, shape in _SHAPES.items() if name in names
            )

        return order

    def _rarer(self, shape: int, value: Any) -> str:
        if shape == _CODES:
            return f"[{','.join(self._codes.get(one) or self._code(one) for one in value[:MOST_CODES])}]"

        if shape == _SECONDS:
            # As JSON has a finite float, without the machinery of its encoder.
            return repr(round(value, 6)) if math.isfinite(value) else _encode(value)

        return _encode(masked_text(value, self._secrets, MAX_TEXT))

    def _judgement(self, values: Judgement) -> str:
        fields = {name: value for name, value in zip(JUDGED, values, strict=True) if value is not None}
        parts = []
        for name, shape, key in self._order(tuple(fields)):
            value = fields[name]
            shown = self._name(value) if shape == _NAME else self._code(value) if shape == _CODE else _encode(value)
            parts.append(key + shown)

        shown = ",".join(parts)
        keep_judged(self._judgements, values, shown)
        return shown

    def _name(self, name: str) -> str:
        shown = _encode(masked_text(name, () if name in self._servers else self._secrets, MAX_NAME))
        if len(name) <= MAX_NAME:
            _bound(self._names)
            self._names[name] = shown

        return shown

    def _code(self, code: str) -> str:
        if not _PLAIN_CODE.fullmatch(code):
            return _encode(masked_text(code, self._secrets, MAX_CODE))

        _bound(self._codes)
        self._codes[code] = shown = f'"{code}"'
        return shown


def keep_judged(cache: dict[Judgement, Any], judged: Judgement, shown: Any) -> None:
    """Keep what was made of a judgement, within bounds: its names may come from a model, and be of any length."""
    if sum(len(value) for value in judged if value is not None) <= _MOST_KEPT:
        _bound(cache)
        cache[judged] = shown


def _bound(cache: dict[Any, Any]) -> None:
    if len(cache) >= _MOST_CACHED:
        cache.clear()


def iso_time(seconds: float) -> str:
    """UTC to the microsecond, always 27 characters."""
    second, micros = divmod(round(seconds * 1_000_000), 1_000_000)
    return f"{_iso_second(second)}.{micros:06d}Z"


@functools.lru_cache(maxsize=4)
def _iso_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()[:19]


def decode_line(line: bytes) -> dict[str, Any] | None:
    """A line's record, or None: it is too long, no JSON, or no object. For showing; `audit_chain` judges."""
    if len(line) > MAX_LINE_BYTES:
        return None

    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None

    return record if isinstance(record, dict) else None
