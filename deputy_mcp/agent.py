"""`Agent`: the tools one agent may use, from any number of connections and from the host itself.

It registers, narrows and counts. It is not a gate: every call goes through the gate behind its handle, under the
agent's share of the permissions.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeVar

import anyio
import anyio.to_thread
from attrs import evolve, frozen

from deputy_mcp._core.errors import (
    ApprovalDeniedError,
    CallError,
    ClosedError,
    ConfigError,
    NotAllowlistedError,
    PermissionDeniedError,
    RefusedError,
    RegistrationError,
)
from deputy_mcp._core.frozen import FrozenMapping, check_count, check_flag, wrong_type
from deputy_mcp._core.permissions import Allow, Ask, Deny, Permissions, both_permissions
from deputy_mcp._core.sanitizing import clean_line
from deputy_mcp._runtime.approval_store import Ticket
from deputy_mcp._runtime.connection import McpConnection
from deputy_mcp._runtime.handles import McpTool, Progress, PromptResult, ResourceResult, Shares, ToolResult, near_names
from deputy_mcp._runtime.recording import Recorder
from deputy_mcp._runtime.status import ServerStatus
from deputy_mcp.host_tools import host_tool
from deputy_mcp.tools import ToolList, open_tools


@frozen(kw_only=True)
class AgentStatus:
    """What `mcp_status` gives."""

    servers: Mapping[str, ServerStatus]
    left_out: Mapping[str, str]
    """Registered tools that are not offered, with the code of why."""


R = TypeVar("R")

_TAINTED = Permissions(web=True, write=True, taint=True)
"""Takes nothing away but the last word over what is not read-only."""


class _AgentCaller:
    """What stands behind an agent's handles: its count and its permissions, then the handle's own caller."""

    def __init__(self, agent: "Agent", original: McpTool) -> None:
        self._agent = agent
        self.original = original

    def _current(self, handle: McpTool) -> McpTool:
        # Asked whenever the call is judged: the agent may be narrowed while it waits. `handle` brings another agent's
        # share, where that one registered this agent's handle.
        agent = self._agent

        def live() -> Shares:
            granted, narrowing = handle.shares()
            taken = both_permissions(agent._narrowing, _TAINTED if agent._tainted else None)
            return both_permissions(agent._granted, granted), both_permissions(taken, narrowing)

        return evolve(self.original, live=live)

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
        connection = _connection_behind(self.original)
        with self._agent._noting(connection):
            self._agent._count(handle)

        current = self._current(handle)
        call = current.caller.call_handle(
            current, arguments, timeout_seconds=timeout_seconds, progress=progress, retry=retry
        )
        if connection is not None or isinstance(self.original.caller, _AgentCaller):
            return await self._reading(handle, call)

        with self._agent._noting():  # a host's own tool keeps no journal
            return await self._reading(handle, call)

    async def resume(
        self, handle: McpTool, connection: McpConnection, ticket: str
    ) -> ToolResult | ResourceResult | PromptResult:
        with self._agent._noting(connection):
            self._agent._count(handle)

        return await self._reading(handle, connection.resume(ticket, handle=self._current(handle)))

    async def _reading(self, handle: McpTool, call: Awaitable[R]) -> R:
        try:
            result = await call
        except CallError:
            self._agent._note_read(handle)  # its text may be the server's
            raise

        self._agent._note_read(handle)
        return result


def _connection_behind(tool: McpTool) -> McpConnection | None:
    caller: Any = tool.caller
    while isinstance(caller, _AgentCaller):
        caller = caller.original.caller

    caller = getattr(caller, "connection", caller)  # a capability tool has one behind it
    return caller if isinstance(caller, McpConnection) else None


class Agent:
    """See the module. Entering it is needed only for `load_mcp`, whose connections it owns."""

    # Mutable state: the registered tools in order; the permissions given and taken away; the calls counted; whether
    # text from the open world was read; the connections owned, by server.
    def __init__(
        self,
        tools: Iterable[McpTool | Callable[..., Any]] = (),
        *,
        permissions: Permissions | None = None,
        max_tool_calls: int | None = None,
        taint: bool = False,
    ) -> None:
        """`max_tool_calls`: calls this agent may make in all, refused ones included; None: any number.

        `taint`: after the answer of an open-world tool, a person is asked before each call of a tool that is not
        read-only, until `new_run()`.
        """
        if permissions is not None and not isinstance(permissions, Permissions):
            wrong_type("permissions", permissions, "a Permissions")

        self._granted = permissions
        self._narrowing: Permissions | None = None
        self._most_calls = None if max_tool_calls is None else check_count("max_tool_calls", max_tool_calls)
        self._calls = 0
        self._taints = check_flag("taint", taint)
        self._tainted = False
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
        self._check_entered()

        loaded, _ = await open_tools(config, servers, "warn", connection_options)
        if loaded.connection is None:
            return loaded

        names = tuple(loaded.connection.status())
        gone = [name for name, tool in self._tools.items() if tool.server in names and tool.server in self._connections]
        try:
            self._check_entered()  # left while the servers started, nobody would close them
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

    def _check_entered(self) -> None:
        if not self._entered:
            raise ClosedError("the agent is not entered: use `async with Agent(...)` to load servers")

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

        self._narrowing = both_permissions(self._narrowing, permissions)

    def new_run(self) -> None:
        """The model's context is a fresh one: what was read before is no part of it any more (see `taint`)."""
        self._tainted = False

    def _note_read(self, handle: McpTool) -> None:
        if self._taints and handle.effects.open_world:
            self._tainted = True

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Call a registered tool by its public name, as a model asks for it. Raises the errors of `McpTool.call`."""
        tool = self._tools.get(name)
        if tool is None:
            with self._noting():
                raise NotAllowlistedError(
                    f"no tool {clean_line(str(name), 80)!r} is registered",
                    near=near_names(str(name), self._tools),
                    tool=str(name),
                    code="unknown_tool",
                )

        return await tool.call(arguments)

    async def resume(self, ticket: str) -> ToolResult | ResourceResult | PromptResult:
        """Run the call of an approved ticket, under this agent's permissions and count. See `McpConnection.resume`."""
        with self._noting():
            tool, connection = self._tool_of(await self._find_ticket(ticket))

        caller = tool.caller
        assert isinstance(caller, _AgentCaller)
        return await caller.resume(tool, connection, ticket)

    def _tool_of(self, found: Ticket) -> tuple[McpTool, McpConnection]:
        tool = self._tools.get(found.public_name)
        if tool is None:
            raise NotAllowlistedError(
                f"the ticket is for {found.public_name}, which is not registered here",
                server=found.server,
                tool=found.tool,
                code="unknown_tool",
            )

        connection = _connection_behind(tool)
        if connection is None:
            raise NotAllowlistedError(
                f"{found.public_name} is not a server's tool here",
                server=found.server,
                tool=found.tool,
                code="unknown_tool",
            )

        return tool, connection

    async def _find_ticket(self, ticket: str) -> Ticket:
        for connection in self._known_connections():
            with contextlib.suppress(ConfigError, ApprovalDeniedError):
                return await connection.ticket(ticket)

        raise ApprovalDeniedError(
            f"no connection of this agent knows the ticket {clean_line(str(ticket), 60)!r}", code="unknown_ticket"
        )

    def _known_connections(self) -> list[McpConnection]:
        behind = (connection for tool in self._tools.values() if (connection := _connection_behind(tool)) is not None)
        return list(dict.fromkeys((*self._connections.values(), *behind)))

    @contextlib.contextmanager
    def _noting(self, connection: McpConnection | None = None) -> Iterator[None]:
        """Tell a refusal of this agent's own to the journal of `connection`, else of one it knows, and to the log."""
        try:
            yield
        except RefusedError as error:
            first = connection or next(iter(self._known_connections()), None)
            note = Recorder(None).note_refusal if first is None else first.note_refusal
            note(error.server, error.tool, error)
            raise

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
