"""One pin file as one connection sees it: read where somebody wrote it, changed under its lock, shared by all servers.

The only reader and writer of pin files. It promises that a file is written whole or not at all, that two processes
which write at once lose nothing of each other's, and that a file which cannot be read refuses and is never taken for an
empty one. Servers that are pinned while it is being written share the next writing.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

from deputy_mcp._core.config import MIB
from deputy_mcp._core.errors import ConfigError
from deputy_mcp._core.frozen import FrozenMapping
from deputy_mcp._core.pin_book import ServerPins, decode_pins, encode_server, join_servers

MAX_PIN_FILE_BYTES = 64 * MIB
"""A larger file is refused unread; real ones hold a few kilobytes a tool."""

MODE = 0o644
"""It belongs in version control. It holds what servers say of themselves, and no secret unless one repeats it there."""


@attrs.frozen(kw_only=True)
class Seen:
    """What stood in the file when it was last read or written here."""

    stamp: object
    """A value that changes when somebody writes the file."""
    pins: Mapping[str, ServerPins]
    sha256: bytes
    """Of its bytes: a file that is still the same is not understood anew."""
    parts: Mapping[str, str] = attrs.field(factory=FrozenMapping, repr=False)
    """Its text by server, as far as it was written here."""


@attrs.define(eq=False)
class _Batch:
    """New servers that are written together."""

    added: dict[str, ServerPins] = attrs.field(factory=dict)
    written: Seen | None = None
    error: ConfigError | None = None


class PinFile:
    """See the module."""

    # Mutable state: what was seen last, replaced as a whole, since threads do it; the servers that wait to be added.
    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: Seen | None = None
        self._turn = anyio.Lock()
        self._next = _Batch()

    def stamp(self) -> object:
        """The `Seen.stamp` of the file as it stands there now."""
        try:
            return _stamp(self.path.stat())
        except OSError as error:
            return error.errno

    async def see(self) -> Seen:
        """What stands in the file; read, in a thread, where somebody else wrote it. Raises `ConfigError`."""
        stamp = self.stamp()
        if self._seen is not None and self._seen.stamp == stamp:
            return self._seen

        async with self._turn:
            if self._seen is not None and self._seen.stamp == stamp:
                return self._seen

            return await anyio.to_thread.run_sync(self.read, abandon_on_cancel=True)

    async def add(self, server: str, pins: ServerPins) -> Seen:
        """Keep a new server's pins; whoever came first counts. What then stands in the file. Raises `ConfigError`."""
        batch = self._next
        batch.added[server] = pins
        async with self._turn:
            if batch.written is None and batch.error is None:
                # Also a second time, where whoever wrote it first was cancelled: then all of it is known already.
                if self._next is batch:
                    self._next = _Batch()

                try:
                    batch.written = await anyio.to_thread.run_sync(
                        self.change, lambda known: {**batch.added, **known}, abandon_on_cancel=True
                    )
                except ConfigError as error:
                    batch.error = error

        if batch.error is not None:
            raise batch.error

        assert batch.written is not None
        return batch.written

    def read(self) -> Seen:
        """What stands in the file; nothing when there is none yet. Raises `ConfigError`."""
        try:
            with self.path.open("rb") as file:
                stamp = _stamp(os.fstat(file.fileno()))
                raw = file.read(MAX_PIN_FILE_BYTES + 1)
        except FileNotFoundError as error:
            self._seen = Seen(stamp=error.errno, pins={}, sha256=b"")
            return self._seen
        except OSError as error:
            raise self._error(f"cannot be read: {error.strerror}") from None

        if len(raw) > MAX_PIN_FILE_BYTES:
            raise self._error(f"has more than {MAX_PIN_FILE_BYTES} bytes")

        sha256 = hashlib.sha256(raw).digest()
        before = self._seen
        if before is not None and before.sha256 == sha256:
            seen = attrs.evolve(before, stamp=stamp)
        else:
            try:
                seen = Seen(stamp=stamp, pins=decode_pins(raw.decode()), sha256=sha256)
            except (ConfigError, UnicodeDecodeError) as error:
                raise self._error(
                    f"is refused: {error}; restore it from version control, or remove it to pin anew"
                ) from None

        self._seen = seen
        return seen

    def change(self, change: Callable[[Mapping[str, ServerPins]], Mapping[str, ServerPins]]) -> Seen:
        """Change what stands in the file, alone among all who do; what then stands there. Raises `ConfigError`."""
        try:
            with _locked(self.path):
                before = self.read()
                after = change(before.pins)
                if after != before.pins or not self.path.exists():
                    self._seen = self._write(before, after)
                    return self._seen

                return before
        except OSError as error:
            raise self._error(f"cannot be written: {error.strerror}") from None

    def _write(self, before: Seen, after: Mapping[str, ServerPins]) -> Seen:
        known = {name: part for name, part in before.parts.items() if after.get(name) is before.pins[name]}
        parts = {name: known.get(name) or encode_server(name, pins) for name, pins in after.items()}
        raw = join_servers(parts).encode()
        return Seen(stamp=_write_whole(self.path, raw), pins=after, sha256=hashlib.sha256(raw).digest(), parts=parts)

    def _error(self, what: str) -> ConfigError:
        return ConfigError(f"pin file {self.path} {what}", key="pins", path=str(self.path))


def _stamp(found: os.stat_result) -> object:
    return found.st_mtime_ns, found.st_ino, found.st_size


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


def _write_whole(path: Path, raw: bytes) -> object:
    """Replace the file by one of these bytes; gives its stamp."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
            stamp = _stamp(os.fstat(file.fileno()))

        os.chmod(name, path.stat().st_mode & 0o777 if path.exists() else MODE)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)

        raise

    return stamp
