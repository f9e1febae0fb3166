"""The text scanner: what a server's texts try to do to the model that reads them.

Texts in, findings out; nothing is changed or refused here. `rules` holds the rules, `scanner` the order of work.
"""

from deputy_mcp._core.scanning.rule import Rule
from deputy_mcp._core.scanning.rules import RULES
from deputy_mcp._core.scanning.scanner import MOST_CHARACTERS, MOST_FINDINGS, scan_text, scan_tool

__all__ = ["MOST_CHARACTERS", "MOST_FINDINGS", "RULES", "Rule", "scan_text", "scan_tool"]
