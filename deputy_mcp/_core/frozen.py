"""How our values are frozen: read-only mappings, tuples, and the plain-type checks their validators share."""

import math
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

from deputy_mcp._core.errors import ConfigError

V = TypeVar("V")


class FrozenMapping(Mapping[str, V]):
    """A read-only copy of a mapping, whose repr shows only its keys.

    Only the keys: values of `env` and `headers` are secrets, and a repr ends up in logs.
    """

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, V] | Iterable[tuple[str, V]] = ()) -> None:
        self._items = MappingProxyType(dict(items))

    def __getitem__(self, key: str) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    # What follows `Mapping` gives as well, ten times slower, and listings hold thousands of these.
    def __contains__(self, key: object) -> bool:
        return key in self._items

    def get(self, key: str, default: Any = None) -> Any:
        return self._items.get(key, default)

    def keys(self) -> KeysView[str]:
        return self._items.keys()

    def values(self) -> ValuesView[V]:
        return self._items.values()

    def items(self) -> ItemsView[str, V]:
        return self._items.items()

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{key!r}: …" for key in self._items) + "}"


def wrong_type(key: str, value: object, expected: str) -> NoReturn:
    """Raise the one error for a value of the wrong type; it names the type, never the value (it may be a secret)."""
    raise ConfigError(f"{key} must be {expected}, not {type(value).__name__}", key=key)


def check_text(key: str, value: object, *, empty: bool = False) -> str:
    """`value` as a string without NUL, not empty unless allowed."""
    if not isinstance(value, str):
        wrong_type(key, value, "a string")

    if not value and not empty:
        raise ConfigError(f"{key} must not be empty", key=key)

    if "\0" in value:
        raise ConfigError(f"{key} holds a NUL character; remove it", key=key)

    return value


def check_texts(key: str, value: object) -> tuple[str, ...]:
    """`value` as a tuple of strings. A bare string is refused: it would become its characters."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        wrong_type(key, value, "a list of strings")

    return tuple(check_text(f"{key}[{i}]", item, empty=True) for i, item in enumerate(value))


def check_flag(key: str, value: object) -> bool:
    """`value` as a real boolean; 1 and "true" are not."""
    if not isinstance(value, bool):
        wrong_type(key, value, "true or false")

    return value


def check_number(key: str, value: object, *, above_zero: bool = False) -> float:
    """`value` as a finite number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        wrong_type(key, value, "a number")

    # The bound comes first: isfinite() cannot take an integer beyond the floats.
    if not 0 <= value <= 1e12 or not math.isfinite(value) or (above_zero and value == 0):
        raise ConfigError(f"{key} must be {'above zero' if above_zero else 'zero or more'} and finite", key=key)

    return value


def check_count(key: str, value: object, *, least: int = 0) -> int:
    """`value` as a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        wrong_type(key, value, "a whole number")

    if value < least:
        raise ConfigError(f"{key} must be {least} or more", key=key)

    return value


def check_mapping(key: str, value: object) -> Mapping[str, Any]:
    """`value` as a mapping with string keys."""
    if not isinstance(value, Mapping):
        wrong_type(key, value, "an object of names and values")

    for name in value:
        check_text(f"a name in {key}", name)

    return value
