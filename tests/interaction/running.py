"""What the facade and the plugin know of the test that runs now, and the server that the suite's tests are given."""

from dataclasses import dataclass
from typing import Any

import mcp.server
from mcp_types import ListToolsResult, PaginatedRequestParams, Tool

NAME = "suite"
"""Of the one server that each connection of the facade has."""


class NotOffered(Exception):
    """The connection has nothing for what the test asks of the SDK's client; the text says what."""


@dataclass
class Running:
    """The test that runs now: what of it the facade must know, and what the plugin must."""

    texts: tuple[str, ...] = ()
    """Every text in its source: the resources and prompts it may ask for."""
    called: tuple[str, ...] = ()
    """The tools it calls."""
    connected: bool = False
    """Whether it made a connection of ours."""
    listed: bool = False
    """Whether a server of it was given a listing."""


running = Running()


class Server(mcp.server.Server[Any]):
    """The SDK's server. One that serves calls and lists no tools is given a listing of those the test calls."""

    def __init__(self, name: str, *, on_list_tools: Any = None, on_call_tool: Any = None, **options: Any) -> None:
        if on_call_tool is not None and on_list_tools is None:
            running.listed = True
            tools = [Tool(name=called, input_schema={"type": "object"}) for called in running.called]

            async def on_list_tools(_context: object, _params: PaginatedRequestParams | None) -> ListToolsResult:
                return ListToolsResult(tools=tools)

        super().__init__(name, on_list_tools=on_list_tools, on_call_tool=on_call_tool, **options)
