"""What an agent holds (`McpTool`) and gets (`ToolResult`): frozen values, clean for a model, complete for a program."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol

from attrs import evolve, field, frozen
from mcp_types import ContentBlock, TextContent
from pydantic import TypeAdapter, ValidationError

from deputy_mcp._core.annotations import Effects, Finding, Reading
from deputy_mcp._core.catalog import ToolFacts
from deputy_mcp._core.frozen import wrong_type
from deputy_mcp._core.permissions import Allow, Ask, Deny, Permissions, both_permissions
from deputy_mcp._core.pinning import tool_digest
from deputy_mcp._core.sanitizing import clean_line, clean_text, cut_text

Progress = Callable[[float, float | None, str | None], Awaitable[None] | None]
"""`(progress, total, message)`, sync or async, called in the caller's own task."""


@frozen(kw_only=True)
class ToolResult:
    """What a call gave. A tool that reports its own failure is `is_error`; it is no exception."""

    text: str
    """For a model or a terminal: clean, never longer than `max_result_bytes` in UTF-8 with its truncation mark."""
    content: tuple[Any, ...] = field(repr=False)
    """The MCP content blocks, as sent; a block the SDK does not know is kept as plain data."""
    structured_content: Any = field(default=None, repr=False)
    is_error: bool = False
    truncated: bool = False
    """Whether `text` was cut. `content` and `structured_content` are whole."""
    spilled_to: str | None = None
    """The file that holds the whole result as JSON, where `on_large_result="spill"` wrote one."""
    size_bytes: int = 0
    """The result's size as JSON in UTF-8."""
    findings: tuple[Finding, ...] = ()
    tool_digest: str | None = field(default=None, repr=False)
    server: str | None = None
    tool: str | None = None
    generation: int = 0
    duration_seconds: float = 0.0


@frozen(kw_only=True)
class ResourceResult:
    """What reading a resource gave. `text` is clean and bounded; `contents` are the server's own objects."""

    text: str
    contents: tuple[Mapping[str, Any], ...] = field(repr=False)
    truncated: bool = False
    size_bytes: int = 0
    findings: tuple[Finding, ...] = ()
    server: str
    uri: str
    generation: int = 0
    duration_seconds: float = 0.0


@frozen(kw_only=True)
class PromptResult:
    """What getting a prompt gave. `text` is clean and bounded; `messages` are the server's own objects."""

    text: str
    description: str | None
    messages: tuple[Mapping[str, Any], ...] = field(repr=False)
    truncated: bool = False
    size_bytes: int = 0
    findings: tuple[Finding, ...] = ()
    server: str
    name: str
    generation: int = 0
    duration_seconds: float = 0.0


Shares = tuple[Permissions | None, Permissions | None]


class Caller(Protocol):
    """What stands behind a handle: a connection, an agent, or a host's own function."""

    def decide(self, handle: "McpTool") -> Allow | Ask | Deny:
        """What the effective permissions say of this handle now, callbacks apart."""

    async def call_handle(
        self,
        handle: "McpTool",
        arguments: Mapping[str, Any] | None,
        *,
        timeout_seconds: float | None,
        progress: Progress | None,
        retry: bool,
    ) -> ToolResult: ...


@frozen(kw_only=True, repr=False, eq=False)
class McpTool:
    """A frozen handle on one tool of one server. `await tool(**arguments)` calls it, through the gate."""

    name: str
    """Public: what a model sees and permissions name."""
    server: str
    tool: str
    """The name on the wire."""
    title: str | None
    description: str
    """Clean."""
    input_schema: Mapping[str, Any]
    """Clean."""
    output_schema: Mapping[str, Any] | None
    annotations: Mapping[str, Any]
    """As declared, raw."""
    missing_annotations: tuple[str, ...]
    effects: Effects
    findings: tuple[Finding, ...]
    digest: str
    generation: int
    load: int
    """Which deliberate load of its server it comes from; a reload makes it stale."""
    granted: Permissions | None = None
    """An agent's share of the effective permissions; None: none was given there."""
    narrowing: Permissions | None = None
    """What `narrowed` took away; None: nothing. Unlike a share it can never stand for the whole."""
    live: Callable[[], "Shares"] | None = None
    """Where set, asked instead of the two above whenever a call is judged: an agent may narrow while it waits."""
    caller: Caller = field(alias="caller")

    async def __call__(self, /, **arguments: Any) -> ToolResult:
        """Call with keyword arguments. Raises the errors of `call`."""
        return await self.caller.call_handle(self, arguments, timeout_seconds=None, progress=None, retry=False)

    async def call(
        self,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout_seconds: float | None = None,
        progress: Progress | None = None,
        retry: bool = False,
    ) -> ToolResult:
        """Call through the whole gate.

        `timeout_seconds` None: the server's `call_timeout_seconds`. `retry=True` sends once more what may have run,
        and only where the effects say read-only or idempotent. Raises `RefusedError`, `UnavailableError`, `CallError`
        and `ClosedError`.
        """
        return await self.caller.call_handle(
            self, arguments, timeout_seconds=timeout_seconds, progress=progress, retry=retry
        )

    def shares(self) -> "Shares":
        """What this handle brings to the effective permissions now: a share given, and what was taken away."""
        return self.live() if self.live is not None else (self.granted, self.narrowing)

    def narrowed(self, permissions: Permissions) -> "McpTool":
        """The same tool under further permissions; they only ever take away."""
        if not isinstance(permissions, Permissions):
            wrong_type("permissions", permissions, "a Permissions")

        return evolve(self, narrowing=both_permissions(self.narrowing, permissions))

    def __repr__(self) -> str:
        marks = [
            word
            for word, on in (
                ("read-only", self.effects.read_only),
                ("destructive", self.effects.destructive),
                ("idempotent", self.effects.idempotent),
                ("open-world", self.effects.open_world),
            )
            if on
        ]
        return f"<McpTool {self.name} ({', '.join(marks) or 'writes'}), generation {self.generation}>"


def make_handle(
    facts: ToolFacts, *, findings: tuple[Finding, ...], generation: int, load: int, caller: Caller
) -> McpTool:
    """The handle on a vetted tool; `findings` are its own and those of a comparison with other servers."""
    return McpTool(
        name=facts.name,
        server=facts.server,
        tool=facts.tool,
        title=facts.title,
        description=facts.description,
        input_schema=facts.input_schema,
        output_schema=facts.output_schema,
        annotations=facts.annotations,
        missing_annotations=facts.missing_annotations,
        effects=facts.effects,
        findings=findings,
        digest=facts.digest,
        generation=generation,
        load=load,
        caller=caller,
    )


def make_host_handle(
    name: str,
    *,
    tool: str,
    description: str,
    input_schema: Mapping[str, Any],
    annotations: Mapping[str, Any],
    reading: Reading,
    caller: Caller,
) -> McpTool:
    """A handle on something of the host's own; `server` is empty."""
    raw = {"name": tool, "description": description, "inputSchema": input_schema, "annotations": dict(annotations)}
    return McpTool(
        name=name,
        server="",
        tool=tool,
        title=None,
        description=description,
        input_schema=input_schema,
        output_schema=None,
        annotations=annotations,
        missing_annotations=reading.missing,
        effects=reading.effects,
        findings=(),
        digest=tool_digest(raw),
        generation=0,
        load=0,
        caller=caller,
    )


MOST_LIKENESS = 64
"""Characters of a name that likeness is looked for in: it is cubic in them."""


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """The known names that look like `name`, for an error's mend. Bounded: a name from outside may be long."""
    from difflib import get_close_matches  # here: only errors need it

    return get_close_matches(name[:MOST_LIKENESS], [one for one in known if len(one) <= 2 * MOST_LIKENESS][:200])


def tool_metadata(tool: McpTool) -> dict[str, Any]:
    """What is known of a tool, as a plain dict of JSON values: for a UI, a log or a prompt of one's own."""
    effects = tool.effects
    return {
        "name": tool.name,
        "server": tool.server,
        "tool": tool.tool,
        "title": tool.title,
        "description": tool.description,
        "annotations": dict(tool.annotations),
        "missing_annotations": list(tool.missing_annotations),
        "effects": {
            "read_only": effects.read_only,
            "destructive": effects.destructive,
            "idempotent": effects.idempotent,
            "open_world": effects.open_world,
        },
        "findings": [
            {"code": f.code, "severity": f.severity, "place": f.place, "message": f.message} for f in tool.findings
        ],
        "digest": tool.digest,
        "generation": tool.generation,
        "input_schema": dict(tool.input_schema),
        "output_schema": None if tool.output_schema is None else dict(tool.output_schema),
    }


# -- rendering -----------------------------------------------------------------------------------------------------

_blocks: TypeAdapter[Any] = TypeAdapter(ContentBlock)
_text: TypeAdapter[TextContent] = TypeAdapter(TextContent)
"""Nearly all blocks are text, and trying each kind takes three times as long."""


def read_blocks(raw: Mapping[str, Any]) -> tuple[Any, ...]:
    """The content blocks as SDK values; what the SDK does not know stays data, what is no list is none."""
    content = raw.get("content")
    if not isinstance(content, list):
        return ()

    return tuple([_read_block(block) for block in content])


def _read_block(block: Any) -> Any:
    try:
        kind = _text if isinstance(block, dict) and block.get("type") == "text" else _blocks
        return kind.validator.validate_python(block, by_name=False)
    except ValidationError:
        return block


def render_result(raw: Mapping[str, Any], max_bytes: int) -> tuple[str, bool]:
    """A call's result as clean text: text blocks as they are, binaries as placeholders, unknown blocks as JSON.

    Structured content is shown only where there is no content: servers mirror it as text, and a model should not pay
    twice.
    """
    content = raw.get("content")
    parts = [_render_block(block) for block in content] if isinstance(content, list) else []
    structured = raw.get("structuredContent")
    if not parts and structured is not None:
        parts.append(as_json(structured))

    text = "\n".join(parts)
    # Cut before cleaning, which makes text longer and only CRLFs shorter: of megabytes of controls few are shown.
    head = text[: 2 * max_bytes + 2]
    clean = clean_text(head)
    cut = cut_text(clean, max_bytes, seen=None if head is text else len(text.encode("utf-8", "surrogatepass")))
    return cut, cut is not clean


def _render_block(block: Any) -> str:
    if not isinstance(block, dict):
        return as_json(block)

    if block.get("type") == "text" and isinstance(text := block.get("text"), str):
        return text

    match block:
        case {"type": "image" | "audio" as kind, "data": str(data)}:
            return f"[{kind} {_mime(block)}, {binary_size(data)} bytes]"
        case {"type": "resource_link", "uri": str(uri)}:
            name = block.get("name")
            return f"[resource {name if isinstance(name, str) else ''} {uri}]"
        case {"type": "resource", "resource": dict(resource)}:
            return render_resource(resource)

    return as_json(block)


def render_resource(resource: Mapping[str, Any]) -> str:
    """One resource's contents as text; a binary one as a placeholder."""
    match resource:
        case {"text": str(text)}:
            return text
        case {"blob": str(blob)}:
            return f"[resource {resource.get('uri', '')} {_mime(resource)}, {binary_size(blob)} bytes]"

    return as_json(resource)


def render_message(message: Mapping[str, Any]) -> str:
    """One prompt message as text."""
    return f"{message.get('role', '')}: {_render_block(message.get('content'))}"


def _mime(block: Mapping[str, Any]) -> str:
    mime = block.get("mimeType")
    return clean_line(mime, 80) if isinstance(mime, str) else "of unknown type"


def binary_size(base64_text: str) -> int:
    """The bytes that a base64 text stands for, without decoding it."""
    return len(base64_text) * 3 // 4 - base64_text[-2:].count("=")


def as_json(value: Any) -> str:
    """`value` as JSON text; one that is nested beyond reason as a placeholder."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return "[a value nested too deeply to show]"


def bounded(text: str, max_bytes: int) -> tuple[str, bool]:
    """`text` within `max_bytes` of UTF-8, and whether it was cut."""
    cut = cut_text(text, max_bytes)
    return cut, cut is not text
