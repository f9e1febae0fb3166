"""A program that dies at a point it is told: run by `test_approval_kills` in a process of its own.

`python approval_scenarios.py FOLDER ACTION POINT TICKET`, where ACTION is `ask`, `approve` or `resume`, and POINT names
a step and where in it (`before`, `inside` its transaction, `after`).
"""

import contextlib
import functools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio

from deputy_mcp import ApprovalPendingError, ApprovalStore, McpConnection, Permissions
from deputy_mcp._runtime.journal import Journal
from deputy_mcp._runtime.journal_file import JournalFile
from deputy_mcp._runtime.transports.stream_dispatcher import StreamDispatcher
from deputy_mcp.testing import ScriptedServer, reply, tool

FOLDER, ACTION, POINT, TICKET = Path(sys.argv[1]), *sys.argv[2:5]
STEP, _, WHERE = POINT.partition("-")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def armed() -> bool:
    """Whether this is the point: the call itself, not what came before it."""
    return (FOLDER / "armed").exists()


def at(step: str) -> Callable[[Any], Any]:
    """Die before or after what is wrapped, where POINT says so."""

    def wrap(function: Any) -> Any:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if (STEP, WHERE) == (step, "before") and armed():
                die()

            result = function(*args, **kwargs)
            if (STEP, WHERE) == (step, "after") and armed():
                die()

            return result

        return wrapped

    return wrap


_open = ApprovalStore._open
_current: list[str] = []


@contextlib.contextmanager
def open_and_die(store: ApprovalStore) -> Iterator[Any]:
    with _open(store) as connection:
        yield connection
        if WHERE == "inside" and armed() and _current and _current[-1] == STEP:
            die()


def named(step: str, function: Any) -> Any:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        _current.append(step)
        try:
            return function(*args, **kwargs)
        finally:
            _current.pop()

    return at(step)(wrapped)


store_class: Any = ApprovalStore
store_class._open = open_and_die
for name in ("ask", "approve", "spend", "finish"):
    setattr(ApprovalStore, name, named(name, getattr(ApprovalStore, name)))

write_class: Any = JournalFile
write_class.append = at("journal")(JournalFile.append)
send_class: Any = StreamDispatcher
_enqueue, _enqueue_and_die = StreamDispatcher._enqueue, at("send")(StreamDispatcher._enqueue)


def enqueue(dispatcher: StreamDispatcher, outgoing: Any) -> Any:
    # The call itself, not the listing that verifies it.
    return (_enqueue_and_die if b'"tools/call"' in outgoing.data else _enqueue)(dispatcher, outgoing)


send_class._enqueue = enqueue


async def main() -> None:
    store = ApprovalStore(FOLDER / "approvals.db")
    if ACTION == "approve":
        (FOLDER / "armed").touch()
        store.approve(TICKET)
        return

    server = ScriptedServer(FOLDER, tools=(tool("write", annotations=None),), calls={"write": reply("written")})
    permissions = Permissions(web="ask", write="ask")
    journal = Journal(FOLDER / "audit.jsonl")
    async with McpConnection(
        {"a": server.stdio()}, permissions=permissions, approver=store, journal=journal
    ) as connection:
        (FOLDER / "armed").touch()
        if ACTION == "ask":
            try:
                await connection.call_tool("a", "write", {"n": 1})
            except ApprovalPendingError as error:
                print(error.ticket)
        else:
            print((await connection.resume(TICKET)).text)


anyio.run(main)
