"""Tools as rows of a table: hints as declared, effects as read, findings, and the verdict of some permissions."""

from collections.abc import Callable, Sequence

from deputy_mcp._core.annotations import HINTS
from deputy_mcp._core.permissions import Allow, Ask, Deny
from deputy_mcp._runtime.handles import McpTool

VERDICT_COLUMNS = ("server", "tool", "declared", "effects", "findings", "verdict")

_LETTERS = {"readOnlyHint": "R", "destructiveHint": "D", "idempotentHint": "I", "openWorldHint": "O"}
_SIGNS = {"True": "+", "False": "-"}
LEGEND = "declared: R read-only, D destructive, I idempotent, O open-world; + true, - false, ? no boolean"


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
    """The hints the server gave, as it gave them; `-` for none. `LEGEND` explains them."""
    given = [
        _SIGNS.get(repr(tool.annotations[hint]), "?") + _LETTERS[hint] for hint in HINTS if hint in tool.annotations
    ]
    return " ".join(given) or "-"


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
