"""`ScriptedServer`: a misbehaving MCP server, described as a value and run as a real process.

Not a mock: what a client sees are real pipes, real sockets and real deaths. It promises that a script does the same
each time, that its ledger survives the process, and that nothing of it outlives the test's block.
"""

import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
from attrs import field, frozen

from deputy_mcp._core.config import HttpServer, StdioServer
from deputy_mcp.testing.actions import Action, Turns

_HERE = str(Path(__file__).parent)
_CODE = "import sys; sys.path.insert(0, sys.argv[1]); from peer.{0} import main; main(*sys.argv[2:])"

POLL_SECONDS = 0.005
"""How often the ledger is looked at while somebody waits for a line in it: another process writes it."""


def tool(name: str, **members: Any) -> dict[str, Any]:
    """A well-formed tool as it stands in a listing: read-only, closed-world, any arguments.

    `members` replace or add (`inputSchema=…`, `description=…`, `annotations=None`); `None` leaves one out.
    """
    raw: dict[str, Any] = {
        "name": name,
        "description": f"the tool {name}",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }
    return {key: value for key, value in (raw | members).items() if value is not None}


def _turns(value: Mapping[str, Turns]) -> Mapping[str, tuple[Action, ...]]:
    return {key: (turns,) if isinstance(turns, Action) else tuple(turns) for key, turns in value.items()}


@frozen(kw_only=True)
class ScriptedServer:
    """What a server is and does. `stdio()` and `http()` give the entries to connect to.

    A message is looked up in `calls` (a tool's name), then in `methods` (a JSON-RPC method; over HTTP also `GET` and
    `DELETE`); for what is in neither it behaves well. Turns are counted over the ledger, and so over restarts: with
    `calls={"echo": [die(), reply()]}` the second process answers.
    """

    folder: Path = field(kw_only=False)
    """Where script and ledger are written, such as pytest's `tmp_path`."""
    name: str = "server"
    """Names the files; servers that share a folder need different ones."""
    tools: Sequence[Any] = field(factory=lambda: (tool("echo"),))
    """The listing, entries as on the wire (see `tool`); malformed ones are sent as they are."""
    calls: Mapping[str, Turns] = field(factory=dict)
    """What a call does, by tool name."""
    methods: Mapping[str, Turns] = field(factory=dict)
    """What any other message does, by method. Notifications may be scripted too."""
    at_start: Action = field(factory=Action)
    """Done by each stdio process before it reads anything."""
    era: Literal["both", "legacy", "modern"] = "both"
    """`legacy` knows no `server/discover`, `modern` no `initialize`."""
    page_size: int | None = None
    """Tools on one page of the listing."""
    strict: bool = False
    """Refuses listings and calls before `notifications/initialized`."""
    sessions: bool = False
    """HTTP: gives a session id with `initialize`, and answers 404 to one that it does not know."""
    bearer: str | None = None
    """HTTP: the only token that is let in."""
    line_end: str = "\n"
    capabilities: Mapping[str, Any] = field(factory=dict)
    """Added to `{"tools": {"listChanged": true}}`."""

    # -- running it ----------------------------------------------------------------------------------------------

    def stdio(self, **options: Any) -> StdioServer:
        """The entry that starts it as a child process. `options`: further fields of `StdioServer`."""
        return StdioServer(sys.executable, args=self._args("stdio"), **options)

    @asynccontextmanager
    async def http(
        self, *, transport: Literal["http", "sse"] = "http", port: int = 0, **options: Any
    ) -> AsyncIterator[HttpServer]:
        """Runs it on loopback for the block and gives the entry to connect to.

        `port` 0: a free one; another one brings back a server that was there before. `options`: further fields of
        `HttpServer`.
        """
        async with await anyio.open_process([sys.executable, *self._args("web"), str(port)], stderr=None) as process:
            assert process.stdout is not None
            line = b""
            while not line.endswith(b"\n"):
                line += await process.stdout.receive()

            path = "/mcp" if transport == "http" else "/sse"
            try:
                yield HttpServer(f"http://127.0.0.1:{int(line)}{path}", transport=transport, **options)
            finally:
                if process.returncode is None:
                    process.kill()

    def _args(self, peer: str) -> tuple[str, ...]:
        path = self.folder / f"{self.name}.script.json"
        turns = {f"call {name}": steps for name, steps in _turns(self.calls).items()} | dict(_turns(self.methods))
        script = {
            "folder": str(self.folder),
            "name": self.name,
            "ledger": str(self.ledger_path),
            "tools": list(self.tools),
            "turns": {key: [list(action.steps) for action in actions] for key, actions in turns.items()},
            "at_start": list(self.at_start.steps),
            "era": self.era,
            "page_size": self.page_size,
            "strict": self.strict,
            "sessions": self.sessions,
            "bearer": self.bearer,
            "line_end": self.line_end,
            "capabilities": dict(self.capabilities),
        }
        path.write_text(json.dumps(script))
        # Without `site`: it would take longer than all the rest of the start.
        return ("-S", "-E", "-c", _CODE.format(peer), _HERE, str(path))

    def release(self, gate: str) -> None:
        """Let go on what stands at `hold(gate)` or `freeze(gate)`."""
        (self.folder / f"{self.name}.{gate}.gate").touch()

    # -- reading its ledger --------------------------------------------------------------------------------------

    @property
    def ledger_path(self) -> Path:
        return self.folder / f"{self.name}.ledger.jsonl"

    def ledger(self, kind: str | None = None) -> list[dict[str, Any]]:
        """What it received and did, oldest first, over all its processes.

        Each entry has a `kind`: `started` (`pid`), `received` (`message`), `ran` (`tool`, `arguments`), `note`
        (`text`), `answer` (what the client said to `ask`), `child` (`pid`), `holding` and `frozen`, `http`
        (`method`, `path`, `headers`), `forgotten` (`session`), `listening`, `stream`, `left`.
        """
        if not self.ledger_path.exists():
            return []

        lines = self.ledger_path.read_text().splitlines(keepends=True)
        entries = [json.loads(line) for line in lines if line.endswith("\n")]
        return [entry for entry in entries if kind in (None, entry.get("kind"))]

    def received(self, method: str) -> list[dict[str, Any]]:
        """The messages of this method that reached it."""
        messages = (entry["message"] for entry in self.ledger("received"))
        return [message for message in messages if isinstance(message, dict) and message.get("method") == method]

    def runs(self, name: str) -> int:
        """How often this tool was called."""
        return sum(entry["tool"] == name for entry in self.ledger("ran"))

    def pids(self) -> list[int]:
        """Its processes so far, oldest first."""
        return [entry["pid"] for entry in self.ledger("started")]

    async def wait_for(self, seen: Callable[["ScriptedServer"], Any]) -> None:
        """Returns when `seen(self)` is true; bound it with `anyio.fail_after`."""
        while not seen(self):
            await anyio.sleep(POLL_SECONDS)
