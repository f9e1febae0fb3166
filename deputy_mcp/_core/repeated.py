"""Messages read, and the very same reply given again for the very same bytes of a listing.

A listing that is asked for again before each call (`verify="call"`) hardly ever changes. Asked for under the same id,
an unchanged one is the same bytes: comparing them costs a hundredth of parsing them, and whoever gets the identical
`result` object knows that nothing changed.

Not a cache of answers: the server was asked, and these are the bytes it sent. It promises to keep at most `room_bytes`.
"""

from deputy_mcp._core.messages import Message, Reply, read_message


class RepeatedReplies:
    """See the module. One for each transport's life."""

    # `hashed`: whether a journal wants to know the bytes of each reply.
    # Mutable state: by length, the bytes of the last such reply and what was read from them; how many bytes that is.
    def __init__(self, max_values: int, room_bytes: int, *, hashed: bool) -> None:
        self._max_values = max_values
        self._hashed = hashed
        self._room_bytes = room_bytes
        self._known: dict[int, tuple[bytes, list[Message]]] = {}
        self._kept_bytes = 0

    def read(self, line: bytes) -> list[Message]:
        """As `read_message`. Only listings are asked for under an id that is a string, so only those are kept."""
        known = self._known.get(len(line))
        if known is not None and known[0] == line:
            return known[1]

        messages = read_message(line, self._max_values, hashed=self._hashed)
        only = messages[0] if len(messages) == 1 else None
        if isinstance(only, Reply) and isinstance(only.id, str):
            self._keep(line, messages)

        return messages

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
