"""The text scanner: what a server's texts try to do to the model that reads them.

Texts in, findings out; nothing is changed or refused here. `rules` holds the rules, `limits` the bounds, `scanner` the
order of work. All of them are read on the first scan, not on import: who connects to nothing need not wait for them.
"""

from collections.abc import Mapping
from typing import Any

from deputy_mcp._core.annotations import Finding


def scan_tool(tool: Mapping[str, Any]) -> tuple[Finding, ...]:
    """The findings on a tool as it came over the wire, `MOST_FINDINGS` at most, one for a code and place.

    Places are JSON pointers into it; messages hold no text of the server. Never raises; bounded time on any input.
    """
    from deputy_mcp._core.scanning import scanner

    return scanner.scan_tool(tool)


def scan_text(text: str, *, place: str = "") -> tuple[Finding, ...]:
    """The findings on one text: instructions, a prompt, a resource, a result. `place` is theirs."""
    from deputy_mcp._core.scanning import scanner

    return scanner.scan_text(text, place=place)
