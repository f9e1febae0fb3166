"""The host's own Python functions as tools, judged like any other."""

import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import anyio.to_thread
from pydantic import TypeAdapter

from deputy_mcp._core.annotations import check_host_annotations, read_annotations
from deputy_mcp._core.errors import (
    ApprovalDeniedError,
    CallTimeoutError,
    InvalidArgumentsError,
    RegistrationError,
)
from deputy_mcp._core.frozen import check_number, wrong_type
from deputy_mcp._core.permissions import Allow, Ask, Deny, Permissions
from deputy_mcp._core.sanitizing import clean_line, clean_text
from deputy_mcp._runtime.deciding import ask_callbacks, denied_error, effective_permissions
from deputy_mcp._runtime.handles import McpTool, Progress, ToolResult, as_json, make_host_handle
from deputy_mcp._runtime.log import log_event
from deputy_mcp._runtime.schemas import SchemaChecker

DEFAULT_TIMEOUT_SECONDS = 60
"""A host's own tool gets so long when the caller says nothing."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


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
    return make_host_handle(
        tool,
        tool=tool,
        description=description,
        input_schema=schema,
        annotations=hints,
        reading=reading,
        caller=_HostFunction(function, schema),
    )


class _HostFunction:
    """What stands behind a host's own tool: the steps of the gate that concern it."""

    def __init__(self, function: Callable[..., Any], schema: Mapping[str, Any]) -> None:
        self._function = function
        self._checker = SchemaChecker(schema)

    def _permissions(self, handle: McpTool) -> Permissions:
        granted, narrowing = handle.shares()
        return effective_permissions((granted,), narrowing)

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

        given_seconds = DEFAULT_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
        seconds = check_number("timeout_seconds", given_seconds, above_zero=True)
        permitted = False
        with anyio.move_on_after(seconds):
            await self._permit(handle, encoded)
            permitted = True
            return await self._run(handle, given, started)

        if not permitted:
            late = Deny(f"needs the agreement of can_use_tool, which did not answer within {seconds:g} s")
            raise denied_error(late, name=handle.name, server=None, tool=handle.tool)

        raise CallTimeoutError(f"{handle.name} did not finish within {seconds:g} s", tool=handle.name)

    async def _permit(self, handle: McpTool, encoded: bytes) -> None:
        permissions = self._permissions(handle)
        decision = permissions.decide(handle)
        decision = await ask_callbacks(decision, permissions, handle, handle, encoded, server="", tool=handle.tool)
        if isinstance(decision, Deny):
            raise denied_error(decision, name=handle.name, server=None, tool=handle.tool)

        if isinstance(decision, Ask):
            raise ApprovalDeniedError(
                f"{handle.name} needs approval ({decision.reason}), and a host's own tool has no approver; "
                "ask inside the function, or grant it in the agent's permissions",
                tool=handle.name,
                code="no_approver",
            )

    async def _run(self, handle: McpTool, arguments: dict[str, Any], started: float) -> ToolResult:
        try:
            if inspect.iscoroutinefunction(self._function):
                value = await self._function(**arguments)
            else:
                value = await anyio.to_thread.run_sync(lambda: self._function(**arguments), abandon_on_cancel=True)
                if inspect.isawaitable(value):  # a plain function around a coroutine's
                    value = await value
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
