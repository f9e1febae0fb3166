"""One journal on disk: its lock, its lines, its rotation. Bodies in, whole chained lines in the file or none of them.

Not a buffer, and nothing about events: `journal` decides what is written when. It promises
- one process a file, by a lock on a file beside it, which is never renamed or removed;
- a file whose chain is broken is refused; the torn line of a crash is cut off and told;
- a failed or short write leaves no part of a line: it is cut back at once, or before anything else is written;
- wherever a rotation is interrupted, the next one who opens goes on from the last file's last line;
- a file that somebody else moved, removed, cut or wrote to is not written to.

On disk: `audit.jsonl` is written to, `audit.jsonl.000001`, `.000002`, … are the full ones, the oldest first;
`audit.jsonl.lock` is the lock.
"""

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from attrs import frozen

from deputy_mcp._core.audit import MAX_LINE_BYTES
from deputy_mcp._core.audit_chain import CHAIN_START, Verdict, chain_lines, verify_lines
from deputy_mcp._core.errors import ConfigError
from deputy_mcp._runtime.journal_sync import Syncer, datasync

_NUMBER = re.compile(r"\.([0-9]{6,12})\Z")


def read_lines(path: str | Path) -> Iterator[bytes]:
    """The lines of a file, with their breaks; one that is too long for a journal in pieces."""
    with open(path, "rb", buffering=1024 * 1024) as file:
        while line := file.readline(MAX_LINE_BYTES + 1):
            yield line


def rotated_files(path: str | Path) -> list[Path]:
    """The full files that came before this one and are still beside it, oldest first."""
    path = Path(path)
    numbers = {number: name for name in os.listdir(path.parent) if (number := _number_after(path.name, name))}
    return [path.parent / numbers[number] for number in sorted(numbers)]


def _number_after(name: str, rotated: str | None) -> int | None:
    if rotated is None or not rotated.startswith(name):
        return None

    number = _NUMBER.fullmatch(rotated, len(name))
    return int(number[1]) if number is not None else None


@frozen(kw_only=True)
class Found:
    """What stood there when a journal was opened."""

    new: bool
    """There was nothing: this is the beginning of a chain."""
    closed: bool
    """The last one who wrote closed it."""
    torn: bytes = b""
    """The piece of a line that was cut off."""


class JournalFile:
    """Made by `open_journal_file`; see the module."""

    # Mutable state: the descriptors; the end of the chain and of the file; the highest number of a full file; whether
    # a piece of a failed write may stand behind that end, whether the file was renamed and its successor is not there
    # yet, whether the disk failed and has not been seen to work since.
    def __init__(
        self,
        path: Path,
        lock: int,
        begin: Callable[[str | None], str],
        *,
        key: bytes | None,
        fsync: bool,
        max_bytes: int | None,
    ) -> None:
        self.path = path
        self._place = str(path)
        self.seq = 0
        self.head = CHAIN_START
        self._lock = lock
        self._begin = begin
        self._key = key
        self._max_bytes = max_bytes
        self._pid = os.getpid()
        self._fd = -1
        self._size = 0
        self._identity = (0, 0)
        self._continues: str | None = None
        self._rotations = 0
        self._dirty = False
        self._moved = False
        self._doubtful = False
        self._syncer = Syncer(str(path.parent)) if fsync else None

    def append(self, bodies: list[str]) -> int:
        """Write them as lines, all or none (`OSError`); gives the number of the first."""
        if os.getpid() != self._pid:
            raise OSError(errno.EBADF, f"it belongs to process {self._pid}, of which this is a fork")

        if self._syncer is not None and (failure := self._syncer.take_failure()) is not None:
            self._doubtful = True
            raise failure

        self._cut_back()
        if not self._moved:
            self._check_place()

        data, head, count = self._chained(bodies)
        full = self._max_bytes is not None and self._size > 0 and self._size + len(data) > self._max_bytes
        if full or self._moved:
            self._rotate()
            data, head, count = self._chained(bodies)

        self._write(data)
        self._size += len(data)
        self.seq += count
        self.head = head
        if self._syncer is not None:
            self._syncer.want()

        return self.seq - len(bodies) + 1

    def close(self) -> None:
        """Let go of file and lock. Twice is fine. Raises `OSError` when the last lines may not be on the disk."""
        fd, self._fd = self._fd, -1
        lock, self._lock = self._lock, -1
        try:
            if self._syncer is not None:
                self._syncer.stop()
        finally:
            for one in (fd, lock):
                if one >= 0:
                    # A descriptor that is closed already, or the error of a write that was told long ago.
                    with contextlib.suppress(OSError):
                        os.close(one)

    def _chained(self, bodies: list[str]) -> tuple[bytes, str, int]:
        if self._size == 0:
            bodies = [self._begin(self._continues), *bodies]

        return *chain_lines(bodies, self.seq, self.head, self._key), len(bodies)

    def _check_place(self) -> None:
        # One system call a write: without it a journal that was deleted would be written to, and calls made, for ever.
        try:
            found = os.stat(self._place)
        except FileNotFoundError:
            raise OSError(errno.ENOENT, "it was moved or removed; put it back") from None

        if (found.st_dev, found.st_ino) != self._identity:
            raise OSError(errno.ESTALE, "another file stands in its place; put the journal back")

        if found.st_size != self._size:
            raise OSError(errno.ESTALE, "somebody else wrote to it or cut it; close it and check its chain")

    def _write(self, data: bytes) -> None:
        left = data
        try:
            while left:
                # A full disk takes a part first and fails at the next.
                self._dirty = True
                left = left[os.write(self._fd, left) :]

            if self._doubtful:
                datasync(self._fd)
                self._doubtful = False
        except BaseException:
            # Where even this fails, it is done before the next write, and by whoever opens the file after a crash.
            with contextlib.suppress(OSError):
                self._cut_back()

            raise

        self._dirty = False

    def _cut_back(self) -> None:
        if self._dirty:
            os.ftruncate(self._fd, self._size)
            self._dirty = False

    def _rotate(self) -> None:
        """Rename, then begin anew. Interrupted between the two, `append` and `open_journal_file` go on from there."""
        if not self._moved:
            number = max(
                [self._rotations, *(_number_after(self.path.name, f.name) or 0 for f in rotated_files(self.path))]
            )
            self._rotations = number + 1
            full = self.path.with_name(f"{self.path.name}.{self._rotations:06d}")
            os.rename(self.path, full)
            self._continues = full.name
            self._moved = True

        old, fd = self._fd, _open_file(self.path, os.O_EXCL)
        try:
            self._use(fd, 0)
        except BaseException:
            os.unlink(self.path)
            os.close(fd)
            raise

        self._moved = False
        os.close(old)

    def _use(self, fd: int, size: int) -> None:
        found = os.fstat(fd)
        if self._syncer is not None:
            self._syncer.use(os.dup(fd))

        self._fd, self._size = fd, size
        self._identity = (found.st_dev, found.st_ino)

    def _take_over(self) -> Found:
        """Open the file, or begin it, and find the end of the chain."""
        self._fd = _open_file(self.path)
        verdict, torn, size = self._inspect(self.path)
        self._use(self._fd, size)
        self._continues = verdict.continues
        rotated = rotated_files(self.path)
        if verdict.lines == 0 and rotated:
            # A crash in the middle of a rotation: the chain goes on from the newest full file.
            verdict, more, _ = self._inspect(rotated[-1])
            torn = more + torn
            self._continues = rotated[-1].name

        self._rotations = _number_after(self.path.name, self._continues) or 0
        self.seq, self.head = verdict.seq, verdict.head
        return Found(new=verdict.lines == 0, closed=verdict.closed, torn=torn)

    def _inspect(self, file: Path) -> tuple[Verdict, bytes, int]:
        """The verdict on a file, the torn line that was cut off it, and its size now. Raises `ConfigError`."""
        verdict = verify_lines(read_lines(file), key=self._key)
        if verdict.code == "key_needed":
            _refuse(file, f"{verdict.message}; give the key, or begin another file")

        if not verdict.intact:
            _refuse(
                file,
                f"{verdict.message}; it is not continued. Keep it for whoever has to find out, and move it away or "
                "name another file",
            )

        size = os.stat(file).st_size
        if not verdict.torn_bytes:
            return verdict, b"", size

        size -= verdict.torn_bytes
        fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        try:
            torn = os.pread(fd, verdict.torn_bytes, size)
            if not verdict.lines and not b'{"seq":'.startswith(torn[:7]) and torn.strip(b"\0"):
                _refuse(file, "it is no journal; name another file")

            os.ftruncate(fd, size)
        finally:
            os.close(fd)

        return verdict, torn, size


def open_journal_file(
    path: str | Path,
    begin: Callable[[str | None], str],
    *,
    key: bytes | None,
    fsync: bool,
    max_bytes: int | None,
) -> tuple[JournalFile, Found]:
    """Lock, open or create, and check a journal. Reads the whole file. Raises `ConfigError`.

    `begin` makes the body of a `begin` line, given the name of the file that this one goes on from.
    """
    # One file has one lock, whatever link it is named by.
    real = Path(os.path.realpath(path))
    try:
        if real.exists() and not stat.S_ISREG(os.stat(real).st_mode):
            _refuse(real, "it is no regular file; name one")

        lock = _lock(real)
        file = JournalFile(real, lock, begin, key=key, fsync=fsync, max_bytes=max_bytes)
        try:
            return file, file._take_over()
        except BaseException:
            with contextlib.suppress(OSError):
                file.close()

            raise
    except FileNotFoundError:
        _refuse(real, f"there is no folder {str(real.parent)!r}; make it or name another")
    except OSError as error:
        _refuse(real, f"it cannot be opened: {error.strerror or type(error).__name__}; mend that or name another file")


def _open_file(path: Path, more: int = 0) -> int:
    # 0600: it says what was done when, and with `record_arguments` with what.
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | more, 0o600)


def _lock(path: Path) -> int:
    try:
        import fcntl
    except ImportError:  # Windows
        _refuse(path, "a journal needs flock, which this system does not have")

    fd = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        _refuse(path, "another process, or another connection of this one, writes to it; give each a file of its own")
    except BaseException:
        os.close(fd)
        raise

    return fd


def _refuse(path: Path, what: str) -> NoReturn:
    raise ConfigError(f"journal {str(path)!r}: {what}", key="journal", path=str(path))
