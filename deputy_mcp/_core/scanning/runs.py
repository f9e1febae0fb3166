"""Long runs of some signs in a text: a look of a nanosecond a character, before a pattern of fifty.

Not a match: it says where one cannot be. A text is looked at as bytes, one a character, so that places are the same in
both; what Latin-1 lacks is a `?`.
"""


def to_bytes(text: str) -> bytes:
    """`text` as one byte a character."""
    return text.encode("latin-1", "replace")


def table_of(signs: str, mark: str = "x") -> bytes:
    """A table for `bytes.translate`: the Latin-1 characters among `signs` become `mark`, all others a full stop."""
    return bytes(ord(mark) if chr(code) in signs else ord(".") for code in range(256))


def has_run(found: bytes, table: bytes, size: int) -> bool:
    """Whether `size` signs of the table stand in a row somewhere in those bytes."""
    return b"x" * size in found.translate(table)
