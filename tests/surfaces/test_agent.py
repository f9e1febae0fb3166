"""`Agent`: registering, loading, narrowing and counting, over real servers and the host's own functions."""

import functools
import itertools
import threading
import warnings
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import anyio
import pytest
from conftest import Scene
from workbench import within

from deputy_mcp import (
    Agent,
    ApprovalDeniedError,
    CallTimeoutError,
    ClosedError,
    ConfigError,
    Deny,
    DeputyWarning,
    InvalidArgumentsError,
    McpConnection,
    McpTool,
    NotAllowlistedError,
    PermissionDeniedError,
    Permissions,
    RegistrationError,
    RestartPolicy,
    ServerState,
    StaleToolError,
    host_tool,
)
from deputy_mcp.testing import FixedApprover, ScriptedServer, hold, reply, silence, tool

pytestmark = pytest.mark.anyio

FULL = Permissions.full()
READS = {"readOnlyHint": True, "openWorldHint": False}
WRITES = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}


def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


def reader(name: str) -> McpTool:
    return host_tool(lambda: name, name=name, annotations=READS)


# -- registering -----------------------------------------------------------------------------------------------------


def test_a_known_name_without_replace_is_an_error_and_changes_nothing() -> None:
    """Neither the tool that is there nor the set: the new ones given beside it are not taken either."""
    agent = Agent([reader("a")])
    before = dict(agent.tools)
    with pytest.raises(RegistrationError, match="replace=True") as caught:
        agent.register_tools([reader("b"), reader("a")])

    assert "a" == caught.value.tool
    assert before == dict(agent.tools)


def test_with_replace_a_known_name_takes_the_new_tool() -> None:
    """The others stay, in their order."""
    agent = Agent([reader("a"), reader("b")])
    agent.register_tools([host_tool(add, name="a", annotations=READS)], replace=True)

    assert ["a", "b"] == list(agent.tools)
    assert "The sum of two numbers." == agent.tools["a"].description


@pytest.mark.parametrize("replace", [False, True])
def test_a_name_that_is_given_twice_is_an_error_and_changes_nothing(replace: bool) -> None:
    """Which of the two was meant is not for us to guess, with `replace` neither."""
    agent = Agent()
    with pytest.raises(RegistrationError, match="twice"):
        agent.register_tools([reader("a"), reader("a")], replace=replace)

    assert {} == dict(agent.tools)


def test_what_is_no_tool_is_an_error_and_changes_nothing() -> None:
    """A tool is an `McpTool` or a callable; the good ones beside it are not taken."""
    agent = Agent()
    with pytest.raises(ConfigError):
        agent.register_tools([reader("a"), "b"])  # type: ignore[list-item]

    assert {} == dict(agent.tools)


def test_unregistering_removes_all_the_names_or_none() -> None:
    """An unknown name is a `RegistrationError`, and the known ones beside it stay."""
    agent = Agent([reader("a"), reader("b"), reader("c")])
    with pytest.raises(RegistrationError, match="'x'"):
        agent.unregister_tools("a", "x")

    assert ["a", "b", "c"] == list(agent.tools)
    agent.unregister_tools("a", "c")
    assert ["b"] == list(agent.tools)


def test_what_an_agent_shows_cannot_be_written_to() -> None:
    """`tools` is a read-only mapping."""
    agent = Agent([reader("a")])
    with pytest.raises(TypeError):
        agent.tools["b"] = reader("b")  # type: ignore[index]


@within(10)
async def test_an_unknown_name_is_refused_with_names_that_look_alike() -> None:
    """A model that misspells a tool is told what there is."""
    agent = Agent([reader("list_books")])
    with pytest.raises(NotAllowlistedError) as caught:
        await agent.call_tool("list_book")

    assert ("unknown_tool", ("list_books",)) == (caught.value.code, caught.value.near)


@pytest.mark.parametrize("wrong", [{"permissions": "full"}, {"max_tool_calls": -1}, {"max_tool_calls": True}])
def test_a_wrong_option_is_a_configuration_error(wrong: dict[str, Any]) -> None:
    """Checked when the agent is made, not at its first call."""
    with pytest.raises(ConfigError):
        Agent(**wrong)


# -- host tools ------------------------------------------------------------------------------------------------------


def test_a_plain_callable_gets_the_cautious_effects() -> None:
    """Writing, destructive, open-world: nothing is assumed of what says nothing."""
    effects = host_tool(add).effects

    assert (False, True, False, True) == (
        effects.read_only,
        effects.destructive,
        effects.idempotent,
        effects.open_world,
    )
    assert {} == dict(Agent([add]).tools)
    assert "web" == Agent([add]).mcp_status().left_out["add"]


def test_the_annotations_of_a_host_tool_are_the_hosts_own_word() -> None:
    """They give its effects; an unknown or odd hint is a `ConfigError`."""
    tool = host_tool(add, annotations={"readOnlyHint": True, "openWorldHint": False})

    assert (True, False, False) == (tool.effects.read_only, tool.effects.destructive, tool.effects.open_world)
    for odd in ({"readOnly": True}, {"readOnlyHint": 1}, {"readOnlyHint": "true"}):
        with pytest.raises(ConfigError):
            host_tool(add, annotations=odd)  # type: ignore[arg-type]


def test_the_parameters_types_give_the_input_schema() -> None:
    """A model sees names, types and what is required; nothing else is taken."""
    schema = host_tool(add).input_schema

    assert "object" == schema["type"]
    assert {"a": "integer", "b": "integer"} == {name: part["type"] for name, part in schema["properties"].items()}
    assert ["a", "b"] == schema["required"]
    assert False is schema["additionalProperties"]


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 65, "a\x1b[31m"])
def test_a_name_that_no_model_api_takes_is_refused(name: str) -> None:
    """1 to 64 of letters, digits, `_` and `-`; what the text shows of it is clean."""
    with pytest.raises(RegistrationError) as caught:
        host_tool(lambda: None, name=name)

    assert str(caught.value).isprintable()


def test_a_function_without_a_name_of_its_own_says_to_pass_one() -> None:
    """A lambda is called `<lambda>`."""
    with pytest.raises(RegistrationError, match="name="):
        host_tool(lambda: None)


def by_position(value: int, /) -> int:
    """Takes its argument by position only."""
    return value


def takes_many(*values: int) -> int:
    """Takes arguments without names."""
    return sum(values)


@pytest.mark.parametrize("function", [by_position, takes_many])
def test_a_function_whose_parameters_have_no_names_is_refused(function: Callable[..., Any]) -> None:
    """A model gives arguments by name; such a tool could never be called."""
    with pytest.raises(RegistrationError):
        host_tool(function)


async def where() -> int:
    """Asynchronous."""
    return anyio.get_current_task().id


@pytest.mark.parametrize("function", [where, functools.partial(where)], ids=["function", "partial"])
@within(10)
async def test_an_asynchronous_function_runs_in_the_callers_task(function: Callable[..., Any]) -> None:
    """Its value becomes the text."""
    result = await Agent([host_tool(function, name="where", annotations=READS)]).call_tool("where")

    assert (str(anyio.get_current_task().id), False) == (result.text, result.is_error)


@within(10)
async def test_a_synchronous_function_runs_in_a_thread_of_its_own() -> None:
    """One that blocks does not hold up the event loop."""
    entered, leave = threading.Event(), threading.Event()

    def block() -> str:
        """Blocks until let go."""
        entered.set()
        leave.wait(5)
        return threading.current_thread().name

    agent = Agent([host_tool(block, annotations=READS)])
    names: list[str] = []

    async def call() -> None:
        names.append((await agent.call_tool("block")).text)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        while not entered.is_set():
            await anyio.lowlevel.checkpoint()

        leave.set()

    assert threading.current_thread().name not in names


@within(10)
async def test_what_a_host_tool_raises_is_its_answer() -> None:
    """A result with `is_error` and a clean text; no exception comes out."""

    def fall() -> None:
        """Fails."""
        raise LookupError("no such book \x1b[31m")

    result = await Agent([host_tool(fall, annotations=READS)]).call_tool("fall")

    assert (True, "LookupError: no such book \\u001b[31m") == (result.is_error, result.text)


class Opaque:
    """Nothing that JSON knows."""

    def __repr__(self) -> str:
        return "<Opaque>"


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize("value", [{1, 2}, date(2026, 1, 1), Opaque(), b"bytes", CYCLE], ids=lambda v: type(v).__name__)
@within(10)
async def test_what_a_host_tool_gives_is_never_an_exception(value: object) -> None:
    """A value that is no JSON becomes some text or an error of the tool, as what it raises does."""
    result = await Agent([host_tool(lambda: value, name="give", annotations=READS)]).call_tool("give")

    assert result.text


@within(10)
async def test_a_host_tools_dict_is_its_structured_content_too() -> None:
    """The text is the same as JSON."""
    result = await Agent([host_tool(lambda: {"a": [1]}, name="give", annotations=READS)]).call_tool("give")

    assert ('{"a": [1]}', {"a": [1]}) == (result.text, result.structured_content)


@pytest.mark.parametrize("arguments", [{"a": 1}, {"a": 1, "b": "x"}, {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": {1}}, [1]])
@within(10)
async def test_arguments_that_break_a_host_tools_schema_are_refused(arguments: Any) -> None:
    """Before the function sees them."""
    agent = Agent([host_tool(add, annotations=READS)])
    with pytest.raises(InvalidArgumentsError):
        await agent.call_tool("add", arguments)


@within(10)
async def test_arguments_that_nest_beyond_reason_are_refused() -> None:
    """As they are for a server's tool: by our own error."""
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]

    agent = Agent([host_tool(lambda value: "taken", name="take", annotations=READS)])
    with pytest.raises(InvalidArgumentsError):
        await agent.call_tool("take", {"value": value})


@within(10)
async def test_a_host_tool_has_a_deadline() -> None:
    """Past `timeout_seconds` the call fails, and an asynchronous function is cancelled."""
    cancelled = anyio.Event()

    async def never() -> None:
        """Never ends."""
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    agent = Agent([host_tool(never, annotations=READS)])
    with pytest.raises(CallTimeoutError):
        await agent.tools["never"].call(timeout_seconds=0.01)

    assert cancelled.is_set()


@within(10)
async def test_a_host_tool_that_needs_approval_is_refused() -> None:
    """There is nobody to ask: no connection and so no approver stands behind it."""
    ran: list[int] = []
    agent = Agent(
        [host_tool(lambda: ran.append(1), name="note", annotations=WRITES)], permissions=Permissions.standard()
    )
    with pytest.raises(ApprovalDeniedError) as caught:
        await agent.call_tool("note")

    assert ("no_approver", []) == (caught.value.code, ran)


@within(10)
async def test_can_use_tool_judges_host_tools_too() -> None:
    """It sees the tool, the arguments and the decision, and only tightens."""
    seen: list[Any] = []

    def judge(tool: Any, arguments: Any, context: Any) -> Deny:
        seen.append((tool.name, arguments, context.public_name))
        return Deny("not on Sundays")

    agent = Agent([host_tool(add, annotations=READS)], permissions=Permissions(can_use_tool=judge))
    with pytest.raises(PermissionDeniedError, match="not on Sundays"):
        await agent.call_tool("add", {"a": 1, "b": 2})

    assert [("add", {"a": 1, "b": 2}, "add")] == seen


# -- permissions and narrowing ---------------------------------------------------------------------------------------


@within(10)
async def test_a_tool_of_a_server_is_called_by_its_public_name(scene: Scene) -> None:
    """The agent holds handles of a connection it does not own, and leaves it open."""
    server = scene.scripted()
    async with McpConnection({"s": scene.stdio(server)}) as connection:
        async with Agent(connection.tools()) as agent:
            result = await agent.call_tool("s__echo", {"x": 1})
            assert ("s", "echo", False) == (result.server, result.tool, result.is_error)

        assert ServerState.READY is connection.status()["s"].state

    assert 1 == server.runs("echo")


@within(10)
async def test_denied_tools_are_left_out_and_the_status_says_why(scene: Scene) -> None:
    """`agent.tools` is what a model may be offered; what is left out is in `mcp_status().left_out` with its code."""
    async with McpConnection({"s": scene.stdio(scene.scripted())}) as connection:
        agent = Agent(connection.tools())
        assert ["s__echo"] == list(agent.tools)
        assert {"s__change": "web"} == dict(agent.mcp_status().left_out)
        with pytest.raises(PermissionDeniedError, match="needs web=True") as caught:
            await agent.call_tool("s__change")

        assert "web" == caught.value.code


GRANTS: list[tuple[Permissions | None, Permissions | None, bool]] = [
    (None, None, False),
    (None, FULL, True),
    (FULL, None, True),
    (FULL, Permissions(), False),
    (Permissions(), FULL, False),
    (FULL, FULL, True),
]


@pytest.mark.parametrize(("connections", "agents", "allowed"), GRANTS)
@within(10)
async def test_what_connection_and_agent_gave_holds_together(
    scene: Scene, connections: Permissions | None, agents: Permissions | None, allowed: bool
) -> None:
    """`&` over those given; where none was given, the floor."""
    server = scene.scripted()
    async with McpConnection({"s": scene.stdio(server)}, permissions=connections) as connection:
        agent = Agent(connection.tools(), permissions=agents)
        assert allowed is ("s__change" in agent.tools)
        if not allowed:
            with pytest.raises(PermissionDeniedError):
                await agent.call_tool("s__change")
        else:
            await agent.call_tool("s__change")

    assert int(allowed) == server.runs("change")


@within(10)
async def test_narrowing_by_everything_stays_at_the_floor(scene: Scene) -> None:
    """Where nobody gave permissions, `narrow(full())` and `narrowed(full())` do not give them: they only take away."""
    server = scene.scripted()
    async with McpConnection({"s": scene.stdio(server)}) as connection:
        (change,) = (one for one in connection.tools() if one.tool == "change")
        agent = Agent(connection.tools())
        agent.narrow(FULL)
        calls = (
            lambda: agent.call_tool("s__change"),
            lambda: change.narrowed(FULL).call(),
            lambda: change.narrowed(FULL).narrowed(FULL).call(),
            lambda: Agent([change.narrowed(FULL)]).call_tool("s__change"),
        )
        for call in calls:
            with pytest.raises(PermissionDeniedError):
                await call()

        assert ["s__echo"] == list(agent.tools)
        assert isinstance(connection.decide(change.narrowed(FULL)), Deny)

    assert 0 == server.runs("change")


SETTINGS: tuple[Any, ...] = (False, "ask", True)
SOME = [
    Permissions(web=w, write=x, destructive=y) for w, x, y in itertools.product(SETTINGS, SETTINGS, (*SETTINGS, None))
]
HINTS = [
    {"readOnlyHint": read, "destructiveHint": destroy, "openWorldHint": reach}
    for read, destroy, reach in itertools.product((True, False), repeat=3)
    if not (read and destroy)
]


@pytest.mark.parametrize("given", [None, *SOME[::5], FULL], ids=str)
def test_narrowing_never_widens(given: Permissions | None) -> None:
    """Whatever is taken away, in whatever order, no tool becomes usable that was not."""
    tools = [host_tool(lambda: "", name=f"t{i}", annotations=hints) for i, hints in enumerate(HINTS)]
    for narrowing in SOME:
        agent = Agent(tools, permissions=given)
        before = set(agent.tools)
        agent.narrow(narrowing)
        assert set(agent.tools) <= before
        first = set(agent.tools)
        agent.narrow(FULL)
        assert first == set(agent.tools)


@within(10)
async def test_narrowing_reaches_the_handles_that_were_taken_before(scene: Scene) -> None:
    """A framework that holds on to a handle is held by what was taken away since."""
    server = scene.scripted()
    async with McpConnection({"s": scene.stdio(server)}, permissions=FULL) as connection:
        agent = Agent(connection.tools())
        held = agent.tools["s__change"]
        await held()
        agent.narrow(Permissions())
        with pytest.raises(PermissionDeniedError):
            await held()

        agent.narrow(FULL)
        with pytest.raises(PermissionDeniedError):
            await held.narrowed(FULL)()

    assert 1 == server.runs("change")


@within(10)
async def test_a_narrowed_handle_does_not_narrow_its_siblings(scene: Scene) -> None:
    """`narrowed` gives a new handle; the agent's own and the connection's are as they were."""
    async with McpConnection({"s": scene.stdio(scene.scripted())}, permissions=FULL) as connection:
        agent = Agent(connection.tools())
        held = agent.tools["s__change"].narrowed(Permissions())
        with pytest.raises(PermissionDeniedError):
            await held()

        assert not (await agent.call_tool("s__change")).is_error


@within(10)
async def test_an_agent_over_another_agents_handles_is_held_to_both(scene: Scene) -> None:
    """A sub-agent with fewer permissions than the agent it got its tools from does not get that one's."""
    server = scene.scripted()
    async with McpConnection({"s": scene.stdio(server)}) as connection:
        chief = Agent(connection.tools(), permissions=FULL)
        helper = Agent(chief.tools.values(), permissions=Permissions())
        assert ["s__echo"] == list(helper.tools)
        with pytest.raises(PermissionDeniedError):
            await helper.call_tool("s__change")

    assert 0 == server.runs("change")


@within(10)
async def test_what_is_taken_from_an_agent_is_taken_from_the_agents_below_it(scene: Scene) -> None:
    """Permissions, and calls: they count for both."""
    async with McpConnection({"s": scene.stdio(scene.scripted())}) as connection:
        chief = Agent(connection.tools(), permissions=FULL, max_tool_calls=1)
        helper = Agent(chief.tools.values(), permissions=FULL)
        await helper.call_tool("s__change")
        with pytest.raises(PermissionDeniedError) as caught:
            await helper.call_tool("s__change")

        assert "max_tool_calls" == caught.value.code
        chief.narrow(Permissions())
        assert ["s__echo"] == list(helper.tools)


@within(10)
async def test_narrowing_by_no_permissions_value_is_an_error() -> None:
    """None would be read as "nothing taken away" by one and as "everything" by another."""
    agent = Agent([reader("a")])
    for wrong in (None, False, {"web": True}):
        with pytest.raises(ConfigError):
            agent.narrow(wrong)  # type: ignore[arg-type]

        with pytest.raises(ConfigError):
            agent.tools["a"].narrowed(wrong)  # type: ignore[arg-type]


@within(10)
async def test_the_connections_approver_is_asked_for_an_agents_call(scene: Scene) -> None:
    """Ask of an agent's permissions goes to whoever approves for the connection."""
    server, approver = scene.scripted(), FixedApprover(True)
    async with McpConnection({"s": scene.stdio(server)}, permissions=FULL, approver=approver) as connection:
        agent = Agent(connection.tools(), permissions=Permissions(web=True, write="ask"))
        await agent.call_tool("s__change", {"x": 1})

    assert (["s__change"], [{"x": 1}]) == ([r.public_name for r in approver.requests], approver.arguments)


# -- counting --------------------------------------------------------------------------------------------------------


@within(10)
async def test_past_max_tool_calls_nothing_is_sent(scene: Scene) -> None:
    """All ways of calling count together, those refused too; past the limit the code is `max_tool_calls`."""
    server = scene.scripted()
    async with McpConnection({"s": scene.stdio(server)}) as connection:
        agent = Agent([*connection.tools(), host_tool(add, annotations=READS)], max_tool_calls=4)
        await agent.call_tool("s__echo")
        await agent.tools["s__echo"].narrowed(FULL)()
        await agent.call_tool("add", {"a": 1, "b": 2})
        with pytest.raises(PermissionDeniedError):
            await agent.call_tool("s__change")

        for name in ("s__echo", "add"):
            with pytest.raises(PermissionDeniedError) as caught:
                await agent.call_tool(name, {"a": 1, "b": 2})

            assert "max_tool_calls" == caught.value.code

        await Agent(connection.tools(), max_tool_calls=1).call_tool("s__echo")

    assert 3 == server.runs("echo")


@within(10)
async def test_an_agent_of_no_calls_makes_none() -> None:
    """Zero is a limit and not its absence."""
    agent = Agent([reader("a")], max_tool_calls=0)
    with pytest.raises(PermissionDeniedError) as caught:
        await agent.call_tool("a")

    assert "max_tool_calls" == caught.value.code


# -- capability tools ------------------------------------------------------------------------------------------------


@within(20)
async def test_capability_tools_read_and_prompt_through_an_agent(scene: Scene) -> None:
    """Over the allowlists of a real server; open-world, so they need `web`, and what is not allowlisted is refused."""
    entry = scene.library(resources=("library://hours",), prompts=("recommend",))
    async with McpConnection({"library": entry}, permissions=FULL) as connection:
        tools = connection.capability_tools()
        agent = Agent(tools, permissions=Permissions.readonly(web=True))
        assert ["mcp_read_resource", "mcp_get_prompt"] == list(agent.tools)

        hours = await agent.call_tool("mcp_read_resource", {"server": "library", "uri": "library://hours"})
        assert ("nine to five", "library") == (hours.text, hours.server)
        asked = {"server": "library", "name": "recommend", "arguments": {"topic": "bees"}}
        assert "user: Recommend a book on bees." == (await agent.call_tool("mcp_get_prompt", asked)).text

        with pytest.raises(NotAllowlistedError):
            await agent.call_tool("mcp_read_resource", {"server": "library", "uri": "library://cellar"})

        with pytest.raises(InvalidArgumentsError):
            await agent.call_tool("mcp_read_resource", {"server": "library"})

        agent.narrow(Permissions(write=True))
        assert {"mcp_read_resource": "web", "mcp_get_prompt": "web"} == dict(agent.mcp_status().left_out)
        with pytest.raises(PermissionDeniedError):
            await agent.call_tool("mcp_read_resource", {"server": "library", "uri": "library://hours"})

        assert {} == dict(Agent(tools, permissions=Permissions()).tools)


# -- load_mcp --------------------------------------------------------------------------------------------------------


@within(10)
async def test_an_agent_owns_what_it_loads(scene: Scene) -> None:
    """The tools are registered, the status tells of the servers, and leaving the agent stops them."""
    server = scene.scripted(tools=[tool("echo"), tool("change", annotations=None), {"name": "bad"}])
    config = scene.config(s=server)
    async with Agent() as agent:
        loaded = await agent.load_mcp(config)
        assert (["s__echo", "s__change"], {}) == ([one.name for one in loaded], dict(loaded.failures))
        assert ["s__echo"] == list(agent.tools)
        assert not (await agent.call_tool("s__echo")).is_error
        status = agent.mcp_status()
        assert {"s": ServerState.READY} == {name: one.state for name, one in status.servers.items()}
        assert {"s__change", "s/bad"} == status.left_out.keys()
        held = agent.tools["s__echo"]

    assert set() == scene.living()
    with pytest.raises(ClosedError):
        await held()


@within(10)
async def test_an_agent_that_is_not_entered_loads_nothing(scene: Scene) -> None:
    """Before and after the block: who would close it?"""
    config = scene.config(s=scene.scripted())
    agent = Agent()
    with pytest.raises(ClosedError):
        await agent.load_mcp(config)

    async with agent:
        pass

    with pytest.raises(ClosedError):
        await agent.load_mcp(config)

    assert set() == scene.living()


@within(10)
async def test_replacing_drops_what_is_no_longer_offered_and_leaves_other_servers_alone(scene: Scene) -> None:
    """The earlier process is gone, its handles are stale, and a sibling loaded with it lives on."""
    old = scene.scripted("a", tools=[tool("keep"), tool("drop")])
    sibling, outside = scene.scripted("b"), scene.scripted("c")
    config = scene.config(a=old, b=sibling)
    async with McpConnection({"c": scene.stdio(outside)}) as connection, Agent(connection.tools()) as agent:
        agent.register_tools([reader("ours")])
        await agent.load_mcp(config)
        assert ["c__echo", "ours", "a__keep", "a__drop", "b__echo"] == list(agent.tools)
        held, dropped = agent.tools["a__keep"], agent.tools["a__drop"]

        scene.config(a=scene.scripted("a", tools=[tool("keep"), tool("new")]), b=sibling)
        loaded = await agent.load_mcp(config, ["a"], replace=True)

        assert ["a__keep", "a__new"] == [one.name for one in loaded]
        assert {"c__echo", "ours", "a__keep", "a__new", "b__echo"} == set(agent.tools)
        for name in ("a__keep", "a__new", "b__echo", "c__echo", "ours"):
            assert not (await agent.call_tool(name)).is_error, name

        for handle in (held, dropped):
            with pytest.raises(StaleToolError, match="replace=True"):
                await handle()

        assert (2, 1) == (len(old.pids()), len(sibling.pids()))
        assert old.pids()[0] not in scene.living()
        assert {"a", "b"} == agent.mcp_status().servers.keys()


@within(10)
async def test_loading_again_without_replace_is_an_error_and_changes_nothing(scene: Scene) -> None:
    """The first load goes on working, and nothing of the second stays."""
    config = scene.config(s=scene.scripted())
    async with Agent() as agent:
        await agent.load_mcp(config)
        held, before = agent.tools["s__echo"], scene.living()
        with pytest.raises(RegistrationError, match="replace=True"):
            await agent.load_mcp(config)

        assert before == scene.living()
        assert not (await held()).is_error
        assert ["s__echo"] == list(agent.tools)


@within(10)
async def test_a_name_taken_by_another_servers_tool_is_an_error_and_changes_nothing(scene: Scene) -> None:
    """Even when only one of the loaded names is taken."""
    config = scene.config(s=scene.scripted())
    async with Agent([reader("s__change")]) as agent:
        with pytest.raises(RegistrationError):
            await agent.load_mcp(config)

        assert ["s__change"] == list(agent.tools)
        assert set() == scene.living()
        assert {} == dict(agent.mcp_status().servers)


@within(10)
async def test_replacing_keeps_the_agents_permissions_and_what_was_taken_away(scene: Scene) -> None:
    """What is loaded later is judged like what was there before."""
    config = scene.config(s=scene.scripted())
    async with Agent(permissions=FULL) as agent:
        await agent.load_mcp(config)
        assert ["s__echo", "s__change"] == list(agent.tools)
        agent.narrow(Permissions())
        await agent.load_mcp(config, replace=True)
        assert ["s__echo"] == list(agent.tools)


@within(10)
async def test_permissions_of_file_and_argument_hold_for_what_is_loaded(scene: Scene) -> None:
    """`connection_options` are the connection's; the file's own permissions narrow them."""
    server = scene.scripted()
    async with Agent() as agent:
        await agent.load_mcp(scene.config(s=server), permissions=FULL)
        assert ["s__echo", "s__change"] == list(agent.tools)
        config = scene.config(deputy={"permissions": {"web": True, "write": False}}, s=server)
        await agent.load_mcp(config, replace=True, permissions=FULL)
        assert ["s__echo"] == list(agent.tools)


@within(10)
async def test_what_fails_to_load_is_a_warning_and_the_rest_is_registered(scene: Scene) -> None:
    """A missing file, a broken entry and a server that does not start: each is said and is in `.failures`."""
    async with Agent() as agent:
        with pytest.warns(DeputyWarning):
            nothing = await agent.load_mcp(scene.folder / "missing.json")

        assert ([], None, {""}) == (list(nothing), nothing.connection, set(nothing.failures))
        config = scene.config(s=scene.scripted(), broken={"comand": "x"}, absent={"command": "no-such-server"})
        with pytest.warns(DeputyWarning):
            loaded = await agent.load_mcp(config, restart=RestartPolicy(when="never"))

        assert {"broken", "absent"} == loaded.failures.keys()
        assert ["s__echo"] == list(agent.tools)
        assert ServerState.FAILED is agent.mcp_status().servers["absent"].state


@within(10)
async def test_a_load_that_is_cancelled_leaves_nothing(scene: Scene) -> None:
    """A server that never answers is given up with the task that waits for it."""
    server = scene.scripted(methods={"server/discover": silence(), "initialize": silence()})
    config = scene.config(s=server)
    async with Agent() as agent:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.load_mcp, config)
            await server.wait_for(lambda s: s.pids())
            tasks.cancel_scope.cancel()

        assert set() == scene.living()
        assert {} == dict(agent.mcp_status().servers)


async def load_and_fail(config: Path) -> None:
    async with Agent() as agent:
        await agent.load_mcp(config)
        raise KeyError("ours")


@within(10)
async def test_an_error_in_the_block_stops_what_was_loaded(scene: Scene) -> None:
    """It comes out as it is."""
    config = scene.config(s=scene.scripted())
    with pytest.raises(KeyError, match="ours"):
        await load_and_fail(config)

    assert set() == scene.living()


@within(10)
async def test_a_call_under_way_when_a_server_is_replaced_fails_as_stopped(scene: Scene) -> None:
    """The new load answers from then on."""
    server = scene.scripted(calls={"echo": [hold("never"), reply("new")]})
    config = scene.config(s=server)
    codes: list[str] = []

    async def call() -> None:
        try:
            await agent.call_tool("s__echo")
        except Exception as error:  # noqa: BLE001 # whatever it is, its code is looked at
            codes.append(getattr(error, "code", repr(error)))

    async with Agent() as agent:
        await agent.load_mcp(config)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await server.wait_for(lambda s: s.ledger("holding"))
            await agent.load_mcp(config, replace=True)

        assert ["stopped"] == codes
        assert "new" == (await agent.call_tool("s__echo")).text


@within(10)
async def test_two_loads_at_once_end_in_one_server(scene: Scene) -> None:
    """Of two loads with `replace` one takes the other over; exactly one process serves."""
    server: ScriptedServer = scene.scripted()
    config = scene.config(s=server)
    async with Agent() as agent:
        await agent.load_mcp(config)
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(functools.partial(agent.load_mcp, config, replace=True))

        assert 1 == len(scene.living())
        assert not (await agent.call_tool("s__echo")).is_error


def test_making_an_agent_starts_nothing_and_warns_of_nothing() -> None:
    """It can be made without a loop."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "<Agent 1 tools, 0 calls>" == repr(Agent([add]))
