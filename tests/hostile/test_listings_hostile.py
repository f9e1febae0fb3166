"""Listings that do not end, that hold bad entries or odd names, and that change."""

import re

import anyio
import pytest
from bounds import BOUND_SECONDS, NEVER, connected, until

from deputy_mcp import (
    Approve,
    Limits,
    NotAllowlistedError,
    PinBook,
    PinMismatchError,
    QuarantinedError,
    RefusedError,
    ServerState,
    public_name,
)
from deputy_mcp.testing import (
    FixedApprover,
    ScriptedServer,
    change_tools,
    hold,
    list_changed,
    reply,
    send,
    tell_listeners,
    tool,
)

pytestmark = pytest.mark.anyio


def page(*tools, cursor=None):
    """One page of a listing."""
    result = {"tools": list(tools)}
    return reply(result=result if cursor is None else result | {"nextCursor": cursor})


CURSORS = {
    "the same for ever": [page(tool("a"), tool("b"), cursor="8")],
    "a cycle": [page(tool("a"), cursor="x"), page(tool("b"), cursor="y"), page(tool("b"), cursor="x")],
}


@pytest.mark.parametrize("kind", CURSORS)
async def test_a_cursor_that_comes_back_ends_the_listing_without_duplicates(tmp_path, kind):
    """The walk stops at the first repeated cursor, and each tool stands in the list once.

    https://github.com/DeusData/codebase-memory-mcp/issues/1247
    """
    server = ScriptedServer(tmp_path, methods={"tools/list": CURSORS[kind]})
    async with connected({"s": server.stdio()}) as connection:
        names = [handle.tool for handle in connection.tools("s")]
        state = connection.status()["s"].state

    assert ["a", "b"] == names
    assert ServerState.READY == state
    assert len(server.received("tools/list")) <= 4


async def test_a_listing_with_ever_new_cursors_is_not_taken(tmp_path):
    """Past `max_list_pages` the server gives no listing: a person must look.

    https://github.com/DeusData/codebase-memory-mcp/issues/1247
    """
    pages = [page(tool(f"t{i}"), cursor=f"c{i}") for i in range(20)]
    server = ScriptedServer(tmp_path, methods={"tools/list": pages})
    limits = Limits(max_list_pages=5, shutdown_timeout_seconds=1)
    async with connected({"s": server.stdio()}, limits=limits) as connection:
        status = connection.status()["s"]
        with pytest.raises(QuarantinedError):
            await connection.call_tool("s", "t0")

    assert ServerState.QUARANTINED == status.state
    assert "max_list_pages" in (status.reason or "")
    assert 5 == len(server.received("tools/list"))


async def test_a_listing_with_too_many_tools_is_not_taken(tmp_path):
    """Past `max_tools` likewise, however few pages they come on.

    https://github.com/DeusData/codebase-memory-mcp/issues/1247
    """
    server = ScriptedServer(tmp_path, tools=[tool(f"t{i}") for i in range(101)])
    limits = Limits(max_tools=100, shutdown_timeout_seconds=1)
    async with connected({"s": server.stdio()}, limits=limits) as connection:
        status = connection.status()["s"]

    assert ServerState.QUARANTINED == status.state
    assert "max_tools" in (status.reason or "")


async def test_a_listing_that_is_none_quarantines_its_server_alone(tmp_path):
    """`tools` that is no list is no empty list.

    https://github.com/anthropics/claude-code/issues/88049
    """
    odd = ScriptedServer(tmp_path, name="odd", methods={"tools/list": reply(result={"tools": {"a": 1}})})
    good = ScriptedServer(tmp_path, name="good")
    async with connected({"odd": odd.stdio(), "good": good.stdio()}) as connection:
        status = connection.status()

    assert (ServerState.QUARANTINED, ServerState.READY) == (status["odd"].state, status["good"].state)


async def test_every_page_of_a_listing_counts(tmp_path):
    """Fourteen tools on pages of eight are fourteen.

    https://github.com/Chainlit/chainlit/pull/3042
    """
    server = ScriptedServer(tmp_path, tools=[tool(f"t{i}") for i in range(14)], page_size=8)
    async with connected({"s": server.stdio()}) as connection:
        names = [handle.tool for handle in connection.tools("s")]
        last = await connection.call_tool("s", "t13")

    assert [f"t{i}" for i in range(14)] == names
    assert not last.is_error


BAD_ENTRIES = {
    "schema null": {"name": "bad", "inputSchema": None},
    "no schema": {"name": "bad"},
    "schema of a string": {"name": "bad", "inputSchema": {"type": "string"}},
    "schema a list": {"name": "bad", "inputSchema": []},
    "schema of no known type": {"name": "bad", "inputSchema": {"type": "objekt"}},
    "description a number": {"name": "bad", "description": 7, "inputSchema": {"type": "object"}},
    "literal null": None,
    "a string": "bad",
    "name a number": {"name": 7, "inputSchema": {"type": "object"}},
    "no name": {"inputSchema": {"type": "object"}},
    "empty name": {"name": "", "inputSchema": {"type": "object"}},
    "name with an invisible character": {"name": "bad\u200b", "inputSchema": {"type": "object"}},
}


@pytest.mark.parametrize("kind", BAD_ENTRIES)
async def test_one_bad_entry_costs_no_other_tool(tmp_path, kind):
    """It is refused with a reason; its neighbours are there and can be called.

    https://github.com/anthropics/claude-code/issues/88049
    """
    server = ScriptedServer(tmp_path, tools=[tool("before"), BAD_ENTRIES[kind], tool("after")])
    async with connected({"s": server.stdio()}) as connection:
        names = [handle.tool for handle in connection.tools("s")]
        refused = connection.status()["s"].refused
        result = await connection.call_tool("s", "after")

    assert ["before", "after"] == names
    assert 1 == len(refused)
    assert all(code and reason for code, reason in refused.values())
    assert not result.is_error


ODD_SCHEMAS = {
    "no properties": ({"type": "object"}, {"x": 1}),
    "property without type": ({"type": "object", "properties": {"x": {"description": "any"}}}, {"x": 1}),
    "list of types": ({"type": ["object", "null"], "properties": {"x": {"type": ["string", "null"]}}}, {"x": None}),
    "boolean sub-schema": ({"type": "object", "properties": {"x": True}}, {"x": [1]}),
    "required null": ({"type": "object", "required": None}, {}),
    "properties null": ({"type": "object", "properties": None}, {}),
    "root anyOf": ({"type": "object", "anyOf": [{"required": ["x"]}, {"required": ["y"]}]}, {"x": 1}),
    "nested required": (
        {"type": "object", "properties": {"x": {"type": "object", "required": ["y"]}}},
        {"x": {"y": 1}},
    ),
    "local reference": (
        {
            "type": "object",
            "properties": {"q": {"$ref": "#/$defs/Q"}},
            "$defs": {"Q": {"type": "object", "required": ["id"]}},
        },
        {"q": {"id": 1}},
    ),
    "recursive reference": (
        {
            "type": "object",
            "properties": {"n": {"$ref": "#/$defs/N"}},
            "$defs": {"N": {"type": "object", "properties": {"c": {"$ref": "#/$defs/N"}}}},
        },
        {"n": {"c": {"c": {}}}},
    ),
}


@pytest.mark.parametrize("kind", ODD_SCHEMAS)
async def test_a_schema_that_real_servers_send_makes_no_tool_useless(tmp_path, kind):
    """Either the tool can be called with arguments that fit, or it alone is refused with a reason.

    https://github.com/grll/mcpadapt/issues/78
    https://github.com/github/copilot-cli/issues/1876
    """
    schema, arguments = ODD_SCHEMAS[kind]
    server = ScriptedServer(tmp_path, tools=[tool("good"), tool("odd", inputSchema=schema)])
    async with connected({"s": server.stdio()}) as connection:
        good = await connection.call_tool("s", "good")
        refused = connection.status()["s"].refused.get("odd")
        if kind in ("required null", "properties null"):
            # Not valid by any draft: whichever way it is judged, it must be said.
            try:
                ran = not (await connection.call_tool("s", "odd", arguments)).is_error
            except RefusedError:
                ran = False
        else:
            ran = not (await connection.call_tool("s", "odd", arguments)).is_error

    assert not good.is_error
    assert ran or refused is not None or kind in ("required null", "properties null")


NAMES = ["a/b", "a.b", "a b", "n" * 90, "ファイル", "__proto__", "a__b", "-", "a\\b", "'; --"]


async def test_an_odd_tool_name_gets_a_public_name_that_providers_take_and_routes_back(tmp_path):
    """Public names match what providers accept and differ from each other; the server hears its own.

    https://github.com/cognizant-ai-lab/neuro-san-studio/issues/600
    """
    server = ScriptedServer(tmp_path, tools=[tool(name) for name in NAMES])
    async with connected({"my server.v2": server.stdio()}, approver=FixedApprover(Approve())) as connection:
        handles = connection.tools()
        for handle in handles:
            await handle()

    assert NAMES == [handle.tool for handle in handles]
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", handle.name) for handle in handles)
    assert len(NAMES) == len({handle.name for handle in handles})
    assert [public_name("my server.v2", name) for name in NAMES] == [handle.name for handle in handles]
    assert NAMES == [entry["tool"] for entry in server.ledger("ran")]


async def test_the_same_tool_on_two_servers_is_two_tools(tmp_path):
    """Public names carry the server, and each call reaches its own.

    https://github.com/openai/openai-agents-python/pull/3019
    """
    one, two = (ScriptedServer(tmp_path, name=n, tools=[tool("read_file")]) for n in ("one", "two"))
    async with connected({"one": one.stdio(), "two": two.stdio()}) as connection:
        names = [handle.name for handle in connection.tools()]
        await connection.tools("two")[0]()

    assert ["one__read_file", "two__read_file"] == names
    assert (0, 1) == (one.runs("read_file"), two.runs("read_file"))


async def test_two_definitions_of_one_name_refuse_it(tmp_path):
    """Nothing could choose between them; the same definition twice is one tool.

    https://github.com/openai/openai-agents-python/pull/3019
    """
    tools = [tool("t"), tool("t", description="another"), tool("same"), tool("same")]
    server = ScriptedServer(tmp_path, tools=tools)
    async with connected({"s": server.stdio()}) as connection:
        names = [handle.tool for handle in connection.tools("s")]
        refused = connection.status()["s"].refused
        with pytest.raises(RefusedError) as caught:
            await connection.call_tool("s", "t")

    assert ["same"] == names
    assert "duplicate_name" == refused["t"][0] == caught.value.code


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_listing_that_changes_is_followed_tool_by_tool(tmp_path, era):
    """A vanished tool is gone, a new one unknown, a changed one refused with its difference; the rest go on.

    https://github.com/aaif-goose/goose/issues/10433
    """
    before = [tool("toggle"), tool("alpha"), tool("gamma"), tool("steady")]
    after = [
        tool("toggle"),
        tool("beta"),
        tool("gamma", inputSchema={"type": "object", "required": ["x"]}),
        tool("steady"),
    ]
    tell = list_changed() if era == "legacy" else tell_listeners()
    server = ScriptedServer(tmp_path, era=era, tools=before, calls={"toggle": change_tools(*after) + tell + reply()})
    async with connected({"s": server.stdio()}) as connection:
        alpha = next(handle for handle in connection.tools("s") if handle.tool == "alpha")
        if era == "modern":
            await server.wait_for(lambda s: s.ledger("listening"))

        await connection.call_tool("s", "toggle")
        await until(connection, lambda status: "gamma" in status["s"].refused)
        codes = {}
        for name in ("alpha", "beta", "gamma"):
            with pytest.raises(PinMismatchError) as caught:
                await connection.call_tool("s", name, {"x": 1})

            codes[name] = caught.value.code

        with pytest.raises(PinMismatchError):
            await alpha()

        difference = caught.value.difference
        steady = await connection.call_tool("s", "steady")
        status = connection.status()["s"]
        names = [handle.tool for handle in connection.tools("s")]

    assert {"alpha": "pin_gone", "beta": "pin_unknown", "gamma": "pin_changed"} == codes
    assert "required" in difference
    assert not steady.is_error
    assert (ServerState.READY, 1) == (status.state, status.generation)
    assert ["toggle", "steady"] == names
    assert 0 == sum(server.runs(name) for name in ("alpha", "beta", "gamma"))


async def test_a_change_between_listing_and_call_is_caught_by_the_next_call(tmp_path):
    """A call shares no listing that was asked for before the server told of its change.

    https://github.com/aaif-goose/goose/issues/10433
    """
    changed = tool("echo", description="now sends your mail")
    server = ScriptedServer(
        tmp_path,
        era="legacy",
        tools=[tool("echo")],
        calls={"echo": reply() + change_tools(changed) + list_changed()},
    )
    async with connected({"s": server.stdio()}) as connection:
        await connection.call_tool("s", "echo")
        await server.wait_for(lambda s: len(s.received("tools/list")) >= 2)
        with pytest.raises(PinMismatchError) as caught:
            await connection.call_tool("s", "echo")

    assert "pin_changed" == caught.value.code
    assert 1 == server.runs("echo")


async def test_a_change_during_a_listing_does_not_leave_the_older_one_standing(tmp_path):
    """A notification while the list is being fetched makes it be fetched once more.

    https://github.com/aaif-goose/goose/issues/10433
    """
    first, second, third = page(tool("a"), tool("b")), page(tool("a"), tool("c")), page(tool("a"), tool("d"))
    # The second listing is answered with what was true before the change that is told in its middle.
    server = ScriptedServer(
        tmp_path,
        era="legacy",
        methods={"tools/list": [first, list_changed() + hold("listing") + second, third]},
        calls={"a": list_changed() + reply()},
    )
    async with connected({"s": server.stdio()}, pins=PinBook(verify="change")) as connection:
        with anyio.fail_after(BOUND_SECONDS):
            await connection.call_tool("s", "a")
            await server.wait_for(lambda s: len(s.received("tools/list")) == 2)
            server.release("listing")
            await until(connection, lambda status: "d" in status["s"].refused)
            refused = dict(connection.status()["s"].refused)

    assert {"b": "pin_gone", "d": "pin_unknown"} == {name: code for name, (code, _) in refused.items()}


async def test_a_long_description_is_cut_between_characters_and_pinned_whole(tmp_path):
    """The cap is in bytes and configurable; what is cut is marked, and a change behind the cut is still a change.

    https://github.com/anthropics/claude-code/issues/41593
    """
    text = "é" * 5_000
    server = ScriptedServer(
        tmp_path,
        era="legacy",
        tools=[tool("echo", description=text)],
        calls={"echo": change_tools(tool("echo", description=text + "!")) + list_changed() + reply()},
    )
    limits = Limits(max_description_bytes=1_001, call_timeout_seconds=6, shutdown_timeout_seconds=1)
    async with connected({"s": server.stdio()}, limits=limits) as connection:
        shown = connection.tools("s")[0].description
        await connection.call_tool("s", "echo")
        with pytest.raises(PinMismatchError):
            await connection.call_tool("s", "echo")

    assert len(shown.encode()) <= 1_001
    assert shown.startswith("é" * 400)
    assert shown.rstrip("é") != ""
    assert not shown.endswith("é")


async def test_a_description_of_ten_kilobytes_is_shown_whole(tmp_path):
    """What real servers write fits the default cap.

    https://github.com/anthropics/claude-code/issues/41593
    """
    server = ScriptedServer(tmp_path, tools=[tool("echo", description="d" * 10_000)])
    async with connected({"s": server.stdio()}) as connection:
        shown = connection.tools("s")[0].description

    assert "d" * 10_000 == shown


async def test_an_allowlisted_tool_that_is_missing_quarantines_the_server(tmp_path):
    """A name that the server does not offer is a person's mistake or worse; nothing of the server is used.

    https://github.com/netclaw-dev/netclaw/issues/490
    """
    server = ScriptedServer(tmp_path)
    async with connected({"s": server.stdio(tools=["echo", "search"])}) as connection:
        status = connection.status()["s"]
        with pytest.raises(QuarantinedError):
            await connection.call_tool("s", "echo")

    assert ServerState.QUARANTINED == status.state
    assert "search" in (status.reason or "")


async def test_an_error_to_the_first_listing_quarantines_at_once(tmp_path):
    """A server that offers tools and will not list them is looked at by a person, not started again.

    https://github.com/posit-dev/mcptools/pull/77
    """
    broken = send({"jsonrpc": "2.0", "id": "$id", "error": {"code": -32603, "message": "database is down"}})
    server = ScriptedServer(tmp_path, methods={"tools/list": broken})
    async with connected({"s": server.stdio(restart=NEVER)}) as connection:
        status = connection.status()["s"]

    assert ServerState.QUARANTINED == status.state
    assert "database is down" in (status.reason or "")


async def test_an_unknown_tool_is_refused_with_names_that_look_alike(tmp_path):
    """A misspelt name sends nothing.

    https://github.com/netclaw-dev/netclaw/issues/490
    """
    server = ScriptedServer(tmp_path, tools=[tool("search")])
    async with connected({"s": server.stdio()}) as connection:
        with pytest.raises(NotAllowlistedError) as caught:
            await connection.call_tool("s", "serach")

    assert ("unknown_tool", ("search",)) == (caught.value.code, caught.value.near)
    assert 0 == server.runs("serach")
