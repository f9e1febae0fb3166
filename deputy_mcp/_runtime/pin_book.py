"""`PinBook`: where pins are kept, and how often they are compared. The only reader and writer of pin files.

It promises that a file is written whole or not at all, that two processes which write at once lose nothing of each
other's, and that a file which cannot be read refuses and is never taken for an empty one.
"""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from attrs import evolve, field, frozen

from deputy_mcp._core.config import MIB
from deputy_mcp._core.errors import ConfigError
from deputy_mcp._core.frozen import check_number, wrong_type
from deputy_mcp._core.pin_book import ServerPins, decode_pins, encode_pins
from deputy_mcp._core.pinning import Pinned, definition_digest, tool_digest

Verify = Literal["call", "change"]
NewServers = Literal["pin", "refuse"]

MAX_PIN_FILE_BYTES = 64 * MIB
"""A larger file is refused unread; real ones hold a few kilobytes a tool."""

MODE = 0o644
"""It belongs in version control. It holds what servers say of themselves, and no secret unless one repeats it there."""


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

    def stamp(self) -> object:
        """A value that changes when somebody else writes the file; None without one."""
        if self.path is None:
            return None

        try:
            found = self.path.stat()
        except OSError as error:
            return error.errno

        return found.st_mtime_ns, found.st_ino, found.st_size

    def read(self) -> Mapping[str, ServerPins]:
        """All pins in the file; {} when there is none yet. Raises `ConfigError`."""
        assert self.path is not None
        try:
            with self.path.open("rb") as file:
                raw = file.read(MAX_PIN_FILE_BYTES + 1)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._error(f"cannot be read: {error.strerror}") from None

        if len(raw) > MAX_PIN_FILE_BYTES:
            raise self._error(f"has more than {MAX_PIN_FILE_BYTES} bytes")

        try:
            return decode_pins(raw.decode())
        except (ConfigError, UnicodeDecodeError) as error:
            raise self._error(
                f"is refused: {error}; restore it from version control, or remove it to pin anew"
            ) from None

    def add(self, server: str, pins: ServerPins) -> ServerPins:
        """Keep a new server's pins and give what is kept; whoever came first counts. Raises `ConfigError`."""
        kept = self._change(lambda known: known if server in known else {**known, server: pins})
        return kept[server]

    def accept(
        self, server: str, name: str, definition: Mapping[str, Any] | None, findings: frozenset[str] = frozenset()
    ) -> None:
        """A person accepts that this is what `name` is now (None: that it is gone), and these findings on it.

        `name`: a tool's, or `#instructions`, `#prompts/NAME`, `#resources/URI`. Raises `ConfigError`.
        """
        self._change(
            lambda known: {**known, server: accepted(known.get(server, ServerPins()), name, definition, findings)}
        )

    def _error(self, what: str) -> ConfigError:
        return ConfigError(f"pin file {self.path} {what}", key="pins", path=str(self.path))

    def _change(
        self, change: Callable[[Mapping[str, ServerPins]], Mapping[str, ServerPins]]
    ) -> Mapping[str, ServerPins]:
        assert self.path is not None
        try:
            with _locked(self.path):
                before = self.read()
                after = change(before)
                if after != before or not self.path.exists():
                    _write_whole(self.path, encode_pins(after))

                return after
        except OSError as error:
            raise self._error(f"cannot be written: {error.strerror}") from None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone among all who change this file. A lock beside it: the file itself is replaced by each writing."""
    import fcntl  # here: Windows has none, and the library must import there

    descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write_whole(path: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())

        os.chmod(name, path.stat().st_mode & 0o777 if path.exists() else MODE)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)

        raise


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
