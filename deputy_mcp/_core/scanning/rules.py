"""All rules of the scanner, by their codes."""

from deputy_mcp._core.scanning.rule import Rule
from deputy_mcp._core.scanning.rules_authority import AUTHORITY_RULES
from deputy_mcp._core.scanning.rules_characters import CHARACTER_RULES
from deputy_mcp._core.scanning.rules_reach import REACH_RULES
from deputy_mcp._core.scanning.rules_shapes import SHAPE_RULES

RULES: tuple[Rule, ...] = (*AUTHORITY_RULES, *REACH_RULES, *SHAPE_RULES, *CHARACTER_RULES)
"""In the order of `docs/reference/findings.md`."""
