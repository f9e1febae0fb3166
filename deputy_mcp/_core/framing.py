"""A bounded, linear line splitter: bytes in, whole lines or one error out.

Not a parser: it knows newlines and nothing else. It promises that
- every byte is looked at once (a line that arrives in a million pieces costs no more than in one);
- at most `max_bytes` of one line are kept, plus a head and a tail of one that is larger;
- a line past the limit hurts only itself: it comes out as `Oversized` at its end, and the next line is whole;
- a line that does not end within `FLOOD_FACTOR` times the limit comes out as `Flooded`, after which nothing is read.
"""

import re

from attrs import frozen

HEAD_BYTES = 64 * 1024
"""How much of the beginning of an oversized line is kept, to find the request id it answers."""

TAIL_BYTES = 512
"""How much of its end: some servers write the id last."""

FLOOD_FACTOR = 8
"""Draining a line is worth this many times the limit; past it the peer is flooding us."""

_NEWLINES = re.compile(rb"\n++")
_BOM = b"\xef\xbb\xbf"


@frozen
class Oversized:
    """A line that ended past the limit. `seen_bytes` is its exact length."""

    head: bytes
    tail: bytes
    seen_bytes: int


@frozen
class Flooded:
    """A line that does not end. Final."""

    head: bytes
    seen_bytes: int


class BoundedBuffer:
    """An unfinished line or event: whole up to a limit; past it, only its beginning, its end and its length."""

    # Mutable state: what is kept of the unfinished part, and how long it is.
    __slots__ = ("_kept", "_max_bytes", "_tail", "overflowing", "seen_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._reset()

    def _reset(self) -> None:
        # A fresh bytearray: one that once held 16 MiB keeps them. One, not a list of chunks: that blows up under a
        # dribble of single bytes.
        self._kept = bytearray()
        self._tail = b""
        self.overflowing = False
        self.seen_bytes = 0

    def append(self, piece: bytes) -> None:
        """Take the next bytes."""
        self.seen_bytes += len(piece)
        if self.seen_bytes <= self._max_bytes:
            self._kept += piece
            return

        if not self.overflowing:
            self.overflowing = True
            self._tail = bytes(self._kept[-TAIL_BYTES:])
            del self._kept[HEAD_BYTES:]

        self._tail = (self._tail + piece[-TAIL_BYTES:])[-TAIL_BYTES:]
        self._kept += piece[: min(HEAD_BYTES, self._max_bytes) - len(self._kept)]

    @property
    def head(self) -> bytes:
        """The beginning, as far as it is kept."""
        return bytes(self._kept[:HEAD_BYTES])

    @property
    def last(self) -> bytes:
        """The last byte; empty when there is none."""
        return bytes((self._tail or self._kept)[-1:])

    def take(self) -> bytes | Oversized:
        """What stands in it, which is empty afterwards."""
        whole = bytes(self._kept)
        taken = Oversized(whole, self._tail, self.seen_bytes) if self.overflowing else whole
        self._reset()
        return taken


class LineFramer:
    """Feed it what was read; it gives the lines that ended, without their line break, empty ones left out."""

    # Mutable state: the unfinished line, what could still be a byte-order mark, and whether the peer was given up.
    __slots__ = ("_buffer", "_held", "_max_bytes", "flooded")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buffer = BoundedBuffer(max_bytes)
        self._held: bytes | None = b""
        self.flooded = False

    @property
    def overflowing(self) -> bool:
        """Whether the unfinished line is past the limit already."""
        return self._buffer.overflowing

    def unfinished(self) -> Oversized:
        """What there is of a line past the limit before it has ended."""
        return Oversized(self._buffer.head, b"", self._buffer.seen_bytes)

    def feed(self, chunk: bytes) -> list[bytes | Oversized | Flooded]:
        """The lines that end in `chunk`."""
        if self.flooded:
            return []

        if self._held is not None:
            self._held, chunk = without_bom(self._held, chunk)

        out: list[bytes | Oversized | Flooded] = []
        if not self._buffer.seen_bytes and len(chunk) <= self._max_bytes and b"\n\n" not in chunk:
            # Nearly always: whole lines, and perhaps the beginning of one.
            *lines, rest = chunk.split(b"\n")
            out.extend([stripped for line in lines if (stripped := line.strip())])
            if rest:
                self._buffer.append(rest)

            return out

        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            if end == start and not self._buffer.seen_bytes:
                # A run of line breaks is one step.
                start = _NEWLINES.match(chunk, start).end()  # type: ignore[union-attr] # there is one
                continue

            self._buffer.append(chunk[start:end])
            if self._buffer.seen_bytes > self._max_bytes * FLOOD_FACTOR:
                break  # a flood, though its end came in the same read

            line = self._buffer.take()
            if isinstance(line, Oversized):
                out.append(line)
            elif stripped := line.strip():
                out.append(stripped)

            start = end + 1

        else:
            self._buffer.append(chunk[start:] if start else chunk)

        if self._buffer.seen_bytes > self._max_bytes * FLOOD_FACTOR:
            self.flooded = True
            out.append(Flooded(self._buffer.head, self._buffer.seen_bytes))

        return out


def without_bom(held: bytes, chunk: bytes) -> tuple[bytes | None, bytes]:
    """A stream's beginning without its byte-order mark, which may come in pieces.

    `held` is what was held back so far. Gives what is held back now (None: the beginning is past) and what may pass.
    """
    begin = held + chunk
    if len(begin) < len(_BOM) and _BOM.startswith(begin):
        return begin, b""

    return None, begin.removeprefix(_BOM)
