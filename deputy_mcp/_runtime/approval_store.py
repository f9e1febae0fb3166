"""`ApprovalStore`: approvals that outlive the process, in SQLite. A call that needs one leaves a ticket and ends; any
process decides it; `connection.resume(ticket)` runs the call.

The laws:
- A ticket is for these argument bytes, this definition of the tool and this server; anything else voids it.
- It is spent before anything is sent, in one transaction that only one process can win: it is used at most once.
- What became of a call whose process died in the middle is unknown, and it is never sent again.
- A ticket that was spent and provably not sent is given back; none is lost.

Not a queue and not a judge: it keeps what was asked and what was said. Whoever can write the file can approve, so it
must lie where the agent cannot write.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Literal, get_args

from attrs import field, frozen

from deputy_mcp._core.annotations import Effects, Finding
from deputy_mcp._core.errors import (
    ApprovalDeniedError,
    ApprovalExpiredError,
    ApprovalPendingError,
    ConfigError,
)
from deputy_mcp._core.frozen import check_number, check_text
from deputy_mcp._core.sanitizing import clean_line, clean_text

if TYPE_CHECKING:
    import sqlite3

BUSY_SECONDS = 10
"""How long one waits for another process's transaction; each takes milliseconds."""

MOST_LISTED = 1_000
"""Tickets that `list` gives; the newest first."""

KEPT_SECONDS = 30 * 86_400
"""How long after its time a settled ticket can still be looked up. One whose outcome is unknown stays for good."""

TicketState = Literal["pending", "approved", "rejected", "expired", "spent", "done", "void"]
"""`spent`: being sent, or its process died in the middle, so that its outcome is unknown."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS tickets (
    ticket TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    asked_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    decided_at REAL,
    note TEXT NOT NULL DEFAULT '',
    server TEXT NOT NULL,
    identity TEXT NOT NULL,
    method TEXT NOT NULL,
    tool TEXT NOT NULL,
    public_name TEXT NOT NULL,
    digest TEXT,
    arguments BLOB NOT NULL,
    code TEXT NOT NULL,
    reason TEXT NOT NULL,
    effects TEXT NOT NULL,
    findings TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS by_state ON tickets (state, asked_at);
"""


@frozen(kw_only=True)
class Ticket:
    """One request for approval, as it stands in the store."""

    ticket: str
    state: TicketState
    server: str
    method: str
    """`tools/call`, `resources/read` or `prompts/get`."""
    tool: str
    """The wire name; a resource's URI or a prompt's name for the other methods."""
    public_name: str
    effects: Effects
    findings: tuple[Finding, ...]
    code: str
    """Why it is asked."""
    reason: str
    arguments: Mapping[str, Any] = field(repr=False)
    """Exactly what will be sent."""
    arguments_json: bytes = field(repr=False)
    """Their bytes, which the approval is bound to."""
    arguments_text: str = field(repr=False)
    """The same, complete, safe on a terminal."""
    digest: str | None
    identity: str
    """SHA-256 over the server's command and arguments, or its URL."""
    asked_at: datetime
    expires_at: datetime
    decided_at: datetime | None
    note: str
    """Why it was rejected or voided, or how its call ended."""


class ApprovalStore:
    """Durable approvals: `McpConnection(approver=ApprovalStore(path))`. See the module.

    `path`: the SQLite file, made with mode 0600 where it is not there. `ttl_seconds`: how long a ticket may be decided
    and used. Making one opens nothing. Methods block for milliseconds, and for at most 10 s behind another process.
    They raise `ConfigError` where the file cannot be used.
    """

    def __init__(self, path: str | os.PathLike[str], *, ttl_seconds: float = 86_400) -> None:
        text = os.fspath(path) if isinstance(path, os.PathLike) else path
        self.path = Path(os.path.abspath(check_text("path", text)))
        self.ttl_seconds = check_number("ttl_seconds", ttl_seconds, above_zero=True)

    def __repr__(self) -> str:
        return f"<ApprovalStore {str(self.path)!r}>"

    # -- for the person who decides ------------------------------------------------------------------------------

    def list(self, state: TicketState | None = "pending") -> "tuple[Ticket, ...]":
        """The tickets in a state, newest first, at most 1,000; None: in any."""
        if state is not None and state not in get_args(TicketState):
            raise ConfigError(f"state must be one of {', '.join(get_args(TicketState))}", key="state")

        with self._open() as connection:
            _expire(connection)
            where, values = ("WHERE state = ?", (state,)) if state is not None else ("", ())
            rows = connection.execute(
                f"SELECT * FROM tickets {where} ORDER BY asked_at DESC, rowid DESC LIMIT {MOST_LISTED}",  # noqa: S608 # ours alone
                values,
            )
            return tuple(map(_ticket, rows))

    def get(self, ticket: str) -> Ticket:
        """One ticket. Raises `ApprovalDeniedError`, code `unknown_ticket`."""
        with self._open() as connection:
            _expire(connection)
            return _find(connection, ticket)

    def approve(self, ticket: str) -> Ticket:
        """Say yes to a pending ticket; a second yes changes nothing.

        Raises `ApprovalDeniedError` where it was rejected, used or voided, `ApprovalExpiredError` where it is too late.
        """
        return self._decide(ticket, "approved", "")

    def reject(self, ticket: str, reason: str = "") -> Ticket:
        """Say no to a pending ticket, or take back a yes that was not used yet; a second no changes nothing.

        Raises as `approve` does.
        """
        return self._decide(ticket, "rejected", clean_line(reason))

    def _decide(self, ticket: str, state: TicketState, note: str) -> Ticket:
        before = ("pending",) if state == "approved" else ("pending", "approved")
        with self._open() as connection:
            _expire(connection)
            found = _find(connection, ticket)
            if found.state == state:
                return found  # whoever presses twice, or comes second, wants what is

            if found.state not in before:
                check_usable(found)

            connection.execute(
                "UPDATE tickets SET state = ?, note = ?, decided_at = ? WHERE ticket = ?",
                (state, note, time.time(), ticket),
            )
            return _find(connection, ticket)

    # -- for the gate --------------------------------------------------------------------------------------------

    def ask(
        self,
        *,
        server: str,
        identity: str,
        method: str,
        tool: str,
        public_name: str,
        effects: Effects,
        findings: tuple[Finding, ...],
        code: str,
        reason: str,
        arguments_json: bytes,
        digest: str | None,
    ) -> str:
        """The ticket under which a person may decide. The same question, while it is undecided, is the same ticket."""
        now = time.time()
        with self._open() as connection:
            _expire(connection)
            same = connection.execute(
                "SELECT ticket FROM tickets WHERE state = 'pending' AND server = ? AND identity = ? AND method = ? "
                "AND tool = ? AND digest IS ? AND arguments = ?",
                (server, identity, method, tool, digest, arguments_json),
            ).fetchone()
            if same is not None:
                return str(same["ticket"])

            connection.execute(
                "DELETE FROM tickets WHERE state IN ('rejected', 'expired', 'done', 'void') AND expires_at <= ?",
                (now - KEPT_SECONDS,),
            )
            ticket = token_hex(16)
            connection.execute(
                "INSERT INTO tickets (ticket, state, asked_at, expires_at, server, identity, method, tool, public_name,"
                " digest, arguments, code, reason, effects, findings) VALUES (?, 'pending', ?, ?, ?, ?, ?, ?, ?, ?, ?,"
                " ?, ?, ?, ?)",
                (
                    ticket,
                    now,
                    now + self.ttl_seconds,
                    server,
                    identity,
                    method,
                    tool,
                    public_name,
                    digest,
                    arguments_json,
                    code,
                    reason,
                    json.dumps([effects.read_only, effects.destructive, effects.idempotent, effects.open_world]),
                    json.dumps([[one.code, one.severity, one.place, one.message] for one in findings]),
                ),
            )
            return ticket

    def spend(self, ticket: str, *, arguments_json: bytes, digest: str | None, identity: str) -> None:
        """Use an approved ticket up, now and once, for exactly this. Raises `ApprovalDeniedError`."""
        with self._open() as connection:
            _expire(connection)
            found = _find(connection, ticket)
            check_usable(found)
            if (found.arguments_json, found.digest, found.identity) != (arguments_json, digest, identity):
                raise void_error(found, "what would be sent is not what was approved, or goes to another server")

            connection.execute("UPDATE tickets SET state = 'spent' WHERE ticket = ?", (ticket,))

    def give_back(self, ticket: str) -> None:
        """A spent ticket's call was provably not sent: it may be used again while it lasts."""
        with self._open() as connection:
            connection.execute("UPDATE tickets SET state = 'approved' WHERE ticket = ? AND state = 'spent'", (ticket,))

    def finish(self, ticket: str, note: str) -> None:
        """A spent ticket's call came to an end that is known."""
        with self._open() as connection:
            connection.execute(
                "UPDATE tickets SET state = 'done', note = ? WHERE ticket = ? AND state = 'spent'",
                (clean_line(note), ticket),
            )

    def void(self, ticket: str, note: str) -> None:
        """What was approved cannot be done any more."""
        with self._open() as connection:
            connection.execute(
                "UPDATE tickets SET state = 'void', note = ? WHERE ticket = ? AND state = 'approved'",
                (clean_line(note), ticket),
            )

    # -- the file ------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _open(self) -> Iterator["sqlite3.Connection"]:
        """A connection inside one transaction that nobody else writes in; kept only when nothing went wrong."""
        import sqlite3  # here: few hosts keep tickets

        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(error) from None

        try:
            connection.row_factory = sqlite3.Row
            # FULL: a decision or a spent ticket must not come undone when the machine loses power.
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(_SCHEMA)
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

                raise

            if connection.in_transaction:
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._unusable(error) from None
        finally:
            connection.close()

    def _unusable(self, error: Exception) -> ConfigError:
        return ConfigError(
            f"the approval store {self.path} cannot be used: {error}; its folder must exist and be writable, and the "
            "file must be one of ours",
            key="approver",
            path=str(self.path),
        )


def check_usable(found: Ticket) -> None:
    """Raise unless the ticket is approved and unused."""
    if found.state == "pending":
        raise ApprovalPendingError(
            f"{found.public_name} waits for approval under ticket {found.ticket}",
            ticket=found.ticket,
            server=found.server,
            tool=found.tool,
        )

    if found.state == "expired":
        raise ApprovalExpiredError(
            f"the approval of {found.public_name} has expired", server=found.server, tool=found.tool
        )

    if found.state == "rejected":
        why = f": {found.note}" if found.note else ""
        raise ApprovalDeniedError(f"{found.public_name} was rejected{why}", server=found.server, tool=found.tool)

    if found.state != "approved":
        words = {
            "spent": "was used already, and how its call ended is unknown",
            "done": f"was used already ({found.note})",
            "void": f"holds no more: {found.note}",
        }
        raise _unusable(found, f"its approval {words[found.state]}")


def void_error(found: Ticket, why: str) -> ApprovalDeniedError:
    """The error of a ticket whose approval no longer fits."""
    return ApprovalDeniedError(
        f"the approval of {found.public_name} is void: {why}; ask again",
        server=found.server,
        tool=found.tool,
        code="approval_void",
    )


def _unusable(found: Ticket, why: str) -> ApprovalDeniedError:
    code = "approval_used" if found.state in ("spent", "done") else "approval_void"
    return ApprovalDeniedError(
        f"ticket {found.ticket} for {found.public_name} cannot be used: {why}",
        server=found.server,
        tool=found.tool,
        code=code,
    )


def _expire(connection: "sqlite3.Connection") -> None:
    connection.execute(
        "UPDATE tickets SET state = 'expired' WHERE state IN ('pending', 'approved') AND expires_at <= ?",
        (time.time(),),
    )


def _find(connection: "sqlite3.Connection", ticket: str) -> Ticket:
    row = connection.execute("SELECT * FROM tickets WHERE ticket = ?", (str(ticket),)).fetchone()
    if row is None:
        raise ApprovalDeniedError(f"there is no ticket {clean_line(str(ticket), 60)!r}", code="unknown_ticket")

    return _ticket(row)


def _ticket(row: "sqlite3.Row") -> Ticket:
    arguments = json.loads(row["arguments"])
    read_only, destructive, idempotent, open_world = json.loads(row["effects"])
    return Ticket(
        ticket=row["ticket"],
        state=row["state"],
        server=row["server"],
        method=row["method"],
        tool=row["tool"],
        public_name=row["public_name"],
        effects=Effects(read_only=read_only, destructive=destructive, idempotent=idempotent, open_world=open_world),
        findings=tuple(
            Finding(code, severity=severity, place=place, message=message)
            for code, severity, place, message in json.loads(row["findings"])
        ),
        code=row["code"],
        reason=row["reason"],
        arguments=arguments,
        arguments_json=row["arguments"],
        arguments_text=clean_text(json.dumps(arguments, indent=2, ensure_ascii=False)),
        digest=row["digest"],
        identity=row["identity"],
        asked_at=_time(row["asked_at"]),
        expires_at=_time(row["expires_at"]),
        decided_at=None if row["decided_at"] is None else _time(row["decided_at"]),
        note=row["note"],
    )


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
