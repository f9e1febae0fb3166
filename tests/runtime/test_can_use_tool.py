"""The host's own callback: asked after `decide`, sync or async, and only ever able to tighten."""

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from workbench import FULL, LIMITS, Bench, handle, within

from deputy_mcp import (
    Allow,
    ApprovalRequest,
    Approve,
    Ask,
    CallContext,
    Deny,
    McpConnection,
    PermissionDeniedError,
    Permissions,
)

pytestmark = pytest.mark.anyio


class Approver:
    """Approves everything, and counts."""

    def __init__(self) -> None:
        self.requests: list[ApprovalRequest] = []

    async def __call__(self, request: ApprovalRequest) -> Approve:
        self.requests.append(request)
        return Approve()


def options(callback: Callable[..., Any], approver: Approver | None = None, **permissions: Any) -> dict[str, Any]:
    settings = {"web": True, "write": True} | permissions
    return FULL | {"permissions": Permissions(can_use_tool=callback, **settings), "approver": approver}


def crash() -> Any:
    raise ZeroDivisionError("inside")


ANSWERS: dict[str, tuple[Callable[[], Any], str]] = {
    "None": (lambda: None, "allowed"),
    "True": (lambda: True, "allowed"),
    "Allow": (Allow, "allowed"),
    "False": (lambda: False, "denied"),
    "Deny": (lambda: Deny("not on Sundays"), "denied"),
    "Ask": (Ask, "asked"),
    "one": (lambda: 1, "denied"),
    "zero": (lambda: 0, "denied"),
    "a text": (lambda: "yes", "denied"),
    "a class": (lambda: Allow_class, "denied"),
    "an empty dict": (dict, "denied"),
    "a crash": (crash, "denied"),
}
Allow_class = type(Allow())


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("answer", ANSWERS)
@within(10)
async def test_each_answer_allows_asks_or_denies(bench: Bench, answer: str, kind: str) -> None:
    """No objection, an objection, a question; whatever is none of these denies with code `callback`."""
    give, outcome = ANSWERS[answer]
    approver = Approver()

    async def awaited(*_: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return give()

    callback = awaited if kind == "async" else lambda *_: give()
    async with McpConnection({"a": bench.stdio()}, **options(callback, approver)) as connection:
        if outcome == "denied":
            with pytest.raises(PermissionDeniedError) as caught:
                await connection.call_tool("a", "note", {"value": "secret"})

            assert ("callback", "not_sent") == (caught.value.code, caught.value.outcome)
            assert isinstance(caught.value.decision, Deny)
            assert "secret" not in str(caught.value)
            assert "inside" not in str(caught.value)
            assert "can_use_tool" in str(caught.value) or "not on Sundays" in str(caught.value)
        else:
            assert "1" == (await connection.call_tool("a", "note", {"value": 1})).text

    assert (0 if outcome == "denied" else 1) == len(bench.ledger.calls())
    assert (["callback"] if outcome == "asked" else []) == [request.code for request in approver.requests]


@pytest.mark.parametrize("answer", [None, True, Allow()])
@within(10)
async def test_an_allow_does_not_lift_an_ask(bench: Bench, answer: Any) -> None:
    """Only tightening: what the permissions ask about is still asked about."""
    approver = Approver()
    async with McpConnection({"a": bench.stdio()}, **options(lambda *_: answer, approver, write="ask")) as connection:
        assert "1" == (await connection.call_tool("a", "note", {"value": 1})).text

    assert ["write"] == [request.code for request in approver.requests]


@within(10)
async def test_the_callback_is_not_asked_about_what_is_denied_anyway(bench: Bench) -> None:
    """It runs after `decide`, and only where that left something to tighten."""
    asked: list[str] = []

    def callback(tool: Any, arguments: Any, context: CallContext) -> None:
        asked.append(context.tool)

    async with McpConnection({"a": bench.stdio()}, **options(callback, write=False)) as connection:
        with pytest.raises(PermissionDeniedError) as caught:
            await connection.call_tool("a", "note")

        assert "write" == caught.value.code
        await connection.call_tool("a", "echo")

    assert ["echo"] == asked


@within(10)
async def test_the_callback_sees_tool_arguments_and_context(bench: Bench) -> None:
    """A handle, a copy of the exact arguments, and what was decided so far."""
    seen: list[tuple[Any, Any, CallContext]] = []

    def callback(*given: Any) -> None:
        seen.append(given)  # type: ignore[arg-type]

    async with McpConnection({"a": bench.stdio()}, **options(callback)) as connection:
        note = handle(connection, "a", "note")
        await note(value={"x": [1.0, None]})
        await connection.call_tool("a", "note", {"value": 2})

    for tool, _, context in seen:
        assert ("a__note", "a", "note") == (tool.name, tool.server, tool.tool)
        assert ("a", "note", "a__note", note.effects) == (
            context.server,
            context.tool,
            context.public_name,
            context.effects,
        )
        assert isinstance(context.decision, Allow)

    assert [{"value": {"x": [1.0, None]}}, {"value": 2}] == [arguments for _, arguments, _ in seen]


@within(10)
async def test_a_callback_that_does_not_answer_in_time_denies(bench: Bench) -> None:
    """The call's deadline holds for it, and the error says whose fault it was."""

    async def callback(*_: Any) -> None:
        await anyio.sleep_forever()

    async with McpConnection({"a": bench.stdio()}, **options(callback)) as connection:
        began = anyio.current_time()
        with pytest.raises(PermissionDeniedError) as caught:
            await connection.call_tool("a", "note", timeout_seconds=0.2)

        assert 0.2 <= anyio.current_time() - began < 0.7
        assert ("callback", "not_sent") == (caught.value.code, caught.value.outcome)
        assert "can_use_tool" in str(caught.value)

    assert [] == bench.ledger.calls()


@within(10)
async def test_a_cancellation_in_the_callback_is_the_caller_s(bench: Bench) -> None:
    """It is neither wrapped nor taken for a crash."""
    asked = anyio.Event()

    async def callback(*_: Any) -> None:
        asked.set()
        await anyio.sleep_forever()

    async with McpConnection({"a": bench.stdio()}, **options(callback)) as connection:
        call = asyncio.create_task(connection.call_tool("a", "note"))
        await asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    assert [] == bench.ledger.calls()


@within(10)
async def test_the_callback_is_asked_for_resources_and_prompts_as_well(bench: Bench) -> None:
    """They run through the same gate; what it is shown says which."""
    seen: list[tuple[str, Any]] = []

    def callback(tool: Any, arguments: Any, context: CallContext) -> bool:
        seen.append((context.tool, arguments))
        return context.tool != "test://two"

    spec = bench.stdio(resources=("test://one", "test://two"), prompts=("greeting",))
    async with McpConnection({"a": spec}, **options(callback)) as connection:
        await connection.read_resource("a", "test://one")
        await connection.get_prompt("a", "greeting", {"name": "Ada"})
        with pytest.raises(PermissionDeniedError):
            await connection.read_resource("a", "test://two")

    assert [
        ("test://one", {"uri": "test://one"}),
        ("greeting", {"name": "Ada"}),
        ("test://two", {"uri": "test://two"}),
    ] == seen
    assert 1 == len(bench.ledger.read("got", method="resources/read"))


@within(10)
async def test_the_callback_of_the_server_s_share_counts_like_the_connection_s(bench: Bench) -> None:
    """Each share may bring one, and all of them are asked."""
    asked: list[str] = []

    def say(word: str, answer: Any) -> Callable[..., Any]:
        return lambda *_: asked.append(word) or answer

    spec = bench.stdio(permissions=Permissions(write=True, can_use_tool=say("server", None)))
    permissions = Permissions(write=True, can_use_tool=say("connection", False))
    async with McpConnection({"a": spec}, permissions=permissions, limits=LIMITS) as connection:
        with pytest.raises(PermissionDeniedError):
            await connection.call_tool("a", "note")

    assert {"server", "connection"} == set(asked)
    assert [] == bench.ledger.calls()
