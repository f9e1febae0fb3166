"""How much one scan looks at, and how much it says."""

MOST_FINDINGS = 50
"""Findings of one scan. Flags are kept before warnings and notes."""

MOST_CHARACTERS = 200_000
"""Characters that one scan looks at; four times the largest honest tool definition that was seen. What is past them is
not looked at, and that is a finding."""
