"""`PinBook`: where pins are kept, and how often they are compared. Files are read and written by `pin_file`."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from attrs import evolve, field, frozen

from deputy_mcp._core.errors import ConfigError
from deputy_mcp._core.frozen import check_number, wrong_type
from deputy_mcp._core.pin_book import ServerPins
from deputy_mcp._core.pinning import Pinned, definition_digest, tool_digest
from deputy_mcp._runtime.pin_file import PinFile

Verify = Literal["call", "change"]
NewServers = Literal["pin", "refuse"]


def _path(value: Any) -> Path | None:
    if value is None:
        return None

    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        wrong_type("pins", value, "a path")

    # Where a link leads: writing replaces the file, and must not replace the link.
    return Path(os.path.realpath(value))


@frozen(kw_only=True)
class PinBook:
    """Where pins are kept and when they are verified. A value: making one reads and writes nothing.

    `path` None: in memory, from each server's first listing on, for the life of the connection. A file outlives it and
    belongs in version control. Raises `ConfigError`.
    """

    path: Path | None = field(default=None, converter=_path, kw_only=False)
    verify: Verify = "call"
    """`call`: listed again before each call. `change`: when the server says that its list changed, after each restart,
    and when the last listing is older than `verify_interval_seconds`."""
    verify_interval_seconds: float = 300
    new_servers: NewServers = "pin"
    """A server that the file does not know: pinned as it is, or refused."""

    def __attrs_post_init__(self) -> None:
        check_number("verify_interval_seconds", self.verify_interval_seconds)
        for key, choices in (("verify", Verify), ("new_servers", NewServers)):
            if getattr(self, key) not in get_args(choices):
                raise ConfigError(f"{key} must be one of {', '.join(get_args(choices))}", key=key)

        if self.path is None and self.new_servers == "refuse":
            raise ConfigError('new_servers="refuse" needs a file: pins in memory are new each time', key="new_servers")

    def read(self) -> Mapping[str, ServerPins]:
        """All pins in the file; {} when there is none yet. Raises `ConfigError`."""
        assert self.path is not None
        return PinFile(self.path).read().pins

    def add(self, server: str, pins: ServerPins) -> ServerPins:
        """Keep a new server's pins and give what is kept; whoever came first counts. Raises `ConfigError`."""
        assert self.path is not None
        return PinFile(self.path).change(lambda known: {server: pins, **known}).pins[server]

    def accept(
        self, server: str, name: str, definition: Mapping[str, Any] | None, findings: frozenset[str] = frozenset()
    ) -> None:
        """A person accepts that this is what `name` is now (None: that it is gone), and these findings on it.

        `name`: a tool's, or `#instructions`, `#prompts/NAME`, `#resources/URI`. Raises `ConfigError`.
        """
        assert self.path is not None
        PinFile(self.path).change(
            lambda known: {**known, server: accepted(known.get(server, ServerPins()), name, definition, findings)}
        )


def accepted(pins: ServerPins, name: str, definition: Mapping[str, Any] | None, findings: frozenset[str]) -> ServerPins:
    """`pins` with what a person accepts put in, or taken out."""
    if name == "#instructions":
        return evolve(pins, instructions=None if definition is None else definition["instructions"])

    if name.startswith("#prompts/"):
        return evolve(pins, prompts=_put(pins.prompts, name.removeprefix("#prompts/"), definition, definition_digest))

    if name.startswith("#resources/"):
        key = name.removeprefix("#resources/")
        return evolve(pins, resources=_put(pins.resources, key, definition, definition_digest))

    tools = _put(pins.tools, name, definition, tool_digest)
    if definition is not None:
        tools[name] = evolve(tools[name], accepted=findings)

    return evolve(pins, tools=tools)


def _put(
    pins: Mapping[str, Pinned],
    name: str,
    definition: Mapping[str, Any] | None,
    digest: Callable[[Mapping[str, Any]], str],
) -> dict[str, Pinned]:
    kept = {key: pin for key, pin in pins.items() if key != name}
    if definition is not None:
        kept[name] = Pinned(digest=digest(definition), raw=definition)

    return kept


def check_pins(value: object) -> PinBook:
    """The connection's `pins`: a `PinBook`, the path of a file, or None. Raises `ConfigError`."""
    if isinstance(value, PinBook):
        return value

    return PinBook(value)
