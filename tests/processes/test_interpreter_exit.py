"""However a program ends, its interpreter says nothing on stderr and its servers are gone.

Each program runs in a fresh interpreter under `-X dev -W error`, where a task that was destroyed pending, a transport
that was not closed or a coroutine that was never awaited does say something.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from workbench import MARK, Bench, gone, within

pytestmark = pytest.mark.anyio

PROGRAMS = Path(__file__).parent / "exit_scenarios.py"

SAYS = {
    "made_and_never_entered": "1",
    "closed_in_its_block": "1",
    "a_fresh_loop_for_each_connection": "1 1 1",
    "ended_by_asyncio_run_without_closing": "1",
    "ended_by_asyncio_run_while_kept_in_a_global": "1",
    "ended_by_asyncio_run_in_the_middle_of_a_call": "1",
    "ended_by_asyncio_run_in_the_middle_of_the_start": "1",
    "ended_by_asyncio_run_with_a_generator_left_open": "1",
    "ended_by_asyncio_run_with_a_reader_of_events": "1",
    "cells_of_a_notebook": "1 2",
    "cells_of_a_notebook_never_closed": "1 2",
    "interrupted_at_the_keyboard": "interrupted",
    "ended_by_asyncio_run_in_the_first_turn_of_the_start": "1",
}
"""What each program prints."""

NOTEBOOK = ("cells_of_a_notebook", "cells_of_a_notebook_never_closed")
INTERRUPTED = ("interrupted_at_the_keyboard",)
FIRST_TURN = ("ended_by_asyncio_run_in_the_first_turn_of_the_start",)
ORDINARY = tuple(program for program in SAYS if program not in (*NOTEBOOK, *INTERRUPTED, *FIRST_TURN))


async def run(
    bench: Bench, programs: tuple[str, ...], entries: dict[str, object]
) -> "subprocess.CompletedProcess[bytes]":
    arguments = [",".join(programs), json.dumps(entries)]
    command = [sys.executable, "-X", "dev", "-W", "error", str(PROGRAMS), *arguments]
    return await anyio.run_process(command, env={**os.environ, MARK: bench.mark}, check=False)


def check(done: "subprocess.CompletedProcess[bytes]", programs: tuple[str, ...]) -> None:
    expected = "".join(f"{SAYS[program]} ends {program} " for program in programs).split()
    assert ("", expected, 0) == (done.stderr.decode(), done.stdout.decode().split(), done.returncode)


def stdio_entries(bench: Bench) -> dict[str, object]:
    specs = {"a": bench.stdio(), "silent": bench.stdio({"silent": True})}
    return {name: {"command": s.command, "args": list(s.args), "env": dict(s.env)} for name, s in specs.items()}


@pytest.mark.parametrize(
    "programs", [ORDINARY, NOTEBOOK, INTERRUPTED, FIRST_TURN], ids=["ordinary", "notebook", "interrupted", "first turn"]
)
@within(60)
async def test_a_program_with_a_child_process_ends_in_silence(bench: Bench, programs: tuple[str, ...]) -> None:
    """Nothing is printed at the interpreter's exit, it exits with 0, and no server outlives it."""
    done = await run(bench, programs, stdio_entries(bench))
    check(done, programs)
    assert set() == await gone(bench.living())


FIRST_TURNS = {
    "cancelled_in_the_first_turn_of_the_start": "True stopped",
    "closed_in_the_first_turn_of_the_start": "stopped",
    "stopped_in_the_first_turn_of_the_start": "stopped ready",
    "killed_in_the_first_turn_of_the_start": "stopped ready",
    "reloaded_in_the_first_turn_of_the_start": "stopped ready",
    "contrary_verbs_at_once": "stopped ready " * 4,
}
"""What each prints."""


@pytest.mark.parametrize("programs", [tuple(FIRST_TURNS)[:2], tuple(FIRST_TURNS)[2:]], ids=["leaving", "verbs"])
@within(15)
async def test_what_is_said_before_a_server_s_own_task_has_its_first_turn_counts_as_well(
    bench: Bench, programs: tuple[str, ...]
) -> None:
    """A start taken back in the turn in which it was asked for ends in STOPPED, and everybody gets an answer.

    In programs of their own, because one that fails may hold its loop for ever.
    """
    done = await run(bench, programs, stdio_entries(bench))
    expected = "".join(f"{FIRST_TURNS[program]} ends {program} " for program in programs).split()
    assert ("", expected, 0) == (done.stderr.decode(), done.stdout.decode().split(), done.returncode)
    assert set() == await gone(bench.living())


@within(30)
async def test_a_server_that_dies_between_two_cells_of_a_notebook_is_back_in_the_next(bench: Bench) -> None:
    """The loop stood still when the server was killed; at most one call is lost, with our own error."""
    done = await run(bench, ("a_server_dies_between_two_cells",), stdio_entries(bench))
    assert ("", 0) == (done.stderr.decode(), done.returncode)
    assert done.stdout.split()[:-2] in ([b"2"], [b"server_lost", b"2"])
    assert set() == await gone(bench.living())


@pytest.mark.parametrize(
    "programs",
    [
        ("closed_in_its_block", "ended_by_asyncio_run_without_closing", "cells_of_a_notebook_never_closed"),
        ("ended_by_asyncio_run_in_the_middle_of_a_call",),
    ],
    ids=["between calls", "in a call"],
)
@within(30)
async def test_a_program_with_an_http_server_ends_in_silence(bench: Bench, programs: tuple[str, ...]) -> None:
    """The same over HTTP, where streams and connections are open when the loop ends."""
    async with bench.http({"sessions": True, "sse": True, "get_stream": True}) as http:
        check(await run(bench, programs, {"a": {"url": http.url}}), programs)
