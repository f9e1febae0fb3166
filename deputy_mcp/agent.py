"""`Agent`: the tools one agent may use, from any number of connections and from the host itself.

It registers, narrows and counts. It is not a gate: every call goes through the gate behind its handle, under the
agent's share of the permissions.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread
from attrs import evolve, frozen
from pydantic import TypeAdapter

from deputy_mcp._core.annotations import check_host_annotations, read_annotations
from deputy_mcp._core.errors import (
    ApprovalDeniedError,
    CallTimeoutError,
    ClosedError,
    InvalidArgumentsError,
    NotAllowlistedError,
    PermissionDeniedError,
    RegistrationError,
)
from deputy_mcp._core.frozen import FrozenMapping, check_count, check_number, wrong_type
from deputy_mcp._core.permissions import Allow, Ask, Deny, Permissions
from deputy_mcp._core.pinning import tool_digest
from deputy_mcp._core.sanitizing import clean_line, clean_text
from deputy_mcp._runtime.connection import McpConnection
from deputy_mcp._runtime.deciding import decide_with_callbacks, denied_error, effective_permissions
from deputy_mcp._runtime.handles import McpTool, Progress, ToolResult, as_json, near_names
from deputy_mcp._runtime.log import log_event
from deputy_mcp._runtime.schemas import SchemaChecker
from deputy_mcp._runtime.status import ServerStatus
from deputy_mcp.tools import ToolList, open_tools

DEFAULT_TIMEOUT_SECONDS = 60
"""A host's own tool gets so long when the caller says nothing."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@frozen(kw_only=True)
class AgentStatus:
    """What `mcp_status` gives."""

    servers: Mapping[str, ServerStatus]
    left_out: Mapping[str, str]
    """Registered tools that are not offered, with the code of why."""


def host_tool(
    function: Callable[..., Any], *, name: str | None = None, annotations: Mapping[str, bool] | None = None
) -> McpTool:
    """A Python callable, sync or async, as a tool. Its parameters' types give the input schema.

    Without `annotations` it gets the cautious effects: writing, destructive, open-world. A sync function runs in a
    worker thread. What it raises becomes a result with `is_error`.
    """
    if not callable(function):
        wrong_type("a tool", function, "an McpTool or a callable")

    tool: str = name or str(getattr(function, "__name__", ""))
    if not _NAME.fullmatch(tool):
        raise RegistrationError(f"{clean_line(tool, 80)!r} is no tool name: use 1 to 64 of a-z A-Z 0-9 _ -; pass name=")

    hints = check_host_annotations({tool: annotations or {}})[tool]
    try:
        schema = TypeAdapter(function).json_schema()  # type: ignore[arg-type] # pydantic takes callables too
    except Exception as error:
        raise RegistrationError(f"the parameters of {tool} give no JSON schema: {error}") from error

    if schema.get("type") != "object":
        raise RegistrationError(f"{tool} has parameters that cannot be given by name (positional-only or *args)")

    description = clean_text(inspect.getdoc(function) or "")
    reading = read_annotations(None, host=hints, trusted=False)
    raw = {"name": tool, "description": description, "inputSchema": schema, "annotations": dict(hints)}
    return McpTool(
        name=tool,
        server="",
        tool=tool,
        title=None,
        description=description,
        input_schema=schema,
        output_schema=None,
        annotations=hints,
        missing_annotations=reading.missing,
        effects=reading.effects,
        findings=(),
        digest=tool_digest(raw),
        generation=0,
        load=0,
        caller=_HostFunction(function, schema),
    )


class _HostFunction:
    """What stands behind a host's own tool: the steps of the gate that concern it."""

    def __init__(self, function: Callable[..., Any], schema: Mapping[str, Any]) -> None:
        self._function = function
        self._checker = SchemaChecker(schema)

    def _permissions(self, handle: McpTool) -> Permissions:
        effective = effective_permissions((handle.granted,))
        return effective if handle.narrowing is None else effective & handle.narrowing

    def decide(self, handle: McpTool) -> Allow | Ask | Deny:
        return self._permissions(handle).decide(handle)

    async def call_handle(
        self,
        handle: McpTool,
        arguments: Mapping[str, Any] | None,
        *,
        timeout_seconds: float | None,
        progress: Progress | None,  # a plain function reports none
        retry: bool,  # and is never run again
    ) -> ToolResult:
        started = anyio.current_time()
        try:
            encoded = json.dumps(arguments or {}, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArgumentsError(
                f"the arguments of {handle.name} are no JSON: {error}", tool=handle.name
            ) from None

        given = json.loads(encoded)
        verdict = await self._checker.check(given)
        if verdict.status != "valid":
            problems = clean_text("; ".join(verdict.problems))
            raise InvalidArgumentsError(
                f"the arguments of {handle.name} break its schema: {problems}", tool=handle.name
            )

        permissions = self._permissions(handle)
        decision = await decide_with_callbacks(permissions, handle, handle, encoded, server="", tool=handle.tool)
        if isinstance(decision, Deny):
            raise denied_error(decision, name=handle.name, server=None, tool=handle.tool)

        if isinstance(decision, Ask):
            raise ApprovalDeniedError(
                f"{handle.name} needs approval ({decision.reason}), and a host's own tool has no approver; "
                "ask inside the function, or grant it in the agent's permissions",
                tool=handle.name,
                code="no_approver",
            )

        given_seconds = DEFAULT_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
        seconds = check_number("timeout_seconds", given_seconds, above_zero=True)
        with anyio.move_on_after(seconds):
            return await self._run(handle, given, started)

        raise CallTimeoutError(f"{handle.name} did not finish within {seconds:g} s", tool=handle.name)

    async def _run(self, handle: McpTool, arguments: dict[str, Any], started: float) -> ToolResult:
        try:
            if inspect.iscoroutinefunction(self._function):
                value = await self._function(**arguments)
            else:
                value = await anyio.to_thread.run_sync(lambda: self._function(**arguments), abandon_on_cancel=True)
        except Exception as error:  # noqa: BLE001 # the host's own function: its failure is the tool's answer
            log_event("host_tool_failed", level="warning", tool=handle.name, error=type(error).__name__)
            text, failed, value = f"{type(error).__name__}: {error}", True, None
        else:
            text, failed = (value if isinstance(value, str) else as_json(value)), False

        clean = clean_text(text)
        return ToolResult(
            text=clean,
            content=({"type": "text", "text": text},),
            structured_content=value if isinstance(value, dict) else None,
            is_error=failed,
            size_bytes=len(clean.encode()),
            tool_digest=handle.digest,
            tool=handle.name,
            duration_seconds=anyio.current_time() - started,
        )


class _AgentCaller:
    """What stands behind an agent's handles: its count and its permissions, then the handle's own caller."""

    def __init__(self, agent: "Agent", original: McpTool) -> None:
        self._agent = agent
        self._original = original

    def _current(self, handle: McpTool) -> McpTool:
        # The agent's permissions as they are now: one narrowed since must not be called under the old ones.
        # `handle.granted` is another agent's share, where that one registered this agent's handle.
        return evolve(
            self._original,
            granted=_both(self._agent._granted, handle.granted),
            narrowing=_both(self._agent._narrowing, handle.narrowing),
        )

    def decide(self, handle: McpTool) -> Allow | Ask | Deny:
        current = self._current(handle)
        return current.caller.decide(current)

    async def call_handle(
        self,
        handle: McpTool,
        arguments: Mapping[str, Any] | None,
        *,
        timeout_seconds: float | None,
        progress: Progress | None,
        retry: bool,
    ) -> ToolResult:
        self._agent._count(handle)
        current = self._current(handle)
        return await current.caller.call_handle(
            current, arguments, timeout_seconds=timeout_seconds, progress=progress, retry=retry
        )


def _both(one: Permissions | None, other: Permissions | None) -> Permissions | None:
    if one is None or other is None:
        return one if other is None else other

    return one & other


class Agent:
    """See the module. Entering it is needed only for `load_mcp`, whose connections it owns."""

    # Mutable state: the registered tools in order; the permissions given and taken away; the calls counted; the
    # connections owned, by server.
    def __init__(
        self,
        tools: Iterable[McpTool | Callable[..., Any]] = (),
        *,
        permissions: Permissions | None = None,
        max_tool_calls: int | None = None,
    ) -> None:
        """`max_tool_calls`: calls this agent may make in all, refused ones included; None: any number."""
        if permissions is not None and not isinstance(permissions, Permissions):
            wrong_type("permissions", permissions, "a Permissions")

        self._granted = permissions
        self._narrowing: Permissions | None = None
        self._most_calls = None if max_tool_calls is None else check_count("max_tool_calls", max_tool_calls)
        self._calls = 0
        self._tools: dict[str, McpTool] = {}
        self._connections: dict[str, McpConnection] = {}
        self._entered = False
        self.register_tools(tools)

    async def __aenter__(self) -> Self:
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered = False
        connections = list(dict.fromkeys(self._connections.values()))
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                for connection in connections:
                    tasks.start_soon(connection.aclose)

    # -- registering ---------------------------------------------------------------------------------------------

    def register_tools(self, tools: Iterable[McpTool | Callable[..., Any]], *, replace: bool = False) -> None:
        """Add tools. A name that is taken is a `RegistrationError` unless `replace`; on an error nothing changes."""
        new: dict[str, McpTool] = {}
        for tool in tools:
            handle = tool if isinstance(tool, McpTool) else host_tool(tool)
            if handle.name in new:
                raise RegistrationError(f"{handle.name} is given twice", tool=handle.name)

            if handle.name in self._tools and not replace:
                raise RegistrationError(
                    f"{handle.name} is registered already; pass replace=True to take the new one", tool=handle.name
                )

            new[handle.name] = evolve(
                handle, caller=_AgentCaller(self, handle), granted=None, narrowing=handle.narrowing
            )

        self._tools.update(new)

    def unregister_tools(self, *names: str) -> None:
        """Remove tools by name. An unknown name is a `RegistrationError`, and nothing changes."""
        unknown = [name for name in names if name not in self._tools]
        if unknown:
            shown = ", ".join(repr(clean_line(str(name), 80)) for name in unknown)
            raise RegistrationError(f"not registered: {shown}", code="unknown_tool")

        for name in names:
            self._tools.pop(name, None)

    async def load_mcp(
        self,
        config: Any = None,
        servers: Iterable[str] | None = None,
        *,
        replace: bool = False,
        **connection_options: Any,
    ) -> ToolList:
        """Start servers from a configuration and register their tools; the agent owns and closes them.

        `replace`: servers loaded before are taken over, and tools they no longer offer are dropped; tools of other
        servers are left alone. What fails to load gives a `DeputyWarning` and is in `.failures`; a name that is taken
        is a `RegistrationError`, and then what was started is stopped and nothing is changed.
        """
        if not self._entered:
            raise ClosedError("the agent is not entered: use `async with Agent(...)` to load servers")

        loaded, _ = await open_tools(config, servers, "warn", connection_options)
        if loaded.connection is None:
            return loaded

        names = tuple(loaded.connection.status())
        gone = [name for name, tool in self._tools.items() if tool.server in names and tool.server in self._connections]
        try:
            if not replace:
                self.register_tools(loaded)
            else:
                kept = {tool.name for tool in loaded}
                self.register_tools(loaded, replace=True)
                for name in gone:
                    if name not in kept:
                        del self._tools[name]
        except BaseException:
            await loaded.connection.aclose()
            raise

        for name in names:
            old = self._connections.get(name)
            self._connections[name] = loaded.connection
            if old is not None:
                await old.supersede(name)

        return loaded

    # -- using ---------------------------------------------------------------------------------------------------

    @property
    def tools(self) -> Mapping[str, McpTool]:
        """What may be offered to a model: name to a handle bound to this agent. Denied tools are left out."""
        return MappingProxyType(
            {name: tool for name, tool in self._tools.items() if not isinstance(tool.caller.decide(tool), Deny)}
        )

    def mcp_status(self) -> AgentStatus:
        """The servers this agent owns, and the registered tools that are not offered, with the code of why."""
        servers: dict[str, ServerStatus] = {}
        for name, connection in self._connections.items():
            servers[name] = connection.status()[name]

        left_out = {}
        for name, tool in self._tools.items():
            decision = tool.caller.decide(tool)
            if isinstance(decision, Deny):
                left_out[name] = decision.code

        for status in servers.values():
            left_out |= {f"{status.name}/{tool}": code for tool, (code, _) in status.refused.items()}

        return AgentStatus(servers=FrozenMapping(servers), left_out=FrozenMapping(left_out))

    def narrow(self, permissions: Permissions) -> None:
        """Take further permissions away; nothing ever gives them back."""
        if not isinstance(permissions, Permissions):
            wrong_type("permissions", permissions, "a Permissions")

        self._narrowing = _both(self._narrowing, permissions)

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Call a registered tool by its public name, as a model asks for it. Raises the errors of `McpTool.call`."""
        tool = self._tools.get(name)
        if tool is None:
            raise NotAllowlistedError(
                f"no tool {clean_line(str(name), 80)!r} is registered",
                near=near_names(str(name), self._tools),
                tool=str(name),
                code="unknown_tool",
            )

        return await tool.call(arguments)

    def _count(self, handle: McpTool) -> None:
        if self._most_calls is not None and self._calls >= self._most_calls:
            decision = Deny(f"needs a max_tool_calls above {self._most_calls}", code="max_tool_calls")
            raise PermissionDeniedError(
                f"{handle.name} is not permitted: this agent has made its {self._most_calls} calls",
                decision=decision,
                server=handle.server or None,
                tool=handle.tool,
            )

        self._calls += 1

    def __repr__(self) -> str:
        return f"<Agent {len(self._tools)} tools, {self._calls} calls>"
