"""A bounded, linear line splitter: bytes in, whole lines or one error out.

Not a parser: it knows newlines and nothing else. It promises that
- every byte is looked at once (a line that arrives in a million pieces costs no more than in one);
- at most `max_bytes` of one line are kept, plus a head and a tail of one that is larger;
- a line past the limit hurts only itself: it comes out as `Oversized` at its end, and the next line is whole;
- a line that does not end within `FLOOD_FACTOR` times the limit comes out as `Flooded`, after which nothing is read.
"""

from attrs import frozen

HEAD_BYTES = 64 * 1024
"""How much of the beginning of an oversized line is kept, to find the request id it answers."""

TAIL_BYTES = 512
"""How much of its end: some servers write the id last."""

FLOOD_FACTOR = 8
"""Draining a line is worth this many times the limit; past it the peer is flooding us."""

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


class LineFramer:
    """Feed it what was read; it gives the lines that ended, without their line break, empty ones left out."""

    # Mutable state: the unfinished line (kept or dropped), and whether the stream has begun or been given up.
    __slots__ = ("_begun", "_dropped", "_kept", "_max_bytes", "_tail", "flooded")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept = bytearray()  # one buffer: a list of chunks blows up under a dribble of single bytes
        self._dropped = 0
        self._tail = b""
        self._begun = False
        self.flooded = False

    @property
    def overflowing(self) -> bool:
        """Whether the unfinished line is past the limit already."""
        return self._dropped > 0

    def feed(self, chunk: bytes) -> list[bytes | Oversized | Flooded]:
        """The lines that end in `chunk`."""
        if self.flooded:
            return []

        if not self._begun and chunk:
            chunk = self._begin(chunk)

        out: list[bytes | Oversized | Flooded] = []
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._append(chunk[start:end])
            self._finish(out)
            start = end + 1

        self._append(chunk[start:] if start else chunk)
        if self._dropped + len(self._kept) > self._max_bytes * FLOOD_FACTOR:
            self.flooded = True
            out.append(Flooded(bytes(self._kept), self._dropped + len(self._kept)))

        return out

    def _begin(self, chunk: bytes) -> bytes:
        # A byte-order mark may come in pieces; hold back what could still become one.
        start = bytes(self._kept) + chunk
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._kept[:] = start
            return b""

        self._begun = True
        self._kept.clear()
        return start.removeprefix(_BOM)

    def _append(self, piece: bytes) -> None:
        if not self._dropped:
            if len(self._kept) + len(piece) <= self._max_bytes:
                self._kept += piece
                return

            overflow = bytes(self._kept[-TAIL_BYTES:]) + piece
            kept = len(self._kept) + len(piece)
            self._kept += piece[: max(0, HEAD_BYTES - len(self._kept))]
            del self._kept[HEAD_BYTES:]
            self._dropped = kept - len(self._kept)
            self._tail = overflow[-TAIL_BYTES:]
        else:
            self._dropped += len(piece)
            self._tail = (self._tail + piece[-TAIL_BYTES:])[-TAIL_BYTES:]

    def _finish(self, out: list[bytes | Oversized | Flooded]) -> None:
        if self._dropped:
            out.append(Oversized(bytes(self._kept), self._tail, self._dropped + len(self._kept)))
            self._dropped = 0
            self._tail = b""
        else:
            line = bytes(self._kept).strip()
            if line:
                out.append(line)

        # A fresh buffer: a bytearray that once held 16 MiB keeps them.
        self._kept = bytearray()
