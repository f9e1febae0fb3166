"""What a rule of the text scanner is: data that a person can read, question and switch off.

Not an engine: patterns are matched by `patterns`, shapes and characters are found by `shapes` and `characters`. Here
is only what a rule says of itself.
"""

from attrs import field, frozen

from deputy_mcp._core.annotations import Severity


@frozen(kw_only=True)
class Rule:
    """One kind of thing that a text may do to the model that reads it."""

    code: str = field(kw_only=False)
    """The code of its findings; never changes between releases."""
    severity: Severity
    """`flag` asks a person before the tool runs."""
    message: str
    """What a finding says; holds no text of the server."""
    reason: str
    """Why it is looked for: what the model would do."""
    source: str
    """Where this kind of attack was published."""
    examples: tuple[str, ...]
    """Texts that it must find."""
    innocent: tuple[str, ...] = ()
    """Texts like those of honest tools that it must leave alone."""
    patterns: tuple[str, ...] = ()
    """Any of them is enough, in the language of `patterns`. Empty: code finds it, not words."""
