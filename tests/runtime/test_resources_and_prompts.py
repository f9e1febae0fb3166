"""Resources and prompts: over fixed allowlists, through the same gate, also as tools for a model."""

from typing import Any

import pytest
from workbench import FULL, LIMITS, Bench, within

from deputy_mcp import (
    CallTimeoutError,
    ConfigError,
    InvalidArgumentsError,
    Limits,
    McpConnection,
    McpTool,
    NotAllowlistedError,
    PermissionDeniedError,
    Permissions,
)

pytestmark = pytest.mark.anyio

ALLOWED: dict[str, Any] = {"resources": ("test://one",), "prompts": ("greeting",)}


def named(tools: list[McpTool], name: str) -> McpTool:
    (found,) = [tool for tool in tools if tool.name == name]
    return found


@pytest.mark.parametrize("wire", ["stdio", "http"])
@within(10)
async def test_an_allowlisted_resource_and_prompt_are_had(bench: Bench, wire: str) -> None:
    """Clean text and the server's own objects."""
    async with bench.http() as http:
        spec = bench.stdio(**ALLOWED) if wire == "stdio" else http.server(**ALLOWED)
        async with McpConnection({"a": spec}, **FULL) as connection:
            resource = await connection.read_resource("a", "test://one")
            prompt = await connection.get_prompt("a", "greeting", {"name": "Ada"})

    assert ("the text of test://one", "a", "test://one") == (resource.text, resource.server, resource.uri)
    assert ["text/plain"] == [item["mimeType"] for item in resource.contents]
    assert ("a", "greeting", False) == (prompt.server, prompt.name, prompt.truncated)
    assert 'user: greeting for {"name": "Ada"}' == prompt.text
    assert ["user"] == [message["role"] for message in prompt.messages]


@within(10)
async def test_what_is_not_allowlisted_is_not_asked_for(bench: Bench) -> None:
    """Nothing by default, exact names, near ones listed; the server's ledger shows nothing."""
    servers = {"some": bench.stdio(**ALLOWED), "none": bench.stdio()}
    async with McpConnection(servers, **FULL) as connection:
        for use, near in (
            (connection.read_resource("some", "test://two"), ("test://one",)),
            (connection.read_resource("none", "test://one"), ()),
            (connection.read_resource("some", "file:///etc/passwd"), ()),
            (connection.get_prompt("some", "secret"), ()),
            (connection.get_prompt("some", "greetings"), ("greeting",)),
            (connection.get_prompt("none", "greeting"), ()),
            (connection.complete("none", {"type": "ref/prompt", "name": "greeting"}, {"name": "x", "value": "y"}), ()),
            (connection.complete("some", {"type": "ref/tool", "name": "greeting"}, {"name": "x", "value": "y"}), ()),
        ):
            with pytest.raises(NotAllowlistedError) as caught:
                await use

            assert ("not_allowlisted", near) == (caught.value.code, caught.value.near)

    for method in ("resources/read", "prompts/get", "completion/complete"):
        assert [] == bench.ledger.read("got", method=method)


@within(10)
async def test_prompt_arguments_must_be_texts(bench: Bench) -> None:
    """The protocol knows no others; nothing is coerced."""
    async with McpConnection({"a": bench.stdio(**ALLOWED)}, **FULL) as connection:
        for arguments in ({"name": 7}, {7: "x"}, ["x"], "x"):
            with pytest.raises(InvalidArgumentsError):
                await connection.get_prompt("a", "greeting", arguments)  # type: ignore[arg-type]

    assert [] == bench.ledger.read("got", method="prompts/get")


@within(10)
async def test_reading_is_judged_as_read_only_and_open_world(bench: Bench) -> None:
    """The floor denies it for `web`; the host may say that a server's resources are its own."""
    own = {"resources/read": {"openWorldHint": False}}
    servers = {"open": bench.stdio(**ALLOWED), "own": bench.stdio(annotations=own, **ALLOWED)}
    async with McpConnection(servers, limits=LIMITS) as connection:
        for use in (connection.read_resource("open", "test://one"), connection.get_prompt("own", "greeting")):
            with pytest.raises(PermissionDeniedError) as caught:
                await use

            assert "web" == caught.value.code

        assert "the text of test://one" == (await connection.read_resource("own", "test://one")).text

    async with McpConnection(servers, permissions=Permissions.plan(), limits=LIMITS) as connection:
        assert "the text of test://one" == (await connection.read_resource("open", "test://one")).text


@within(10)
async def test_a_server_without_tools_still_gives_its_resources(bench: Bench) -> None:
    """It declares none and answers accordingly."""
    spec = bench.stdio(
        {
            "errors": {"tools/list": [-32601, "no tools"], "server/discover": [-32601, "no"]},
            "replies": {
                "initialize": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"resources": {}},
                    "serverInfo": {"name": "library", "version": "1"},
                }
            },
        },
        **ALLOWED,
    )
    async with McpConnection({"a": spec}, **FULL) as connection:
        assert [] == connection.tools("a")
        assert "the text of test://one" == (await connection.read_resource("a", "test://one")).text


# -- as tools ----------------------------------------------------------------------------------------------------


@within(10)
async def test_capability_tools_offer_exactly_the_allowlists(bench: Bench) -> None:
    """Two tools over all servers; their schemas name what may be asked for, and calling them goes through the gate."""
    servers = {
        "a": bench.stdio(resources=("test://one",), prompts=("greeting",)),
        "b": bench.stdio(resources=("test://two",)),
        "c": bench.stdio(),
    }
    async with McpConnection(servers, **FULL) as connection:
        tools = connection.capability_tools()
        assert ["mcp_get_prompt", "mcp_read_resource"] == sorted(tool.name for tool in tools)
        assert ["x_get_prompt", "x_read_resource"] == sorted(t.name for t in connection.capability_tools(prefix="x"))
        read, get = named(tools, "mcp_read_resource"), named(tools, "mcp_get_prompt")
        for tool in tools:
            assert (True, True, False) == (tool.effects.read_only, tool.effects.open_world, tool.effects.destructive)

        assert ["a", "b"] == read.input_schema["properties"]["server"]["enum"]
        assert ["test://one", "test://two"] == read.input_schema["properties"]["uri"]["enum"]
        assert ["a"] == get.input_schema["properties"]["server"]["enum"]
        assert ["greeting"] == get.input_schema["properties"]["name"]["enum"]

        assert "the text of test://two" == (await read(server="b", uri="test://two")).text
        assert "greeting for" in (await get(server="a", name="greeting", arguments={"name": "Ada"})).text
        for arguments in ({"server": "a", "uri": "test://two"}, {"server": "c", "uri": "test://one"}):
            with pytest.raises(NotAllowlistedError):
                await read.call(arguments)

        for arguments in ({"server": "a"}, {"server": 1, "uri": "test://one"}, None):
            with pytest.raises(InvalidArgumentsError):
                await read.call(arguments)

        with pytest.raises(InvalidArgumentsError):
            await read.call({"server": "a", "uri": "test://one", "and": "more"})

    assert 1 == len(bench.ledger.read("got", method="resources/read"))


@within(10)
async def test_capability_tools_with_nothing_to_offer_are_left_out(bench: Bench) -> None:
    """A tool that can only refuse is none."""
    async with McpConnection({"a": bench.stdio(prompts=("greeting",))}, **FULL) as connection:
        assert ["mcp_get_prompt"] == [tool.name for tool in connection.capability_tools()]

    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        assert [] == connection.capability_tools()


@within(10)
async def test_capability_tools_are_denied_by_name_and_narrowed_like_any_other(bench: Bench) -> None:
    """Public names, lists and narrowing hold for them as well."""
    permissions = Permissions(web=True, tool_denylist=("mcp_get_prompt",))
    async with McpConnection({"a": bench.stdio(**ALLOWED)}, permissions=permissions, limits=LIMITS) as connection:
        tools = connection.capability_tools()
        read = named(tools, "mcp_read_resource")
        assert "the text of test://one" == (await read(server="a", uri="test://one")).text
        with pytest.raises(PermissionDeniedError) as caught:
            await named(tools, "mcp_get_prompt")(server="a", name="greeting")

        assert "tool_denylist" == caught.value.code
        with pytest.raises(PermissionDeniedError):
            await read.narrowed(Permissions.readonly())(server="a", uri="test://one")


# -- looking around ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", ["stdio", "http"])
@within(10)
async def test_discovery_shows_what_a_server_offers_and_allows_nothing(bench: Bench, wire: str) -> None:
    """Every kind, page by page, as the server sends it; what is seen may still not be used."""
    async with bench.http({"offers": ["echo", "note"]}) as http:
        spec = bench.stdio({"offers": ["echo", "note"]}, tools=("echo",)) if wire == "stdio" else None
        spec = spec or http.server(tools=("echo",))
        async with McpConnection({"a": spec}, **FULL) as connection:
            tools = await connection.discover("a", "tools")
            assert (["echo", "note"], None) == ([tool["name"] for tool in tools.items], tools.next_cursor)
            first = await connection.discover("a", "resources")
            assert (["test://one"], "2") == ([item["uri"] for item in first.items], first.next_cursor)
            second = await connection.discover("a", "resources", first.next_cursor)
            assert (["test://two"], None) == ([item["uri"] for item in second.items], second.next_cursor)
            templates = await connection.discover("a", "resource_templates")
            assert ["test://{name}"] == [item["uriTemplate"] for item in templates.items]
            prompts = await connection.discover("a", "prompts")
            assert ["greeting", "secret"] == [item["name"] for item in prompts.items]
            with pytest.raises(ConfigError):
                await connection.discover("a", "toys")  # type: ignore[arg-type]

            assert ["echo"] == [tool.tool for tool in connection.tools("a")]
            for use in (
                connection.call_tool("a", "note"),
                connection.read_resource("a", "test://one"),
                connection.get_prompt("a", "greeting"),
            ):
                with pytest.raises(NotAllowlistedError):
                    await use


@within(10)
async def test_discovery_and_completion_have_a_deadline(bench: Bench) -> None:
    """A server that does not answer holds nobody past `call_timeout_seconds`."""
    spec = bench.stdio({"mute": ["resources/list", "completion/complete"]}, prompts=("greeting",))
    limits = Limits(call_timeout_seconds=0.2, shutdown_timeout_seconds=1)
    async with McpConnection({"a": spec}, **FULL | {"limits": limits}) as connection:
        with pytest.raises(CallTimeoutError):
            await connection.complete("a", {"type": "ref/prompt", "name": "greeting"}, {"name": "x", "value": ""})

        with pytest.raises(CallTimeoutError):
            await connection.discover("a", "resources")

        assert "null" == (await connection.call_tool("a", "echo")).text


@within(10)
async def test_completions_are_had_for_what_is_allowed(bench: Bench) -> None:
    """For a prompt and for a resource template, by the protocol's own reference."""
    spec = bench.stdio(prompts=("greeting",), resources=("test://{name}",))
    async with McpConnection({"a": spec}, **FULL) as connection:
        argument = {"name": "name", "value": "x"}
        for ref in ({"type": "ref/prompt", "name": "greeting"}, {"type": "ref/resource", "uri": "test://{name}"}):
            assert ["xa", "xb"] == await connection.complete("a", ref, argument)
