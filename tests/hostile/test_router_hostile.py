"""Whatever bytes a server writes: no exception escapes, and a call is answered by its own reply or not at all.

Hypothesis writes the stream: messages of every kind under ids spelled in every way, broken ones, and plain bytes. The
oracle reads the same lines with the standard library and knows nothing of ours.
"""

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from bounds import BOUND_SECONDS, QUICK
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from mcp import MCPError
from raw_sockets import Exchange, listening

from deputy_mcp import CallError, Limits, McpConnection, PinBook, RemoteError, ServerState
from deputy_mcp._runtime.transports.link import LinkError, LossSignal, Traffic
from deputy_mcp._runtime.transports.pipe_channel import PipeChannel
from deputy_mcp._runtime.transports.stream_dispatcher import StreamDispatcher

OUTSTANDING = (1, 2, 3)
"""The ids of the calls under way."""

# -- what a server may write ---------------------------------------------------------------------------------------

SPELLINGS = st.sampled_from(
    [
        *("1", "2", "3", '"1"', '"2"', '"3"', "1.0", "2.0", "3e0", "10e-1"),  # ours
        *("0", "-1", "4", "99", "1.5", '" 1"', '"+1"', '"1.0"', '"x"', '""', "true", "null", "[1]", '{"id":1}'),
        *("1e400", "NaN", "123456789012345678901234567890", '"\\ud800"', '"\\u0031"'),
    ]
)
"""Ids as JSON text; the first ten and the last one name a call of ours."""

TEXTS = st.sampled_from(['""', '"a"', '"\\ud800"', '"\\u0000"', '"{\\"id\\":1}"', "7", "null", "[]", "{}"])
MEMBERS = {
    "result": st.sampled_from(['{"n":%d}', '{"n":%d,"id":2}', "null", "[]", '"x"', "7", '{"n":%d,"error":{"code":1}}']),
    "error": st.sampled_from(['{"code":%d,"message":"no"}', '{"message":"x"}', '{"code":"E1"}', "null", '"x"', "[]"]),
    "method": st.sampled_from(
        [
            *('"ping"', '"roots/list"', '"x/unknown"', '"notifications/progress"', '"notifications/cancelled"'),
            *('"notifications/tools/list_changed"', '"\\ud800"', "null", "7"),
        ]
    ),
    "params": st.sampled_from(
        ["{}", "[]", "null", '{"progressToken":1,"progress":NaN}', '{"progressToken":[1]}', '{"requestId":1}', "7"]
    ),
    "jsonrpc": st.just('"2.0"'),
    "extra": TEXTS,
}


@st.composite
def objects(draw: st.DrawFn) -> str:
    """An object that may be a message: any members in any order, `id` among them once, twice or never."""
    names = draw(st.lists(st.sampled_from([*MEMBERS, "id", "id"]), min_size=1, max_size=6, unique_by=lambda n: n))
    parts = []
    for name in names:
        value = draw(SPELLINGS if name == "id" else MEMBERS[name])
        # Every result and every error is another one, so that the oracle can tell them apart.
        parts.append(f'"{name}":{value.replace("%d", str(draw(st.integers(0, 10**6))))}')

    return "{" + ",".join(parts) + "}"


@st.composite
def replies(draw: st.DrawFn) -> str:
    """Nearly always a valid reply."""
    return f'{{"jsonrpc":"2.0","id":{draw(SPELLINGS)},"result":{{"n":{draw(st.integers(0, 10**6))}}}}}'


LINES = st.one_of(
    replies().map(str.encode),
    objects().map(str.encode),
    st.lists(st.one_of(objects(), replies()), max_size=3).map(lambda parts: ("[" + ",".join(parts) + "]").encode()),
    objects().map(lambda text: text[:-1].encode()),
    objects().map(lambda text: text.encode() + b"\xff"),
    st.binary(max_size=40).map(lambda data: data.replace(b"\n", b" ")),
    st.sampled_from([b"", b"{}", b"[]", b"null", b"\xef\xbb\xbf", b"Booting...", b"{" * 2000, b"[" * 2000]),
)

# -- the oracle ----------------------------------------------------------------------------------------------------


def named_call(value: Any) -> int | None:
    """The call that an id names, as anybody would read it: a number, or the digits of one."""
    if isinstance(value, bool):
        return None

    if isinstance(value, str):
        value = int(value) if value in ("1", "2", "3") else None

    return int(value) if isinstance(value, int | float) and value in OUTSTANDING else None


def messages_in(line: bytes) -> list[dict[str, Any]]:
    try:
        value = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return []

    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]


def words_on(lines: list[bytes], call: int) -> list[dict[str, Any] | None]:
    """What was said to a call, in order: the objects that name it; None for a line that cannot be read and may."""
    words: list[dict[str, Any] | None] = []
    for line in lines:
        messages = messages_in(line)
        if not messages and (str(call).encode() in line or b"\\u0031" in line):
            words.append(None)

        words += [m for m in messages if "id" in m and named_call(m["id"]) == call]

    return words


def is_request(message: dict[str, Any]) -> bool:
    return isinstance(message.get("method"), str)


def is_valid(message: dict[str, Any]) -> bool:
    """A result that is an object, or an error with a number."""
    error = message.get("error")
    if error is not None:
        return isinstance(error, dict) and type(error.get("code")) is int

    return isinstance(message.get("result"), dict)


def explains(word: dict[str, Any] | None, outcome: dict[str, Any] | MCPError) -> bool:
    """Whether this outcome is what the word says."""
    if isinstance(outcome, LinkError):
        return outcome.fault == "malformed" and (word is None or not is_valid(word))

    if word is None or not is_valid(word):
        return False

    error = word.get("error")
    if isinstance(outcome, MCPError):
        return error is not None and error["code"] == outcome.code

    return error is None and word["result"] == outcome


def check(lines: list[bytes], outcomes: dict[int, dict[str, Any] | MCPError | None]) -> None:
    """Every outcome is the first thing that was said to that very call."""
    for call, outcome in outcomes.items():
        if isinstance(outcome, LinkError) and outcome.fault == "lost":
            continue  # a framing that was given up fails every call

        for word in words_on(lines, call):
            if word is not None and is_request(word) and not {"result", "error"} & set(word):
                continue  # a request under our id

            if outcome is not None and explains(word, outcome):
                break

            # A line that cannot be read need not be taken for an answer, nor an object that is half a request.
            assert word is None or is_request(word), f"{word} was said first, and {outcome!r} came of it"
        else:
            assert outcome is None, f"nobody said {outcome!r} to call {call}"


# -- the dispatcher over real pipes --------------------------------------------------------------------------------


class Deaf:
    """The hooks of an owner who is not interested."""

    hash_replies = False

    def on_change(self, kind: str) -> None:
        """A list changed."""

    def on_noise(self, sample: str) -> None:
        """Something came that is no message."""


async def answered(stream: bytes, cuts: list[int]) -> dict[int, dict[str, Any] | MCPError | None]:
    """What became of three calls when the server wrote `stream`, in pieces that end at `cuts`."""
    outcomes: dict[int, dict[str, Any] | MCPError | None] = {}
    ours, theirs = os.pipe()
    to_server, from_us = os.pipe()
    for fd in (ours, theirs, from_us):
        os.set_blocking(fd, False)

    lost, traffic = LossSignal(), Traffic()
    channel = PipeChannel(Limits(max_message_bytes=10_000), traffic, lost, hash_replies=False)
    channel.attach(from_us, ours)
    dispatcher = StreamDispatcher(channel, Deaf(), traffic, lost)

    async def call(wire_id: int) -> None:
        outcomes[wire_id] = None
        try:
            result: dict[str, Any] | MCPError = await dispatcher.send_raw_request("tools/call", {})
        except MCPError as error:
            result = error

        assert outcomes[wire_id] is None, "answered twice"
        outcomes[wire_id] = result

    async def on_request(context: Any, method: str, params: Any) -> dict[str, Any]:
        return {}

    async def on_notify(context: Any, method: str, params: Any) -> None:
        return None

    try:
        with anyio.fail_after(BOUND_SECONDS):
            async with anyio.create_task_group() as tasks:
                await tasks.start(dispatcher.run, on_request, on_notify)
                for wire_id in OUTSTANDING:
                    tasks.start_soon(call, wire_id)
                    await anyio.wait_all_tasks_blocked()

                for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
                    os.write(theirs, stream[begin:end])
                    await anyio.lowlevel.checkpoint()

                os.close(theirs)
                await channel.ended.wait()
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
    finally:
        channel.close_stdin()
        os.close(ours)
        os.close(to_server)

    return outcomes


@settings(deadline=None, max_examples=200)
@given(lines=st.lists(LINES, max_size=8), places=st.lists(st.floats(0, 1), max_size=4))
@example(lines=[b'{"id":1,"result":{"n":1}}', b'{"id":1,"result":{"n":2}}'], places=[])
@example(lines=[b'{"id":"1","error":{"code":5,"message":"\\ud800"}}'], places=[0.5])
@example(lines=[b'[{"id":3,"result":{"n":3}},{"id":1,"result":{"n":1}},{"id":2}]'], places=[])
@example(lines=[b'{"id":9,"result":{"n":1,"id":1}}'], places=[])
@example(lines=[b'{"id":null,"error":{"code":1,"message":"x"}}', b'{"id":1,"result":{"n":1}}'], places=[])
@example(lines=[b'{"id":%s,"result":{"n":1}}' % i for i in (b"true", b"1.5", b'" 1"', b"[1]", b"null")], places=[])
def test_any_stream_answers_each_call_by_its_own_reply_or_not_at_all(lines: list[bytes], places: list[float]) -> None:
    """The first valid word on a call counts; foreign, late and doubled ones, requests and noise change nothing."""
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(int(place * len(stream)) for place in places)
    check(lines, anyio.run(answered, stream, cuts))


# -- a whole connection over HTTP ----------------------------------------------------------------------------------


class Site:
    """A connection to a server whose next answer to a call is set beforehand."""

    def __init__(self) -> None:
        self.kind = "application/json"
        self.body = b""
        self.connection: McpConnection | None = None

    async def handle(self, exchange: Exchange) -> bool | None:
        message = await exchange.message()
        if message is None or message.get("method") != "tools/call" or not self.body:
            return None

        body = self.body.replace(b"$id", str(message["id"]).encode())
        self.body = b""
        await exchange.respond(body, kind=self.kind)
        return True

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        pins = PinBook(verify="change")
        async with listening(self.handle) as site:
            async with McpConnection({"a": site.server()}, limits=QUICK, pins=pins) as self.connection:
                yield

    async def ask(self) -> tuple[str, int | None]:
        """What a call gives: its text, or the name of its error; and its code, where it is the server's own."""
        assert self.connection is not None
        with anyio.fail_after(QUICK.call_timeout_seconds / 2):
            try:
                outcome = (await self.connection.call_tool("a", "echo")).text, None
            except RemoteError as error:
                outcome = "RemoteError", error.rpc_code
            except CallError as error:
                outcome = type(error).__name__, None

        status = self.connection.status()["a"]
        assert (ServerState.READY, 1) == (status.state, status.generation)
        return outcome


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[BlockingPortal, Site]]:
    """One connection for all examples: what one of them broke, the next would see."""

    @contextmanager
    def opened(portal: BlockingPortal) -> Iterator[Site]:
        site = Site()
        with portal.wrap_async_context_manager(site.running()):
            yield site

    with start_blocking_portal() as portal, opened(portal) as opened_site:
        yield portal, opened_site


BODIES = st.one_of(
    objects(),
    st.lists(objects(), max_size=3).map(lambda parts: "[" + ",".join(parts) + "]"),
    st.integers(0, 10**6).map(lambda n: f'{{"jsonrpc":"2.0","id":$id,"result":{{"content":[],"n":{n}}}}}'),
    st.integers(0, 10**6).map(lambda n: f'{{"jsonrpc":"2.0","id":$id,"error":{{"code":{n},"message":"m"}}}}'),
    st.text(alphabet='{}[]":,id\\ \n', max_size=30),
)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=BODIES)
@example(text='{"id":$id,"result":{"content":[{"type":"text","text":"mine"}]}}')
@example(text='{"id":77,"result":{"content":[{"type":"text","text":"foreign"}]}}')
def test_any_json_body_answers_its_call_or_fails_it_at_once(site: tuple[BlockingPortal, Site], text: str) -> None:
    """Nothing hangs, the connection stays what it was, and what is delivered was said to this very request."""
    portal, server = site
    server.kind, server.body = "application/json", text.encode() or b" "
    outcome, code = portal.call(server.ask)

    try:
        value = json.loads(text.replace("$id", "-77"))
    except ValueError:
        value = None

    ours = [m for m in (value if isinstance(value, list) else [value]) if isinstance(m, dict) and m.get("id") == -77]
    if outcome == "RemoteError":
        # An error without id on the reply to this request can only be about it.
        assert code is not None
    elif outcome not in ("MalformedReplyError", "ServerLostError"):
        assert [m for m in ours if isinstance(m.get("result"), dict)]


def test_the_connection_of_the_examples_still_works(site: tuple[BlockingPortal, Site]) -> None:
    """After all of them a plain call is answered."""
    portal, server = site
    server.body = b""
    assert ("{}", None) == portal.call(server.ask)
