"""A server as a child process: its pipes, its stderr, its death, and its bounded end.

The pipes are ours (not the event loop's stream objects), because only then can we close them while a grandchild still
holds the other end. Stopping asks, waits a bounded time, kills, and only then returns; what belongs to the child,
launchers and their children included, goes with it.
"""

import contextlib
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

import anyio
import anyio.abc
from mcp.client.stdio import get_default_environment

from deputy_mcp._core.config import Limits, StdioServer
from deputy_mcp._core.errors import StartError
from deputy_mcp._core.framing import Flooded, LineFramer, Oversized
from deputy_mcp._core.messages import Failure, Message, Noise, Reply, TooLarge, read_oversized
from deputy_mcp._core.repeated import RepeatedReplies
from deputy_mcp._core.sanitizing import clean_line, clean_text, mask_secrets, masked_line
from deputy_mcp._runtime.log import log_event
from deputy_mcp._runtime.transports.link import Hooks, LinkError, Loss, LossSignal, Traffic
from deputy_mcp._runtime.transports.process_tree import MARK, family, signal_each, signal_group
from deputy_mcp._runtime.transports.stream_dispatcher import LAST_WORDS_SECONDS, MESSAGES_PER_TURN, StreamDispatcher
from deputy_mcp._runtime.turns import asyncio_loop

CA_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""Paths of CA bundles, inherited by children: behind a private CA nothing can be fetched without them."""

READ_BYTES = 64 * 1024
GRACE_SECONDS = 0.1
"""A line past the limit may end for so long, and its exact size be told; then its call fails."""

FLOOD_SECONDS = 5
"""A line past the limit that has not ended after this long is a flood, however slowly it comes."""

STDERR_LINES_PER_SECOND = 50
"""stderr lines logged; more are only counted."""

# Shares of `shutdown_timeout_seconds`: waiting after stdin was closed, after TERM, after KILL.
_ASK, _TERM, _KILL = 0.4, 0.4, 0.2
_POLL_SECONDS = 0.01


class StdioLink:
    """See the module. Made and ended by `open_stdio`."""

    has_headers = False

    def __init__(
        self, limits: Limits, hooks: Hooks, process: anyio.abc.Process, mark: str, secrets: tuple[str, ...]
    ) -> None:
        self.traffic = Traffic()
        self._process = process
        self._mark = mark
        self._limits = limits
        self._lost = LossSignal()
        self._stderr = bytearray()
        self._stderr_done = anyio.Event()
        self._secrets = secrets
        self.channel = PipeChannel(limits, self.traffic, self._lost, hash_replies=hooks.hash_replies)
        self.dispatcher = StreamDispatcher(self.channel, hooks, self.traffic, self._lost)
        self.channel.deliver = self.dispatcher.take_answers
        self._drain_scope = anyio.CancelScope(shield=True)
        self._killed = False

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    @property
    def stderr_tail(self) -> str:
        """The end of stderr, clean and masked."""
        # More than is shown, so that a secret across the front is masked before it is cut.
        most = self._limits.max_stderr_bytes
        longest = max((len(secret.encode()) for secret in self._secrets), default=0)
        text = bytes(self._stderr[-(most + longest) :]).decode("utf-8", "replace")
        return clean_text(mask_secrets(text, self._secrets))[-most:] if most else ""

    @asynccontextmanager
    async def open_dispatcher(self) -> AsyncIterator[StreamDispatcher]:
        """The one dispatcher over the pipes."""
        yield self.dispatcher

    async def wait_lost(self) -> Loss:
        return await self._lost.wait()

    def lose(self, code: str, detail: str) -> None:
        """End this life: the owner sees it through `wait_lost`."""
        self._lost.tell(code, detail)

    def kill_now(self) -> None:
        """The whole tree, at once, without waiting; also the last resort when stopping itself is interrupted."""
        self._killed = True
        leader = self._process.pid
        rest = family(leader, self._mark)
        signal_group(leader, signal.SIGKILL)
        signal_each(rest, signal.SIGKILL)

    async def run_watch(self) -> None:
        """Tell the loss when the process ends, whoever still holds its pipes."""
        await _wait_exit(self._process)
        # Its last words may still stand in the pipe: the reader gets them before the calls fail.
        with anyio.move_on_after(LAST_WORDS_SECONDS):
            await self.channel.ended.wait()
            await self._stderr_done.wait()

        code = self._process.returncode
        self._lost.tell("exited", f"its process ended with {_exit_text(code)}")

    async def run_end_of_output(self) -> None:
        """Tell the loss when stdout ends though the process lives: it can never answer again."""
        await self.channel.ended.wait()
        with anyio.move_on_after(LAST_WORDS_SECONDS):
            await _wait_exit(self._process)
            return  # run_watch says it better

        self._lost.tell("stdout_closed", "it closed its stdout")

    async def run_stderr(self, fd: int, server: str) -> None:
        """Drain stderr to its end: an unread pipe would block the server after 64 KiB."""
        budget = _LineBudget(STDERR_LINES_PER_SECOND)
        rest = b""
        with self._drain_scope:
            try:
                while chunk := await _read_some(fd, 64 * 1024):
                    self._stderr += chunk
                    # Twice the bound, so that the front is cut once per bound and not once per chunk.
                    if len(self._stderr) > 2 * self._limits.max_stderr_bytes:
                        del self._stderr[: -self._limits.max_stderr_bytes or None]

                    # Only so many lines are looked at as may be logged: a flood of them is worth no splitting.
                    *lines, rest = (rest[-2048:] + chunk).split(b"\n", budget.left(anyio.current_time()))
                    for line in lines:
                        budget.use()
                        text = masked_line(line.decode("utf-8", "replace"), self._secrets)
                        log_event("server_stderr", server=server, line=text)

                    rest = rest[rest.rfind(b"\n") + 1 :]
            finally:
                self._stderr_done.set()

    async def stop(self) -> None:
        """The ladder: close stdin, TERM, KILL, each bounded; then the rest of the tree."""
        try:
            await self._stop_in_steps()
        except BaseException:
            self.kill_now()
            raise
        finally:
            self._drain_scope.cancel()

    async def _stop_in_steps(self) -> None:
        budget = self._limits.shutdown_timeout_seconds
        leader = self._process.pid
        self.channel.close_stdin()
        if not self._killed:
            await self._wait_gone(budget * _ASK, leader_only=True)
            rest = family(leader, self._mark)
            if rest:
                log_event("server_stopping", step="term", pid=leader, processes=len(rest))
                signal_group(leader, signal.SIGTERM)
                signal_each(rest, signal.SIGTERM)
                await self._wait_gone(budget * _TERM, leader_only=False)

        rest = family(leader, self._mark)
        if rest or self._process.returncode is None:
            log_event("server_stopping", step="kill", pid=leader, processes=len(rest))
            signal_group(leader, signal.SIGKILL)
            signal_each(rest, signal.SIGKILL)
            await self._wait_gone(budget * _KILL, leader_only=False)

        with anyio.move_on_after(budget * _KILL):
            await self._process.wait()

    async def _wait_gone(self, seconds: float, *, leader_only: bool) -> None:
        with anyio.move_on_after(seconds):
            await _wait_exit(self._process)
            while not leader_only and family(self._process.pid, self._mark):
                await anyio.sleep(_POLL_SECONDS)


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
                    goes_on = self._feed(await _read_some(self._stdout, READ_BYTES))

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
            return self._feed(await _read_some(self._stdout, READ_BYTES))

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
        if len(self._lines) > MESSAGES_PER_TURN or not all(isinstance(line, bytes) for line in self._lines):
            return False

        messages = [message for line in self._lines for message in self._replies.read(line)]  # type: ignore[arg-type] # all bytes
        self._lines.clear()
        if not all(isinstance(message, Reply | Failure) for message in messages):
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

    def write_now(self, data: memoryview) -> int:
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


@asynccontextmanager
async def open_stdio(
    spec: StdioServer, limits: Limits, hooks: Hooks, *, server: str, secrets: tuple[str, ...]
) -> AsyncIterator[StdioLink]:
    """Start the child; at the block's end it is gone, within `shutdown_timeout_seconds`."""
    # A child of a child of ours keeps both marks, so that the outer owner finds it too.
    mark = ":".join(filter(None, (os.environ.get(MARK), token_hex(8))))
    with _pipes() as (child, ours):
        process = await _spawn(spec, child, mark)
        for fd in child:
            os.close(fd)

        child.clear()
        link = StdioLink(limits, hooks, process, mark, secrets)
        link.channel.attach(ours.pop(0), ours[0])
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(link.run_stderr, ours[1], server)
                tasks.start_soon(link.run_watch)
                tasks.start_soon(link.run_end_of_output)
                try:
                    yield link
                finally:
                    with anyio.CancelScope(shield=True):
                        await link.stop()

                    tasks.cancel_scope.cancel()
        finally:
            link.channel.close_stdin()


@contextlib.contextmanager
def _pipes() -> Iterator[tuple[list[int], list[int]]]:
    """Three pipes: the child's ends (stdin, stdout, stderr) and ours, closed at the end unless taken out."""
    child: list[int] = []
    ours: list[int] = []
    try:
        for index in range(3):
            read, write = os.pipe()
            child.append(read if index == 0 else write)
            ours.append(write if index == 0 else read)
            os.set_blocking(ours[-1], False)

        yield child, ours
    finally:
        for fd in (*child, *ours):
            os.close(fd)


async def _spawn(spec: StdioServer, child: list[int], mark: str) -> anyio.abc.Process:
    cwd = spec.cwd
    if cwd is not None and not Path(cwd).is_dir():
        raise StartError(f"its working folder does not exist: {cwd}; create it or mend `cwd`", code="start_failed")

    inherited = {name: value for name in CA_VARIABLES if (value := os.environ.get(name))}
    env = get_default_environment() | inherited | dict(spec.env) | {MARK: mark}
    try:
        # Shielded: a cancellation in the middle of a spawn would leave a child that nobody owns.
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                [spec.command, *spec.args],
                stdin=child[0],
                stdout=child[1],
                stderr=child[2],
                cwd=cwd,
                env=env,
                start_new_session=True,
            )
    except FileNotFoundError:
        where = "does not exist" if "/" in spec.command else "is not on its PATH"
        raise StartError(f"its command {where}: {clean_line(spec.command)}", code="command_missing") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StartError(f"its command cannot be run: {clean_line(spec.command)}: {reason}") from None

    return process


async def _read_some(fd: int, most: int) -> bytes:
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


async def _wait_exit(process: anyio.abc.Process) -> None:
    """Return when the process itself is gone, whoever holds its pipes.

    Through a pidfd where the system has them, which tells at once and needs no polling.
    """
    if process.returncode is None and hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(process.pid)
            try:
                await anyio.wait_readable(fd)
            finally:
                os.close(fd)

    # The loop's own child watcher sets the exit code a moment later.
    while process.returncode is None:
        await anyio.sleep(0.001 if hasattr(os, "pidfd_open") else _POLL_SECONDS)


def _exit_text(code: int | None) -> str:
    if code is None:
        return "an unknown exit code"

    if code < 0:
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(-code).name}"

    return f"exit code {code}"


class _LineBudget:
    """At most so many lines a second."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._second = 0
        self._used = 0

    def left(self, now: float) -> int:
        if int(now) != self._second:
            self._second, self._used = int(now), 0

        return self._per_second - self._used

    def use(self) -> None:
        self._used += 1
