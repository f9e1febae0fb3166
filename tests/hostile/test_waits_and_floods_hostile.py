"""Waits and floods: late sends, forgotten sessions, late denials, cut secrets, tasks that pile up."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator

import anyio
import httpx2
import pytest
from anyio.lowlevel import checkpoint
from bounds import AT_ONCE_SECONDS, BOUND_SECONDS, connected, until

from deputy_mcp import (
    Agent,
    Approve,
    CallTimeoutError,
    HttpStatusError,
    InvalidArgumentsError,
    Limits,
    PermissionDeniedError,
    Permissions,
    PinMismatchError,
    RemoteError,
    RestartPolicy,
    ServerState,
    UnavailableError,
)
from deputy_mcp.testing import (
    FixedApprover,
    ScriptedServer,
    change_tools,
    die,
    fail,
    forget_sessions,
    freeze,
    hold,
    junk,
    leave,
    list_changed,
    notify,
    reply,
    respond,
    send,
    stream,
    tool,
)

pytestmark = pytest.mark.anyio

MOST_TASKS = 200
"""Far above what a connection needs, far below one for each message of a flood."""

FLOOD = 2000


# -- nothing goes out for a caller who left --------------------------------------------------------------------------


class HeldAuth(httpx2.Auth):
    """Holds back the first call that it sees until it is let go on; `over` is set when its flow has ended."""

    def __init__(self) -> None:
        self.go_on = anyio.Event()
        self.over: anyio.Event | None = None

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        if self.over is not None or b'"tools/call"' not in request.content:
            yield request
            return

        self.over = anyio.Event()
        try:
            await self.go_on.wait()
            yield request
        finally:
            self.over.set()


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_call_reported_as_not_sent_is_not_sent_later(tmp_path, era):
    """Its deadline passed while an auth flow held it; when that lets go, the server never sees it."""
    server, auth = ScriptedServer(tmp_path, era=era), HeldAuth()
    async with server.http(auth=auth) as entry, connected({"a": entry}) as connection:
        with pytest.raises(CallTimeoutError) as caught:
            await connection.call_tool("a", "echo", {"n": 1}, timeout_seconds=0.3)

        auth.go_on.set()
        assert auth.over is not None
        await auth.over.wait()
        result = await connection.call_tool("a", "echo", {"n": 2})

    assert "not_sent" == caught.value.outcome
    assert not result.is_error
    assert [{"n": 2}] == [entry["arguments"] for entry in server.ledger("ran")]


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("bad", ["raises", "two lines"])
async def test_a_header_callable_that_fails_costs_its_own_call_alone(tmp_path, era, bad):
    """The call was not sent, and the server, which has no part in it, stays READY for the next."""
    server, broken = ScriptedServer(tmp_path, era=era), anyio.Event()

    def value() -> str:
        if not broken.is_set():
            return "fine"

        return "a\nb" if bad == "two lines" else str(1 / 0)

    async with server.http(headers={"x-key": value}) as entry, connected({"a": entry}) as connection:
        broken.set()
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(UnavailableError) as caught:
            await connection.call_tool("a", "echo")

        broken = anyio.Event()
        result = await connection.call_tool("a", "echo")
        status = connection.status()["a"]

    assert ("unsendable", "not_sent") == (caught.value.code, caught.value.outcome)
    assert not result.is_error
    assert (ServerState.READY, 1, 1) == (status.state, status.generation, server.runs("echo"))


# -- lost sessions and processes -------------------------------------------------------------------------------------


async def test_a_session_forgotten_before_a_listing_is_repaired_and_the_call_runs(tmp_path):
    """The listing that is due before a call meets a 404: a new session, a new listing, then the call."""
    turns = [stream() + forget_sessions() + list_changed() + reply("first"), reply("second")]
    server = ScriptedServer(tmp_path, era="legacy", sessions=True, calls={"echo": turns})
    async with server.http() as entry, connected({"a": entry}) as connection:
        first = await connection.call_tool("a", "echo")
        second = await connection.call_tool("a", "echo")
        status = connection.status()["a"]

    assert ("first", "second") == (first.text, second.text)
    assert (ServerState.READY, 2) == (status.state, status.generation)
    assert (2, 2) == (server.runs("echo"), len(server.received("initialize")))


async def test_a_session_forgotten_before_a_discovery_is_repaired_and_the_question_answered(tmp_path):
    """Looking at what a server offers is put again to the new session."""
    methods = {"resources/list": reply(result={"resources": []})}
    calls = {"echo": reply() + forget_sessions()}
    server = ScriptedServer(tmp_path, era="legacy", sessions=True, methods=methods, calls=calls)
    async with server.http() as entry, connected({"a": entry}) as connection:
        await connection.call_tool("a", "echo")
        with anyio.fail_after(AT_ONCE_SECONDS):
            page = await connection.discover("a", "resources")

        status = connection.status()["a"]

    assert [] == list(page.items)
    assert (ServerState.READY, 2) == (status.state, status.generation)


@pytest.mark.parametrize("how", [die(), leave(0)], ids=["killed", "left"])
async def test_a_server_that_dies_during_a_listing_is_waited_for(tmp_path, how):
    """The call that waited for the listing runs on the next process; a death is no mismatch of a pin."""
    turns = [list_changed() + reply("first"), reply("second")]
    listings = [reply(), how, reply()]
    server = ScriptedServer(tmp_path, methods={"tools/list": listings}, calls={"echo": turns})
    async with connected({"a": server.stdio()}) as connection:
        first = await connection.call_tool("a", "echo")
        second = await connection.call_tool("a", "echo")
        status = connection.status()["a"]

    assert ("first", "second") == (first.text, second.text)
    assert (ServerState.READY, 1, 2) == (status.state, status.restarts, len(server.pids()))


@pytest.mark.parametrize("status", [429, 403, 500])
async def test_an_http_error_with_an_error_without_id_is_a_status_and_no_lost_session(tmp_path, status):
    """The call fails with the status; a sibling under way is answered, and nothing is opened again."""
    body = '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"slow down"}}'
    calls = {"echo": respond(status, body, content_type="application/json"), "slow": hold("go") + reply("slow")}
    server = ScriptedServer(tmp_path, era="legacy", sessions=True, tools=[tool("echo"), tool("slow")], calls=calls)
    async with server.http() as entry, connected({"a": entry}) as connection:
        results = []

        async def call_sibling() -> None:
            results.append((await connection.call_tool("a", "slow")).text)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call_sibling)
            await server.wait_for(lambda s: s.ledger("holding"))
            with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(HttpStatusError) as caught:
                await connection.call_tool("a", "echo")

            server.release("go")

        after = connection.status()["a"]

    assert (status, ["slow"]) == (caught.value.status, results)
    assert (ServerState.READY, 1) == (after.state, after.generation)
    assert 1 == len(server.received("initialize"))


async def test_a_call_told_to_come_back_with_an_error_without_id_is_sent_again(tmp_path):
    """A 429 with `Retry-After` ran nothing, whatever its body says; the session stays as it was."""
    body = '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"slow down"}}'
    later = respond(429, body, content_type="application/json", headers={"retry-after": "0"})
    server = ScriptedServer(tmp_path, era="legacy", sessions=True, calls={"echo": [later, reply("now")]})
    async with server.http() as entry, connected({"a": entry}) as connection:
        result = await connection.call_tool("a", "echo")
        generation = connection.status()["a"].generation

    assert ("now", 1) == (result.text, generation)
    assert (2, 1) == (server.runs("echo"), len(server.received("initialize")))


# -- floods ----------------------------------------------------------------------------------------------------------


async def test_a_flood_of_requests_on_one_reply_starts_no_flood_of_tasks(tmp_path):
    """What a server asks beside its answer costs no task for each question, and a sibling call is answered."""
    ping = {"jsonrpc": "2.0", "id": "ask", "method": "roots/list"}
    flood = stream() + send(ping, times=FLOOD) + list_changed() + hold("go") + reply("flooded")
    server = ScriptedServer(tmp_path, era="legacy", tools=[tool("echo"), tool("flood")], calls={"flood": flood})
    async with server.http() as entry, connected({"a": entry}) as connection:
        await _stays_few(server, connection, None)

    assert 2 == server.runs("echo") + server.runs("flood")


async def test_a_flood_of_progress_waits_for_its_callback_one_at_a_time(tmp_path):
    """The newest few are kept for a slow callback, which never runs beside itself; a sibling call is answered."""
    params = {"progressToken": "$token", "progress": 1}
    flood = stream() + notify("notifications/progress", params, times=FLOOD)
    flood += notify("notifications/progress", params | {"progress": 2}) + list_changed() + hold("go") + reply("flooded")
    server = ScriptedServer(tmp_path, era="legacy", tools=[tool("echo"), tool("flood")], calls={"flood": flood})
    running, seen, go_on = [], [], anyio.Event()

    async def progress(value: float, total: float | None, text: str | None) -> None:
        running.append(value)
        seen.append((value, len(running)))
        await go_on.wait()
        await checkpoint()
        running.remove(value)

    async with server.http() as entry, connected({"a": entry}) as connection:
        await _stays_few(server, connection, progress, go_on)

    assert {1} == {together for _, together in seen}
    assert 2 == seen[-1][0]
    assert len(seen) < MOST_TASKS


async def _stays_few(server, connection, progress, go_on=None) -> None:
    """Call `flood`, and when it was read to its end (a listing was told of there) and nothing else moves, count."""
    results, most = [], 0

    async def call_flood() -> None:
        results.append((await connection.call_tool("a", "flood", progress=progress)).text)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call_flood)
        await server.wait_for(lambda s: s.ledger("holding"))
        # One listing at the start, one before the call, and the third because the flood's last word asked for it.
        await server.wait_for(lambda s: len(s.received("tools/list")) >= 3)
        most = len(asyncio.all_tasks())
        with anyio.fail_after(AT_ONCE_SECONDS):
            await connection.call_tool("a", "echo")

        most = max(most, len(asyncio.all_tasks()))
        if go_on is not None:
            go_on.set()

        server.release("go")

    assert ["flooded"] == results
    assert most < MOST_TASKS


async def test_posts_whose_response_never_ends_do_not_wedge_the_legacy_stream(tmp_path):
    """The head of a response says that the message was taken; nobody waits for its body."""
    taken = junk("HTTP/1.1 202 Accepted\r\ncontent-length: 9\r\n\r\n") + reply("answered") + freeze("end")
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": taken})
    async with server.http(transport="sse", protocol="legacy") as entry, connected({"a": entry}) as connection:
        texts = [(await connection.call_tool("a", "echo")).text for _ in range(40)]
        status = connection.status()["a"]

    assert ["answered"] * 40 == texts
    assert (ServerState.READY, 1) == (status.state, status.generation)


@pytest.mark.slow
async def test_posts_without_any_response_give_their_places_to_the_next(tmp_path):
    """A server has so long to take a message, also one that it answers on its stream meanwhile."""
    taken = junk("") + reply("answered") + freeze("end")
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": taken})
    limits = Limits(call_timeout_seconds=BOUND_SECONDS, shutdown_timeout_seconds=1)
    async with server.http(transport="sse", protocol="legacy") as entry:
        async with connected({"a": entry}, limits=limits) as connection:
            texts = [(await connection.call_tool("a", "echo")).text for _ in range(34)]
            status = connection.status()["a"]

    assert ["answered"] * 34 == texts
    assert (ServerState.READY, 1) == (status.state, status.generation)


# -- permissions -----------------------------------------------------------------------------------------------------


async def test_an_approved_reading_of_another_resource_is_an_error_and_is_not_sent(tmp_path):
    """Another URI is another call; an approver cannot turn one into the other."""
    contents = {"contents": [{"uri": "memo://a", "text": "t"}]}
    methods = {"resources/read": reply(result=contents)}
    server = ScriptedServer(tmp_path, capabilities={"resources": {}}, methods=methods)
    approver = FixedApprover(Approve({"uri": "memo://b"}))
    entry = server.stdio(resources=("memo://a", "memo://b"))
    asking = Permissions(web="ask")
    async with connected({"a": entry}, permissions=asking, approver=approver) as connection:
        with pytest.raises(InvalidArgumentsError):
            await connection.read_resource("a", "memo://a")

    assert [{"uri": "memo://a"}] == approver.arguments
    assert [] == server.received("resources/read")


async def test_an_agent_narrowed_while_a_person_is_asked_denies_the_call(tmp_path):
    """What somebody approved under wider permissions is not sent under the narrower ones."""
    server = ScriptedServer(tmp_path, tools=[tool("change", annotations=None)])
    agent = Agent(permissions=Permissions(web="ask", write="ask", destructive="ask"))

    def narrow_and_approve(request: object) -> bool:
        agent.narrow(Permissions())
        return True

    approver = FixedApprover(narrow_and_approve)
    async with connected({"a": server.stdio()}, permissions=Permissions.full(), approver=approver) as connection:
        agent.register_tools(connection.tools())
        with pytest.raises(PermissionDeniedError):
            await agent.call_tool("a__change", {})

    assert (1, 0) == (len(approver.requests), server.runs("change"))


async def test_an_agent_narrowed_while_its_call_waits_for_a_restart_denies_the_call(tmp_path):
    """The server comes back, and the call, which was permitted when it was made, does not run."""
    server = ScriptedServer(tmp_path, tools=[tool("change", annotations=None)])
    agent = Agent(permissions=Permissions.full())
    restart = RestartPolicy(backoff_initial_seconds=0.5, backoff_max_seconds=0.5)
    async with connected({"a": server.stdio()}, permissions=Permissions.full(), restart=restart) as connection:
        agent.register_tools(connection.tools())
        errors = []

        async def call() -> None:
            with pytest.raises(PermissionDeniedError) as caught:
                await agent.call_tool("a__change", {})

            errors.append(caught.value.outcome)

        async with anyio.create_task_group() as tasks:
            os.kill(server.pids()[0], signal.SIGKILL)
            await until(connection, lambda status: status["a"].state is ServerState.BACKING_OFF)
            tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            waited_in = connection.status()["a"].state
            agent.narrow(Permissions())

    assert ServerState.BACKING_OFF is waited_in
    assert ["not_sent"] == errors
    assert 0 == server.runs("change")


# -- secrets and files -----------------------------------------------------------------------------------------------

SECRET = "sk-live-0123456789abcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize("before", [455, 480, 490, 499])
async def test_a_secret_across_the_cut_of_a_remote_error_is_masked(tmp_path, before):
    """Half a secret is still one: it is masked before anything is cut."""
    server = ScriptedServer(tmp_path, calls={"echo": fail(-32000, "y" * before + SECRET)})
    async with connected({"a": server.stdio(env={"KEY": SECRET})}) as connection:
        with pytest.raises(RemoteError) as caught:
            await connection.call_tool("a", "echo")

    assert "y" * before in str(caught.value)
    assert "ys" not in str(caught.value)


async def test_a_secret_in_the_difference_of_a_changed_tool_is_masked(tmp_path):
    """A server may write what it was given into its listing; it is in no error of ours."""
    changed = tool("echo", description=f"leak {SECRET}")
    turns = [change_tools(changed) + list_changed() + reply()]
    server = ScriptedServer(tmp_path, calls={"echo": turns})
    async with connected({"a": server.stdio(env={"KEY": SECRET})}) as connection:
        await connection.call_tool("a", "echo")
        with pytest.raises(PinMismatchError) as caught:
            await connection.call_tool("a", "echo")

        refused = connection.status()["a"].refused

    shown = (str(caught.value), caught.value.difference, str(dict(refused)))
    assert [False] * 3 == ["sk-live" in text for text in shown]
    assert "leak ***" in caught.value.difference


async def test_a_result_that_cannot_be_written_is_delivered_cut(tmp_path):
    """The call has run: what it gave is handed over, with a finding in the place of the file."""
    file = tmp_path / "file"
    file.touch()
    server = ScriptedServer(tmp_path, calls={"echo": reply("x" * 5000)})
    limits = Limits(max_result_bytes=1000, on_large_result="spill", spill_directory=str(file / "below"))
    async with connected({"a": server.stdio()}, limits=limits) as connection:
        result = await connection.call_tool("a", "echo")

    assert (True, None) == (result.truncated, result.spilled_to)
    assert result.text.startswith("xxx")
    assert len(result.text.encode()) <= 1000
    assert ["spill_failed"] == [finding.code for finding in result.findings]
    assert 1 == server.runs("echo")
