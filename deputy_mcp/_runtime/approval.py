"""Asking a person before a call. Fails closed: no approver, a crash, an odd answer or silence refuse.

An approver is any async callable from `ApprovalRequest` to `Approve` or `Reject`. What it approves is exactly the
arguments it was shown; edited ones run through the gate again.
"""

import json
import math
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Any

import anyio
from attrs import field, frozen

from deputy_mcp._core.annotations import Effects, Finding
from deputy_mcp._core.errors import ApprovalDeniedError, ApprovalExpiredError
from deputy_mcp._core.permissions import Ask
from deputy_mcp._core.sanitizing import clean_line, clean_text
from deputy_mcp._runtime.log import log_event
from deputy_mcp._runtime.recording import CallLines


@frozen(kw_only=True)
class Approve:
    """Yes. `arguments`: other ones than were shown; None: exactly those."""

    arguments: Mapping[str, Any] | None = field(default=None, kw_only=False)


@frozen(kw_only=True)
class Reject:
    """No, and why; the reason reaches the caller."""

    reason: str = field(default="", kw_only=False)


@frozen(kw_only=True)
class ApprovalRequest:
    """What a person must see to decide."""

    ticket: str
    """Names this request; unguessable."""
    server: str
    tool: str
    public_name: str
    effects: Effects
    findings: tuple[Finding, ...]
    code: str
    """Why it is asked: `write`, `web`, `destructive`, `finding`, `callback`, …"""
    reason: str
    arguments: Mapping[str, Any] = field(repr=False)
    """Exactly what would be sent."""
    arguments_text: str = field(repr=False)
    """The same as indented JSON, complete, safe on a terminal: nothing in it can hide or draw a second prompt."""
    digest: str | None
    """The digest of the tool's definition; None for resources and prompts."""
    expires_at: datetime
    """In UTC; unanswered by then, it is refused."""


Approver = Callable[[ApprovalRequest], Awaitable[Approve | Reject]]


async def ask_person(
    approver: Approver | None,
    decision: Ask,
    *,
    server: str,
    tool: str,
    public_name: str,
    effects: Effects,
    findings: tuple[Finding, ...],
    arguments_json: bytes,
    digest: str | None,
    lines: CallLines,
    timeout_seconds: float,
) -> Approve:
    """The approval, or an `ApprovalDeniedError`."""
    names: dict[str, Any] = {"server": server, "tool": tool}
    if approver is None:
        raise ApprovalDeniedError(
            f"{public_name} needs approval ({decision.reason}) and there is no approver; "
            "pass approver= to the connection, or grant it in its permissions",
            code="no_approver",
            **names,
        )

    arguments = json.loads(arguments_json)
    request = ApprovalRequest(
        ticket=token_hex(16),
        server=server,
        tool=tool,
        public_name=public_name,
        effects=effects,
        findings=findings,
        code=decision.code,
        reason=decision.reason,
        arguments=arguments,
        arguments_text=clean_text(json.dumps(arguments, indent=2, ensure_ascii=False)),
        digest=digest,
        expires_at=datetime.now(UTC) + timedelta(seconds=timeout_seconds),
    )
    lines.asked(request.ticket)
    answer: object = None
    with anyio.move_on_after(timeout_seconds) as timer:
        try:
            answer = await approver(request)
        except Exception as error:  # a crashing approver has not approved
            log_event("approver_failed", level="warning", server=server, tool=tool, error=type(error).__name__)
            lines.answered("failed", ticket=request.ticket)
            raise ApprovalDeniedError(
                f"{public_name} was not approved: the approver failed with {type(error).__name__}",
                code="approver_failed",
                **names,
            ) from error

    if timer.cancelled_caught:
        lines.answered("expired", ticket=request.ticket)
        seconds = math.ceil(timeout_seconds)
        raise ApprovalExpiredError(f"{public_name} was not approved within {seconds} s", **names)

    said = "approve" if isinstance(answer, Approve) else "reject" if isinstance(answer, Reject) else "failed"
    lines.answered(said, ticket=request.ticket)
    if isinstance(answer, Approve):
        return answer

    if isinstance(answer, Reject):
        why = f": {clean_line(answer.reason)}" if answer.reason else ""
        raise ApprovalDeniedError(f"{public_name} was rejected{why}", **names)

    raise ApprovalDeniedError(
        f"{public_name} was not approved: the approver gave {type(answer).__name__} instead of Approve or Reject",
        code="approver_failed",
        **names,
    )
