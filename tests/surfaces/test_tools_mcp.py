"""`tools_mcp`: entered and awaited, taken over, closed, and what fails on the way."""

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from conftest import ENVIRONMENT, Scene
from workbench import MARK, within

from deputy_mcp import (
    ClosedError,
    ConfigError,
    DeputyWarning,
    PermissionDeniedError,
    Permissions,
    RestartPolicy,
    ServerState,
    StaleToolError,
    StartError,
    ToolList,
    UnavailableError,
    close_mcp,
    load_config,
    tools_mcp,
)
from deputy_mcp.testing import silence, tool

pytestmark = pytest.mark.anyio

NEVER = RestartPolicy(when="never")
FULL = Permissions.full()


def named(tools: ToolList, name: str) -> Any:
    (found,) = [one for one in tools if one.name == name]
    return found


# -- entered ---------------------------------------------------------------------------------------------------------


@within(20)
async def test_entered_it_gives_the_tools_and_closes_at_the_blocks_end(scene: Scene) -> None:
    """On a server of the SDK's own; after the block no process is left and the handles say that they are closed."""
    config = scene.config(library=scene.library())
    async with tools_mcp(config) as tools:
        assert {"list_books", "find_elsewhere", "shelve", "burn", "fall"} == {one.tool for one in tools}
        assert "Emma" == (await named(tools, "library__list_books")()).text
        assert (await named(tools, "library__fall")()).is_error
        with pytest.raises(PermissionDeniedError):
            await named(tools, "library__burn")()

        assert {} == dict(tools.failures)
        assert tools.connection is not None
        assert ServerState.READY is tools.connection.status()["library"].state

    assert set() == scene.living()
    with pytest.raises(ClosedError):
        await named(tools, "library__list_books")()


@within(10)
async def test_entered_it_is_private(scene: Scene) -> None:
    """Two blocks over the same server and an awaited load beside them do not touch each other."""
    server = scene.scripted()
    config = scene.config(s=server)
    shared = await tools_mcp(config)
    async with tools_mcp(config) as first, tools_mcp(config) as second:
        for tools in (first, second, shared):
            assert not (await named(tools, "s__echo")()).is_error

        await close_mcp()
        assert not (await named(first, "s__echo")()).is_error

    assert 3 == len(server.pids())


@within(10)
async def test_only_the_servers_that_are_named_are_started(scene: Scene) -> None:
    """Names are exact, and the order asked for is the order of the tools."""
    a, b, c = (scene.scripted(name, tools=[tool("echo")]) for name in "abc")
    async with tools_mcp(scene.config(a=a, b=b, c=c), ["c", "a"]) as tools:
        assert ["c__echo", "a__echo"] == [one.name for one in tools]

    assert [] == b.pids()


@within(10)
async def test_a_config_and_a_mapping_of_servers_are_taken_as_well(scene: Scene) -> None:
    """What was read already is not read again."""
    a, b = (scene.scripted(name, tools=[tool("echo")]) for name in "ab")
    async with tools_mcp(load_config(scene.config(a=a, b=b)), ["b"]) as tools:
        assert ["b__echo"] == [one.name for one in tools]

    async with tools_mcp({"a": scene.stdio(a), "b": scene.stdio(b)}) as tools:
        assert ["a__echo", "b__echo"] == [one.name for one in tools]


@within(10)
async def test_permissions_of_file_and_argument_hold_together(scene: Scene) -> None:
    """Further options are the connection's."""
    server = scene.scripted()
    config = scene.config(deputy={"permissions": {"web": True, "write": True, "tool_denylist": ["s__echo"]}}, s=server)
    async with tools_mcp(config, permissions=Permissions(write=True)) as tools:
        for name in ("s__echo", "s__change"):
            with pytest.raises(PermissionDeniedError):
                await named(tools, name)()

    async with tools_mcp(config, permissions=FULL) as tools:
        assert not (await named(tools, "s__change")()).is_error


@within(10)
async def test_an_unknown_option_is_a_plain_type_error(scene: Scene) -> None:
    """A mistake in the program is no failure of a server: it is not turned into a warning."""
    config = scene.config(s=scene.scripted())
    with pytest.raises(TypeError):
        await tools_mcp(config, permisions=FULL)


@within(10)
async def test_wrong_arguments_are_configuration_errors(scene: Scene) -> None:
    """One string for a list of names would be read letter by letter."""
    with pytest.raises(ConfigError, match="on_error"):
        tools_mcp(on_error="ignore")  # type: ignore[arg-type]

    for config in (scene.config(s=scene.scripted()), {"s": scene.stdio(scene.scripted())}):
        with pytest.raises(ConfigError, match="servers must be a list"):
            await tools_mcp(config, "s", on_error="raise")


# -- awaited ---------------------------------------------------------------------------------------------------------


@within(10)
async def test_awaited_it_keeps_the_servers_until_close_mcp(scene: Scene) -> None:
    """Nothing has to be held; closing twice, or with nothing loaded, is no error."""
    await close_mcp()
    tools = await tools_mcp(scene.config(s=scene.scripted()))
    assert isinstance(tools, list)
    assert not (await named(tools, "s__echo")()).is_error
    assert 1 == len(scene.living())

    await close_mcp()
    assert set() == scene.living()
    with pytest.raises(ClosedError):
        await named(tools, "s__echo")()

    await close_mcp()


@within(10)
async def test_a_second_load_takes_the_first_over_and_its_handles_say_so(scene: Scene) -> None:
    """The earlier process is gone; the earlier handles raise `StaleToolError` that says what to do."""
    server = scene.scripted()
    config = scene.config(s=server)
    first = await tools_mcp(config)
    second = await tools_mcp(config)
    with pytest.raises(StaleToolError, match="replace=True") as caught:
        await named(first, "s__echo")()

    assert ("stale_tool", "s", "echo") == (caught.value.code, caught.value.server, caught.value.tool)
    assert not (await named(second, "s__echo")()).is_error
    assert 1 == len(scene.living())


@within(10)
async def test_a_second_load_of_one_server_leaves_its_siblings_alone(scene: Scene) -> None:
    """They were loaded by the same call, and go on in it."""
    a, b = (scene.scripted(name) for name in "ab")
    config = scene.config(a=a, b=b)
    both = await tools_mcp(config)
    again = await tools_mcp(config, ["a"])
    assert not (await named(both, "b__echo")()).is_error
    assert not (await named(again, "a__echo")()).is_error
    with pytest.raises(StaleToolError):
        await named(both, "a__echo")()

    assert (2, 1) == (len(a.pids()), len(b.pids()))
    assert 2 == len(scene.living())


@within(10)
async def test_a_server_of_another_file_is_another_server(scene: Scene) -> None:
    """The registry goes by file and name: two files may both have a server `s`."""
    server = scene.scripted()
    first = await tools_mcp(scene.config("one.json", s=server))
    second = await tools_mcp(scene.config("other.json", s=server))
    for tools in (first, second):
        assert not (await named(tools, "s__echo")()).is_error


SPELLINGS: dict[str, Callable[[Path], object]] = {
    "a string": str,
    "relative": lambda file: file.name,
    "through a parent": lambda file: file.parent / ".." / file.parent.name / file.name,
    "through a link": lambda file: link_to(file),
}


def link_to(file: Path) -> Path:
    link = file.with_name("link.json")
    link.symlink_to(file)
    return link


@pytest.mark.parametrize("spelling", SPELLINGS)
@within(10)
async def test_however_a_file_is_spelt_its_servers_are_the_same(
    scene: Scene, spelling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second load by another path to the same file takes the first over; else a server would run twice, unnoticed."""
    config = scene.config(s=scene.scripted())
    monkeypatch.chdir(scene.folder)
    first = await tools_mcp(config)
    await tools_mcp(SPELLINGS[spelling](config))
    with pytest.raises(StaleToolError):
        await named(first, "s__echo")()

    assert 1 == len(scene.living())


@within(10)
async def test_loads_at_once_end_in_one_server(scene: Scene) -> None:
    """Whichever comes last has it; the others' handles are stale and their processes gone."""
    config = scene.config(s=scene.scripted())
    loads = await asyncio.gather(*(tools_mcp(config) for _ in range(4)))
    outcomes = []
    for tools in loads:
        try:
            outcomes.append((await named(tools, "s__echo")()).is_error)
        except StaleToolError:
            outcomes.append("stale")

    assert ["False", "stale", "stale", "stale"] == sorted(map(str, outcomes))
    assert 1 == len(scene.living())


@within(10)
async def test_a_load_that_is_cancelled_leaves_nothing(scene: Scene) -> None:
    """Its server never answers; the task that waits for it is cancelled."""
    server = scene.scripted(methods={"server/discover": silence(), "initialize": silence()})
    config = scene.config(s=server)

    async def load() -> None:
        await tools_mcp(config)

    task = asyncio.create_task(load())
    await server.wait_for(lambda s: s.pids())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert set() == scene.living()


@within(10)
async def test_a_reload_that_raises_leaves_the_earlier_load_alone(scene: Scene) -> None:
    """Under `"raise"` nothing of the new load stays, and nothing of the earlier one is taken."""
    config = scene.config(s=scene.scripted())
    first = await tools_mcp(config)
    scene.config(s={"command": "no-such-server"})
    with pytest.raises(StartError):
        await tools_mcp(config, on_error="raise", restart=NEVER)

    assert not (await named(first, "s__echo")()).is_error


def test_awaiting_needs_asyncio_and_says_what_to_do_elsewhere(place: Scene) -> None:
    """Its registry hangs on the loop; `async with` is for every loop."""
    config = place.config(s=place.scripted())

    async def load() -> None:
        await tools_mcp(config)

    with pytest.raises(ConfigError, match="async with tools_mcp"):
        anyio.run(load, backend="trio")


def test_a_loop_that_ends_without_closing_leaves_no_process(place: Scene) -> None:
    """`asyncio.run` ends, and with it everything that was loaded on its loop; the next loop starts with nothing."""
    server = place.scripted()
    config = place.config(s=server)

    async def load() -> ToolList:
        tools = await tools_mcp(config)
        assert 1 == len(place.living())
        return tools

    asyncio.run(load())
    assert set() == place.living()
    asyncio.run(load())
    assert set() == place.living()
    assert 2 == len(server.pids())


ENDINGS = {
    "returns": "",
    "fails": "raise SystemExit(3)",
    "is left in a call": "await asyncio.wait_for(named['s__hang'](), 0.1)",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_that_ends_without_closing_leaves_no_process(place: Scene, ending: str) -> None:
    """Whether it returns, fails, or gives a call up; and it says nothing about tasks that were destroyed."""
    server = place.scripted(tools=[tool("echo"), tool("hang")], calls={"hang": silence()})
    config = place.config(s=server)
    program = f"""
        import asyncio
        from deputy_mcp import tools_mcp

        async def main():
            named = {{tool.name: tool for tool in await tools_mcp({str(config)!r})}}
            await named['s__echo']()
            {ENDINGS[ending]}

        asyncio.run(main())
    """
    line = (sys.executable, "-W", "error", "-X", "dev", "-c", textwrap.dedent(program))
    variables = {**ENVIRONMENT, MARK: place.mark}
    run = subprocess.run(line, env=variables, capture_output=True, text=True, timeout=30, check=False)

    assert {"returns": 0, "fails": 3}.get(ending, 1) == run.returncode, run.stderr
    assert set() == place.living()
    for complaint in ("destroyed", "ResourceWarning", "never awaited", "never retrieved"):
        assert complaint not in run.stderr


# -- what fails ------------------------------------------------------------------------------------------------------

BAD_FILES: dict[str, Callable[[Path], object]] = {
    "missing": lambda file: None,
    "empty": lambda file: file.write_text(""),
    "no JSON": lambda file: file.write_text('{"mcpServers": {'),
    "no servers": lambda file: file.write_text('{"theme": "dark"}'),
    "a folder": lambda file: file.mkdir(),
}


@pytest.mark.parametrize("kind", BAD_FILES)
@within(10)
async def test_a_bad_file_is_a_warning_and_an_empty_list(scene: Scene, kind: str) -> None:
    """It is in `.failures` under the empty name; under `"raise"` it is raised. Both ways of loading agree."""
    file = scene.folder / "bad.json"
    BAD_FILES[kind](file)
    with pytest.warns(DeputyWarning, match=r"bad\.json"):
        tools = await tools_mcp(file)

    assert ([], None, {""}) == (list(tools), tools.connection, set(tools.failures))
    assert isinstance(tools.failures[""], ConfigError)
    with pytest.warns(DeputyWarning, match=r"bad\.json"):
        async with tools_mcp(file) as entered:
            assert [] == entered

    with pytest.raises(ConfigError, match=r"bad\.json"):
        await tools_mcp(file, on_error="raise")

    with pytest.raises(ConfigError, match=r"bad\.json"):
        await tools_mcp(file, on_error="raise").__aenter__()


@within(10)
async def test_one_broken_entry_among_good_ones_costs_only_itself(scene: Scene) -> None:
    """An entry that cannot be read, one that cannot start, one that ends at once, and a name that is not there."""
    a, b = (scene.scripted(name, tools=[tool("echo")]) for name in "ab")
    crash = {"command": sys.executable, "args": ["-c", "raise SystemExit(7)"]}
    entries = {"broken": {"url": 5}, "a": a, "absent": {"command": "no-such-server"}, "crash": crash, "b": b}
    config = scene.config(**entries)
    with pytest.warns(DeputyWarning) as warned:
        tools = await tools_mcp(config, [*entries, "unknown"], restart=NEVER)

    assert ["a__echo", "b__echo"] == [one.name for one in tools]
    assert {"broken": ConfigError, "unknown": ConfigError, "absent": StartError, "crash": StartError} == {
        name: type(error) for name, error in tools.failures.items()
    }
    assert 4 == len(warned)
    for name in tools.failures:
        assert any(name in str(one.message) for one in warned), name

    for one in tools:
        assert not (await one()).is_error


@within(10)
async def test_under_raise_one_failure_is_raised_and_nothing_stays_started(scene: Scene) -> None:
    """The good ones are stopped again."""
    server = scene.scripted()
    config = scene.config(s=server, absent={"command": "no-such-server"})
    with pytest.raises(StartError, match="absent") as caught:
        await tools_mcp(config, on_error="raise", restart=NEVER)

    assert "absent" == caught.value.server
    assert set() == scene.living()
    with pytest.raises(StartError):
        await tools_mcp(config, on_error="raise", restart=NEVER).__aenter__()

    assert set() == scene.living()
    with pytest.raises(ConfigError, match="known"):
        await tools_mcp(config, ["s", "t"], on_error="raise")

    assert 2 == len(server.pids())


@within(10)
async def test_a_quarantined_server_is_a_failure_that_says_so(scene: Scene) -> None:
    """An allowlisted tool is missing: the error carries state and reason."""
    entry = scene.stdio(scene.scripted(), tools=("echo", "missing"))
    with pytest.warns(DeputyWarning, match="quarantined"):
        tools = await tools_mcp({"s": entry})

    failure = tools.failures["s"]
    assert isinstance(failure, UnavailableError)
    assert ("quarantined", True) == (failure.state, "missing" in str(failure.reason))


@within(10)
async def test_a_required_server_that_fails_leaves_an_empty_list_under_warn(scene: Scene) -> None:
    """Whatever fails is a warning; the connection could not be entered, so nothing is loaded."""
    config = {"s": scene.stdio(scene.scripted()), "r": scene.stdio(scene.scripted("r"), required=True, tools=("nope",))}
    with pytest.warns(DeputyWarning):
        tools = await tools_mcp(config)

    assert ([], None, {"r"}) == (list(tools), tools.connection, set(tools.failures))
    assert set() == scene.living()


@within(10)
async def test_failures_cannot_be_written_to_and_the_list_is_the_callers(scene: Scene) -> None:
    """`.failures` is a read-only mapping; the list is a plain list, a copy of nothing shared."""
    async with tools_mcp({"s": scene.stdio(scene.scripted())}) as tools:
        with pytest.raises(TypeError):
            tools.failures["x"] = ConfigError("x")  # type: ignore[index]

        tools.clear()
        assert tools.connection is not None
        assert 2 == len(tools.connection.tools())


@within(10)
async def test_making_a_loader_starts_nothing(scene: Scene) -> None:
    """Nothing happens before it is awaited or entered, and nothing is said of one that never was."""
    server = scene.scripted()
    tools_mcp(scene.config(s=server))

    assert [] == server.pids()
