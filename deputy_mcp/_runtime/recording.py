"""What is told of calls and servers: one event each, to the log always and to the journal where there is one.

Not a writer (that is the journal) and no judge of what happens: it only knows which fields belong to which event, so
that log and journal say the same. Arguments and replies stand in both as digests.
"""

import contextvars
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from deputy_mcp._core.audit import JUDGED, EventKind, Judgement, keep_judged
from deputy_mcp._core.errors import DeputyError, RefusedError, UnavailableError
from deputy_mcp._core.frozen import wrong_type
from deputy_mcp._core.permissions import Decision
from deputy_mcp._core.sanitizing import known_secrets, masked_line
from deputy_mcp._runtime.journal import Journal, Line
from deputy_mcp._runtime.log import listener, log_failure
from deputy_mcp._runtime.transports.link import CallRecord
from deputy_mcp._runtime.turns import at_end_of_turn, running_loop

_KINDS = {"pinned": "pin", "listing": "listing", "state": "state", "server_request": "server_request"}
"""Connection events that have an event of their own in the journal; the others are warnings."""

_NAMES = ("server", "tool", "public_name")
MOST_SHOWN = 120
"""Characters of a name in the log."""


def check_journal(value: object) -> Journal | None:
    """The connection's `journal`: a `Journal`, the path of its file, or None. Raises `ConfigError`."""
    if value is None or isinstance(value, Journal):
        return value

    if not isinstance(value, str | os.PathLike):
        wrong_type("journal", value, "a Journal or a path")

    return Journal(value)


class Recorder:
    """See the module. One per connection."""

    # Mutable state: the number of the next call; the secrets, and names as they were shown; what is told at the end of
    # this turn of the loop.
    def __init__(self, journal: Journal | None) -> None:
        self.journal = journal
        self._calls = 0
        self._judgements: dict[Judgement, dict[str, Any]] = {}
        self._secrets: tuple[str, ...] = ()
        self._servers: frozenset[str] = frozenset()
        self._untold: list[tuple[contextvars.Context, Callable[..., None], tuple[Any, ...]]] = []

    def number(self) -> int:
        """A number that the lines of one call share."""
        self._calls += 1
        return self._calls

    def add_secrets(self, secrets: Iterable[str], *, servers: Iterable[str] = ()) -> None:
        """Mask these from now on. `servers`: names that are shown even where one equals a secret."""
        self._judgements.clear()
        self._secrets = known_secrets((*self._secrets, *secrets))
        self._servers |= frozenset(servers)
        if self.journal is not None:
            self.journal.add_secrets(secrets, servers=servers)

    def later(self, tell: Callable[..., None], *arguments: Any) -> None:
        """Call `tell` at the end of this turn of the loop, in this context: what is told of a result keeps nobody who
        waits for it."""
        self._untold.append((contextvars.copy_context(), tell, arguments))
        if len(self._untold) == 1:
            at_end_of_turn(running_loop(), self.tell_all)

    def tell_all(self) -> None:
        """Tell what was put off."""
        if not self._untold:
            return

        if self.journal is None:
            self._tell_untold()
        else:
            self.journal.together(self._tell_untold)

    def _tell_untold(self) -> None:
        untold, self._untold = self._untold, []
        for context, tell, arguments in untold:
            context.run(tell, *arguments)

    def close(self) -> None:
        """Nothing more will happen: tell what was put off, and let go of the journal."""
        self.tell_all()
        if self.journal is not None:
            self.journal.close()

    @property
    def is_heard(self) -> bool:
        """Whether anybody wants to know how a call ended well."""
        return self.journal is not None or listener("info") is not None

    def note(self, event: EventKind, judged: Judgement, fields: dict[str, Any]) -> None:
        """Something happened in a call. What is None is left out."""
        if self.journal is not None:
            self.journal.append(event, judged=judged, **fields)

        failed = event == "refusal" or fields.get("error_code") is not None
        listening = listener("warning" if failed else "info")
        if listening is not None:
            said = self._shown(judged) | fields
            said["arguments"] = None
            try:
                listening(event, **{name: value for name, value in said.items() if value is not None})
            except Exception as error:  # noqa: BLE001 # the host's log failed, and no call must fail with it
                log_failure(error)

    def _shown(self, judged: Judgement) -> dict[str, Any]:
        """What a call is judged by as the log shows it: names on one line each, without secrets."""
        known = self._judgements.get(judged)
        if known is not None:
            return known

        said: dict[str, Any] = dict(zip(JUDGED, judged, strict=True))
        for name in _NAMES:
            if (value := said[name]) is not None:
                secrets = () if value in self._servers else self._secrets
                said[name] = masked_line(value, secrets, MOST_SHOWN)

        keep_judged(self._judgements, judged, said)
        return said

    def note_refusal(self, server: str | None, tool: str | None, error: RefusedError | UnavailableError) -> None:
        """A refusal of what is no call, or not yet one."""
        self.tell_all()
        names = (None if name is None else str(name) for name in (server, tool))
        judged = (*names, None, None, None, None, None)
        self.note("refusal", judged, {"error_code": error.code, "outcome": error.outcome})

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

    # Mutable state: what was last decided, for which arguments, and their hash once it was asked for; the line that
    # announces the call, and the number of that of an earlier attempt which left; whether it ended.
    def __init__(self, recorder: Recorder, *, server: str, tool: str, method: str) -> None:
        self._recorder = recorder
        self._number = recorder.number()
        self._server = server
        self._tool = str(tool)  # a caller may have asked by something that is no text, and is refused
        self._method = method
        self._judged: Judgement = (server, self._tool, None, method, None, None, None)
        self._arguments: bytes | None = None
        self._arguments_sha256: str | None = None
        self._intent: Line | None = None
        self._stood: int | None = None
        self._ended = False

    def decided(self, decision: Decision, *, public_name: str, digest: str | None, arguments: bytes) -> None:
        """What the permissions say; it stands in the line of what comes of it."""
        verdict = type(decision).__name__.lower()
        self._judged = (self._server, self._tool, public_name, self._method, digest, verdict, decision.code)
        if arguments is not self._arguments:
            self._arguments = arguments
            self._arguments_sha256 = None

    def _known(self) -> dict[str, Any]:
        """What every line of the call says beside what it was judged by; nothing of the arguments before that."""
        arguments = self._arguments
        if arguments is None:
            return {"call": self._number}

        if self._arguments_sha256 is None:
            self._arguments_sha256 = hashlib.sha256(arguments).hexdigest()

        return {
            "call": self._number,
            "arguments": arguments,
            "arguments_sha256": self._arguments_sha256,
            "arguments_bytes": len(arguments),
        }

    def _note(self, event: EventKind, judged: Judgement, **fields: Any) -> None:
        self._recorder.tell_all()
        self._recorder.note(event, judged, self._known() | fields)

    def asked(self, ticket: str | None) -> None:
        """A person is asked."""
        self._note("approval", self._judged, ticket=ticket)

    def answered(self, answer: str, *, ticket: str | None = None, error_code: str | None = None) -> None:
        """The person approved, or did not."""
        judged = tuple(
            answer if name == "decision" else value for name, value in zip(JUDGED, self._judged, strict=True)
        )
        self._note("approval", judged, ticket=ticket, error_code=error_code)

    def announce(self, *, generation: int, sent_again: bool) -> None:
        """It is about to be sent. Raises `JournalUnavailableError`."""
        if self._recorder.journal is not None:
            self._stood = self._told_intent()
            self._intent = self._recorder.journal.announce(
                "call", judged=self._judged, **self._known(), generation=generation, sent_again=sent_again or None
            )

    def secure(self) -> None:
        """Return when what was announced stands in the journal. Raises `JournalUnavailableError`."""
        if self._intent is not None and self._recorder.journal is not None:
            self._recorder.journal.secure(self._intent, server=self._server, tool=self._tool)

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
        if self._recorder.is_heard:
            self._recorder.later(self._tell_end, result, reply_sha256)

    def _tell_end(self, result: Any, reply_sha256: str | None) -> None:
        fields = self._known()
        fields["intent"] = self._told_intent()
        fields["generation"] = result.generation
        fields["reply_sha256"] = reply_sha256
        fields["reply_bytes"] = result.size_bytes
        fields["duration_seconds"] = round(result.duration_seconds, 6)
        fields["is_error"] = getattr(result, "is_error", None)
        fields["truncated"] = result.truncated or None
        fields["findings"] = tuple([finding.code for finding in result.findings]) or None
        self._recorder.note("result", self._judged, fields)

    def failed(self, error: DeputyError, *, seconds: float, record: CallRecord) -> None:
        """It was refused, or went wrong."""
        nothing_sent = isinstance(error, RefusedError | UnavailableError)
        self._end("refusal" if nothing_sent else "result", error.code, error.outcome, seconds, record)

    def cancelled(self, *, seconds: float, record: CallRecord, sent: bool) -> None:
        """Its caller left. `sent`: whether any attempt went out."""
        self._end("result", "cancelled", "unknown" if sent else "not_sent", seconds, record)

    def _end(self, event: EventKind, code: str, outcome: str, seconds: float, record: CallRecord) -> None:
        if self._ended:
            return

        self._ended = True
        self._note(
            event,
            self._judged,
            intent=self._told_intent(),
            error_code=code,
            outcome=outcome,
            reply_sha256=record.reply_sha256,
            reply_bytes=record.reply_bytes or None,
            duration_seconds=round(seconds, 6),
        )
