"""The journal of a connection: what is written when, and what happens when it cannot be.

A line is buffered by `append` (what happened: nobody waits for it) or by `announce` (what is about to happen: it is
not done before `secure` found its line in the file). All lines of one turn of the event loop go out in one write. The
laws:

- What was announced and could not be written is not done, and never stands in the journal as if it had been.
- What `append` said is kept while the file cannot be written, up to `KEPT_BYTES`; the first line afterwards is a `gap`
  that says for how long, and how many lines were lost.
- Once a write failed, everybody who secures a line is refused until one succeeds; each of them tries.

Not here: files (`journal_file`), the shape of a line (`_core.audit`), what is worth a line (the gate and the servers).
"""

import errno
import hashlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Unpack

from attrs import define

from deputy_mcp._core.audit import FORMAT_VERSION, JUDGED, EventKind, RecordEncoder, RecordFields
from deputy_mcp._core.audit_chain import CHAIN_START, chain_kind
from deputy_mcp._core.errors import ConfigError, JournalUnavailableError
from deputy_mcp._core.frozen import check_count, check_flag, check_text, wrong_type
from deputy_mcp._core.redaction import Redact
from deputy_mcp._runtime.journal_file import Found, JournalFile, open_journal_file
from deputy_mcp._runtime.log import log_event
from deputy_mcp._runtime.turns import at_end_of_turn, running_loop

KEPT_BYTES = 1024 * 1024
"""Lines kept while the file cannot be written; later ones are only counted."""
BUFFERED_BYTES = 256 * 1024
"""Past this, lines are written at once."""


@define(eq=False)
class Line:
    """A line that is not in the file yet. `announce` gives one; `secure` or `withdraw` it."""

    body: str
    intent: bool = False
    """It announces something: it is secured before that is done, and withdrawn otherwise."""
    seq: int | None = None
    """Its number, once it is written."""
    failure: OSError | None = None


@define(eq=False)
class _Outage:
    """From the first write that failed until one succeeds."""

    since: float
    reason: str
    lost: int = 0
    refused: int = 0


class Journal:
    """An append-only, hash-chained record of what a connection did: `McpConnection(journal=Journal(path))`.

    `path`: the file, made with mode 0600 if it is not there. `record_arguments`: whether the arguments of calls stand
    in it, redacted; otherwise only their SHA-256. `redact`: a synchronous callable from a copy of the arguments to what
    may be recorded of them; secrets and what is named like one are hidden after it all the same. `key`: with it the
    chain is made by HMAC-SHA256, so that nobody without it can make it anew. `fsync`: bring the lines to the disk
    itself, behind the calls. `max_bytes`: a file that would grow larger is renamed (`.000001`, …) and the chain goes on
    in a new one.

    A value: it opens nothing before a connection does, and one connection has it at a time. Raises `ConfigError`.
    """

    # Mutable state: the open file; the lines not yet written and their bytes; the loop that was asked to write at the
    # end of its turn; the outage; lines that came while it was closed.
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        record_arguments: bool = False,
        redact: Redact | None = None,
        key: bytes | str | None = None,
        fsync: bool = False,
        max_bytes: int | None = None,
    ) -> None:
        text = os.fspath(path) if isinstance(path, os.PathLike) else path
        self.path = Path(check_text("path", text))
        """The file, as given."""
        self.record_arguments = check_flag("record_arguments", record_arguments)
        self.fsync = check_flag("fsync", fsync)
        self.max_bytes = None if max_bytes is None else check_count("max_bytes", max_bytes, least=1)
        if redact is not None and not callable(redact):
            wrong_type("redact", redact, "a callable")

        if redact is not None and not record_arguments:
            raise ConfigError("redact has no effect without record_arguments=True", key="redact")

        self._key = _checked_key(key)
        self._encoder = RecordEncoder(record_arguments=self.record_arguments, redact=redact)
        if isinstance(key, str):
            self._encoder.add_secrets((key,))

        self._file: JournalFile | None = None
        self._pending: list[Line] = []
        self._pending_bytes = 0
        self._asked: object = None
        self._outage: _Outage | None = None
        self._late = 0

    def __repr__(self) -> str:
        state = "closed" if self._file is None else "broken" if self._outage else f"open, {self._file.seq} lines"
        return f"<Journal {str(self.path)!r}: {state}>"

    @property
    def head(self) -> str:
        """The hash of the last line in the file. Noted elsewhere, it shows later that nothing before it was cut off."""
        return self._file.head if self._file is not None else CHAIN_START

    @property
    def broken(self) -> bool:
        """Whether the latest write failed."""
        return self._outage is not None

    def add_secrets(self, secrets: Iterable[str], *, servers: Iterable[str] = ()) -> None:
        """Mask these values from now on. `servers`: names that are shown even where one equals a secret."""
        self._encoder.add_secrets(secrets, servers=servers)

    def open(self) -> None:
        """Lock, check and begin or continue the file; blocks while it reads it.

        Raises `ConfigError` where it is in use, is no journal or was tampered with, `JournalUnavailableError` when its
        first line cannot be written.
        """
        if self._file is not None:
            raise ConfigError(
                f"journal {str(self.path)!r} is in use by another connection; give each a journal of its own",
                key="journal",
                path=str(self.path),
            )

        self._file, found = open_journal_file(
            self.path, self._begin, key=self._key, fsync=self.fsync, max_bytes=self.max_bytes
        )
        self._say_found(found)
        try:
            self.flush()
        except JournalUnavailableError:
            self._let_go()
            raise

    def _say_found(self, found: Found) -> None:
        if found.torn:
            self.append(
                "recovered",
                torn_bytes=len(found.torn),
                torn_sha256=hashlib.sha256(found.torn).hexdigest(),
                torn=found.torn.decode("ascii", "backslashreplace"),
            )

        self.append("open", pid=os.getpid(), closed=None if found.new else found.closed)

    def close(self) -> None:
        """Write what is left and let go of the file. Twice is fine. What could not be written is logged, not raised."""
        if self._file is None:
            return

        for line in [line for line in self._pending if line.intent]:
            self.withdraw(line)
            line.failure = OSError(errno.EBADF, "it was closed")

        self.append("close")
        self._write(self._file)
        if self._pending:
            log_event("journal_lost", level="warning", path=str(self.path), lines=len(self._pending))

        self._let_go()

    def _let_go(self) -> None:
        file, self._file = self._file, None
        assert file is not None
        self._pending, self._pending_bytes, self._outage = [], 0, None
        try:
            file.close()
        except OSError as error:
            log_event("journal_unavailable", level="warning", path=str(self.path), reason=_reason(error))

    def append(self, event: EventKind, **fields: Unpack[RecordFields]) -> None:
        """Buffer a line about what happened. It is written with the others of this turn of the loop.

        Does not wait, and never raises because of the disk. Without an event loop the next `flush` writes it.
        """
        if self._file is None:
            self._say_late()
            return

        self._take(Line(self._encoder.encode(event, time.time(), fields)))
        if self._pending_bytes > BUFFERED_BYTES and self._outage is None:
            self._write(self._file)
        elif (loop := running_loop()) is not self._asked:
            self._asked = loop
            if loop is not None:
                at_end_of_turn(loop, self._end_of_turn)

    def together(self, act: Callable[[], None]) -> None:
        """Run `act`, and write what it appends at once, in one write."""
        asked, self._asked = self._asked, running_loop()
        try:
            act()
        finally:
            self._asked = asked
            if self._file is not None:
                self._write(self._file)

    def announce(self, event: EventKind, **fields: Unpack[RecordFields]) -> Line:
        """Buffer a line about what is going to happen; that must not be done before `secure` returned for it.

        Raises `JournalUnavailableError` where the journal is not open.
        """
        line = Line(self._encoder.encode(event, time.time(), fields), intent=True)
        if self._file is None:
            raise self._unavailable(
                "it is not open", fields | dict(zip(JUDGED, fields.get("judged", ()), strict=False))
            )

        self._take(line)
        return line

    def secure(self, line: Line, **names: Unpack[RecordFields]) -> int:
        """Bring an announced line into the file, with all that are buffered, if it is not there; gives its `seq`.

        Raises `JournalUnavailableError` (of `names`) when it cannot be written: then it never will be.
        """
        if line.seq is None and line.failure is None and self._file is not None:
            self._write(self._file)

        if line.seq is None:
            raise self._unavailable(_reason(line.failure), names)

        return line.seq

    def flush(self) -> None:
        """Write all buffered lines in one write. Raises `JournalUnavailableError`: the journal is broken then."""
        if self._file is None:
            raise self._unavailable("it is not open", {})

        if (error := self._write(self._file)) is not None:
            raise self._unavailable(_reason(error), {}) from error

    def _write(self, file: JournalFile) -> OSError | None:
        """As `flush`; what went wrong is told by `_fail`, and to each who secures a line."""
        if not self._pending and self._outage is None:
            return None

        outage, lines = self._outage, self._pending
        bodies = [line.body for line in lines]
        if outage is not None:
            bodies.insert(0, self._gap(outage, sum(not line.intent for line in lines)))

        try:
            seq = file.append(bodies)
        except OSError as error:
            self._fail(error)
            return error

        for line in lines:
            line.seq, seq = seq + (outage is not None), seq + 1

        self._pending, self._pending_bytes, self._outage = [], 0, None
        if outage is not None:
            log_event("journal_recovered", path=str(self.path), lost=outage.lost, refused_calls=outage.refused)

        return None

    # -- inside --------------------------------------------------------------------------------------------------

    def _take(self, line: Line) -> None:
        if self._outage is not None and not line.intent and self._pending_bytes + len(line.body) > KEPT_BYTES:
            self._outage.lost += 1
            return

        self._pending.append(line)
        self._pending_bytes += len(line.body)

    def withdraw(self, line: Line) -> None:
        """What an announced line said is not done. It is taken back where it was not written, else told in a line."""
        if line in self._pending:
            self._pending.remove(line)
            self._pending_bytes -= len(line.body)
        elif line.seq is not None:
            # It was too late: the line stands there, and what it announced is not done.
            self.append("withdrawn", intent=line.seq)

    def _end_of_turn(self) -> None:
        self._asked = None
        if self._file is not None:
            self._write(self._file)

    def _fail(self, error: OSError) -> None:
        if self._outage is None:
            self._outage = _Outage(time.time(), _reason(error))
            log_event("journal_unavailable", level="warning", path=str(self.path), reason=_reason(error))

        kept = []
        for line in self._pending:
            if line.intent:
                line.failure = error
                self._outage.refused += 1
            else:
                kept.append(line)

        self._pending, self._pending_bytes = [], 0
        for line in kept:
            self._take(line)

    def _gap(self, outage: _Outage, kept: int) -> str:
        now = time.time()
        fields: RecordFields = {
            "reason": outage.reason,
            "seconds": now - outage.since,
            "lost": outage.lost,
            "kept": kept,
            "refused_calls": outage.refused,
        }
        return self._encoder.encode("gap", now, dict(fields))

    def _begin(self, continues: str | None) -> str:
        fields: RecordFields = {"version": FORMAT_VERSION, "chain": chain_kind(self._key), "continues": continues}
        return self._encoder.encode("begin", time.time(), dict(fields))

    def _say_late(self) -> None:
        # Whoever is at fault, a lost line is not lost in silence.
        self._late += 1
        if self._late == 1:
            log_event("journal_lost", level="warning", path=str(self.path), lines=1)

    def _unavailable(self, why: str, fields: Any) -> JournalUnavailableError:
        return JournalUnavailableError(
            f"the journal {str(self.path)!r} cannot be written: {why}; nothing is sent without it",
            server=fields.get("server"),
            tool=fields.get("tool"),
        )


def _checked_key(key: object) -> bytes | None:
    if key is None or (isinstance(key, bytes) and key):
        return key

    if not isinstance(key, bytes):
        return check_text("key", key).encode("utf-8", "surrogatepass")

    raise ConfigError("key must not be empty", key="key")


def _reason(error: OSError | None) -> str:
    return (error.strerror or type(error).__name__) if error is not None else "the write failed"
