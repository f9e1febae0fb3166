"""A person between Ask and the call: what is shown, what is sent, and that everything odd refuses."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from behaviour import CATALOGUE
from workbench import FULL, Bench, handle, until, within

from deputy_mcp import (
    ApprovalDeniedError,
    ApprovalExpiredError,
    ApprovalRequest,
    Approve,
    InvalidArgumentsError,
    Limits,
    McpConnection,
    PermissionDeniedError,
    Permissions,
    PinMismatchError,
    Reject,
    StaleToolError,
    WaitTimeoutError,
)

pytestmark = pytest.mark.anyio

ASK = Permissions(write="ask")


class Person:
    """An approver who answers when the test says so, and remembers what was shown."""

    def __init__(self, *answers: Any) -> None:
        self.requests: list[ApprovalRequest] = []
        self.asked = anyio.Event()
        self.may_answer = anyio.Event()
        self.answers = list(answers)
        if answers:
            self.may_answer.set()

    async def __call__(self, request: ApprovalRequest) -> Any:
        self.requests.append(request)
        self.asked.set()
        await self.may_answer.wait()
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def answer(self, answer: Any) -> None:
        self.answers.append(answer)
        self.may_answer.set()


def options(approver: Callable[[ApprovalRequest], Awaitable[Any]] | None, **limits: Any) -> dict[str, Any]:
    bounds = Limits(**{"call_timeout_seconds": 10, "shutdown_timeout_seconds": 1} | limits)
    return FULL | {"permissions": ASK, "approver": approver, "limits": bounds}


@within(10)
async def test_an_approved_call_is_sent_once_exactly_as_it_was_shown(bench: Bench) -> None:
    """The request shows everything a person needs; only what needs approval is asked for."""
    person = Person(Approve())
    async with McpConnection({"a": bench.stdio()}, **options(person)) as connection:
        note = handle(connection, "a", "note")
        assert "1" == (await connection.call_tool("a", "echo", {"value": 1})).text
        assert [] == person.requests
        assert '{"to": "\\u001b[2Jall"}' == (await note(value={"to": "\x1b[2Jall"})).text.replace("\x1b", "\\u001b")

    (request,) = person.requests
    assert ("a", "note", "a__note", "write", note.digest, ()) == (
        request.server,
        request.tool,
        request.public_name,
        request.code,
        request.digest,
        request.findings,
    )
    assert note.effects == request.effects
    assert {"value": {"to": "\x1b[2Jall"}} == request.arguments
    assert "\x1b" not in request.arguments_text
    assert "[2Jall" in request.arguments_text
    assert "write" in request.reason
    assert 290 < (request.expires_at - datetime.now(UTC)).total_seconds() <= 300
    assert len(request.ticket) >= 16
    assert 1 == len(bench.ledger.calls("note"))


@within(10)
async def test_two_requests_have_two_tickets(bench: Bench) -> None:
    """A ticket names one call."""
    person = Person(Approve())
    async with McpConnection({"a": bench.stdio()}, **options(person)) as connection:
        await asyncio.gather(*(connection.call_tool("a", "note") for _ in range(2)))

    assert 2 == len({request.ticket for request in person.requests})


REFUSALS: dict[str, tuple[Any, str]] = {
    "a rejection": (Reject("not today"), "rejected"),
    "a rejection without a reason": (Reject(), "rejected"),
    "None": (None, "approver_failed"),
    "True": (True, "approver_failed"),
    "a text": ("yes", "approver_failed"),
    "the class itself": (Approve, "approver_failed"),
}


@pytest.mark.parametrize("case", REFUSALS)
@within(10)
async def test_every_answer_but_an_approval_refuses(bench: Bench, case: str) -> None:
    """A rejection is told with its reason; what is no answer is no approval."""
    answer, code = REFUSALS[case]
    async with McpConnection({"a": bench.stdio()}, **options(Person(answer))) as connection:
        with pytest.raises(ApprovalDeniedError) as caught:
            await connection.call_tool("a", "note", {"value": 1})

        assert (code, "not_sent", "a", "note") == (
            caught.value.code,
            caught.value.outcome,
            caught.value.server,
            caught.value.tool,
        )
        if case == "a rejection":
            assert "not today" in str(caught.value)

        assert (0, 0) == (connection.status()["a"].awaiting_approval, connection.status()["a"].calls_in_flight)

    assert [] == bench.ledger.calls()


@within(10)
async def test_an_approver_that_crashes_has_not_approved(bench: Bench) -> None:
    """The error names the kind of failure, and keeps it as its cause."""

    async def crash(request: ApprovalRequest) -> Any:
        raise ZeroDivisionError("inside")

    async with McpConnection({"a": bench.stdio()}, **options(crash)) as connection:
        with pytest.raises(ApprovalDeniedError) as caught:
            await connection.call_tool("a", "note")

    assert "approver_failed" == caught.value.code
    assert "ZeroDivisionError" in str(caught.value)
    assert [] == bench.ledger.calls()


@within(10)
async def test_an_approver_that_is_not_async_has_not_approved(bench: Bench) -> None:
    """A plain function's answer is not awaitable; that is a failure like another, not a crash of the call."""
    async with McpConnection({"a": bench.stdio()}, **options(lambda request: Approve())) as connection:  # type: ignore[arg-type, return-value]
        with pytest.raises(ApprovalDeniedError):
            await connection.call_tool("a", "note")

    assert [] == bench.ledger.calls()


@within(10)
async def test_without_an_approver_an_ask_is_refused_and_says_what_to_do(bench: Bench) -> None:
    """`no_approver` names both mends."""
    async with McpConnection({"a": bench.stdio()}, **options(None)) as connection:
        with pytest.raises(ApprovalDeniedError) as caught:
            await connection.call_tool("a", "note")

    assert "no_approver" == caught.value.code
    assert "approver=" in str(caught.value)
    assert "permissions" in str(caught.value)


@within(10)
async def test_an_approver_that_never_answers_expires(bench: Bench) -> None:
    """After `approval_timeout_seconds` the call is refused; its approver is cancelled."""
    person = Person()
    async with McpConnection({"a": bench.stdio()}, **options(person, approval_timeout_seconds=0.2)) as connection:
        began = anyio.current_time()
        with pytest.raises(ApprovalExpiredError) as caught:
            await connection.call_tool("a", "note")

        assert 0.2 <= anyio.current_time() - began < 0.7
        assert ("approval_expired", "not_sent") == (caught.value.code, caught.value.outcome)

    assert [] == bench.ledger.calls()


@within(10)
async def test_the_deadline_stands_still_while_a_person_thinks(bench: Bench) -> None:
    """A person may take longer than the call; afterwards the call has the time it had left, and no more."""
    person = Person()
    limits = options(person, call_timeout_seconds=0.4)
    async with McpConnection({"a": bench.stdio(annotations={"hang": {"readOnlyHint": False}})}, **limits) as connection:
        call = asyncio.create_task(connection.call_tool("a", "note", {"value": 1}))
        await person.asked.wait()
        began = anyio.current_time()
        await anyio.sleep_until(began + 0.6)  # longer than the call may take
        person.answer(Approve())
        assert "1" == (await call).text
        with pytest.raises(TimeoutError):
            await connection.call_tool("a", "hang")

    assert 2 == len(person.requests)


@within(10)
async def test_the_slot_is_given_back_while_a_person_thinks(bench: Bench) -> None:
    """With one slot, other calls go on beside the one that waits for its approval."""
    person = Person()
    async with McpConnection({"a": bench.stdio()}, **options(person, max_concurrent_calls=1)) as connection:
        call = asyncio.create_task(connection.call_tool("a", "note", {"value": 1}))
        await person.asked.wait()
        status = connection.status()["a"]
        assert (1, 0) == (status.awaiting_approval, status.calls_in_flight)
        assert "2" == (await connection.call_tool("a", "echo", {"value": 2})).text
        person.answer(Approve())
        assert "1" == (await call).text

    assert ["echo", "note"] == [tool for tool, _ in bench.ledger.calls()]


@within(10)
async def test_edited_arguments_are_what_is_sent(bench: Bench) -> None:
    """The person's words go out instead of the model's, and nobody is asked again for them."""
    person = Person(Approve({"value": "edited"}))
    async with McpConnection({"a": bench.stdio()}, **options(person)) as connection:
        assert "edited" == (await connection.call_tool("a", "note", {"value": "original"})).text

    assert 1 == len(person.requests)
    assert [("note", '{"value": "edited"}')] == bench.ledger.calls()


@within(10)
async def test_edited_arguments_run_through_the_gate_again(bench: Bench) -> None:
    """They are checked against the schema, and shown to `can_use_tool` like any others."""
    async with McpConnection({"a": bench.stdio()}, **options(Person(Approve({"volume": 11})))) as connection:
        with pytest.raises(InvalidArgumentsError):
            await connection.call_tool("a", "note", {"value": 1})

    def no_secrets(tool: Any, arguments: Any, context: Any) -> bool:
        return arguments["value"] != "secret"

    permissions = Permissions(write="ask", can_use_tool=no_secrets)
    edited = options(Person(Approve({"value": "secret"}))) | {"permissions": permissions}
    async with McpConnection({"a": bench.stdio()}, **edited) as connection:
        with pytest.raises(PermissionDeniedError):
            await connection.call_tool("a", "note", {"value": 1})

    assert [] == bench.ledger.calls()


@within(10)
async def test_an_approver_cannot_change_what_was_approved_through_what_it_was_shown(bench: Bench) -> None:
    """The request's arguments are a copy; what is sent are the bytes that were shown."""

    async def approver(request: ApprovalRequest) -> Approve:
        request.arguments["value"].append("sneaked in")
        return Approve()

    async with McpConnection({"a": bench.stdio()}, **options(approver)) as connection:
        assert '["approved"]' == (await connection.call_tool("a", "note", {"value": ["approved"]})).text


@within(10)
async def test_a_caller_cannot_change_what_a_person_is_approving(bench: Bench) -> None:
    """Arguments are encoded once: changed while the person thinks, the shown ones are still the ones that are sent."""
    person = Person()
    given: dict[str, Any] = {"value": ["shown"]}
    async with McpConnection({"a": bench.stdio()}, **options(person)) as connection:
        call = asyncio.create_task(connection.call_tool("a", "note", given))
        await person.asked.wait()
        given["value"].append("never shown")
        person.answer(Approve())
        assert '["shown"]' == (await call).text

    assert [{"value": ["shown"]}] == [request.arguments for request in person.requests]


@within(10)
async def test_an_approval_is_of_one_definition_and_another_is_asked_for_again(bench: Bench, tmp_path: Path) -> None:
    """A tool taken anew while the person thinks is another tool: the same arguments are shown again beside it."""
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([CATALOGUE["note"]]))
    person = Person(Approve(), Reject("not that one"))
    person.may_answer = anyio.Event()
    async with McpConnection({"a": bench.stdio({"tools_file": str(tools)})}, **options(person)) as connection:
        call = asyncio.create_task(connection.call_tool("a", "note", {"value": 1}))
        await person.asked.wait()
        tools.write_text(json.dumps([CATALOGUE["note"] | {"description": "Another one."}]))
        await connection.reload("a", repin=True)
        person.may_answer.set()
        with pytest.raises(ApprovalDeniedError):
            await call

    first, second = (request.digest for request in person.requests)
    assert first != second
    assert [] == bench.ledger.calls("note")


@within(10)
async def test_an_approver_cannot_change_its_edit_afterwards(bench: Bench) -> None:
    """The edited arguments are taken as they were when the approver returned."""
    edit: dict[str, Any] = {"value": ["edited"]}
    seen: list[Any] = []

    async def look(tool: Any, arguments: Any, context: Any) -> None:
        # Between the approval and the sending, the edit runs through the gate again.
        seen.append(arguments)
        if arguments == {"value": ["edited"]}:
            edit["value"].append("changed later")

    permissions = Permissions(write="ask", can_use_tool=look)
    approving = options(Person(Approve(edit))) | {"permissions": permissions}
    async with McpConnection({"a": bench.stdio()}, **approving) as connection:
        assert '["edited"]' == (await connection.call_tool("a", "note", {"value": ["given"]})).text

    assert [{"value": ["given"]}, {"value": ["edited"]}] == seen


@within(10)
async def test_an_approval_outlives_a_restart_of_the_server(bench: Bench) -> None:
    """The server dies while a person thinks; the approved call waits for the restart and runs once."""
    person = Person()
    async with McpConnection({"a": bench.stdio()}, **options(person)) as connection:
        call = asyncio.create_task(connection.call_tool("a", "note", {"value": 1}))
        await person.asked.wait()
        pid = connection.status()["a"].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(connection, "a", lambda status: status.restarts == 1)
        person.answer(Approve())
        result = await call
        assert ("1", 2) == (result.text, result.generation)

    assert (1, 1) == (len(person.requests), len(bench.ledger.calls("note")))


@within(10)
async def test_a_tool_that_changed_while_a_person_thought_is_not_called(bench: Bench, tmp_path: Path) -> None:
    """An approval is for the tool that was shown."""
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([CATALOGUE["note"], CATALOGUE["tell"]]))
    person = Person()
    spec = bench.stdio({"tools_file": str(tools), "eras": ["legacy"]})
    async with McpConnection({"a": spec}, **options(person)) as connection:
        call = asyncio.create_task(connection.call_tool("a", "note", {"value": 1}))
        await person.asked.wait()
        tools.write_text(json.dumps([CATALOGUE["note"] | {"title": "Another"}, CATALOGUE["tell"]]))
        await connection.call_tool("a", "tell")
        person.answer(Approve())
        with pytest.raises(PinMismatchError):
            await call

    assert [] == bench.ledger.calls("note")


@within(10)
async def test_a_server_that_was_reloaded_while_a_person_thought_makes_the_handle_stale(bench: Bench) -> None:
    """After the approval the call is routed again, and the handle is from before the reload."""
    person = Person()
    async with McpConnection({"a": bench.stdio()}, **options(person)) as connection:
        call = asyncio.create_task(handle(connection, "a", "note").call({"value": 1}))
        await person.asked.wait()
        await connection.reload("a")
        person.answer(Approve())
        with pytest.raises(StaleToolError):
            await call

    assert [] == bench.ledger.calls("note")


@within(10)
async def test_a_caller_who_leaves_while_a_person_thinks_is_not_called_for(bench: Bench) -> None:
    """Cancelled in the approval: a cancellation, nothing sent, and the approver is not left running."""
    ended = anyio.Event()

    async def approver(request: ApprovalRequest) -> Any:
        try:
            asked.set()
            await anyio.sleep_forever()
        finally:
            ended.set()

    asked = anyio.Event()
    async with McpConnection({"a": bench.stdio()}, **options(approver)) as connection:
        call = asyncio.create_task(connection.call_tool("a", "note"))
        await asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

        await ended.wait()
        assert 0 == connection.status()["a"].awaiting_approval

    assert [] == bench.ledger.calls()


@within(10)
async def test_an_approver_that_cancels_itself_by_a_scope_of_its_own_is_an_odd_answer(bench: Bench) -> None:
    """A dialog with its own deadline gives None; that refuses and is no cancellation of the call."""

    async def approver(request: ApprovalRequest) -> Any:
        with anyio.move_on_after(0.01):
            await anyio.sleep_forever()

    async with McpConnection({"a": bench.stdio()}, **options(approver)) as connection:
        with pytest.raises(ApprovalDeniedError):
            await connection.call_tool("a", "note")


@within(10)
async def test_a_stop_while_a_person_thinks_ends_the_call_after_the_answer(bench: Bench) -> None:
    """A stopped server takes no approved call; nothing is sent when it is started again."""
    person = Person()
    async with McpConnection({"a": bench.stdio()}, **options(person)) as connection:
        call = asyncio.create_task(connection.call_tool("a", "note", {"value": 1}))
        await person.asked.wait()
        await connection.stop("a")
        person.answer(Approve())
        outcome = (await asyncio.gather(call, return_exceptions=True))[0]
        assert "stopped" == getattr(outcome, "code", None)
        assert not isinstance(outcome, WaitTimeoutError)
        await connection.start("a")

    assert [] == bench.ledger.calls()
