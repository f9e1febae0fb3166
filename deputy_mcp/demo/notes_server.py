"""A small real MCP server over Streamable HTTP on loopback, for the demo. Prints its port, then serves until killed."""

import socket
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("notes", instructions="Keeps notes in memory.", log_level="ERROR")
notes: list[str] = ["buy milk"]


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def list_notes() -> list[str]:
    """All notes, oldest first."""
    return notes


@server.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False))
def add_note(text: str) -> str:
    """Add one note."""
    notes.append(text)
    return f"{len(notes)} notes"


@server.tool()
def forget_everything() -> str:
    """Drop all notes. Declares no hints at all, so it counts as writing, destructive and open-world."""
    notes.clear()
    return "forgotten"


def main() -> None:
    """Serve on a free port."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    print(listener.getsockname()[1], flush=True)  # noqa: T201 # how the demo learns the port
    app: Any = server.streamable_http_app()
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
