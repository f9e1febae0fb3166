"""The transport's and the server's errors as our own tree: clean, masked, with what the record saw."""

from mcp import MCPError

from deputy_mcp._core.config import Limits
from deputy_mcp._core.errors import (
    CallError,
    HttpStatusError,
    MalformedReplyError,
    Outcome,
    RemoteError,
    ResultTooLargeError,
    ServerLostError,
    UnavailableError,
)
from deputy_mcp._core.sanitizing import clean_text, mask_secrets, masked_line
from deputy_mcp._runtime.transports.link import SIGN_IN_FAILED, CallRecord, Link, LinkError, SignInError

MOST_EXCERPT = 8 * 1024
"""Characters of an error's body that an error carries."""


def translate(
    error: MCPError,
    record: CallRecord,
    link: Link,
    *,
    server: str,
    tool: str | None,
    limits: Limits,
    secrets: tuple[str, ...],
    stopping: bool,
) -> CallError | UnavailableError:
    """The transport's or the server's error as one of ours, clean and masked."""

    def safe(text: str, most: int = 500) -> str:
        return masked_line(text, secrets, most)

    outcome: Outcome = "unknown" if record.sent else "not_sent"
    if not isinstance(error, LinkError):
        text = safe(error.message) or "no message"
        return RemoteError(
            f"server {server!r} answered with error {error.code}: {text}",
            rpc_code=error.code,
            message=text,
            details=error.data,
            server=server,
            tool=tool,
        )

    match error.fault:
        case "too_large":
            return ResultTooLargeError(
                f"the reply of server {server!r} passed max_message_bytes or max_message_values: {error.detail}",
                limit_bytes=limits.max_message_bytes,
                seen_bytes=error.seen_bytes,
                server=server,
                tool=tool,
            )
        case "malformed":
            return MalformedReplyError(
                f"server {server!r} gave no valid reply: {safe(error.detail)}", server=server, tool=tool
            )
        case "http":
            assert record.status is not None
            hint = f": {safe(error.detail)}" if record.status < 400 else ""
            return HttpStatusError(
                f"server {server!r} answered with HTTP status {record.status}{hint}",
                status=record.status,
                excerpt=clean_text(mask_secrets(record.excerpt, secrets))[:MOST_EXCERPT],
                retry_after_seconds=record.retry_after_seconds,
                server=server,
                tool=tool,
            )

    if error.fault == "unsendable":
        return UnavailableError(
            f"the request to server {server!r} could not be made: {safe(error.detail)}",
            server=server,
            tool=tool,
            code=SIGN_IN_FAILED if isinstance(error, SignInError) else "unsendable",
        )

    if record.status == 404:
        outcome = "refused"

    codes = {"dropped": "connection_dropped", "forgotten": "session_lost", "unreachable": "connection_refused"}
    return ServerLostError(
        f"server {server!r} was lost: {safe(error.detail)}",
        exit_code=link.exit_code,
        stderr_tail=link.stderr_tail,
        server=server,
        tool=tool,
        code="stopped" if stopping else codes.get(error.fault, "server_lost"),
        outcome=outcome,
    )
