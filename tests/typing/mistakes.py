"""Mistakes that a type checker must find. Never run; each line says by which code mypy finds it."""

from deputy_mcp import Agent, HttpServer, Limits, McpConnection, McpTool, Permissions, StdioServer, host_tool, tools_mcp

SERVERS = {"files": StdioServer("npx")}


def construct() -> None:
    McpConnection(SERVERS, limits="60 s")  # E: arg-type
    McpConnection(SERVERS, permissions="full")  # E: arg-type
    McpConnection(SERVERS, Permissions())  # E: call-arg
    McpConnection(SERVERS, pins=5)  # E: arg-type
    McpConnection(["files"])  # E: arg-type
    McpConnection({"files": "npx"})  # E: dict-item
    Limits(call_timeout_seconds="60")  # E: arg-type
    Limits(call_timeout=60)  # E: call-arg
    Limits(on_large_result="drop")  # E: arg-type
    Permissions(write="always")  # E: arg-type
    Permissions(True)  # E: call-arg
    StdioServer("npx", limits=5)  # E: arg-type
    HttpServer("https://example.com", transport="websocket")  # E: arg-type
    Agent(max_tool_calls="three")  # E: arg-type
    Agent(taint="yes")  # E: arg-type
    host_tool("add")  # E: arg-type
    tools_mcp(on_error="ignore")  # E: arg-type


async def use(connection: McpConnection, handle: McpTool, agent: Agent) -> None:
    await handle({"path": "/a"})  # E: call-arg
    await handle.call(["/a"])  # E: arg-type
    await handle.call({}, 5)  # E: call-arg
    await connection.call_tool("files")  # E: call-arg
    await connection.call_tool("files", "read", {}, timeout_seconds="5")  # E: arg-type
    await connection.discover("files", "everything")  # E: arg-type
    await agent.call_tool("read", [1])  # E: arg-type
    agent.narrow(None)  # E: arg-type
    agent.tools["x"] = handle  # E: index
    handle.name = "other"  # E: misc
    (await handle()).text = "other"  # E: misc
    text: str = await handle()  # E: assignment
    print(text)
    handle.call()  # E: unused-coroutine
    async with tools_mcp() as tools:
        tools.connection.status()  # E: union-attr
