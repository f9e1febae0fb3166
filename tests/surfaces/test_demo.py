"""`deputy-mcp demo`: it does what it says, leaves nothing behind, and touches nothing of whoever runs it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Scene

Command = Callable[..., tuple[int, str, str]]
Process = Callable[..., "subprocess.Popen[bytes]"]


def test_the_demo_does_what_it_says_and_leaves_nothing(place: Scene, start: Process) -> None:
    """Exit code 0, every check holds, plain text on a pipe, and then no process and no folder."""
    temporary = place.folder / "tmp"
    temporary.mkdir()
    process = start("demo", env={"TMPDIR": str(temporary)})
    out, err = (text.decode() for text in process.communicate(timeout=60))

    assert (0, "") == (process.returncode, err), out + err
    assert "FAILED" not in out
    assert "\x1b" not in out
    assert out.endswith("The demo did what it says.\n")
    assert [str(i) for i in range(1, 8)] == re.findall(r"^(\d+)\. ", out, re.MULTILINE)
    for said in ("broken is ", "17 tools", "refused, nothing was sent", "approved, then sent", "generation 2"):
        assert said in out

    assert set() == place.living()
    assert [] == list(temporary.iterdir())


def test_the_demo_leaves_the_repository_it_is_started_in_alone(place: Scene, start: Process) -> None:
    """A git hook, which may well run it, sets `GIT_DIR`: what the demo commits goes into its own folder even then."""
    host = place.folder / "host"
    identity = ("-c", "user.name=host", "-c", "user.email=host@example.invalid")
    subprocess.run(("git", "init", "--quiet", str(host)), check=True)
    subprocess.run(("git", "-C", host, *identity, "commit", "--quiet", "--allow-empty", "-m", "mine"), check=True)
    before = everything(host)
    process = start("demo", env={"GIT_DIR": str(host / ".git")})
    interrupt_at(process, b"git is starting")

    assert before == everything(host)


def interrupt_at(process: "subprocess.Popen[bytes]", said: bytes) -> tuple[int, bytes]:
    """Ctrl-C, as a terminal does it, once this line is printed: the exit code and what was said on stderr."""
    assert process.stdout is not None
    assert any(said in line for line in process.stdout)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    return process.returncode, err


def everything(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.mark.parametrize("module", ["mcp_server_time", "mcp_server_git"])
def test_without_its_servers_the_demo_says_what_to_install(
    command: Command, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """Exit code 2, one line, nothing started."""
    monkeypatch.setitem(sys.modules, module, None)  # Python's own way of saying that it cannot be imported

    assert (2, f"the demo needs {module}: pip install 'mcp-deputy[demo]'\n", "") == command("demo")


def test_without_git_the_demo_says_what_is_missing(
    place: Scene, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program, not only the Python package, must be there; exit code 2 and no traceback."""
    monkeypatch.setenv("PATH", str(place.folder))
    code, out, err = command("demo")

    assert 2 == code
    assert "git" in out + err


def test_ctrl_c_in_the_demo_leaves_nothing(place: Scene, start: Process) -> None:
    """Neither a process nor its folder; exit code 130 and no traceback."""
    temporary = place.folder / "tmp"
    temporary.mkdir()
    ended = interrupt_at(start("demo", env={"TMPDIR": str(temporary)}), b"time is starting")

    assert set() == place.living()
    assert [] == list(temporary.iterdir())
    assert (130, b"interrupted\n") == ended
