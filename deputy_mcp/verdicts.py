"""Tools as rows of a table: hints as declared, effects as read, findings, and the verdict of some permissions."""

from collections.abc import Callable, Sequence

from deputy_mcp._core.annotations import HINTS
from deputy_mcp._core.permissions import Allow, Ask, Deny
from deputy_mcp._runtime.handles import McpTool

VERDICT_COLUMNS = ("server", "tool", "declared", "effects", "findings", "verdict")

_SHORT = {
    "readOnlyHint": "read-only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open-world",
}


def verdict_rows(
    tools: Sequence[McpTool], decide: Callable[[McpTool], Allow | Ask | Deny]
) -> tuple[list[tuple[str, ...]], list[str]]:
    """The rows, and a style for each."""
    rows: list[tuple[str, ...]] = []
    styles = []
    for tool in tools:
        decision = decide(tool)
        verdict = {Allow: "allow", Ask: "ask"}.get(type(decision), "deny")
        code = "" if isinstance(decision, Allow) else f" ({decision.code})"
        rows.append((tool.server, tool.tool, declared(tool), effects(tool), findings(tool), verdict + code))
        styles.append({"allow": "ok", "ask": "ask"}.get(verdict, "bad"))

    return rows, styles


def declared(tool: McpTool) -> str:
    """The hints the server gave, as it gave them; `-` for none."""
    given = [
        _SHORT[hint]
        if tool.annotations[hint] is True
        else f"not {_SHORT[hint]}"
        if tool.annotations[hint] is False
        else f"{_SHORT[hint]}?"
        for hint in HINTS
        if hint in tool.annotations
    ]
    return ", ".join(given) or "-"


def effects(tool: McpTool) -> str:
    """Our reading."""
    read = tool.effects
    words = ["reads" if read.read_only else "writes"]
    words += ["destructive"] if read.destructive else []
    words += ["open-world"] if read.open_world else []
    return ", ".join(words)


def findings(tool: McpTool) -> str:
    """The codes of what is odd; `-` for nothing."""
    return ", ".join(finding.code for finding in tool.findings) or "-"
