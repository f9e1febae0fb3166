"""`deputy-mcp demo`: starts real servers over stdio and HTTP, judges their tools, calls them, kills one, and says so.

Every step checks what it shows; the exit code is that of the checks. No network, no credentials.
"""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from deputy_mcp._core.config import HttpServer, Limits, RestartPolicy, Server, StdioServer
from deputy_mcp._core.errors import DeputyError, PermissionDeniedError, ServerLostError
from deputy_mcp._core.lifecycle import ServerState
from deputy_mcp._core.permissions import Permissions
from deputy_mcp._runtime.approval import ApprovalRequest, Approve
from deputy_mcp._runtime.connection import McpConnection
from deputy_mcp._runtime.handles import McpTool
from deputy_mcp._runtime.pin_book import PinBook
from deputy_mcp._runtime.transports.process_tree import family
from deputy_mcp.agent import Agent
from deputy_mcp.terminal import Printer
from deputy_mcp.verdicts import LEGEND, VERDICT_COLUMNS, verdict_rows

MODULES = {"time": "mcp_server_time", "git": "mcp_server_git"}


class Demo:
    """One run. `failed` counts the steps that did not do what they say."""

    def __init__(self, printer: Printer) -> None:
        self._out = printer
        self._number = 0
        self.failed = 0

    def _step(self, title: str) -> None:
        self._number += 1
        self._out.line()
        self._out.line(f"{self._number}. {title}", "head")

    def _check(self, holds: object, text: str) -> None:
        if holds:
            self._out.line(f"   ok      {text}", "ok")
        else:
            self.failed += 1
            self._out.line(f"   FAILED  {text}", "bad")

    async def run(self) -> int:
        """The exit code: 0 when every step did what it says."""
        missing = [module for module in MODULES.values() if importlib.util.find_spec(module) is None]
        if missing:
            self._out.line(f"the demo needs {', '.join(missing)}: pip install 'mcp-deputy[demo]'", "bad")
            return 2

        if shutil.which("git") is None:
            self._out.line("the demo needs the program git on the PATH", "bad")
            return 2

        before = family(os.getpid(), "-")
        with tempfile.TemporaryDirectory(prefix="deputy-mcp-demo-") as folder:
            repository = Path(folder, "repository")
            await anyio.to_thread.run_sync(_make_repository, repository)
            async with _notes_server() as url:
                await self._with_servers(_servers(repository, url), repository)

        self._step("Everything is stopped")
        left = family(os.getpid(), "-") - before
        self._check(not left, f"no process is left{f': {sorted(left)}' if left else ''}")
        self._out.line()
        self._out.line(
            "The demo did what it says." if not self.failed else f"{self.failed} checks failed.",
            "bad" if self.failed else "ok",
        )
        return 1 if self.failed else 0

    async def _with_servers(self, servers: Mapping[str, Server], repository: Path) -> None:
        self._step(f"Start {len(servers)} servers side by side; one of them cannot start")
        started = anyio.current_time()
        connection = McpConnection(
            servers,
            permissions=Permissions.full(),
            limits=Limits(call_timeout_seconds=20, startup_timeout_seconds=30),
            restart=RestartPolicy(max_restarts=3, backoff_initial_seconds=0.2),
            approver=self._approve,
            # Listing again before each call would leave a frozen server's call unsent, and nothing to lose.
            pins=PinBook(verify="change"),
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._show_progress, connection)
            await anyio.lowlevel.checkpoint()
            async with connection:
                took = anyio.current_time() - started
                status = connection.status()
                ready = [name for name, one in status.items() if one.state is ServerState.READY]
                self._check(ready == ["time", "git", "notes"], f"{', '.join(ready)} are ready after {took:.1f} s")
                broken = status["broken"]
                self._check(
                    broken.state is not ServerState.READY and broken.last_error,
                    f"broken is {broken.state}: {broken.last_error}",
                )
                self._table(connection)
                await self._call_each(connection, repository)
                await self._refuse_and_allow(connection, repository)
                await self._ask(connection)
                await self._kill_and_restart(connection)

            tasks.cancel_scope.cancel()

    async def _show_progress(self, connection: McpConnection) -> None:
        async for event in connection.events():
            if event.kind == "state" and event.facts["state"] in ("starting", "vetting", "ready", "backing_off"):
                self._out.line(f"   …       {event.server} is {event.facts['state']}", "dim")

    def _table(self, connection: McpConnection) -> None:
        self._step("Every tool, its hints as declared, our cautious reading, and the verdict of Permissions(web=True)")
        rows, styles = verdict_rows(connection.tools(), Permissions(web=True).decide)
        self._out.table(VERDICT_COLUMNS, rows, styles=styles)
        self._out.line(LEGEND, "dim")
        self._check(len(rows) >= 17, f"{len(rows)} tools listed and judged")

    async def _call_each(self, connection: McpConnection, repository: Path) -> None:
        self._step("Call one tool of each server, side by side")
        wanted: dict[str, tuple[str, dict[str, Any]]] = {
            "time": ("get_current_time", {"timezone": "Europe/Berlin"}),
            "git": ("git_status", {"repo_path": str(repository)}),
            "notes": ("list_notes", {}),
        }
        texts: dict[str, str] = {}

        async def call(server: str, tool: str, arguments: dict[str, Any]) -> None:
            try:
                result = await connection.call_tool(server, tool, arguments)
            except DeputyError as error:
                self._out.line(f"   …       {error}", "bad")
            else:
                texts[server] = "" if result.is_error else result.text

        async with anyio.create_task_group() as tasks:
            for server, (tool, arguments) in wanted.items():
                tasks.start_soon(call, server, tool, arguments)

        for server, (tool, _) in wanted.items():
            first = " ".join(texts.get(server, "").split())[:70]
            self._check(texts.get(server), f"{server} {tool}: {first}")

    async def _refuse_and_allow(self, connection: McpConnection, repository: Path) -> None:
        self._step("A write is refused under read-only permissions, and allowed under wider ones")
        arguments = {"repo_path": str(repository), "branch_name": "from-the-demo"}
        careful = Agent(connection.tools(), permissions=Permissions.readonly(web=True))
        try:
            await careful.call_tool("git__git_create_branch", arguments)
        except PermissionDeniedError as error:
            self._check("from-the-demo" not in _branches(repository), f"refused, nothing was sent: {error}")
        else:
            self._check(False, "the write was not refused")  # noqa: FBT003 # the check's own word

        free = Agent(connection.tools(), permissions=Permissions(web=True, write=True))
        try:
            await free.call_tool("git__git_create_branch", arguments)
        except DeputyError as error:
            self._check(False, f"the write was not allowed: {error}")  # noqa: FBT003 # the check's own word
        else:
            self._check("from-the-demo" in _branches(repository), "allowed: the branch from-the-demo exists")

    async def _ask(self, connection: McpConnection) -> None:
        self._step("A person is asked before a write")
        asking = Agent(connection.tools(), permissions=Permissions.standard())
        try:
            result = await asking.call_tool("notes__add_note", {"text": "written after approval"})
        except DeputyError as error:
            self._check(False, f"the approved write failed: {error}")  # noqa: FBT003 # the check's own word
        else:
            self._check(result.text == "2 notes", f"approved, then sent: {result.text}")

    async def _approve(self, request: ApprovalRequest) -> Approve:
        arguments = " ".join(request.arguments_text.split())
        self._out.line(f"   asked   {request.public_name} {arguments} ({request.code}); the demo says yes", "ask")
        return Approve()

    async def _kill_and_restart(self, connection: McpConnection) -> None:
        self._step("Kill one server while a call is under way; the same handle works again")
        handle = next(tool for tool in connection.tools("time") if tool.tool == "get_current_time")
        before = connection.status()["time"]
        assert before.pid is not None
        # Frozen first, so that the call is surely under way when the process dies.
        os.kill(before.pid, signal.SIGSTOP)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._lose_call, handle)
            while connection.status()["time"].calls_in_flight == 0:
                await anyio.lowlevel.checkpoint()

            os.kill(before.pid, signal.SIGKILL)

        result = await handle(timezone="UTC")
        after = connection.status()["time"]
        self._check(
            not result.is_error and after.pid != before.pid and after.generation == before.generation + 1,
            f"the same handle answers again: generation {after.generation}, process {before.pid} → {after.pid}",
        )
        others = [name for name in ("git", "notes") if connection.status()[name].generation != 1]
        self._check(not others, "no other server felt it")

    async def _lose_call(self, handle: McpTool) -> None:
        try:
            await handle(timezone="UTC")
        except ServerLostError as error:
            self._check(error.exit_code == -signal.SIGKILL, f"the call failed at once, typed: {error}")
        except DeputyError as error:
            self._check(False, f"the call failed as {type(error).__name__}: {error}")  # noqa: FBT003 # its own word


def _servers(repository: Path, url: str) -> dict[str, Server]:
    python = sys.executable
    return {
        "time": StdioServer(python, args=("-P", "-m", "mcp_server_time", "--local-timezone=UTC")),
        "git": StdioServer(python, args=("-P", "-m", "mcp_server_git", "--repository", str(repository))),
        "notes": HttpServer(url),
        "broken": StdioServer("no-such-mcp-server", restart=RestartPolicy(when="never")),
    }


def _make_repository(folder: Path) -> None:
    folder.mkdir()
    (folder / "README").write_text("made by the demo\n")
    identity = ("-c", "user.name=demo", "-c", "user.email=demo@example.invalid", "-c", "commit.gpgsign=false")
    for arguments in (("init", "--quiet"), ("add", "README"), (*identity, "commit", "--quiet", "-m", "first")):
        subprocess.run(("git", *arguments), cwd=folder, check=True, capture_output=True, env=_git_environment())


def _branches(repository: Path) -> str:
    return subprocess.run(
        ("git", "branch"), cwd=repository, check=True, capture_output=True, text=True, env=_git_environment()
    ).stdout


def _git_environment() -> dict[str, str]:
    """Ours without `GIT_DIR` and its kin, which a hook or a worktree sets: they name another repository."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


@asynccontextmanager
async def _notes_server() -> AsyncIterator[str]:
    """A real HTTP server in a process of its own; its address."""
    # In a session of its own: Ctrl-C is ours to act on.
    process = await anyio.open_process(
        [sys.executable, "-P", "-m", "deputy_mcp.demo.notes_server"], stderr=None, start_new_session=True
    )
    try:
        assert process.stdout is not None
        with anyio.fail_after(30):
            port = int((await process.stdout.receive()).decode())

        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        with anyio.CancelScope(shield=True):
            with contextlib.suppress(ProcessLookupError):
                process.kill()

            await process.aclose()
