"""`console_approver()` at a real terminal: what it shows, what counts as yes, and that nothing typed ahead does."""

import fcntl
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

pytestmark = pytest.mark.anyio

PROGRAM = """
import json, sys
import anyio
from deputy_mcp import ApprovalDeniedError, Limits, McpConnection, Permissions, StdioServer, console_approver

async def main():
    entry, arguments, seconds = json.loads(sys.argv[1])
    limits = Limits(approval_timeout_seconds=seconds)
    permissions = Permissions(web="ask", write="ask")
    server = StdioServer(entry["command"], args=entry["args"])
    async with McpConnection({"a": server}, permissions=permissions, limits=limits, approver=console_approver()) as c:
        try:
            print("RESULT", (await c.call_tool("a", "write", arguments)).text)
        except ApprovalDeniedError as error:
            print("RESULT", error.code, error)

anyio.run(main)
"""


class Terminal:
    """A pseudo-terminal that is the controlling one of a program."""

    def __init__(self, program: "subprocess.Popen[str]", master: int) -> None:
        self.program, self.master, self.seen = program, master, ""

    async def wait_for(self, text: str) -> None:
        """Return when the terminal has shown it."""
        with anyio.fail_after(20):
            while text not in self.seen:
                await anyio.wait_readable(self.master)
                self.seen += os.read(self.master, 65_536).decode()

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    async def result(self) -> str:
        """What the program printed at its end."""
        out, _ = await anyio.to_thread.run_sync(self.program.communicate)
        return next(line for line in out.splitlines() if line.startswith("RESULT")).removeprefix("RESULT ")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[object]:
    opened: list[Terminal] = []

    def begin(arguments: object, *, seconds: float = 60, terminal: bool = True, first: str = "") -> Terminal:
        import json

        from deputy_mcp.testing import ScriptedServer, reply, tool

        scripted = ScriptedServer(tmp_path, tools=(tool("write", annotations=None),), calls={"write": reply("written")})
        entry = scripted.stdio()
        given = json.dumps([{"command": entry.command, "args": list(entry.args)}, arguments, seconds])
        master, slave = pty.openpty()
        if first:
            os.write(master, first.encode())

        def take_terminal() -> None:
            if terminal:
                fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        program = subprocess.Popen(
            (sys.executable, "-c", PROGRAM, given),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=take_terminal,
            pass_fds=(slave,),
        )
        os.close(slave)
        opened.append(Terminal(program, master))
        return opened[-1]

    yield begin
    for one in opened:
        one.program.kill()
        one.program.wait()
        assert one.program.stdout is not None
        one.program.stdout.close()
        os.close(one.master)


QUESTION = "anything else to refuse: "


@pytest.mark.parametrize(("answer", "expected"), [("yes\n", "written"), ("YES \n", "written")])
async def test_a_typed_out_yes_approves(start, answer, expected):
    """The question says what, where and why, and the program's own output is not mixed into it."""
    terminal = start({"n": 1})
    await terminal.wait_for(QUESTION)
    terminal.type(answer)

    assert expected == await terminal.result()
    for part in ("'write' on server 'a'", "web is set to ask", "may write, may destroy", '"n": 1'):
        assert part in terminal.seen


@pytest.mark.parametrize("answer", ["\n", "y\n", "no\n", "yes please\n", "\x04"])
async def test_anything_else_refuses(start, answer):
    """An empty line, a single letter, an end of input: not a yes."""
    terminal = start({})
    await terminal.wait_for(QUESTION)
    terminal.type(answer)

    assert (await terminal.result()).startswith("rejected")


async def test_what_was_typed_before_the_question_counts_for_nothing(start):
    """A habit of typing ahead approves nothing."""
    terminal = start({}, first="yes\n")
    await terminal.wait_for(QUESTION)
    assert terminal.program.poll() is None
    terminal.type("no\n")

    assert (await terminal.result()).startswith("rejected")


async def test_a_long_argument_cannot_hide_its_end(start):
    """How much is not shown is said, the end is shown, and `view` shows all of it."""
    terminal = start({"text": "x" * 30_000 + " MIDDLE " + "y" * 30_000 + " rm -rf"})
    await terminal.wait_for(QUESTION)
    assert "characters are not shown" in terminal.seen
    assert "rm -rf" in terminal.seen
    assert "MIDDLE" not in terminal.seen
    terminal.seen = ""
    terminal.type("view\n")
    await terminal.wait_for(QUESTION)
    assert "MIDDLE" in terminal.seen
    terminal.type("no\n")
    await terminal.result()


async def test_nothing_in_the_arguments_draws_on_the_terminal(start):
    """No escape, no carriage return, no second prompt of a server's or model's making."""
    fake = f"\x1b[2J\r\n{QUESTION}yes\u202e\x07"
    terminal = start({"text": fake})
    await terminal.wait_for("view to see all of it")
    await terminal.wait_for(QUESTION)
    terminal.type("no\n")
    await terminal.result()

    assert not {"\x1b", "\u202e", "\x07"} & set(terminal.seen)
    assert 1 == terminal.seen.count("view to see all of it")


async def test_an_unanswered_question_is_withdrawn(start):
    """At the end of its time it says so, and refuses."""
    terminal = start({}, seconds=0.5)
    await terminal.wait_for("withdrawn")

    assert (await terminal.result()).startswith("approval_expired")


async def test_without_a_terminal_everything_is_refused(start):
    """A program that nobody watches asks nobody."""
    terminal = start({}, terminal=False)

    assert "there is no terminal" in await terminal.result()
