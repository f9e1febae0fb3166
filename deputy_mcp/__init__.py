"""deputy_mcp: one owner for every MCP server a long-running agent uses.

The public names, nothing else. Start with `McpConnection`, or with `tools_mcp` for the shortest way.
"""

from deputy_mcp._core.annotations import Effects, Finding
from deputy_mcp._core.catalog import public_name
from deputy_mcp._core.config import (
    CustomServer,
    HttpServer,
    Limits,
    RestartPolicy,
    StdioServer,
)
from deputy_mcp._core.errors import (
    ApprovalDeniedError,
    ApprovalExpiredError,
    ApprovalPendingError,
    CallError,
    CallTimeoutError,
    ClosedError,
    ConfigError,
    DeputyError,
    DeputyWarning,
    HttpStatusError,
    InvalidArgumentsError,
    JournalUnavailableError,
    MalformedReplyError,
    NotAllowlistedError,
    PermissionDeniedError,
    PinMismatchError,
    QuarantinedError,
    RefusedError,
    RegistrationError,
    RemoteError,
    RestartLimitError,
    ResultTooLargeError,
    ServerLostError,
    StaleToolError,
    StartError,
    UnavailableError,
    WaitTimeoutError,
)
from deputy_mcp._core.lifecycle import ServerState
from deputy_mcp._core.permissions import Allow, Ask, Deny, Permissions
from deputy_mcp._core.pinning import PinDifference
from deputy_mcp._runtime.approval import ApprovalRequest, Approve, Reject
from deputy_mcp._runtime.approval_store import ApprovalStore, Ticket
from deputy_mcp._runtime.configfile import Config, load_config
from deputy_mcp._runtime.connection import McpConnection
from deputy_mcp._runtime.deciding import CallContext
from deputy_mcp._runtime.handles import McpTool, PromptResult, ResourceResult, ToolResult, tool_metadata
from deputy_mcp._runtime.journal import Journal
from deputy_mcp._runtime.pin_book import PinBook
from deputy_mcp._runtime.server_requests import ElicitationRequest, SamplingRequest
from deputy_mcp._runtime.session import Page
from deputy_mcp._runtime.status import ConnectionEvent, ServerStatus
from deputy_mcp._version import __version__
from deputy_mcp.agent import Agent, AgentStatus
from deputy_mcp.console import console_approver
from deputy_mcp.host_tools import host_tool
from deputy_mcp.tools import ToolList, close_mcp, tools_mcp

__all__ = [
    "Agent",
    "AgentStatus",
    "Allow",
    "ApprovalDeniedError",
    "ApprovalExpiredError",
    "ApprovalPendingError",
    "ApprovalRequest",
    "ApprovalStore",
    "Approve",
    "Ask",
    "CallContext",
    "CallError",
    "CallTimeoutError",
    "ClosedError",
    "Config",
    "ConfigError",
    "ConnectionEvent",
    "CustomServer",
    "Deny",
    "DeputyError",
    "DeputyWarning",
    "Effects",
    "ElicitationRequest",
    "Finding",
    "HttpServer",
    "HttpStatusError",
    "InvalidArgumentsError",
    "Journal",
    "JournalUnavailableError",
    "Limits",
    "MalformedReplyError",
    "McpConnection",
    "McpTool",
    "NotAllowlistedError",
    "Page",
    "PermissionDeniedError",
    "Permissions",
    "PinBook",
    "PinDifference",
    "PinMismatchError",
    "PromptResult",
    "QuarantinedError",
    "RefusedError",
    "RegistrationError",
    "Reject",
    "RemoteError",
    "ResourceResult",
    "RestartLimitError",
    "RestartPolicy",
    "ResultTooLargeError",
    "SamplingRequest",
    "ServerLostError",
    "ServerState",
    "ServerStatus",
    "StaleToolError",
    "StartError",
    "StdioServer",
    "Ticket",
    "ToolList",
    "ToolResult",
    "UnavailableError",
    "WaitTimeoutError",
    "__version__",
    "close_mcp",
    "console_approver",
    "host_tool",
    "load_config",
    "public_name",
    "tool_metadata",
    "tools_mcp",
]
