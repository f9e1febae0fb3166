"""`console_approver()`: a person at the terminal of this process decides.

It speaks to the terminal itself (`/dev/tty`), so that output which is piped elsewhere, or input which is not a person,
changes nothing. It promises that what was typed before the question counts for nothing, that only a typed-out `yes`
approves, that one question stands there at a time, and that a long one cannot hide its end: how much is not shown is
said, and `view` shows all of it.
"""

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio
from attrs import define, field

from deputy_mcp._core.sanitizing import clean_line
from deputy_mcp._runtime.approval import ApprovalRequest, Approve, Reject

TERMINAL = "/dev/tty"
SHOWN_CHARACTERS = 2_000
"""Of the arguments at first; half from their beginning and half from their end."""
LONGEST_ANSWER = 1_024

QUESTION = "Type yes to send exactly this, view to see all of it, anything else to refuse: "


def console_approver() -> Callable[[ApprovalRequest], Awaitable[Approve | Reject]]:
    """An approver that asks at the terminal. Without one, everything is refused.

    The question ends with `approval_timeout_seconds`, like any approver's.
    """
    return _Console().ask


@define(eq=False)
class _Console:
    """One for all questions: they are put one after the other."""

    lock: anyio.Lock = field(factory=anyio.Lock)

    async def ask(self, request: ApprovalRequest) -> Approve | Reject:
        async with self.lock:
            try:
                with _terminal() as descriptor:
                    return await _ask(descriptor, request)
            except OSError as error:
                return Reject(f"there is no terminal to ask at: {error.strerror}")


@contextmanager
def _terminal() -> Iterator[int]:
    descriptor = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def _ask(terminal: int, request: ApprovalRequest) -> Approve | Reject:
    import termios  # here: Windows has none, and the library must import there

    _write(terminal, described(request))
    while True:
        # What was typed ahead was no answer to this.
        termios.tcflush(terminal, termios.TCIFLUSH)
        _write(terminal, QUESTION)
        try:
            answer = (await _read_line(terminal)).strip().lower()
        except BaseException:
            _write(terminal, "\nThe question is withdrawn.\n")
            raise

        if answer == "view":
            _write(terminal, request.arguments_text + "\n")
            continue

        return Approve() if answer == "yes" else Reject("refused at the terminal")


async def _read_line(terminal: int) -> str:
    """One line, as the terminal's own line editing gives it. An end of input is an empty one."""
    line = b""
    while not line.endswith(b"\n") and len(line) < LONGEST_ANSWER:
        await anyio.wait_readable(terminal)
        piece = os.read(terminal, LONGEST_ANSWER)
        if not piece:
            return ""

        line += piece

    return line.decode("utf-8", "replace")


def _write(terminal: int, text: str) -> None:
    data = text.encode("utf-8", "replace")
    while data:
        data = data[os.write(terminal, data) :]


def described(request: ApprovalRequest) -> str:
    """The question as it is shown: what, where, why, and the arguments, every part of it safe on a terminal."""
    effects = request.effects
    words = [
        "reads only" if effects.read_only else "may write",
        *(["may destroy"] if effects.destructive else []),
        *(["reaches the open world"] if effects.open_world else []),
    ]
    lines = [
        "",
        f"Approve a call of {clean_line(request.tool, 200)!r} on server {clean_line(request.server, 200)!r}?",
        f"  why       {request.reason} ({request.code})",
        f"  effects   {', '.join(words)}",
        f"  digest    {(request.digest or '-')[:16]}",
        f"  until     {request.expires_at:%Y-%m-%d %H:%M:%S} UTC",
        *(f"  finding   {one.code} at {one.place or '/'}: {one.message}" for one in request.findings),
        f"  arguments {len(request.arguments_text)} characters",
        _shown(request.arguments_text),
        "",
    ]
    return "\n".join(lines)


def _shown(text: str) -> str:
    if len(text) <= SHOWN_CHARACTERS:
        return text

    half = SHOWN_CHARACTERS // 2
    return f"{text[:half]}\n  [… {len(text) - 2 * half} characters are not shown; type view …]\n{text[-half:]}"
