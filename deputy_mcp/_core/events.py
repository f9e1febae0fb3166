"""A bounded, linear splitter of server-sent events: bytes in, whole events out.

After the WHATWG HTML standard, section 9.2: lines end in LF, CRLF or CR, a blank line ends an event, a comment starts
with a colon. It promises the same as `framing`: every byte is looked at once, at most `max_bytes` of one event are
kept, and an event past the limit comes out as `Oversized` at its end.
"""

from attrs import frozen

from deputy_mcp._core.framing import HEAD_BYTES, TAIL_BYTES, Oversized


@frozen
class Event:
    """One event. `raw` is all of it with LF line ends and without the blank line; `data` the joined data lines."""

    raw: bytes
    name: str
    data: bytes


class EventFramer:
    """Feed it what was read; it gives the events that ended."""

    # Mutable state: the unfinished event, what was dropped of it, and a carriage return that may begin a CRLF.
    __slots__ = ("_begun", "_carried", "_dropped", "_kept", "_max_bytes", "_tail")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept = bytearray()
        self._dropped = 0
        self._tail = b""
        self._carried = False
        self._begun = False

    @property
    def overflowing(self) -> bool:
        """Whether the unfinished event is past the limit already."""
        return self._dropped > 0

    @property
    def seen_bytes(self) -> int:
        """Bytes of the unfinished event so far."""
        return len(self._kept) + self._dropped

    @property
    def head(self) -> bytes:
        """The kept beginning of the unfinished event."""
        return bytes(self._kept[:HEAD_BYTES])

    def feed(self, chunk: bytes) -> list[Event | Oversized]:
        """The events that end in `chunk`."""
        if self._carried:
            chunk = b"\r" + chunk

        self._carried = chunk.endswith(b"\r")
        if self._carried:
            chunk = chunk[:-1]

        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

        if not self._begun and chunk:
            self._begun = True
            chunk = chunk.removeprefix(b"\xef\xbb\xbf")

        out: list[Event | Oversized] = []
        start = 0
        if self._ends_in_newline() and chunk.startswith(b"\n"):
            self._finish(out)
            start = 1

        while (end := chunk.find(b"\n\n", start)) >= 0:
            self._append(chunk[start : end + 1])
            self._finish(out)
            start = end + 2

        self._append(chunk[start:])
        return out

    def _ends_in_newline(self) -> bool:
        return (self._tail if self._dropped else self._kept[-1:]).endswith(b"\n")

    def _append(self, piece: bytes) -> None:
        if not piece:
            return

        if not self._dropped and len(self._kept) + len(piece) <= self._max_bytes:
            self._kept += piece
            return

        if not self._dropped:
            self._tail = bytes(self._kept[-TAIL_BYTES:])
            self._dropped = max(0, len(self._kept) - HEAD_BYTES)
            del self._kept[HEAD_BYTES:]

        self._dropped += len(piece)
        self._tail = (self._tail + piece[-TAIL_BYTES:])[-TAIL_BYTES:]

    def _finish(self, out: list[Event | Oversized]) -> None:
        raw = bytes(self._kept)
        if self._dropped:
            out.append(Oversized(_without_fields(raw), self._tail.rstrip(), self.seen_bytes))
            self._dropped = 0
            self._tail = b""
        elif raw.strip(b"\n"):
            out.append(_read_event(raw.strip(b"\n")))

        self._kept = bytearray()


def _read_event(raw: bytes) -> Event:
    name = "message"
    data = []
    for line in raw.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")

    return Event(raw, name, b"\n".join(data))


def _without_fields(head: bytes) -> bytes:
    """The first data of a truncated event, so that an id can be looked for in it."""
    at = head.find(b"data:")
    return head[at + 5 :].lstrip() if at >= 0 else head
