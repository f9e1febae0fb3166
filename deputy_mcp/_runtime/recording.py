"""What is told of calls and servers: one event each, to the log always and to the journal where there is one.

Not a writer (that is the journal) and no judge of what happens: it only knows which fields belong to which event, so
that log and journal say the same. Arguments and replies stand in both as digests.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

from deputy_mcp._core.errors import DeputyError, RefusedError, UnavailableError
from deputy_mcp._core.frozen import wrong_type
from deputy_mcp._core.permissions import Decision
from deputy_mcp._core.sanitizing import clean_line
from deputy_mcp._runtime.journal import Journal, Line
from deputy_mcp._runtime.log import log_event
from deputy_mcp._runtime.transports.link import CallRecord

_KINDS = {"pinned": "pin", "listing": "listing", "state": "state", "server_request": "server_request"}
"""Connection events that have an event of their own in the journal; the others are warnings."""


def check_journal(value: object) -> Journal | None:
    """The connection's `journal`: a `Journal`, the path of its file, or None. Raises `ConfigError`."""
    if value is None or isinstance(value, Journal):
        return value

    if not isinstance(value, str | os.PathLike):
        wrong_type("journal", value, "a Journal or a path")

    return Journal(value)


class Recorder:
    """See the module. One per connection."""

    # Mutable state: the number of the next call.
    def __init__(self, journal: Journal | None) -> None:
        self.journal = journal
        self._calls = 0

    def number(self) -> int:
        """A number that the lines of one call share."""
        self._calls += 1
        return self._calls

    def add_secrets(self, secrets: Iterable[str], *, servers: Iterable[str] = ()) -> None:
        """Mask these in the journal; the log's fields are masked where they arise."""
        if self.journal is not None:
            self.journal.add_secrets(secrets, servers=servers)

    def note(self, event: Any, **fields: Any) -> None:
        """Something happened in a call."""
        arguments = fields.get("arguments")
        if arguments is not None:
            fields["arguments_sha256"] = hashlib.sha256(arguments).hexdigest()

        said = {
            name: value for name, value in fields.items() if value is not None and value != () and name != "arguments"
        }

        if "tool" in said:
            said["tool"] = clean_line(said["tool"], 120)

        log_event(event, level="warning" if event == "refusal" or "error_code" in said else "info", **said)
        if self.journal is not None:
            self.journal.append(event, **fields)

    def note_refusal(self, server: str | None, tool: str | None, error: RefusedError | UnavailableError) -> None:
        """A refusal of what is no call, or not yet one."""
        self.note("refusal", server=server, tool=tool, error_code=error.code, outcome=error.outcome)

    def note_server(self, kind: str, server: str | None, facts: Mapping[str, Any]) -> None:
        """A connection event, into the journal; the log has it already."""
        if self.journal is None:
            return

        fields: dict[str, Any] = {"server": server}
        for key, name in _SERVER_FIELDS.items():
            if facts.get(key) is not None:
                fields[name] = facts[key]

        restarted = kind == "state" and facts.get("state") == "starting" and facts.get("restarts")
        self.journal.append("restart" if restarted else _KINDS.get(kind, "warning"), **fields)  # type: ignore[arg-type] # of the table


_SERVER_FIELDS = {
    "state": "state",
    "code": "code",
    "detail": "reason",
    "path": "reason",
    "restarts": "restarts",
    "exit_code": "exit_code",
    "tools": "tools",
    "refused": "refused",
    "method": "method",
    "tool": "tool",
    "answer": "decision",
    "request_sha256": "arguments_sha256",
    "answer_sha256": "reply_sha256",
}


class CallLines:
    """The events of one call, from its decision to its end."""

    # Mutable state: what was last decided, and for which arguments; the line that announces the call, and the number of
    # that of an earlier attempt which left; whether it ended.
    def __init__(self, recorder: Recorder, *, server: str, tool: str, method: str) -> None:
        self._recorder = recorder
        self._names: dict[str, Any] = {"call": recorder.number(), "server": server, "tool": tool, "method": method}
        self._decided: dict[str, Any] = {}
        self._intent: Line | None = None
        self._stood: int | None = None
        self._ended = False

    def decided(self, decision: Decision, *, public_name: str, digest: str | None, arguments: bytes) -> None:
        """What the permissions say; it stands in the line of what comes of it."""
        self._decided = {
            "public_name": public_name,
            "digest": digest,
            "arguments": arguments,
            "decision": type(decision).__name__.lower(),
            "code": decision.code,
        }

    def asked(self, ticket: str | None) -> None:
        """A person is asked."""
        self._recorder.note("approval", **self._names, **self._decided, ticket=ticket)

    def answered(self, answer: str, *, ticket: str | None = None, error_code: str | None = None) -> None:
        """The person approved, or did not."""
        fields = self._decided | {"decision": answer}
        self._recorder.note("approval", **self._names, **fields, ticket=ticket, error_code=error_code)

    def announce(self, *, generation: int, sent_again: bool) -> None:
        """It is about to be sent. Raises `JournalUnavailableError`."""
        if self._recorder.journal is not None:
            self._stood = self._told_intent()
            self._intent = self._recorder.journal.announce(
                "call", **self._names, **self._decided, generation=generation, sent_again=sent_again or None
            )

    def secure(self) -> None:
        """Return when what was announced stands in the journal. Raises `JournalUnavailableError`."""
        if self._intent is not None and self._recorder.journal is not None:
            self._recorder.journal.secure(self._intent, **self._names)

    def withdraw(self) -> None:
        """What was announced is not sent after all."""
        if self._intent is not None and self._recorder.journal is not None:
            self._recorder.journal.withdraw(self._intent)
            self._intent = None

    def _told_intent(self) -> int | None:
        """The number of the line that announced the latest attempt which left; one that stands nowhere is withdrawn."""
        if self._intent is not None and self._intent.seq is None:
            # It never left, and never stood there.
            self.withdraw()

        return self._stood if self._intent is None else self._intent.seq

    def ended(self, result: Any, *, reply_sha256: str | None) -> None:
        """It came to a result."""
        self._ended = True
        self._recorder.note(
            "result",
            **self._names,
            **self._decided,
            intent=self._told_intent(),
            generation=result.generation,
            reply_sha256=reply_sha256,
            reply_bytes=result.size_bytes,
            duration_seconds=round(result.duration_seconds, 6),
            is_error=getattr(result, "is_error", None),
            truncated=result.truncated or None,
            findings=tuple(finding.code for finding in result.findings) or None,
        )

    def failed(self, error: DeputyError, *, seconds: float, record: CallRecord) -> None:
        """It was refused, or went wrong."""
        nothing_sent = isinstance(error, RefusedError | UnavailableError)
        self._end("refusal" if nothing_sent else "result", error.code, error.outcome, seconds, record)

    def cancelled(self, *, seconds: float, record: CallRecord, sent: bool) -> None:
        """Its caller left. `sent`: whether any attempt went out."""
        self._end("result", "cancelled", "unknown" if sent else "not_sent", seconds, record)

    def _end(self, event: str, code: str, outcome: str, seconds: float, record: CallRecord) -> None:
        if self._ended:
            return

        self._ended = True
        self._recorder.note(
            event,
            **self._names,
            **self._decided,
            intent=self._told_intent(),
            error_code=code,
            outcome=outcome,
            reply_sha256=record.reply_sha256,
            reply_bytes=record.reply_bytes or None,
            duration_seconds=round(seconds, 6),
        )
