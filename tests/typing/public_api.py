"""The public API as somebody's program uses it, strictly typed. Never run: `test_typing.py` has mypy look at it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, assert_type

import deputy_mcp
from deputy_mcp import (
    Agent,
    AgentStatus,
    Allow,
    ApprovalRequest,
    Approve,
    Ask,
    CallContext,
    CallError,
    CallTimeoutError,
    Config,
    Deny,
    DeputyError,
    Effects,
    Finding,
    HttpServer,
    HttpStatusError,
    Limits,
    McpConnection,
    McpTool,
    NotAllowlistedError,
    Page,
    PermissionDeniedError,
    Permissions,
    PinMismatchError,
    PromptResult,
    RefusedError,
    Reject,
    RemoteError,
    ResourceResult,
    RestartPolicy,
    ResultTooLargeError,
    ServerLostError,
    ServerState,
    ServerStatus,
    StdioServer,
    ToolList,
    ToolResult,
    UnavailableError,
    close_mcp,
    host_tool,
    load_config,
    public_name,
    tool_metadata,
    tools_mcp,
)
from deputy_mcp.testing import FixedApprover, ScriptedServer, die, note, reply, tool


async def approve(request: ApprovalRequest) -> Approve | Reject:
    if request.effects.destructive or any(finding.severity == "flag" for finding in request.findings):
        return Reject(f"{request.public_name} in {request.ticket}, by {request.expires_at.isoformat()}")

    arguments: Mapping[str, Any] = request.arguments
    return Approve(arguments | {"dry_run": True}) if isinstance(arguments, dict) else Approve()


def judge(tool: McpTool, arguments: Mapping[str, Any], context: CallContext) -> bool | Deny | None:
    if context.server == "mail" and not str(arguments.get("to", "")).endswith("@example.com"):
        return Deny("only to our own")

    return None


async def on_progress(progress: float, total: float | None, message: str | None) -> None:
    print(progress, total, message)


async def token() -> str:
    return "secret"


SERVERS: dict[str, StdioServer | HttpServer] = {
    "files": StdioServer(
        "npx",
        args=("-y", "server-filesystem", "/srv"),
        env={"LOG": "0"},
        cwd="/srv",
        tools=("read_file",),
        required=True,
        permissions=Permissions.readonly(),
        annotations={"read_file": {"readOnlyHint": True}},
        limits=Limits(call_timeout_seconds=5, max_result_bytes=10_000, on_large_result="error"),
        restart=RestartPolicy(when="never"),
        protocol="legacy",
    ),
    "search": HttpServer(
        "https://example.com/mcp",
        headers={"Authorization": token, "X-Team": "a"},
        transport="http",
        trust_annotations=False,
        resources=("docs://index",),
        prompts=("summarise",),
    ),
}


async def connect() -> None:
    async with McpConnection(
        SERVERS,
        permissions=Permissions(
            web="ask", write=False, destructive=None, tool_denylist=["files__rm"], can_use_tool=judge
        ),
        limits=Limits(idle_timeout_seconds=3.5, max_timeouts_in_row=None),
        restart=RestartPolicy(max_restarts=3, backoff_factor=1.5),
        approver=approve,
    ) as connection:
        assert_type(connection, McpConnection)
        assert_type(connection.tools("files"), list[McpTool])
        assert_type(connection.capability_tools(prefix="docs"), list[McpTool])
        assert_type(connection.status(), Mapping[str, ServerStatus])
        result = await connection.call_tool(
            "files", "read_file", {"path": "/a"}, timeout_seconds=2.5, progress=on_progress, retry=True
        )
        assert_type(result, ToolResult)
        assert_type(result.text, str)
        assert_type(result.is_error, bool)
        assert_type(result.findings, tuple[Finding, ...])
        assert_type(await connection.read_resource("search", "docs://index"), ResourceResult)
        assert_type(await connection.get_prompt("search", "summarise", {"topic": "bees"}), PromptResult)
        assert_type(await connection.discover("files", "resource_templates", cursor=None), Page)
        assert_type(await connection.reload("files", repin=True), list[McpTool])
        await connection.start("files")
        await connection.stop("files")
        await connection.kill("files")
        await connection.release("files")
        async for event in connection.events():
            kind: str = event.kind
            print(kind, event.server, dict(event.facts))

        status: ServerStatus = connection.status()["files"]
        if status.state is ServerState.READY and status.pid is not None:
            code, reason = status.refused["rm"]
            print(status.pid + 1, code.upper(), reason.upper(), status.stderr_tail[-80:])

    await connection.aclose()
    McpConnection.from_config(Path("mcp.json"), ["files"], permissions=Permissions.full())
    McpConnection.from_config()


async def use(handle: McpTool) -> str | None:
    effects: Effects = handle.effects
    if effects.read_only and not effects.open_world:
        first = await handle(path="/a", depth=3)
        second = await handle.call({"path": "/a"}, timeout_seconds=1, progress=lambda done, total, text: None)
        return first.text + second.text

    narrowed: McpTool = handle.narrowed(Permissions.plan() & Permissions.standard())
    schema: Mapping[str, Any] = narrowed.input_schema
    facts: dict[str, Any] = tool_metadata(narrowed)
    names: Sequence[str] = narrowed.missing_annotations
    print(schema["type"], facts["name"], names, public_name("files", "read_file"), deputy_mcp.__version__)
    match Permissions().decide(handle):
        case Allow():
            return None
        case Ask(reason=reason) | Deny(reason=reason):
            return reason


async def agents(config: Config) -> None:
    def add(a: int, b: int = 0) -> int:
        return a + b

    async def fetch(url: str) -> str:
        return url

    async with Agent([add, fetch], permissions=Permissions.standard(), max_tool_calls=100) as agent:
        agent.register_tools([host_tool(add, name="plus", annotations={"readOnlyHint": True})], replace=True)
        agent.unregister_tools("add", "fetch")
        loaded = await agent.load_mcp("mcp.json", ["files"], replace=True, limits=Limits())
        assert_type(loaded, ToolList)
        agent.narrow(Permissions.readonly(web=True))
        assert_type(agent.tools, Mapping[str, McpTool])
        assert_type(await agent.call_tool("plus", {"a": 1, "b": 2}), ToolResult)
        status: AgentStatus = agent.mcp_status()
        print(status.servers["files"].state, status.left_out.get("plus"))

    async with tools_mcp(config, servers=["files"], on_error="raise", permissions=Permissions.full()) as tools:
        assert_type(tools, ToolList)

    awaited = await tools_mcp()
    assert_type(awaited, ToolList)
    failures: Mapping[str, DeputyError] = awaited.failures
    first: McpTool = awaited[0]
    print(failures, first, awaited.connection is None)
    await close_mcp()


async def fails(handle: McpTool) -> object:
    try:
        return await handle()
    except NotAllowlistedError as error:
        near: tuple[str, ...] = error.near
        return near
    except PermissionDeniedError as error:
        return error.decision.code
    except PinMismatchError as error:
        return error.difference
    except RefusedError as error:
        return error.code
    except UnavailableError as error:
        return error.state, error.reason
    except CallTimeoutError as error:
        return error.outcome == "unknown"
    except ServerLostError as error:
        return error.exit_code, error.stderr_tail
    except HttpStatusError as error:
        return error.status, error.retry_after_seconds
    except ResultTooLargeError as error:
        return error.limit_bytes - error.seen_bytes
    except RemoteError as error:
        return error.rpc_code, error.message
    except CallError as error:
        return error.server
    except DeputyError as error:
        return error.diagnostics()


def configuration() -> Permissions | None:
    config = load_config("mcp.json", servers=["files"], env={"TOKEN": "x"})
    assert_type(config, Config)
    for name, server in config.items():
        print(name.upper(), server.tools, server.required)

    return config.permissions


async def doubles(folder: Path) -> int:
    server = ScriptedServer(folder, tools=[tool("echo")], calls={"echo": [reply("fine"), note("ran") + die()]})
    approver = FixedApprover(True)
    async with McpConnection({"s": server.stdio(), "t": server.stdio()}, approver=approver) as connection:
        await connection.call_tool("s", "echo")

    async with server.http() as entry:
        McpConnection({"h": entry})

    return server.runs("echo") + len(approver.requests)
