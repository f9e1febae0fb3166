"""Our connection, governed: allowlist, permissions, pins, argument checks, a journal in a file, structlog at info.

`python -m … [call | change | defaults]`: when pins are compared, or our defaults alone (in memory, before each call, no
journal, no log).
"""

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TextIO

import structlog

from benchmarks.speed.drivers.playing import Call, Target, serve
from deputy_mcp import HttpServer, Journal, Limits, McpConnection, Permissions, PinBook, StdioServer

WIDE = Limits(max_concurrent_calls=256)


def governed(folder: Path, verify: Literal["call", "change"]) -> dict[str, Any]:
    """The options of a connection with everything on. The pins are kept in a file, too."""
    return {
        "permissions": Permissions(),
        "limits": WIDE,
        "pins": PinBook(folder / "pins.json", verify=verify),
        "journal": Journal(folder / "journal.jsonl"),
    }


def log_at_info(file: TextIO, *, cached: bool) -> None:
    """Every event rendered as a line of JSON and written to `file`; `cached`: for the life of the process."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("info"),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper("iso"),
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(file=file),
        cache_logger_on_first_use=cached,
    )


@asynccontextmanager
async def connect(servers: Sequence[Target]) -> AsyncIterator[Sequence[Call]]:
    mode: Any = sys.argv[1] if len(sys.argv) > 1 else "change"
    with tempfile.TemporaryDirectory() as folder:
        options = {"limits": WIDE} if mode == "defaults" else governed(Path(folder), mode)
        if mode != "defaults":
            log_at_info(open(os.devnull, "w"), cached=True)  # noqa: SIM115 # for the life of the process

        entries: dict[str, StdioServer | HttpServer] = {
            f"s{number}": _entry(server) for number, server in enumerate(servers)
        }
        async with McpConnection(entries, **options) as connection:
            yield [_call(connection, name) for name in entries]


def _entry(server: Target) -> StdioServer | HttpServer:
    tools = ("echo", "count", "hang")
    if "url" in server:
        return HttpServer(server["url"], tools=tools, required=True)

    return StdioServer(server["command"], args=server["args"], tools=tools, required=True)


def _call(connection: McpConnection, server: str) -> Call:
    handles = {tool.tool: tool for tool in connection.tools(server)}

    async def call(tool: str, arguments: dict[str, str]) -> str:
        return (await handles[tool](**arguments)).text

    return call


if __name__ == "__main__":
    serve(connect)
