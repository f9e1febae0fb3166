"""A bounded, linear splitter of server-sent events: bytes in, whole events out.

After the WHATWG HTML standard, section 9.2: lines end in LF, CRLF or CR, a blank line ends an event, a comment starts
with a colon. It promises the same as `framing`: every byte is looked at once, at most `max_bytes` of one event are
kept, and an event past the limit comes out as `Oversized` at its end.
"""

import re
from collections.abc import Iterator

from attrs import frozen

from deputy_mcp._core.framing import HEAD_BYTES, TAIL_BYTES, BoundedBuffer, Oversized, without_bom

MOST_LINES = 100_000
"""Lines of one event: each is looked at several times, and more of them would hold the event loop."""

_NEWLINES = re.compile(rb"\n++")


@frozen
class Event:
    """One event. `raw` is all of it with LF line ends and without the blank line; `data` the joined data lines."""

    raw: bytes
    name: str
    data: bytes


class EventFramer:
    """Feed it what was read; it gives the events that ended."""

    # Mutable state: the unfinished event, what could still be a byte-order mark, and whether the last byte was a
    # carriage return, whose line feed may still come.
    __slots__ = ("_after_cr", "_buffer", "_held")

    def __init__(self, max_bytes: int) -> None:
        self._buffer = BoundedBuffer(max_bytes)
        self._held: bytes | None = b""
        self._after_cr = False

    @property
    def overflowing(self) -> bool:
        """Whether the unfinished event is past the limit already."""
        return self._buffer.overflowing

    @property
    def seen_bytes(self) -> int:
        """Bytes of the unfinished event so far."""
        return self._buffer.seen_bytes

    def feed(self, chunk: bytes) -> Iterator[Event | Oversized]:
        """The events that end in `chunk`, each when it is asked for: there may be thousands, and who takes them may
        want to do something else between them. Take them all before the next chunk.
        """
        if self._held is not None:
            self._held, chunk = without_bom(self._held, chunk)

        if self._after_cr and chunk:
            # The second half of a CRLF; the CR has ended its line already, so that no event waits for it.
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False

        if not chunk:
            return

        self._after_cr = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

        start = 0
        while start < len(chunk):
            if self._buffer.last in (b"", b"\n") and chunk.startswith(b"\n", start):
                # The end of an event, or blank lines between two.
                if self._buffer.seen_bytes:
                    yield _read(self._buffer.take())

                start = _end_of_newlines(chunk, start)
                continue

            end = chunk.find(b"\n\n", start)
            self._buffer.append(chunk[start : end + 1] if end >= 0 else chunk[start:])
            start = end + 1 if end >= 0 else len(chunk)


def _end_of_newlines(chunk: bytes, start: int) -> int:
    match = _NEWLINES.match(chunk, start)
    return match.end() if match else start


def _read(taken: bytes | Oversized) -> Event | Oversized:
    if isinstance(taken, Oversized):
        return Oversized(_without_fields(taken.head), taken.tail.rstrip(), taken.seen_bytes)

    raw = taken.rstrip(b"\n")
    if raw.count(b"\n") > MOST_LINES:
        return Oversized(_without_fields(raw[:HEAD_BYTES]), raw[-TAIL_BYTES:], len(raw))

    # Found in one go: an event may have millions of lines.
    names = _NAME.findall(raw)
    return Event(
        raw, (names[-1].decode("utf-8", "replace") if names else "") or "message", b"\n".join(_DATA.findall(raw))
    )


_NAME = re.compile(rb"^event(?:: ?|$)(.*)$", re.MULTILINE)
_DATA = re.compile(rb"^data(?:: ?|$)(.*)$", re.MULTILINE)


def _without_fields(head: bytes) -> bytes:
    """The first data of a truncated event, so that an id can be looked for in it."""
    at = head.find(b"data:")
    return head[at + 5 :].lstrip() if at >= 0 else head
