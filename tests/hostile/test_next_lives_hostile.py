"""Misbehaviours that nobody has reported yet, of whole lives: listings, greetings, processes and their ends."""

import json
import sys

import anyio
import pytest
from bounds import AT_ONCE_SECONDS, BOUND_SECONDS, NEVER, connected, is_alive
from structlog.testing import capture_logs

from deputy_mcp import Limits, RefusedError, ServerLostError, ServerState, StdioServer
from deputy_mcp.testing import ScriptedServer, change_tools, hold, junk, list_changed, notify, reply, send, tool, wait

pytestmark = pytest.mark.anyio


# -- listings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cursor", ["c" * 1_000_000, "\ud800", "\x1b[2J\0", "", " "], ids=["a megabyte", "half", "escapes", "empty", "space"]
)
async def test_a_cursor_is_handed_back_as_it_came(tmp_path, cursor):
    """Whatever text it is, it is the server's own; both pages count."""
    first = {"tools": [tool("a")], "nextCursor": cursor}
    line_of_it = json.dumps({"jsonrpc": "2.0", "id": "ID", "result": first}).replace('"ID"', "$id")
    server = ScriptedServer(
        tmp_path, methods={"tools/list": [junk(line_of_it + "\n"), reply(result={"tools": [tool("b")]})]}
    )
    async with connected({"s": server.stdio()}) as connection:
        names = [handle.tool for handle in connection.tools("s")]

    assert ["a", "b"] == names
    assert cursor == server.received("tools/list")[1]["params"]["cursor"]


@pytest.mark.parametrize("cursor", [5, True, {"a": 1}, ["b"], None], ids=repr)
async def test_a_cursor_that_is_no_text_is_none(tmp_path, cursor):
    """The listing is what came so far; nothing is sent that the server did not say."""
    first = reply(result={"tools": [tool("a")], "nextCursor": cursor})
    server = ScriptedServer(tmp_path, methods={"tools/list": [first, reply(result={"tools": [tool("b")]})]})
    async with connected({"s": server.stdio()}) as connection:
        names = [handle.tool for handle in connection.tools("s")]

    assert ["a"] == names


async def test_a_tool_name_of_a_megabyte_is_no_text_of_ours(tmp_path):
    """Its public name fits what providers take, and no error, log line or event carries the whole of it."""
    name = "n" * 1_000_000
    server = ScriptedServer(tmp_path, tools=[tool("echo"), tool(name), tool("\u202e" + name)])
    with capture_logs() as lines:
        async with connected({"s": server.stdio()}) as connection:
            handles = {handle.tool: handle.name for handle in connection.tools("s")}
            result = await connection.call_tool("s", "echo")
            with pytest.raises(RefusedError) as caught:
                await connection.call_tool("s", "\u202e" + name)

            with pytest.raises(RefusedError):
                await connection.call_tool("s", "m" * 1_000_000)

    assert not result.is_error
    assert {"echo", name} == set(handles)
    assert len(handles[name]) <= 64
    assert len(str(caught.value)) < 1_000
    assert all(len(str(line)) < 10_000 for line in lines)


async def test_two_thousand_tools_are_two_thousand_tools(tmp_path):
    """As many as the default limits allow, over several pages; the last of them can be called."""
    tools = [tool("echo"), *(tool(f"t{n}") for n in range(1_999))]
    server = ScriptedServer(tmp_path, tools=tools, page_size=500)
    limits = Limits(call_timeout_seconds=15, startup_timeout_seconds=15, shutdown_timeout_seconds=1)
    async with connected({"s": server.stdio()}, limits=limits) as connection:
        count = len(connection.tools("s"))
        result = await connection.call_tool("s", "t1998")

    assert 2_000 == count
    assert not result.is_error


# -- greetings -----------------------------------------------------------------------------------------------------

GREETING = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
WRONG = {
    "capabilities": [None, [], "tools", {"tools": True}, {"tools": []}],
    "protocolVersion": [20251125, None, "2099-01-01", "", ["2025-11-25"]],
    "serverInfo": [None, "x", {"name": 7, "version": "1"}],
    "instructions": [5, ["x"]],
}


@pytest.mark.parametrize(("member", "value"), [(m, v) for m, values in WRONG.items() for v in values], ids=repr)
async def test_a_greeting_of_the_wrong_types_is_a_failed_start_with_that_reason(tmp_path, member, value):
    """At once, named, and without harm to a sibling."""
    server = ScriptedServer(tmp_path, era="legacy", methods={"initialize": reply(result=GREETING | {member: value})})
    sibling = ScriptedServer(tmp_path, name="sibling")
    servers = {"a": server.stdio(restart=NEVER), "b": sibling.stdio()}
    async with connected(servers) as connection:
        status = connection.status()
        result = await connection.call_tool("b", "echo")

    assert status["a"].state in (ServerState.FAILED, ServerState.QUARANTINED)
    assert member in (status["a"].reason or "") or "protocol" in (status["a"].reason or "")
    assert (ServerState.READY, False) == (status["b"].state, result.is_error)


async def test_a_greeting_that_comes_twice_counts_once(tmp_path):
    """The second, of another kind, is a late reply like any other."""
    twice = reply() + send({"jsonrpc": "2.0", "id": "$id", "result": {"protocolVersion": "1.0"}}) + reply()
    server = ScriptedServer(tmp_path, era="legacy", methods={"initialize": twice})
    async with connected({"a": server.stdio()}) as connection:
        result = await connection.call_tool("a", "echo")
        status = connection.status()["a"]

    assert not result.is_error
    assert ("2025-11-25", 1) == (status.protocol_version, status.generation)


async def test_a_probe_answered_after_the_greeting_changes_the_era_of_nothing(tmp_path):
    """Both greetings are answered, the older one first: the session is what it was when it began."""
    server = ScriptedServer(tmp_path, methods={"server/discover": hold("late") + reply()})
    async with connected({"a": server.stdio()}) as connection:
        before = connection.status()["a"].protocol_version
        server.release("late")
        texts = [(await connection.call_tool("a", "echo", {"n": n})).text for n in range(3)]
        after = connection.status()["a"]

    assert ["2025-11-25"] * 2 == [before, after.protocol_version]
    assert [f'{{"tool": "echo", "arguments": {{"n": {n}}}}}' for n in range(3)] == texts
    assert 1 == after.generation


async def test_instructions_of_ten_megabytes_and_a_name_of_escapes_start_a_server(tmp_path):
    """What a server says of itself is bounded by the message cap alone, and shown clean."""
    greeting = GREETING | {"instructions": "i" * 10_000_000, "serverInfo": {"name": "\x1b[2Jx", "version": "\u202e1"}}
    server = ScriptedServer(tmp_path, era="legacy", methods={"initialize": reply(result=greeting)})
    async with connected({"a": server.stdio()}) as connection:
        status = connection.status()["a"]
        result = await connection.call_tool("a", "echo")

    assert (ServerState.READY, False) == (status.state, result.is_error)
    assert str(status.server_info).isprintable()


# -- processes -----------------------------------------------------------------------------------------------------

SERVE = """
import json, os, signal, sys, threading, time

def answer(message):
    method = message.get("method")
    results = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "x", "version": "1"}},
        "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"},
                                  "annotations": {"readOnlyHint": True, "openWorldHint": False}}]},
        "tools/call": {"content": [{"type": "text", "text": str(os.getpid())}]},
    }
    if "id" in message:
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": results[method]}
        os.write(1, json.dumps(reply).encode() + b"\\n")

def serve():
    for line in sys.stdin.buffer:
        take(json.loads(line))
"""


def process(code: str, **fields) -> StdioServer:
    """A process of a few lines: what `take` does with a message, and what comes when its input has ended."""
    return StdioServer(sys.executable, args=("-S", "-E", "-c", SERVE + code), protocol="legacy", **fields)


async def test_a_server_without_stdout_that_floods_stderr_is_replaced(tmp_path):
    """It can never answer again, however much it says elsewhere; its sibling is served meanwhile."""
    code = """
def take(message):
    if message.get("method") == "tools/call" and not os.path.exists(sys.argv[1]):
        open(sys.argv[1], "w").close()
        os.close(1)
        while True:
            os.write(2, b"x" * 65536)
    answer(message)
serve()
"""
    mute = process(code)
    sibling = ScriptedServer(tmp_path)
    entry = StdioServer(mute.command, args=(*mute.args, str(tmp_path / "once")), protocol="legacy")
    async with connected({"a": entry, "b": sibling.stdio()}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(ServerLostError, match="stdout"):
            await connection.call_tool("a", "echo")

        beside = await connection.call_tool("b", "echo")
        again = await connection.call_tool("a", "echo")
        status = connection.status()["a"]

    assert (False, False) == (beside.is_error, again.is_error)
    assert len(status.stderr_tail) <= Limits().max_stderr_bytes


async def test_a_server_that_closes_its_stdin_still_gives_its_last_answer():
    """What it read it may answer; the next call finds a new process."""
    code = """
def take(message):
    if message.get("method") == "tools/call":
        os.close(0)
        time.sleep(0.2)
        answer(message)
        time.sleep(600)
    answer(message)
serve()
"""
    async with connected({"a": process(code)}) as connection:
        pids = [(await connection.call_tool("a", "echo")).text for _ in range(2)]

    assert 2 == len(set(pids))


async def test_a_stopped_process_is_taken_down_within_the_budget():
    """One that was sent SIGSTOP hears no TERM; it is killed, and closing takes its budget and no more."""
    code = """
def take(message):
    answer(message)
    if message.get("method") == "tools/call":
        os.kill(os.getpid(), signal.SIGSTOP)
serve()
"""
    with anyio.fail_after(BOUND_SECONDS):
        async with connected({"a": process(code)}) as connection:
            pid = int((await connection.call_tool("a", "echo")).text)
            began = anyio.current_time()
            await connection.aclose()
            took = anyio.current_time() - began

    assert took < 2
    assert not is_alive(pid)


async def test_a_child_born_at_the_end_of_input_does_not_survive(tmp_path):
    """Asked to leave, the server leaves and leaves another behind, in a session of its own and deaf to TERM."""
    born = tmp_path / "born"
    code = f"""
def take(message):
    answer(message)
serve()
if not os.fork():
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open({str(born)!r}, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)
while not os.path.exists({str(born)!r}):
    time.sleep(0.001)
os._exit(0)
"""
    async with connected({"a": process(code)}) as connection:
        await connection.call_tool("a", "echo")

    assert not is_alive(int(born.read_text()))


async def test_answers_given_before_they_were_asked_for_are_nobody_s():
    """A server that counts along and answers the next requests beforehand: each call gets its own answer."""
    code = """
def take(message):
    if isinstance(message.get("id"), int):
        for number in range(message["id"] + 1, message["id"] + 20):
            guess = {"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": "guess"}]}}
            os.write(1, json.dumps(guess).encode() + b"\\n")
    answer(message)
serve()
"""
    async with connected({"a": process(code)}) as connection:
        texts = [(await connection.call_tool("a", "echo")).text for _ in range(5)]
        pid = connection.status()["a"].pid

    assert [str(pid)] * 5 == texts


async def test_changes_told_while_a_server_is_closed_hold_nothing_up(tmp_path):
    """Thousands of notices stand in the pipe when the connection closes: it closes."""
    flood = reply() + notify("notifications/tools/list_changed", times=5_000)
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": flood})
    async with connected({"a": server.stdio()}) as connection:
        await connection.call_tool("a", "echo")
        began = anyio.current_time()
        await connection.aclose()
        took = anyio.current_time() - began

    assert took < 3


async def test_a_listing_that_changes_under_every_call_refuses_nothing_that_stayed(tmp_path):
    """A new tool with each call, told each time: the old one is called on and on, the new ones are unknown."""
    turns = [change_tools(tool("echo"), tool(f"t{n}")) + list_changed() + reply(str(n)) for n in range(6)]
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": turns})
    async with connected({"a": server.stdio()}) as connection:
        texts = [(await connection.call_tool("a", "echo")).text for _ in range(6)]
        names = [handle.tool for handle in connection.tools("a")]

    assert [str(n) for n in range(6)] == texts
    assert ["echo"] == names


async def test_a_reply_that_comes_after_its_server_was_told_to_reload_is_nobody_s(tmp_path):
    """The old process answers while it is taken down; its caller has been told, and the new one answers the next."""
    server = ScriptedServer(tmp_path, calls={"echo": [wait(0.2) + reply("old"), reply("new")]})
    outcomes = []
    async with connected({"a": server.stdio()}) as connection, anyio.create_task_group() as tasks:

        async def call():
            with pytest.raises(ServerLostError) as caught:
                await connection.call_tool("a", "echo")

            outcomes.append(caught.value.code)

        tasks.start_soon(call)
        await server.wait_for(lambda s: s.runs("echo"))
        await connection.reload("a")
        result = await connection.call_tool("a", "echo")

    assert (["stopped"], "new") == (outcomes, result.text)
