"""A server on the SDK's own `MCPServer`: what most people's servers look like from outside.

Arguments: `stdio`, or `http` and the ledger's path, where its port is written.
"""

import json
import logging
import os
import socket
import sys

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("sdk", version="1")


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def total(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def fail() -> str:
    """Always fails."""
    raise ValueError("it failed")


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
async def count(to: int, ctx: Context) -> int:
    """Counts, and reports each step."""
    for i in range(to):
        await ctx.report_progress(i + 1, to)

    return to


@server.resource("test://motto")
def motto() -> str:
    """A resource."""
    return "one owner"


async def serve_http(ledger: str) -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    logging.disable()
    web = uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error"))
    line = {"event": "listening", "pid": os.getpid(), "port": listener.getsockname()[1]}
    fd = os.open(ledger, os.O_WRONLY)
    listener.listen()
    os.write(fd, json.dumps(line).encode() + b"\n")
    await web.serve(sockets=[listener])


if sys.argv[1] == "http":
    anyio.run(serve_http, sys.argv[2])
else:
    server.run("stdio")
