"""A server as a child process: its pipes, its stderr, its death, and its bounded end.

The pipes are ours (not the event loop's stream objects), because only then can we close them while a grandchild still
holds the other end. Stopping asks, waits a bounded time, kills, and only then returns; what belongs to the child,
launchers and their children included, goes with it.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_hex

import anyio
from mcp.client.stdio import get_default_environment

from deputy_mcp._core.config import Limits, StdioServer
from deputy_mcp._core.errors import StartError
from deputy_mcp._core.sanitizing import clean_line, clean_text, mask_secrets, masked_line
from deputy_mcp._runtime.log import log_event
from deputy_mcp._runtime.transports.link import Hooks, Loss, LossSignal, Traffic
from deputy_mcp._runtime.transports.pipe_channel import PipeChannel, read_some
from deputy_mcp._runtime.transports.process_tree import MARK, family, signal_each, signal_group
from deputy_mcp._runtime.transports.stream_dispatcher import LAST_WORDS_SECONDS, StreamDispatcher

CA_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""Paths of CA bundles, inherited by children: behind a private CA nothing can be fetched without them."""

STDERR_LINES_PER_SECOND = 50
"""stderr lines logged; more are only counted."""

# Shares of `shutdown_timeout_seconds`: waiting after stdin was closed, after TERM, after KILL.
_ASK, _TERM, _KILL = 0.4, 0.4, 0.2
_POLL_SECONDS = 0.01


class StdioLink:
    """See the module. Made and ended by `open_stdio`."""

    has_headers = False

    def __init__(
        self, limits: Limits, hooks: Hooks, process: subprocess.Popen[bytes], mark: str, secrets: tuple[str, ...]
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
        return self._process.poll()

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

        self._lost.tell("exited", f"its process ended with {_exit_text(self.exit_code)}")

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
                while chunk := await read_some(fd, 64 * 1024):
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
        if rest and not self._killed:
            log_event("server_stopping", step="term", pid=leader, processes=len(rest))
            signal_group(leader, signal.SIGTERM)
            signal_each(rest, signal.SIGTERM)
            await self._wait_gone(budget * _TERM, leader_only=False)
            rest = family(leader, self._mark)

        # Without /proc a leader that lives on is in no family.
        if rest or self.exit_code is None:
            log_event("server_stopping", step="kill", pid=leader, processes=len(rest))
            signal_group(leader, signal.SIGKILL)
            signal_each(rest, signal.SIGKILL)
            await self._wait_gone(budget * _KILL, leader_only=False)

    async def _wait_gone(self, seconds: float, *, leader_only: bool) -> None:
        with anyio.move_on_after(seconds):
            await _wait_exit(self._process)
            while not leader_only and family(self._process.pid, self._mark):
                await anyio.sleep(_POLL_SECONDS)


@asynccontextmanager
async def open_stdio(
    spec: StdioServer, limits: Limits, hooks: Hooks, *, server: str, secrets: tuple[str, ...]
) -> AsyncIterator[StdioLink]:
    """Start the child; at the block's end it is gone, within `shutdown_timeout_seconds`."""
    # A child of a child of ours keeps both marks, so that the outer owner finds it too.
    mark = ":".join(filter(None, (os.environ.get(MARK), token_hex(8))))
    with _pipes() as (child, ours):
        process = _spawn(spec, child, mark)
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


def _spawn(spec: StdioServer, child: list[int], mark: str) -> subprocess.Popen[bytes]:
    cwd = spec.cwd
    if cwd is not None and not Path(cwd).is_dir():
        raise StartError(f"its working folder does not exist: {cwd}; create it or mend `cwd`", code="start_failed")

    inherited = {name: value for name in CA_VARIABLES if (value := os.environ.get(name))}
    env = get_default_environment() | inherited | dict(spec.env) | {MARK: mark}
    try:
        # Not the loop's: that would watch each child in a thread of its own, and we watch it ourselves.
        process = subprocess.Popen(
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


async def _wait_exit(process: subprocess.Popen[bytes]) -> None:
    """Return when the process itself is gone, whoever holds its pipes; then its exit code is known.

    Through a pidfd where the system has them, which tells at once and needs no polling.
    """
    if process.poll() is None and hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(process.pid)
            try:
                await anyio.wait_readable(fd)
            finally:
                os.close(fd)

    # Where it is traced, whoever traces it is told first.
    while process.poll() is None:
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
