"""JSON values of unknown size and shape: counted and copied, in loops, up to a limit.

Not a parser: it looks at Python objects, which may hold anything, and themselves. It promises that no nesting, cycle
or sharing makes it recurse, and that it stops at its limits: a list that holds another twice, forty levels deep, is
small in memory and 2**40 values long.
"""

import math
from collections.abc import Mapping
from typing import Any

from attrs import frozen

MAX_SCHEMA_DEPTH = 200
"""Nested containers in a schema. The engine refuses somewhat above; we refuse here, with a reason."""
MAX_INSTANCE_DEPTH = 500
"""Nested containers in a checked value. The engine recurses on its own stack: at 30,000 it took the process down."""
MAX_VALUES = 500_000
"""JSON values in a schema or an instance that are looked at at all; more is unchecked. Counting so many takes 60 ms,
and writing them down for another process as much again, in the loop."""
MAX_TEXT = 32 * 1024 * 1024
"""Characters of text in a schema or an instance that are looked at at all; more is unchecked."""
MAX_INTEGER_BITS = 14_000
"""Integers that are looked at at all: about the 4,300 digits at which the interpreter refuses to write them."""


class NotPlainError(ValueError):
    """The value is not JSON (a set, NaN, a key that is no text), or passes a limit. The text says which."""


class TooLargeError(NotPlainError):
    """The value has more values or text than the caller wanted to look at."""


@frozen
class Measure:
    """How large a value is. `depth` counts levels: 1 for a number, 2 for a list of numbers."""

    values: int
    text: int
    depth: int
    wide_integers: bool
    """Integers beyond 64 bits: `uniqueItems` over 10,000 of them took the engine 69 s."""
    odd_types: bool
    """Subclasses, tuples and foreign mappings: JSON in meaning, but the engine wants the exact types."""


def measure(
    value: Any, *, max_depth: int = MAX_INSTANCE_DEPTH, max_values: int = MAX_VALUES, max_text: int = MAX_TEXT
) -> Measure:
    """Count `value`; raises `TooLargeError` at a limit, `NotPlainError` for what is not JSON, cycles included."""
    values, text, depth = 1, 0, 0
    wide = odd = False
    level: list[Any] = [value]
    while level:
        depth += 1
        # The last level may hold values, but no containers with something in them.
        if depth > max_depth + 1:
            raise NotPlainError(f"it is nested deeper than {max_depth}")

        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                text += len(item)
            elif kind is int:
                wide = wide or is_wide(item)
            elif kind is bool or item is None:
                pass
            elif kind is list or isinstance(item, list | tuple):
                odd = odd or kind is not list
                values += len(item)
                # Checked before the list grows: lists that hold each other twice double at every level.
                if values > max_values:
                    raise TooLargeError(f"it holds more than {max_values} values")

                below.extend(item)
            elif kind is dict or isinstance(item, Mapping):
                odd = odd or kind is not dict
                values += len(item)
                if values > max_values:
                    raise TooLargeError(f"it holds more than {max_values} values")

                for key in item:
                    if type(key) is not str:
                        odd = True
                        _check_key(key)

                    text += len(key)

                below.extend(item.values())
            elif isinstance(item, str | int | float):
                odd = odd or kind is not float
                text += len(item) if isinstance(item, str) else 0
                wide = wide or is_wide(item)
                _check_number(item)
            else:
                raise NotPlainError(f"it holds a value of type {kind.__name__!r}, which JSON does not have")

        if text > max_text:
            raise TooLargeError(f"it holds more than {max_text} characters of text")

        level = below

    return Measure(values, text, depth, wide, odd)


def plain_copy(
    value: Any, *, max_depth: int = MAX_SCHEMA_DEPTH, max_values: int = MAX_VALUES, max_text: int = MAX_TEXT
) -> Any:
    """A copy of exact `dict`, `list`, `str`, `int`, `float`, `bool`, None; raises as `measure` does."""
    # Counted whole before anything is copied, so that the copy needs no limits of its own.
    measure(value, max_depth=max_depth, max_values=max_values, max_text=max_text)
    holder: list[Any] = [value]
    waiting: list[Any] = [holder]
    while waiting:
        home = waiting.pop()
        for place, item in list(home.items()) if type(home) is dict else enumerate(home):
            if type(item) in _PLAIN:
                continue

            if isinstance(item, Mapping):
                copied: Any = {str.__str__(key): inner for key, inner in item.items()}
                waiting.append(copied)
            elif isinstance(item, list | tuple):
                copied = list(item)
                waiting.append(copied)
            else:
                base = next(kind for kind in (str, int, float) if isinstance(item, kind))
                copied = str.__str__(item) if base is str else base(item)

            home[place] = copied

    return holder[0]


def is_wide(value: object) -> bool:
    """Whether `value` is an integer beyond 64 bits, which the engine keeps in another, slow form."""
    if not isinstance(value, int) or -(2**63) <= value < 2**63:
        return False

    if value.bit_length() > MAX_INTEGER_BITS:
        raise NotPlainError(f"it holds an integer of {value.bit_length()} bits")

    return True


def _check_key(key: object) -> None:
    if not isinstance(key, str):
        raise NotPlainError(f"it has a key of type {type(key).__name__!r}, and JSON keys are text")


def _check_number(value: object) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise NotPlainError(f"it holds {value}, which JSON does not have")


_PLAIN = frozenset({str, int, float, bool, type(None)})
