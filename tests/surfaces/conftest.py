"""Fixtures: real servers, configuration files, and a check after each test that nothing of them is left."""

import json
import os
import subprocess
import sys
import uuid
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import evolve

sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))

from workbench import MARK, Belongings, gone, left_since, living

from deputy_mcp import StdioServer, close_mcp
from deputy_mcp.testing import ScriptedServer, tool

LIBRARY = Path(__file__).with_name("library.py")


class Scene:
    """One test's folder, its servers (all with the same mark in their environment) and its configuration files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex

    def scripted(self, name: str = "s", **script: Any) -> ScriptedServer:
        """A scripted server; by default it offers `echo` (reads) and `change` (declares nothing, so it writes)."""
        script.setdefault("tools", [tool("echo"), tool("change", annotations=None)])
        return ScriptedServer(self.folder, name=name, **script)

    def stdio(self, server: ScriptedServer, **fields: Any) -> StdioServer:
        """The entry that starts a scripted server."""
        spec = server.stdio(**fields)
        return evolve(spec, env={**spec.env, MARK: self.mark})

    def library(self, **fields: Any) -> StdioServer:
        """The entry that starts the server on the SDK's `MCPServer`."""
        return StdioServer(sys.executable, args=(str(LIBRARY),), env={MARK: self.mark}, **fields)

    def config(self, name: str = "mcp.json", *, deputy: Any = None, **entries: Any) -> Path:
        """A configuration file of these servers: scripted ones, specs, or entries as they stand in a file."""
        own = {} if deputy is None else {"deputy": deputy}
        file = self.folder / name
        file.write_text(json.dumps({"mcpServers": {key: self._entry(one) for key, one in entries.items()}, **own}))
        return file

    def _entry(self, one: Any) -> Any:
        spec = self.stdio(one) if isinstance(one, ScriptedServer) else one
        if isinstance(spec, StdioServer):
            return {"command": spec.command, "args": list(spec.args), "env": dict(spec.env)}

        return spec

    def living(self) -> set[int]:
        """The living processes of this test."""
        return living(self.mark)


@pytest.fixture
async def scene(anyio_backend: object, tmp_path: Path) -> AsyncIterator[Scene]:
    """For an asynchronous test. After it and `close_mcp` no task, thread, descriptor or living child is left."""
    scene = Scene(tmp_path)
    before = Belongings.now(scene.mark)
    yield scene
    await close_mcp()
    assert [] == await left_since(before, scene.mark)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Scene]:
    """For a test that runs commands. After it no child is left alive."""
    scene = Scene(tmp_path)
    before = scene.living()
    yield scene
    assert set() == anyio.run(gone, scene.living() - before)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command line in this process: its exit code, what it printed, and what it said on stderr."""
    from deputy_mcp.cli import main

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # the command sets its own
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as exit_:  # argparse, on wrong usage
            code = exit_.code if isinstance(exit_.code, int) else 1

        return (code, *capsys.readouterr())

    return run


ENVIRONMENT = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
"""What a command in a process of its own is given, so that nobody's configuration plays a part."""


@pytest.fixture
def start(place: Scene) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Starts the command line in a process and a session of its own, as a terminal would; killed after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: object, **options: Any) -> "subprocess.Popen[bytes]":
        variables = {**ENVIRONMENT, "HOME": str(place.folder), MARK: place.mark, **options.pop("env", {})}
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        line = [*options.pop("command", (sys.executable, "-m", "deputy_mcp")), *map(str, arguments)]
        process = subprocess.Popen(line, start_new_session=True, env=variables, cwd=place.folder, **pipes | options)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()

        process.communicate()


@pytest.fixture
def run(start: Callable[..., "subprocess.Popen[bytes]"]) -> Callable[..., tuple[int, bytes, bytes]]:
    """Runs the command line in a process of its own to its end: its exit code and what came out of the two pipes."""

    def run(*arguments: object, **options: Any) -> tuple[int, bytes, bytes]:
        process = start(*arguments, **options)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    return run
