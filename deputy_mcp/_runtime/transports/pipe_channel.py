"""stdin and stdout of a child as a channel of messages: bounded lines in, whole messages out.

Answers that come alone are delivered where the event loop says that the pipe is readable; everything else waits for the
reader's task, which is slowed by who takes it. A line past the limit is drained, within bounds of its own.
"""

import os
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import anyio
import anyio.lowlevel

from deputy_mcp._core.config import Limits
from deputy_mcp._core.framing import Flooded, LineFramer, Oversized
from deputy_mcp._core.messages import Failure, Message, Noise, Reply, TooLarge, read_oversized
from deputy_mcp._core.repeated import RepeatedReplies
from deputy_mcp._runtime.transports.dispatching import MESSAGES_PER_TURN
from deputy_mcp._runtime.transports.link import LinkError, LossSignal, Traffic
from deputy_mcp._runtime.turns import asyncio_loop

READ_BYTES = 64 * 1024
GRACE_SECONDS = 0.1
"""A line past the limit may end for so long, and its exact size be told; then its call fails."""

FLOOD_SECONDS = 5
"""A line past the limit that has not ended after this long is a flood, however slowly it comes."""


class PipeChannel:
    """stdin and stdout as a channel of messages."""

    def __init__(self, limits: Limits, traffic: Traffic, lost: LossSignal, *, hash_replies: bool) -> None:
        self._limits = limits
        self._traffic = traffic
        self._lost = lost
        self._framer = LineFramer(limits.max_message_bytes)
        self._replies = RepeatedReplies(limits.max_message_values, limits.max_message_bytes, hashed=hash_replies)
        self._stdin = -1
        self._stdout = -1
        self._overflow_since: float | None = None
        self._looked = self._told = False
        self._lines: deque[bytes | Oversized | Flooded] = deque()
        self._read: list[Message] = []
        self._parked: Any = None
        self.deliver: Callable[[list[Message]], None] | None = None
        """Where set, answers that come alone go there at once, without a turn of the reader's task."""
        self.ended = anyio.Event()

    def attach(self, stdin: int, stdout: int) -> None:
        self._stdin, self._stdout = stdin, stdout

    async def receive(self) -> list[Message]:
        """At most `MESSAGES_PER_TURN` of the lines that came, so that parsing them is no long turn of the loop."""
        while not self._lines and not self._read:
            if (early := await self._fill()) is not None:
                return early

        messages, self._read = self._read, []
        while self._lines and len(messages) < MESSAGES_PER_TURN:
            line = self._lines.popleft()
            if isinstance(line, Flooded):
                return [*messages, *self._flood(f"passed {line.seen_bytes} bytes")]

            if not isinstance(line, Oversized):
                messages.extend(self._replies.read(line))
            elif not self._told:
                messages.append(read_oversized(line, self._limits.max_message_bytes))
            else:
                self._told = False
                messages.append(Noise("the rest of a message whose call has failed"))

        return messages

    async def _fill(self) -> list[Message] | None:
        """Read until there is something. None: there is; else what `receive` gives at once."""
        while not self._lines and not self._read:
            if self._overflow_since is None:
                goes_on = await self._feed_more()
            else:
                # The time bounds of a flood must hold even when the peer then writes nothing at all.
                with anyio.move_on_after(FLOOD_SECONDS if self._looked else GRACE_SECONDS) as timer:
                    goes_on = self._feed(await read_some(self._stdout, READ_BYTES))

                if timer.cancelled_caught:
                    return self._flood("does not end") if self._looked else self._tell_early()

            if not goes_on:
                self.ended.set()
                return []

            if not self._framer.overflowing:
                self._overflow_since = None
                self._looked = False
                continue

            now = anyio.current_time()
            if self._overflow_since is None:
                self._overflow_since = now
            elif now - self._overflow_since > FLOOD_SECONDS:
                return self._flood("does not end")
            elif now - self._overflow_since > GRACE_SECONDS and not self._looked and not self._lines:
                return self._tell_early()

        return None

    def _feed(self, chunk: bytes) -> bool:
        """Take what was read; False at the end."""
        self._traffic.bytes_in += len(chunk)
        self._lines.extend(self._framer.feed(chunk))
        return bool(chunk)

    async def _feed_more(self) -> bool:
        """Return when something came that this task has to look at; False at the end."""
        loop = asyncio_loop() if self.deliver is not None else None
        if loop is None:
            return self._feed(await read_some(self._stdout, READ_BYTES))

        # Registered for as long as this task has nothing to do, and not anew for each read.
        self._parked = loop.create_future()
        loop.add_reader(self._stdout, self._on_readable)
        try:
            return cast("bool", await self._parked)
        finally:
            self._parked = None
            loop.remove_reader(self._stdout)

    def _on_readable(self) -> None:
        if self._parked.done():
            return

        try:
            goes_on = self._feed(os.read(self._stdout, READ_BYTES))
        except BlockingIOError:
            return
        except OSError:
            goes_on = False

        if not goes_on or self._framer.overflowing or not self._delivered():
            self._parked.set_result(goes_on)

    def _delivered(self) -> bool:
        """Whether nothing is left for the reader's task: no whole line came, or answers alone, which are delivered."""
        lines = self._lines
        if len(lines) > MESSAGES_PER_TURN:
            return False

        messages: list[Message] = []
        answers = True
        while lines:
            line = lines[0]
            if not isinstance(line, bytes):
                answers = False
                break

            lines.popleft()
            for message in self._replies.read(line):
                messages.append(message)
                answers = answers and isinstance(message, Reply | Failure)

        if not answers:
            self._read = messages
            return False

        assert self.deliver is not None
        self.deliver(messages)
        return True

    def _tell_early(self) -> list[Message]:
        """A line past the limit that goes on: whose call it answers is known, and that call need not wait."""
        self._looked = True
        early = read_oversized(self._framer.unfinished(), self._limits.max_message_bytes)
        if isinstance(early, TooLarge) and early.id is None:
            # It may stand at the end.
            return [Noise("a message past the limit goes on")]

        self._told = True
        return [early]

    def _flood(self, what: str) -> list[Message]:
        self._lost.tell("flooded", f"a line {what} (max_message_bytes is {self._limits.max_message_bytes})")
        self.ended.set()
        return []

    def write_now(self, data: bytes | memoryview) -> int:
        if self._stdin < 0:
            raise LinkError("lost", "its stdin is closed")

        try:
            return os.write(self._stdin, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise LinkError("lost", f"writing to its stdin failed: {error.strerror}") from None

    async def wait_writable(self) -> None:
        if self._stdin < 0:
            # Closed under us by a stop: the session is about to be cancelled.
            await anyio.sleep_forever()

        await anyio.wait_writable(self._stdin)

    def close_stdin(self) -> None:
        """End of input: how a well-behaved server is asked to leave."""
        if self._stdin >= 0:
            anyio.notify_closing(self._stdin)
            os.close(self._stdin)
            self._stdin = -1


async def read_some(fd: int, most: int) -> bytes:
    """Up to `most` bytes; b"" at the end, which a vanished pipe is too."""
    waited = False
    while True:
        try:
            chunk = os.read(fd, most)
        except BlockingIOError:
            await anyio.wait_readable(fd)
            waited = True
        except OSError:
            return b""
        else:
            if not waited:
                # A peer that is always readable must not hold the loop.
                await anyio.lowlevel.checkpoint()

            return chunk
