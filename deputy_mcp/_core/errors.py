"""Every error we raise, as one tree.

    DeputyError                    server, tool, code, outcome, diagnostics()
    ├─ ConfigError                 also ValueError; the configuration is wrong
    ├─ RegistrationError           also ValueError; a tool name is taken
    ├─ RefusedError                we said no; nothing was sent
    │  ├─ NotAllowlistedError      no such server or tool, or not on the allowlist
    │  ├─ PermissionDeniedError    also PermissionError; carries the decision
    │  ├─ PinMismatchError         the definition is not the one that was pinned
    │  ├─ StaleToolError           the handle is from before a reload
    │  ├─ InvalidArgumentsError    the arguments break the tool's input schema
    │  ├─ ApprovalPendingError     a person may decide later; carries the ticket
    │  ├─ ApprovalDeniedError      a person (or the lack of one) said no
    │  │  └─ ApprovalExpiredError  nobody answered in time
    │  └─ JournalUnavailableError  the journal cannot be written
    ├─ UnavailableError            the server is not READY; nothing was sent
    │  ├─ StartError
    │  ├─ QuarantinedError
    │  ├─ RestartLimitError
    │  └─ WaitTimeoutError         also TimeoutError
    ├─ CallError                   it was sent
    │  ├─ CallTimeoutError         also TimeoutError
    │  ├─ ServerLostError
    │  ├─ HttpStatusError
    │  ├─ ResultTooLargeError
    │  ├─ MalformedReplyError
    │  └─ RemoteError              the server's own JSON-RPC error
    └─ ClosedError                 used before entering or after exit

The class says whose fault it is and whether anything was sent; `code` names the cause and never changes between
releases; the text is for people. `outcome` answers the one question a caller must ask before trying again:
may the call have run?
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from deputy_mcp._core.permissions import Decision

Outcome = Literal["not_sent", "refused", "unknown"]
"""`not_sent`: provably not run. `refused`: the server said no before running it. `unknown`: it may have run."""


class DeputyError(Exception):
    """Base of all our errors.

    `server` and `tool` are names as configured and as on the wire, None where none is concerned.
    """

    default_code: ClassVar[str] = "error"
    default_outcome: ClassVar[Outcome] = "not_sent"

    def __init__(
        self,
        message: str,
        *,
        server: str | None = None,
        tool: str | None = None,
        code: str | None = None,
        outcome: Outcome | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.server = server
        self.tool = tool
        self.code = code or self.default_code
        self.outcome: Outcome = outcome or self.default_outcome

    def facts(self) -> dict[str, Any]:
        """What this error knows beyond its text, as plain JSON values; None is left out."""
        known = {"server": self.server, "tool": self.tool, "code": self.code, "outcome": self.outcome}
        return {name: value for name, value in {**known, **self._own_facts()}.items() if value is not None}

    def diagnostics(self) -> str:
        """The message and every fact, a line each, for a terminal or a log."""
        lines = [str(self)]
        for name, value in self.facts().items():
            text = str(value)
            lines.append(f"  {name}: {text}" if "\n" not in text else f"  {name}:\n" + _indent(text))

        return "\n".join(lines)

    def _own_facts(self) -> Mapping[str, Any]:
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with the text alone, and ours need more than that.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[DeputyError], args: tuple[Any, ...], state: dict[str, Any]) -> DeputyError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def _indent(text: str) -> str:
    return "\n".join("    " + line for line in text.splitlines())


class ConfigError(DeputyError, ValueError):
    """The configuration is wrong. The text names file, server, key and the mend."""

    default_code = "config"

    def __init__(
        self, message: str, *, server: str | None = None, key: str | None = None, path: str | None = None
    ) -> None:
        super().__init__(message, server=server)
        self.key = key
        self.path = path

    def _own_facts(self) -> Mapping[str, Any]:
        return {"path": self.path, "key": self.key}


class RegistrationError(DeputyError, ValueError):
    """A tool could not be registered on an agent; nothing was changed."""

    default_code = "name_taken"


class RefusedError(DeputyError):
    """We said no; nothing was sent."""

    default_code = "refused"


class NotAllowlistedError(RefusedError):
    """Codes: `unknown_server`, `unknown_tool`, `not_allowlisted`. `near` lists names that look alike."""

    default_code = "not_allowlisted"

    def __init__(
        self, message: str, *, near: Sequence[str] = (), server: str | None = None, tool: str | None = None, code: str
    ) -> None:
        super().__init__(message, server=server, tool=tool, code=code)
        self.near = tuple(near)

    def _own_facts(self) -> Mapping[str, Any]:
        return {"near": ", ".join(self.near) or None}


class PermissionDeniedError(RefusedError, PermissionError):
    """The effective permissions deny the call; `decision` is the `Deny` with its code and reason."""

    default_code = "denied"

    def __init__(
        self, message: str, *, decision: "Decision", server: str | None = None, tool: str | None = None
    ) -> None:
        super().__init__(message, server=server, tool=tool, code=decision.code)
        self.decision = decision


class PinMismatchError(RefusedError):
    """The tool is not the one that was pinned.

    Codes: `pin_changed`, `pin_gone`, `pin_unknown`, `pin_unverified`. `difference` is what changed, readable, for
    people: it holds the server's new text. The message, which a model may read, names the changed members alone.
    """

    default_code = "pin_changed"

    def __init__(
        self, message: str, *, difference: str = "", server: str | None = None, tool: str | None = None, code: str
    ) -> None:
        super().__init__(message, server=server, tool=tool, code=code)
        self.difference = difference

    def _own_facts(self) -> Mapping[str, Any]:
        return {"difference": self.difference or None}


class StaleToolError(RefusedError):
    """The handle belongs to an earlier load of its server; register the new ones with `replace=True`."""

    default_code = "stale_tool"


class InvalidArgumentsError(RefusedError):
    """The arguments break the tool's input schema, or could not be checked (`schema_unchecked`)."""

    default_code = "invalid_arguments"


class ApprovalPendingError(RefusedError):
    """A person may decide later: `ticket` names the request in the `ApprovalStore`; `resume` it once it is approved."""

    default_code = "approval_pending"

    def __init__(self, message: str, *, ticket: str, server: str | None = None, tool: str | None = None) -> None:
        super().__init__(message, server=server, tool=tool)
        self.ticket = ticket

    def _own_facts(self) -> Mapping[str, Any]:
        return {"ticket": self.ticket}


class ApprovalDeniedError(RefusedError):
    """The call needed approval and did not get it.

    Codes: `no_approver`, `rejected`, `approver_failed`, `approval_void` (what was approved is not what would be sent).
    """

    default_code = "rejected"


class ApprovalExpiredError(ApprovalDeniedError):
    """Nobody answered within `approval_timeout_seconds`."""

    default_code = "approval_expired"


class JournalUnavailableError(RefusedError):
    """The journal cannot be written, so nothing may be done that it would have to record."""

    default_code = "journal_unavailable"


class UnavailableError(DeputyError):
    """The server is not READY; nothing was sent. `state` and `reason` say where it stands and why.

    `stderr_tail` is the end of what its latest process wrote there.
    """

    default_code = "unavailable"

    def __init__(
        self,
        message: str,
        *,
        state: str | None = None,
        reason: str | None = None,
        stderr_tail: str = "",
        server: str | None = None,
        tool: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message, server=server, tool=tool, code=code)
        self.state = state
        self.reason = reason
        self.stderr_tail = stderr_tail

    def _own_facts(self) -> Mapping[str, Any]:
        return {"state": self.state, "reason": self.reason, "stderr_tail": self.stderr_tail or None}


class StartError(UnavailableError):
    """The server did not start."""

    default_code = "start_failed"


class QuarantinedError(UnavailableError):
    """The server's first vetting could not be finished; a person must look, then `release` it."""

    default_code = "quarantined"


class RestartLimitError(UnavailableError):
    """The server died more often than its restart policy allows; it cools down."""

    default_code = "restart_limit"


class WaitTimeoutError(UnavailableError, TimeoutError):
    """The deadline passed while the call waited for its turn; nothing was sent."""

    default_code = "wait_timeout"


class CallError(DeputyError):
    """The call was sent."""

    default_code = "call_failed"
    default_outcome = "unknown"


class CallTimeoutError(CallError, TimeoutError):
    """The deadline passed after sending began. A cancellation was sent to the server."""

    default_code = "call_timeout"


class ServerLostError(CallError):
    """The server, its session or its connection went away under the call.

    Codes: `server_lost`, `connection_dropped`, `session_lost`, `stopped`. `exit_code` is the process's (negative:
    the signal), None where there is none or it is not known yet. `stderr_tail` is the end of what it wrote there.
    """

    default_code = "server_lost"

    def __init__(
        self,
        message: str,
        *,
        exit_code: int | None = None,
        stderr_tail: str = "",
        server: str | None = None,
        tool: str | None = None,
        code: str | None = None,
        outcome: Outcome | None = None,
    ) -> None:
        super().__init__(message, server=server, tool=tool, code=code, outcome=outcome)
        self.exit_code = exit_code
        self.stderr_tail = stderr_tail

    def _own_facts(self) -> Mapping[str, Any]:
        return {"exit_code": self.exit_code, "stderr_tail": self.stderr_tail or None}


class HttpStatusError(CallError):
    """The server answered with an HTTP error status.

    `excerpt` is at most 8 KiB of the body, clean. `retry_after_seconds` is the header's value, None without one.
    """

    default_code = "http_status"

    def __init__(
        self,
        message: str,
        *,
        status: int,
        excerpt: str = "",
        retry_after_seconds: float | None = None,
        server: str | None = None,
        tool: str | None = None,
    ) -> None:
        outcome: Outcome = "refused" if status in REFUSING_STATUSES else "unknown"
        super().__init__(message, server=server, tool=tool, outcome=outcome)
        self.status = status
        self.excerpt = excerpt
        self.retry_after_seconds = retry_after_seconds

    def _own_facts(self) -> Mapping[str, Any]:
        return {
            "status": self.status,
            "retry_after_seconds": self.retry_after_seconds,
            "excerpt": self.excerpt or None,
        }


REFUSING_STATUSES = frozenset({401, 403, 404, 429})
"""HTTP statuses by which a server says no before it runs anything."""


class ResultTooLargeError(CallError):
    """The reply passed a limit. `seen_bytes` is a lower bound over HTTP, where we hang up at the limit."""

    default_code = "result_too_large"

    def __init__(
        self, message: str, *, limit_bytes: int, seen_bytes: int, server: str | None = None, tool: str | None = None
    ) -> None:
        super().__init__(message, server=server, tool=tool)
        self.limit_bytes = limit_bytes
        self.seen_bytes = seen_bytes

    def _own_facts(self) -> Mapping[str, Any]:
        return {"limit_bytes": self.limit_bytes, "seen_bytes": self.seen_bytes}


class MalformedReplyError(CallError):
    """The server answered this very call with something that is no valid answer."""

    default_code = "malformed_reply"


class RemoteError(CallError):
    """The server's own JSON-RPC error: `rpc_code`, `message` (its text, clean), `details` (its `data`, untrusted)."""

    default_code = "remote_error"

    def __init__(
        self,
        text: str,
        *,
        rpc_code: int,
        message: str,
        details: Any = None,
        server: str | None = None,
        tool: str | None = None,
    ) -> None:
        # JSON-RPC 2.0 section 5.1: an unknown method and invalid parameters are found before anything runs.
        outcome: Outcome = "refused" if rpc_code in (-32601, -32602) else "unknown"
        super().__init__(text, server=server, tool=tool, outcome=outcome)
        self.message = message
        self.rpc_code = rpc_code
        self.details = details

    def _own_facts(self) -> Mapping[str, Any]:
        return {"rpc_code": self.rpc_code}


class ClosedError(DeputyError):
    """The connection was used before entering or after exit."""

    default_code = "closed"


class DeputyWarning(UserWarning):
    """Something configured is missing or has no effect, and work goes on without it."""
