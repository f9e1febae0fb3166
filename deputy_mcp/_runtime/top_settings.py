"""What `"deputy"` at the top of a configuration file says of the connection: permissions, pins, journal.

Pins and journal are a path, or an object of the constructor's fields with `path`. Relative paths are the file's
folder's; `~/` is the home folder.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from attrs import fields_dict, frozen

from deputy_mcp._core.entries import (
    OWN_KEY,
    PERMISSION_KEYS,
    built,
    check_repeated,
    checked_keys,
    expand,
    placed,
    plain,
)
from deputy_mcp._core.errors import ConfigError
from deputy_mcp._core.frozen import check_text
from deputy_mcp._core.permissions import Permissions
from deputy_mcp._runtime.journal import Journal
from deputy_mcp._runtime.pin_book import PinBook

T = TypeVar("T")

TOP_KEYS = ("permissions", "pins", "journal")
"""What `"deputy"` at the top of a file may hold."""
PIN_KEYS = tuple(fields_dict(PinBook))
JOURNAL_KEYS = ("path", "record_arguments", "key", "fsync", "max_bytes")
"""The constructor's fields that a file can state; a callback it cannot."""


@frozen(kw_only=True)
class TopSettings:
    """What the file says; None where it says nothing."""

    permissions: Permissions | None = None
    pins: PinBook | None = None
    journal: Journal | None = None


def read_top(value: Mapping[str, Any], *, folder: Path, home: str | None, variables: Mapping[str, str]) -> TopSettings:
    """The settings under `"deputy"` of a whole file. Raises `ConfigError`."""
    if OWN_KEY not in value:
        return TopSettings()

    def place(path: str) -> str:
        if path == "~" or path.startswith("~/"):
            if home is None:
                raise ConfigError("path begins with ~ and the home folder is unknown; write it out", key="path")

            return home.rstrip("/") + path[1:]

        return str(folder / path)

    def make_journal(**given: Any) -> Journal:
        if "path" not in given:
            raise ConfigError('it needs a "path"', key="path")

        if isinstance(given.get("key"), str):
            given["key"] = expand("key", given["key"], variables, lambda _: None)

        return Journal(**given)

    with placed(f'"{OWN_KEY}" at the top', under=OWN_KEY):
        check_repeated(value[OWN_KEY])
        settings = checked_keys(plain(value[OWN_KEY]), TOP_KEYS)
        return TopSettings(
            permissions=built(Permissions, "permissions", settings.get("permissions"), PERMISSION_KEYS),
            pins=_kept(PinBook, "pins", settings.get("pins"), PIN_KEYS, place),
            journal=_kept(make_journal, "journal", settings.get("journal"), JOURNAL_KEYS, place),
        )


def _kept(
    kind: Callable[..., T], key: str, value: object, known: tuple[str, ...], place: Callable[[str], str]
) -> T | None:
    """Something that is kept in a file: `value` is its path, or an object with `path`."""
    if isinstance(value, str):
        value = {"path": value}

    def make(**given: Any) -> T:
        if given.get("path") is not None:
            given["path"] = place(check_text("path", given["path"]))

        return kind(**given)

    return built(make, key, value, known)
