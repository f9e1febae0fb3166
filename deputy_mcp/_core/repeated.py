"""Messages read, and the very same reply given again for the very same bytes of a listing.

A listing that is asked for again before each call (`verify="call"`) hardly ever changes. Asked for under the same id,
an unchanged one is the same bytes: comparing them costs a hundredth of parsing them, and whoever gets the identical
`result` object knows that nothing changed. One that changed is read as far as it did, and its other entries are the
identical objects.

Not a cache of answers: the server was asked, and these are the bytes it sent. It promises to keep at most `room_bytes`,
and as much again of listings that changed.
"""

from deputy_mcp._core.messages import (
    Message,
    MessageId,
    Reply,
    has_giant_object,
    read_message,
    too_many_values,
)
from deputy_mcp._core.repeated_entries import Split, split_reply

MOST_MISSES = 5
"""A server whose listings differ elsewhere than in their entries so often is read as a whole from then on."""

MOST_APART = 100
"""Listings, or pages of them, that are kept taken apart."""


class RepeatedReplies:
    """See the module. One for each transport's life."""

    # `hashed`: whether a journal wants to know the bytes of each reply.
    # Mutable state: by length, the bytes of the last such reply and what was read from them; how many bytes that is;
    # the ids of such replies, and those taken apart by id, once they changed; how often that was of no use.
    def __init__(self, max_values: int, room_bytes: int, *, hashed: bool) -> None:
        self._max_values = max_values
        self._hashed = hashed
        self._room_bytes = room_bytes
        self._known: dict[int, tuple[bytes, list[Message]]] = {}
        self._kept_bytes = 0
        self._listed: set[MessageId] = set()
        self._splits: dict[MessageId, Split] = {}
        self._misses = 0

    def read(self, line: bytes) -> list[Message]:
        """As `read_message`. Only listings are asked for under an id that is a string, so only those are kept."""
        known = self._known.get(len(line))
        if known is not None and known[0] == line:
            return known[1]

        if self._splits and (split := self._read_by_entries(line)) is not None:
            self._keep(line, [split.reply])
            return [split.reply]

        messages = read_message(line, self._max_values, hashed=self._hashed)
        only = messages[0] if len(messages) == 1 else None
        if isinstance(only, Reply) and isinstance(only.id, str):
            self._keep(line, messages)
            self._take_apart(line, only)

        return messages

    def _read_by_entries(self, line: bytes) -> Split | None:
        """A listing that differs in its entries alone from the last under its id."""
        before = next((one for one in self._splits.values() if one.fits(line)), None)
        # What is forbidden to a whole message is not allowed to its parts.
        if before is None or has_giant_object(line) or too_many_values(line, self._max_values):
            return None

        split = before.read(line)
        if split is not None:
            self._splits[split.reply.id] = split

        return split

    def _take_apart(self, line: bytes, reply: Reply) -> None:
        """From the second listing under an id on: most never change."""
        before = self._splits.pop(reply.id, None)
        kept_bytes = sum(one.reply.size_bytes for one in self._splits.values())
        if kept_bytes + len(line) > self._room_bytes or len(self._listed) >= MOST_APART:
            self._listed.clear()
            self._splits.clear()

        if reply.id not in self._listed:
            self._listed.add(reply.id)
        elif self._misses < MOST_MISSES:
            split = split_reply(line, reply)
            self._misses += before is not None or split is None
            if split is not None:
                self._splits[reply.id] = split

    def _keep(self, line: bytes, messages: list[Message]) -> None:
        before = self._known.pop(len(line), None)
        if before is not None:
            self._kept_bytes -= len(line)

        if self._kept_bytes + len(line) > self._room_bytes:
            self._known.clear()
            self._kept_bytes = 0

        if len(line) <= self._room_bytes:
            self._known[len(line)] = (line, messages)
            self._kept_bytes += len(line)
