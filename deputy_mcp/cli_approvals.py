"""`deputy-mcp approvals list | show | approve | reject`: the durable store of approvals, for the person who decides.

It must run where the agent cannot: whoever can write the store can approve.
"""

import argparse
from typing import Any

from deputy_mcp._core.errors import ConfigError
from deputy_mcp._core.sanitizing import clean_line
from deputy_mcp._runtime.approval_store import ApprovalStore, Ticket
from deputy_mcp.terminal import Printer


def add_parser(commands: Any) -> None:
    """Add the command to the program's."""
    approvals = commands.add_parser("approvals", help="list and decide what waits for approval")
    actions = approvals.add_subparsers(required=True, metavar="ACTION")
    for name, run, text in (
        ("list", _run_list, "print the tickets that wait; with --all, every one"),
        ("show", _run_show, "print one ticket with its arguments"),
        ("approve", _run_approve, "say yes to a ticket"),
        ("reject", _run_reject, "say no to a ticket"),
    ):
        action = actions.add_parser(name, help=text)
        if name == "list":
            action.add_argument("--all", action="store_true", help="decided ones too")
        else:
            action.add_argument("ticket", metavar="TICKET")

        if name == "reject":
            action.add_argument("--reason", default="", metavar="TEXT", help="reaches the caller")

        action.add_argument("--store", required=True, metavar="FILE", help="the store's SQLite file")
        action.add_argument("--json", action="store_true", help="print JSON")
        action.set_defaults(run=run)


async def _run_list(options: argparse.Namespace) -> int:
    tickets = _store(options).list(None if options.all else "pending")
    out = Printer()
    if options.json:
        out.json([_facts(ticket) for ticket in tickets])
    elif tickets:
        rows = [
            (
                t.ticket,
                t.state,
                f"{t.asked_at:%Y-%m-%d %H:%M}",
                clean_line(t.server, 60),
                clean_line(t.tool, 80),
                t.code,
            )
            for t in tickets
        ]
        out.table(("ticket", "state", "asked (UTC)", "server", "tool", "why"), rows)
    else:
        out.line("nothing waits for approval" if not options.all else "there are no tickets")

    return 0


async def _run_show(options: argparse.Namespace) -> int:
    _show(options, _store(options).get(options.ticket))
    return 0


async def _run_approve(options: argparse.Namespace) -> int:
    _show(options, _store(options).approve(options.ticket))
    return 0


async def _run_reject(options: argparse.Namespace) -> int:
    _show(options, _store(options).reject(options.ticket, options.reason))
    return 0


def _store(options: argparse.Namespace) -> ApprovalStore:
    store = ApprovalStore(options.store)
    if not store.path.exists():
        # Opening would make one, and say of a mistyped name that nothing waits.
        raise ConfigError(f"there is no approval store {store.path}; the program that asks makes it", key="store")

    return store


def _show(options: argparse.Namespace, ticket: Ticket) -> None:
    out = Printer()
    if options.json:
        out.json(_facts(ticket))
        return

    out.line(f"{ticket.ticket} is {ticket.state}", "head")
    for name, value in (
        ("server", ticket.server),
        ("tool", ticket.tool),
        ("name", ticket.public_name),
        ("why", f"{ticket.reason} ({ticket.code})"),
        ("digest", (ticket.digest or "-")[:16]),
        ("asked", f"{ticket.asked_at:%Y-%m-%d %H:%M:%S} UTC"),
        ("until", f"{ticket.expires_at:%Y-%m-%d %H:%M:%S} UTC"),
        ("note", ticket.note or "-"),
    ):
        out.line(f"  {name:10}{clean_line(value, 300)}")

    effects = [name for name, holds in _effects(ticket).items() if holds]
    out.line(f"  {'effects':10}{', '.join(effects) or '-'}")
    for finding in ticket.findings:
        out.line(f"  finding   {finding.code} at {finding.place or '/'}: {finding.message}", "ask")

    out.line("  arguments")
    out.line("\n".join(f"    {line}" for line in ticket.arguments_text.splitlines()))


def _effects(ticket: Ticket) -> dict[str, bool]:
    effects = ticket.effects
    return {
        "read_only": effects.read_only,
        "destructive": effects.destructive,
        "idempotent": effects.idempotent,
        "open_world": effects.open_world,
    }


def _facts(ticket: Ticket) -> dict[str, Any]:
    return {
        "ticket": ticket.ticket,
        "state": ticket.state,
        "server": ticket.server,
        "method": ticket.method,
        "tool": ticket.tool,
        "public_name": ticket.public_name,
        "effects": _effects(ticket),
        "code": ticket.code,
        "reason": ticket.reason,
        "arguments": ticket.arguments,
        "digest": ticket.digest,
        "findings": [{"code": f.code, "place": f.place, "message": f.message} for f in ticket.findings],
        "asked_at": ticket.asked_at.isoformat(),
        "expires_at": ticket.expires_at.isoformat(),
        "decided_at": ticket.decided_at.isoformat() if ticket.decided_at is not None else None,
        "note": ticket.note,
    }
