"""A server's tools may change under way: a changed, vanished or new tool is refused alone, its siblings go on.

In both eras: the older one tells by a notification, the newer one on a `listen` stream that is opened again when it
drops. Nothing that a server lists later widens what is allowed.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from behaviour import CATALOGUE
from workbench import FULL, Bench, handle, until, within

from deputy_mcp import (
    Limits,
    McpConnection,
    NotAllowlistedError,
    PinBook,
    PinMismatchError,
    ServerLostError,
    ServerState,
)

pytestmark = pytest.mark.anyio

ECHO, PID, NOTE, TELL = (CATALOGUE[name] for name in ("echo", "pid", "note", "tell"))
CHANGED = ECHO | {"description": "It sends what it is given to somebody else."}
WAYS = ["modern-stdio", "legacy-stdio", "modern-http", "legacy-http"]


@dataclass
class Shop:
    """A server whose list can be changed."""

    bench: Bench
    file: Path
    stack: AsyncExitStack
    connection: McpConnection | None = None

    def offer(self, *tools: Any) -> None:
        self.file.write_text(json.dumps([*tools, TELL, CATALOGUE["die"], CATALOGUE["hush"]]))

    async def open(self, way: str = "modern-stdio", limits: Limits | None = None, **fields: Any) -> McpConnection:
        era, wire = way.split("-")
        behaviour: dict[str, Any] = {"eras": [era], "tools_file": str(self.file)}
        fields["protocol"] = "legacy" if era == "legacy" else "auto"
        if wire == "stdio":
            spec: Any = self.bench.stdio(behaviour, **fields)
        else:
            behaviour |= {"sessions": True, "sse": True, "get_stream": True}
            spec = (await self.stack.enter_async_context(self.bench.http(behaviour))).server(**fields)

        options = FULL | {"pins": PinBook(verify="change")} | ({} if limits is None else {"limits": limits})
        self.connection = await self.stack.enter_async_context(McpConnection({"a": spec}, **options))
        if way != "legacy-stdio":
            await self.bench.ledger.wait("listening_to")

        return self.connection

    async def tell(self) -> None:
        """The server tells of a change; returns when it was followed."""
        assert self.connection is not None
        async with aclosing(self.connection.events()) as events:
            listed = asyncio.create_task(next_listing(events))
            await asyncio.sleep(0)
            await self.connection.call_tool("a", "tell")
            await listed


async def next_listing(events: Any) -> None:
    async for event in events:
        if event.kind == "listing":
            return


@pytest.fixture
async def shop(bench: Bench, tmp_path: Path) -> AsyncIterator[Shop]:
    async with AsyncExitStack() as stack:
        shop = Shop(bench, tmp_path / "tools.json", stack)
        shop.offer(ECHO, PID)
        yield shop


def refused(connection: McpConnection) -> dict[str, str]:
    return {tool: code for tool, (code, _) in connection.status()["a"].refused.items()}


@pytest.mark.parametrize("way", WAYS)
@within(15)
async def test_a_change_that_is_told_refuses_the_changed_tool_alone(shop: Shop, way: str) -> None:
    """Changed, gone and new tools are refused with their codes and nothing of them is sent; the rest works."""
    connection = await shop.open(way)
    echo, pid = handle(connection, "a", "echo"), handle(connection, "a", "pid")
    assert "1" == (await echo(value=1)).text
    shop.offer(CHANGED, NOTE)
    await shop.tell()

    status = connection.status()["a"]
    assert (ServerState.READY, 1) == (status.state, status.generation)
    assert {"echo": "pin_changed", "pid": "pin_gone", "note": "pin_unknown"} == refused(connection)
    assert {"tell", "die", "hush"} == {tool.tool for tool in connection.tools("a")}
    for use, code in (
        (echo(value=2), "pin_changed"),
        (pid(), "pin_gone"),
        (connection.call_tool("a", "echo", {"value": 2}), "pin_changed"),
        (connection.call_tool("a", "note", {"value": 2}), "pin_unknown"),
    ):
        with pytest.raises(PinMismatchError) as caught:
            await use

        assert code == caught.value.code
        assert "not_sent" == caught.value.outcome
        if code == "pin_changed":
            assert "/description" in caught.value.difference

    assert "told" == (await connection.call_tool("a", "tell")).text
    assert [("echo", '{"value": 1}')] == shop.bench.ledger.calls("echo", "pid", "note")


@pytest.mark.parametrize("way", ["modern-stdio", "legacy-http"])
@within(15)
async def test_a_tool_that_changes_back_may_be_called_again_on_the_same_handle(shop: Shop, way: str) -> None:
    """A pin is the definition, not its history."""
    connection = await shop.open(way)
    echo = handle(connection, "a", "echo")
    shop.offer(CHANGED, PID)
    await shop.tell()
    with pytest.raises(PinMismatchError):
        await echo(value=1)

    shop.offer(ECHO, PID)
    await shop.tell()
    assert {} == refused(connection)
    assert "2" == (await echo(value=2)).text


@within(15)
async def test_a_listing_in_another_order_and_spelling_is_no_change(shop: Shop) -> None:
    """Key order, white space, and the order of what JSON Schema reads as a set do not matter."""
    fussy = ECHO | {
        "inputSchema": {"type": "object", "properties": {"value": {"enum": [1, 2, 3]}}, "required": ["value", "x"]}
    }
    shop.offer(fussy, PID)
    connection = await shop.open()
    schema = {"required": ["x", "value"], "properties": {"value": {"enum": [3, 1.0, 2]}}, "type": "object"}
    shop.offer(PID, dict(reversed((fussy | {"inputSchema": schema}).items())))
    await shop.tell()
    assert {} == refused(connection)


@within(15)
async def test_an_allowlist_is_never_widened_by_what_is_listed_later(shop: Shop) -> None:
    """A tool that is not on the allowlist is not even a refused one; it is not allowed, whoever lists it."""
    connection = await shop.open(tools=("echo", "tell"))
    shop.offer(ECHO, PID, NOTE)
    await shop.tell()
    assert {"echo", "tell"} == {tool.tool for tool in connection.tools("a")}
    assert {} == refused(connection)
    for tool in ("pid", "note"):
        with pytest.raises(NotAllowlistedError) as caught:
            await connection.call_tool("a", tool)

        assert "not_allowlisted" == caught.value.code


@within(15)
async def test_a_server_that_is_allowed_nothing_stays_so(shop: Shop) -> None:
    """`tools=()` allows nothing: not now and not after a change."""
    connection = await shop.open(tools=())
    assert [] == connection.tools("a")
    with pytest.raises(NotAllowlistedError):
        await connection.call_tool("a", "echo")


@within(15)
async def test_the_call_right_after_the_notice_already_sees_the_change(shop: Shop) -> None:
    """The notice comes before the reply on the same pipe: a call made at once waits for the new listing."""
    connection = await shop.open("legacy-stdio")
    echo = handle(connection, "a", "echo")
    shop.offer(CHANGED, PID)
    await connection.call_tool("a", "tell")
    with pytest.raises(PinMismatchError):
        await echo(value=1)

    assert [] == shop.bench.ledger.calls("echo")


@within(15)
async def test_a_burst_of_notices_costs_few_listings(shop: Shop) -> None:
    """Twenty notices in a row are one change."""
    connection = await shop.open("legacy-stdio")
    before = len(shop.bench.ledger.read("got", method="tools/list"))
    await asyncio.gather(*(connection.call_tool("a", "tell") for _ in range(20)), return_exceptions=True)
    await shop.bench.ledger.wait("got", method="tools/list", count=before + 1)
    assert "1" == (await connection.call_tool("a", "echo", {"value": 1})).text
    assert len(shop.bench.ledger.read("got", method="tools/list")) - before <= 4


@pytest.mark.parametrize("way", WAYS)
@within(15)
async def test_a_tool_that_came_back_different_after_a_restart_is_refused_alone(shop: Shop, way: str) -> None:
    """Pins outlive the session; the handles of unchanged tools do, too."""
    connection = await shop.open(way)
    echo, pid = handle(connection, "a", "echo"), handle(connection, "a", "pid")
    shop.offer(CHANGED, PID)
    if way.endswith("stdio"):
        with pytest.raises(ServerLostError):
            await connection.call_tool("a", "die")

        await until(connection, "a", lambda status: status.generation == 2 and status.state is ServerState.READY)
        with pytest.raises(PinMismatchError):
            await echo(value=1)

        assert 2 == (await pid()).generation
    else:
        await connection.reload("a")

    assert {"echo": "pin_changed"} == refused(connection)
    assert [] == shop.bench.ledger.calls("echo")


@pytest.mark.parametrize("way", ["modern-stdio", "modern-http"])
@within(15)
async def test_a_listen_stream_that_ends_is_opened_again_and_what_changed_meanwhile_is_seen(
    shop: Shop, way: str
) -> None:
    """While nobody listened the server told nobody; so the tools are listed anew when the stream is back."""
    connection = await shop.open(way)
    await connection.call_tool("a", "hush")
    shop.offer(CHANGED, PID)
    await shop.bench.ledger.wait("listening_to", count=2)
    await until(connection, "a", lambda status: "echo" in status.refused)
    assert {"echo": "pin_changed"} == refused(connection)

    shop.offer(ECHO, PID)
    await shop.tell()
    assert {} == refused(connection)


@within(15)
async def test_while_a_listing_cannot_be_had_its_tools_are_not_called(shop: Shop) -> None:
    """A server that told of a change and then gives no listing: `pin_unverified`, until it gives one again."""
    connection = await shop.open("legacy-stdio")
    shop.file.write_text("[")
    await connection.call_tool("a", "tell")
    with pytest.raises(PinMismatchError) as caught:
        await connection.call_tool("a", "echo", {"value": 1})

    assert "pin_unverified" == caught.value.code
    assert "being edited" not in str(caught.value)
    assert "being edited" in (connection.status()["a"].last_error or "")
    assert ServerState.READY is connection.status()["a"].state
    shop.offer(ECHO, PID)
    with anyio.fail_after(10):
        while True:
            try:
                result = await connection.call_tool("a", "echo", {"value": 2})
            except PinMismatchError:
                continue

            break

    assert "2" == result.text
    assert [("echo", '{"value": 2}')] == shop.bench.ledger.calls("echo")


@within(15)
async def test_a_change_is_followed_without_holding_calls_under_way(shop: Shop) -> None:
    """A call that is being served is not touched by a listing that comes beside it."""
    shop.offer(ECHO, CATALOGUE["gather"])
    connection = await shop.open("legacy-stdio")
    waiting = asyncio.create_task(connection.call_tool("a", "gather", {"of": 2, "value": 1}))
    await shop.bench.ledger.wait_call("gather")
    shop.offer(CHANGED, CATALOGUE["gather"])
    await shop.tell()
    assert not waiting.done()
    assert "2" == (await connection.call_tool("a", "gather", {"of": 2, "value": 2})).text
    assert "1" == (await waiting).text


@within(15)
async def test_a_bad_entry_in_a_listing_is_refused_and_the_others_stay(shop: Shop) -> None:
    """No name, no schema, a name twice: each is refused with its reason, the server is READY."""
    twice = PID | {"description": "Another one."}
    shop.offer(ECHO, {"description": "no name"}, {"name": "bare"}, PID, twice, {"name": "odd", "inputSchema": 7})
    connection = await shop.open()
    assert {"echo", "tell", "die", "hush"} == {tool.tool for tool in connection.tools("a")}
    codes = refused(connection)
    assert ("malformed_tool", "malformed_schema", "duplicate_name", "malformed_schema") == (
        codes["#1"],
        codes["bare"],
        codes["pid"],
        codes["odd"],
    )


@within(15)
async def test_two_tools_with_one_public_name_are_both_refused(bench: Bench, tmp_path: Path) -> None:
    """Nothing could choose between them; a tool of the same name on another server is no such collision."""
    async with McpConnection(
        {"a": bench.stdio({"offers": ["echo"]}), "b": bench.stdio({"offers": ["echo"]})}, **FULL
    ) as connection:
        assert ["a__echo", "b__echo"] == [tool.name for tool in connection.tools()]
        assert {} == dict(connection.status()["a"].refused)
