"""One call and its ticket in the approval store: leave one, or use one up and account for what became of it."""

import hashlib
import json
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from deputy_mcp._core.config import HttpServer, Server, StdioServer
from deputy_mcp._core.errors import (
    ApprovalDeniedError,
    ApprovalPendingError,
    InvalidArgumentsError,
    NotAllowlistedError,
    PermissionDeniedError,
    PinMismatchError,
    RefusedError,
)
from deputy_mcp._core.permissions import Ask
from deputy_mcp._runtime.approval_store import ApprovalStore, Ticket, void_error
from deputy_mcp._runtime.recording import CallLines


async def leave_ticket(
    store: ApprovalStore, decision: Ask, lines: CallLines, *, spec: Server, public_name: str, **asked: Any
) -> ApprovalPendingError:
    """Ask durably; the error that carries the ticket. `asked`: what else `ApprovalStore.ask` takes."""
    ticket = await anyio.to_thread.run_sync(
        partial(
            store.ask,
            identity=server_identity(spec),
            public_name=public_name,
            code=decision.code,
            reason=decision.reason,
            **asked,
        )
    )
    lines.asked(ticket)
    return ApprovalPendingError(
        f"{public_name} needs approval ({decision.reason}); decide ticket {ticket}, then resume it",
        ticket=ticket,
        server=asked["server"],
        tool=asked["tool"],
    )


class TicketUse:
    """The ticket of a resumed call."""

    # Mutable state: whether it was spent.
    def __init__(self, store: ApprovalStore, ticket: Ticket) -> None:
        self.ticket = ticket
        self._store = store
        self._spent = False

    async def spend(self, spec: Server, lines: CallLines, *, digest: str | None, arguments_json: bytes) -> None:
        """Use it up, once, before anything is sent. Raises `ApprovalDeniedError` where it does not fit."""
        if self._spent:
            return

        with anyio.CancelScope(shield=True):  # spent or not: who is cancelled meanwhile must know
            await anyio.to_thread.run_sync(
                partial(
                    self._store.spend,
                    self.ticket.ticket,
                    arguments_json=arguments_json,
                    digest=digest,
                    identity=server_identity(spec),
                )
            )
            self._spent = True

        lines.answered("approve", ticket=self.ticket.ticket)

    async def settle(self, note: str, *, sent: bool) -> None:
        """The call is over: the ticket is finished, or given back where the call was provably not sent."""
        if not self._spent:
            return

        with anyio.CancelScope(shield=True):
            if sent:
                await anyio.to_thread.run_sync(self._store.finish, self.ticket.ticket, note)
            else:
                await anyio.to_thread.run_sync(self._store.give_back, self.ticket.ticket)

    async def voided(self, error: RefusedError) -> RefusedError:
        """The error as who resumed sees it: denied or changed meanwhile, what was approved cannot be done any more."""
        if not _voids(error):
            return error

        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._store.void, self.ticket.ticket, error.code)

        return void_error(self.ticket, str(error))


def _voids(error: RefusedError) -> bool:
    if isinstance(error, ApprovalDeniedError):
        return error.code == "approval_void"

    if isinstance(error, PinMismatchError):
        return error.code != "pin_unverified"

    denied = PermissionDeniedError | NotAllowlistedError | InvalidArgumentsError
    return isinstance(error, denied) or type(error) is RefusedError


def server_identity(spec: Server) -> str:
    """SHA-256 over what a server is: its command and arguments, or its URL."""
    match spec:
        case StdioServer():
            parts = ["stdio", spec.command, *spec.args]
        case HttpServer():
            parts = ["http", spec.url]
        case _:
            parts = ["custom", spec.identity]

    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
