"""When the log and the journal are told of a result: after who waited for it goes on, and nothing is lost by that."""

import json
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import structlog

from deputy_mcp import McpConnection, NotAllowlistedError, Permissions
from deputy_mcp._runtime.journal_file import read_lines
from deputy_mcp.testing import ScriptedServer, reply

pytestmark = pytest.mark.anyio

Event = MutableMapping[str, Any]


@pytest.fixture
def told() -> list[Event]:
    """What the log was told of calls, in order."""
    events: list[Event] = []

    def keep(_logger: Any, _method: str, event: Event) -> Event:
        if event["event"] in ("result", "refusal"):
            events.append(dict(event))

        raise structlog.DropEvent

    structlog.configure(processors=[structlog.contextvars.merge_contextvars, keep])
    return events


def fail_at(name: str) -> None:
    """A host's log that raises at events of this name."""

    def fail(_logger: Any, _method: str, event: Event) -> Event:
        if event["event"] == name:
            raise ZeroDivisionError

        raise structlog.DropEvent

    structlog.configure(processors=[fail])


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_lines(path)]


def connection(folder: Path, **options: Any) -> McpConnection:
    server = ScriptedServer(folder, calls={"echo": reply("hello")})
    return McpConnection({"a": server.stdio()}, permissions=Permissions.full(), **options)


async def test_who_waits_for_a_result_does_not_wait_for_its_line(tmp_path: Path, told: list[Event]) -> None:
    """It is told of at the end of the same turn of the loop."""
    async with connection(tmp_path) as c:
        await c.call_tool("a", "echo", {})
        assert [] == told
        await anyio.lowlevel.checkpoint()
        assert ["result"] == [event["event"] for event in told]


async def test_log_and_journal_keep_the_order_of_what_happened(tmp_path: Path, told: list[Event]) -> None:
    """What comes in the same turn stands behind the result."""
    async with connection(tmp_path, journal=tmp_path / "j") as c:
        await c.call_tool("a", "echo", {})
        with pytest.raises(NotAllowlistedError):
            await c.call_tool("b", "echo", {})

        await c.call_tool("a", "echo", {})

    events = [line["event"] for line in lines(tmp_path / "j")]
    assert ["result", "refusal", "result"] == [event["event"] for event in told]
    assert ["result", "refusal", "result"] == [event for event in events if event in ("result", "refusal")]


async def test_each_event_has_the_context_of_its_call(tmp_path: Path, told: list[Event]) -> None:
    """A host that binds a request's number finds it in the events of that request's calls, and no other."""
    async with connection(tmp_path) as c:

        async def one(number: int) -> None:
            structlog.contextvars.bind_contextvars(request=number)
            await c.call_tool("a", "echo", {"number": number})

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(one, number)

    assert set(range(20)) == {event["request"] for event in told}
    digests = {event["request"]: event["arguments_sha256"] for event in told}
    assert 20 == len(set(digests.values()))


async def test_a_log_that_fails_costs_neither_the_result_nor_its_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What the host's own processor raises goes to the standard library's logger."""
    fail_at("result")
    async with connection(tmp_path, journal=tmp_path / "j") as c:
        for _ in range(2):
            assert "hello" == (await c.call_tool("a", "echo", {})).text

        # The last is told of while the connection closes.
        await c.call_tool("a", "echo", {})

    events = [line["event"] for line in lines(tmp_path / "j")]
    assert 3 == events.count("result")
    raised = [record.exc_info[0] for record in caplog.records if record.exc_info is not None]
    assert [ZeroDivisionError] * 3 == raised


async def test_a_log_that_fails_at_a_refusal_hides_it_from_nobody(tmp_path: Path) -> None:
    """The caller gets the refusal's own error, and the journal its line."""
    fail_at("refusal")
    async with connection(tmp_path, journal=tmp_path / "j") as c:
        with pytest.raises(NotAllowlistedError):
            await c.call_tool("a", "nothing", {})

    assert ["unknown_tool"] == [line.get("error_code") for line in lines(tmp_path / "j") if line["event"] == "refusal"]


async def test_names_are_masked_in_the_log_as_in_the_journal(tmp_path: Path, told: list[Event]) -> None:
    """A caller may ask for a tool by a secret; a configured server is shown by its name."""
    secret = "s3cret-value-of-the-host"
    async with connection(tmp_path, journal=tmp_path / "j", secrets={"a": (secret,)}) as c:
        for _ in range(2):
            with pytest.raises(NotAllowlistedError):
                await c.call_tool("a", f"{secret}\n", {})

    assert [("a", "***")] * 2 == [(event["server"], event["tool"].removesuffix("\\n")) for event in told]
    assert secret not in (tmp_path / "j").read_text()


async def test_a_result_is_told_of_before_what_happens_to_its_server(tmp_path: Path) -> None:
    """In the log as well, where no journal keeps the order."""
    events: list[str] = []

    def keep(_logger: Any, _method: str, event: Event) -> Event:
        events.append(f"{event['event']} {event.get('state', '')}".strip())
        raise structlog.DropEvent

    structlog.configure(processors=[keep])
    async with connection(tmp_path) as c:
        await c.call_tool("a", "echo", {})

    assert events.index("result") < events.index("state closing")


async def test_a_result_s_line_is_in_the_file_at_the_end_of_its_turn(tmp_path: Path) -> None:
    """A host that steps its loop finds it there; no further turn is needed."""
    async with connection(tmp_path, journal=tmp_path / "j") as c:
        await c.call_tool("a", "echo", {})
        await anyio.lowlevel.checkpoint()
        assert "result" == lines(tmp_path / "j")[-1]["event"]
