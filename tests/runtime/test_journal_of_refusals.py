"""Every refusal, whoever says it and of what, leaves a line with its code in the journal."""

import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from deputy_mcp import (
    Agent,
    ApprovalPendingError,
    ApprovalStore,
    Limits,
    McpConnection,
    Permissions,
    RefusedError,
    RestartPolicy,
    StdioServer,
    UnavailableError,
)
from deputy_mcp._core.catalog import public_name
from deputy_mcp._runtime.journal_file import read_lines
from deputy_mcp.testing import FixedApprover, ScriptedServer, change_tools, die, reply, tool

pytestmark = pytest.mark.anyio

Steps = dict[str, Callable[[], Awaitable[Any]]]
WRITE = tool("write", annotations=None)
DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
ELSEWHERE = {
    # Never in the journal as a line of its own: there it is the reason of a `gap`.
    "journal_unavailable",
    # The base, whose every case has a code of its own.
    "refused",
    # Decisions: the class has their codes, shown here by `tool_denylist` and `max_tool_calls`.
    "denied",
    # Told by the same line of the same place as the others of their class.
    "unavailable",
    "restart_limit",
    "wait_timeout",
    "unsendable",
    "sign_in_failed",
    "pin_unverified",
    "malformed_tool",
    "unclean_schema",
    "not_canonical",
    "invalid_header_annotation",
    "schema_unchecked",
}


def journalled(path: Path) -> list[str]:
    lines = [json.loads(line) for line in read_lines(path)]
    return [line["error_code"] for line in lines if line["event"] == "refusal"]


class Refusals:
    """Steps that are refused, each with the code it must have, here and in the journal."""

    # Mutable state: the codes seen.
    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: set[str] = set()

    async def take(self, connection: McpConnection, steps: Steps) -> None:
        journal = connection._recorder.journal
        assert journal is not None
        for name, step in steps.items():
            code = name.split()[0]
            journal.flush()
            before = len(journalled(self.path)) if self.path.exists() else 0
            raised = None
            try:
                await step()
            except (RefusedError, UnavailableError) as error:
                raised = error.code

            journal.flush()
            *why, told = journalled(self.path)[before:]
            assert (name, code, code) == (name, raised, told)
            # Only of a void ticket two are told: why it is void, and that it is.
            assert bool(why) is (code == "approval_void")
            self.seen.add(code)


def documented() -> set[str]:
    """The codes of refusals and of what is unavailable, as the reference lists them."""
    codes, kind = set(), ""
    for line in DOCUMENT.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 4 and cells[0] != "class":
            kind = cells[0].strip("`") or kind
            refusing = kind.startswith(("Refused", "NotAllow", "Permission", "Pin", "Stale", "Invalid", "Approval"))
            if refusing or kind.startswith(("Journal", "Unavailable", "Start", "Quarantined", "Restart", "Wait")):
                codes |= set(cells[1].split("`")[1::2])

    return codes


async def test_every_refusal_has_its_line(tmp_path: Path) -> None:
    """Each documented code is seen once, at the place that says it, and stands in the journal as it was raised."""
    path = tmp_path / "audit.jsonl"
    refusals = Refusals(path)
    odd = (
        tool("broken", inputSchema={"type": 3}),
        tool("hid\u200bden"),
        tool("twice"),
        tool("twice", description="other"),
    )
    first = (tool("echo"), WRITE, tool("typed"), tool("gone"), *odd)
    later = (tool("echo", description="other"), WRITE, tool("typed"), tool("new"), *odd)
    server = ScriptedServer(tmp_path, tools=first, calls={"typed": change_tools(*later) + reply(), "write": reply()})
    equal = public_name("same", "b c").removeprefix("same__")  # of two tools, the one is named like the other is shown
    same = ScriptedServer(tmp_path, name="same", tools=(tool("b c"), tool(equal), tool("slow"), tool("idle")))
    dying = ScriptedServer(tmp_path, name="dying", calls={"echo": die()})
    store = ApprovalStore(tmp_path / "approvals.db")
    permissions = Permissions(web=True, write="ask", tool_denylist=["same__slow"])
    servers = {
        "a": server.stdio(prompts=("hello",)),
        "same": same.stdio(),
        "dying": dying.stdio(restart=RestartPolicy(when="never")),
    }
    with anyio.fail_after(60):
        async with McpConnection(servers, permissions=permissions, approver=store, journal=path) as c:
            await _look_ups(c, refusals)
            await _calls(c, refusals, store)

        with_approver = {"a": ScriptedServer(tmp_path, name="b", tools=(WRITE,)).stdio()}
        await _approvers(with_approver, path, refusals)

        (tmp_path / "pins.json").write_text("{")
        async with McpConnection(with_approver, pins=tmp_path / "pins.json", journal=path) as c:
            await refusals.take(
                c, {"quarantined": lambda: c.call_tool("a", "write"), "quarantined start": lambda: c.start("a")}
            )

    assert documented() - ELSEWHERE <= refusals.seen
    assert not ELSEWHERE & refusals.seen


async def _look_ups(c: McpConnection, refusals: Refusals) -> None:
    async def tools() -> None:
        c.tools("nobody")

    read, _ = (*c.capability_tools(), None)
    assert read is not None
    agent = Agent([*c.tools("a"), read], max_tool_calls=1)
    await refusals.take(
        c,
        {
            "unknown_server": lambda: c.call_tool("nobody", "echo"),
            "unknown_server in tools": tools,
            "unknown_server in stop": lambda: c.stop("nobody"),
            "not_allowlisted": lambda: c.read_resource("a", "memo://x"),
            "not_allowlisted completion": lambda: c.complete("a", {"type": "ref/prompt", "name": "x"}, {}),
            "unknown_ticket": lambda: c.resume("nothing"),
            "unknown_ticket of an agent": lambda: agent.resume("nothing"),
            "unknown_tool of an agent": lambda: agent.call_tool("nothing"),
            "invalid_arguments of a capability": lambda: agent.call_tool(read.name, {"further": 1}),
            "max_tool_calls": lambda: agent.call_tool("a__echo"),
        },
    )


async def _calls(c: McpConnection, refusals: Refusals, store: ApprovalStore) -> None:
    echo = c.tools("a")[0]
    await refusals.take(
        c,
        {
            "unknown_tool": lambda: c.call_tool("a", "nothing"),
            "malformed_schema": lambda: c.call_tool("a", "broken"),
            "unclean_name": lambda: c.call_tool("a", "hid\u200bden"),
            "duplicate_name": lambda: c.call_tool("a", "twice"),
            "name_collision": lambda: c.call_tool("same", "b c"),
            "invalid_arguments": lambda: c.call_tool("a", "echo", {"x": float("nan")}),
            "tool_denylist": lambda: c.call_tool("same", "slow"),
            "approval_pending": lambda: c.call_tool("a", "write"),
        },
    )
    tickets = []
    for n in range(3):
        with pytest.raises(ApprovalPendingError) as caught:
            await c.call_tool("a", "write", {"n": n})

        tickets.append(caught.value.ticket)

    used, rejected, denied = tickets
    store.approve(used)
    store.reject(rejected)
    store.approve(denied)
    await c.resume(used)
    agent = Agent(c.tools("a"))
    agent.narrow(Permissions(web=True))
    await refusals.take(
        c,
        {
            "approval_used": lambda: c.resume(used),
            "rejected by a person": lambda: c.resume(rejected),
            "approval_void": lambda: agent.resume(denied),
        },
    )
    await c.call_tool("a", "typed")
    await refusals.take(
        c,
        {
            "pin_changed": lambda: c.call_tool("a", "echo"),
            "pin_gone": lambda: c.call_tool("a", "gone"),
            "pin_unknown": lambda: c.call_tool("a", "new"),
        },
    )
    await c.reload("a", repin=True)
    await c.stop("same")
    with pytest.raises(Exception, match="dying"):
        await c.call_tool("dying", "echo")

    await refusals.take(
        c,
        {
            "stale_tool": lambda: echo(),
            "stopped": lambda: c.call_tool("same", "idle"),
            "stopped listing": lambda: c.discover("same", "tools"),
            "start_failed": lambda: c.call_tool("dying", "echo"),
        },
    )


async def _approvers(servers: dict[str, StdioServer], path: Path, refusals: Refusals) -> None:
    asking = Permissions(web=True, write="ask")

    async def fails(request: object) -> bool:
        raise OSError("no")

    async def never(request: object) -> None:
        await anyio.sleep_forever()

    for code, approver in (
        ("no_approver", None),
        ("rejected", FixedApprover(False)),
        ("approver_failed", fails),
        ("approval_expired", never),
    ):
        limits = Limits(approval_timeout_seconds=0.05)
        options: dict[str, Any] = {"permissions": asking, "approver": approver, "limits": limits}
        async with McpConnection(servers, journal=path, **options) as c:
            await refusals.take(c, {code: lambda c=c: c.call_tool("a", "write")})  # type: ignore[misc] # the loop's own


async def test_what_a_hosts_own_tool_refuses_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """It has no connection and so no journal; the agent says it."""

    def add(n: int) -> int:
        return n + 1

    agent = Agent([add], permissions=Permissions(write=False), max_tool_calls=2)
    caplog.set_level(logging.DEBUG)
    for name, arguments in (("add", {"n": "x"}), ("add", {"n": 1}), ("add", {"n": 1}), ("nothing", {})):
        with pytest.raises(RefusedError) as caught:
            await agent.call_tool(name, arguments)

        assert caught.value.code in caplog.records[-1].getMessage()
        assert "refusal" in caplog.records[-1].getMessage()
