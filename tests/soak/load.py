"""Who uses the connection during a soak: callers, havoc, and those who mend. All bodies of tasks.

Each draws from dice of its own, so that what it does next does not depend on when the others run.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from workbench import MARK

from deputy_mcp import CallError, DeputyError, McpConnection, McpTool, ServerState, ToolResult, UnavailableError

from .behaviours import Behaviour
from .books import Books, Ending
from .keeping import Keeper
from .plan import Planned
from .pulse import Pulse

TIMEOUTS = (0.1, 0.4, 1.0, 1.0, 3.0)
GRACE_SECONDS = 3
"""A call may end so long after its deadline before it counts as late. The promise is 50 ms, on an idle machine and
with an idle loop; `tests/hostile` holds it to that. Here it is about calls that are forgotten."""
HANGING_SECONDS = 20
"""A call past its deadline for so long is given up and counts as one that never ends."""
DEED_SECONDS = 40
"""A reload or stop may take so long: a start and a stop deadline and then some."""
KEPT_HANDLES = 20
"""Handles that a caller keeps: each holds on to its listing, and the memory measured should be the library's."""

DOWN = frozenset({ServerState.FAILED, ServerState.QUARANTINED, ServerState.STOPPED, ServerState.DORMANT})
OUTCOMES = {"not_sent": Ending.NOT_SENT, "refused": Ending.REFUSED, "unknown": Ending.UNKNOWN}


class Load:
    """What all of them share."""

    # Mutable state: whether to go on; counts for the report; the latest overrun.
    def __init__(
        self, connection: McpConnection, plan: list[Planned], keepers: dict[str, Keeper], books: Books, *, seed: int
    ) -> None:
        self.connection = connection
        self.going_on = True
        self.deeds: Counter[str] = Counter()
        self.latest_seconds = 0.0
        """The longest that a call took beyond its deadline."""
        self.pulse = Pulse()
        self._plan = plan
        self._keepers = keepers
        self._books = books
        self._seed = seed

    def summary(self) -> str:
        """Where it stands, on one line."""
        states = Counter(str(status.state) for status in self.connection.status().values())
        shown = ", ".join(f"{count} {state}" for state, count in states.most_common())
        return f"{len(self._books)} calls, {len(self._books.differences)} differences so far; {shown}"

    def dice(self, who: str) -> random.Random:
        return random.Random(f"{who} {self._seed}")

    # -- callers -------------------------------------------------------------------------------------------------

    async def run_caller(self, number: int, *, pause_seconds: float) -> None:
        """One call after the other, until told to end."""
        dice = self.dice(f"caller {number}")
        handles: dict[tuple[str, str], McpTool] = {}
        while self.going_on:
            server = dice.choice(self._plan)
            names = list(server.tools)
            tool = dice.choices(names, [server.tools[name].weight for name in names])[0]
            repeatable = dice.random() < 0.15
            timeout = dice.choice(TIMEOUTS)
            give_up = dice.choice((0.0, 0.01, 0.05, 0.3)) if dice.random() < 0.1 else None
            handle = self._handle(dice, handles, server.name, tool) if dice.random() < 0.4 else None
            await self.call(server, tool, timeout, repeatable=repeatable, give_up=give_up, handle=handle)
            await anyio.sleep(dice.expovariate(1 / pause_seconds))

    def _handle(
        self, dice: random.Random, kept: dict[tuple[str, str], McpTool], server: str, tool: str
    ) -> McpTool | None:
        """A handle that may be an old one: agents keep them."""
        if len(kept) > KEPT_HANDLES:
            del kept[next(iter(kept))]

        if (server, tool) not in kept or dice.random() < 0.7:
            for each in self.connection.tools(server):
                if each.tool == tool:
                    kept[server, tool] = each

        return kept.get((server, tool))

    async def call(
        self,
        server: Planned,
        tool: str,
        timeout_seconds: float,
        *,
        repeatable: bool = False,
        give_up: float | None = None,
        handle: McpTool | None = None,
    ) -> Ending:
        """One call, entered in the book and out again. `give_up`: cancelled by its caller after so many seconds."""
        what = server.tools[tool]
        call = self._books.open(server.name, tool, repeatable=repeatable)
        arguments = {"call": call} | ({"padding": "x" * what.padding} if what.padding else {})
        options: dict[str, Any] = {"timeout_seconds": timeout_seconds, "retry": repeatable}
        ended = False

        def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if ended:
                self._books.differ(f"call {call} got progress after its end")

        if what.reports:
            options["progress"] = on_progress

        result: ToolResult | None = None
        error: Exception | None = None
        began, lost = anyio.current_time(), self.pulse.lost_seconds
        seconds = timeout_seconds if give_up is None else min(give_up, timeout_seconds)

        async def ask() -> None:
            nonlocal result, error
            try:
                if handle is not None:
                    result = await handle.call(arguments, **options)
                else:
                    result = await self.connection.call_tool(server.name, tool, arguments, **options)
            except Exception as problem:  # noqa: BLE001 # whatever it is goes into the book
                error = problem

        with anyio.move_on_after(seconds + HANGING_SECONDS) as hanging:
            if give_up is None:
                await ask()
            elif call % 2:
                with anyio.move_on_after(give_up):
                    await ask()
            else:
                # A cancellation of asyncio's comes once; a scope's comes again at every wait.
                task = asyncio.create_task(ask())
                await asyncio.wait([task], timeout=give_up)
                task.cancel()
                await asyncio.wait([task])

        ended = True
        took = anyio.current_time() - began
        shown = f"call {call} of {server.name}/{tool}"
        if hanging.cancelled_caught:
            self._books.differ(f"{shown} hung for {took:.1f} s, its deadline was {seconds} s")
            ending, words, detail = Ending.WRONG, "hung", ""
        elif result is not None:
            ending, words, detail = self._judge_result(call, what, server, tool, result)
        elif error is not None:
            ending, words, detail = self._judge_error(shown, error)
        else:
            ending, words, detail = Ending.CANCELLED, "cancelled", ""

        self.latest_seconds = max(self.latest_seconds, took - seconds)
        # Nobody can end a call in time while the loop does not turn.
        lost = self.pulse.lost_seconds - lost
        if ending is not Ending.WRONG and took > seconds + GRACE_SECONDS + lost:
            self._books.differ(f"{shown} took {took:.1f} s, its deadline was {seconds} s")

        facts = {"server": server.name, "tool": tool, "took": round(took, 3), "at": round(anyio.current_time(), 3)}
        self._books.end(call, ending, words, **facts, repeatable=repeatable, detail=detail)
        return ending

    def _judge_result(
        self, call: int, what: Behaviour, server: Planned, tool: str, result: ToolResult
    ) -> tuple[Ending, str, str]:
        start = json.dumps({"tool": tool, "arguments": {"call": call}})[:-2]
        own = result.text.startswith((start + "}", start + ",")) and result.truncated == bool(what.padding)
        if own and (result.server, result.tool) == (server.name, tool):
            return Ending.RESULT, "result", ""

        self._books.differ(f"call {call} of {server.name}/{tool} got a wrong result: {result.text:.120}")
        return Ending.WRONG, "wrong result", result.text[:200]

    def _judge_error(self, shown: str, error: Exception) -> tuple[Ending, str, str]:
        detail = f"{type(error).__name__}: {error}"[:300]
        if not isinstance(error, DeputyError):
            self._books.differ(f"{shown} ended with {detail}")
            return Ending.WRONG, type(error).__name__, detail

        if error.outcome != "not_sent" and not isinstance(error, CallError):
            self._books.differ(f"{shown} ended as {error.outcome}, which is no outcome of {detail}")

        return OUTCOMES[error.outcome], f"{type(error).__name__} {error.code} {error.outcome}", detail

    # -- havoc ---------------------------------------------------------------------------------------------------

    async def run_havoc(self, number: int, *, pause_seconds: float) -> None:
        """One deed after the other, to servers drawn by lot."""
        dice = self.dice(f"havoc {number}")
        deeds: dict[str, tuple[float, Callable[[random.Random, Planned], Awaitable[None]]]] = {
            "kill -9": (6, self._kill_process),
            "pause": (2, self._pause_process),
            "reload": (3, self._reload),
            "stop and start": (2, self._stop_and_start),
            "kill and start": (1, self._kill_and_start),
            "release": (1, self._release),
        }
        weights = [weight for weight, _ in deeds.values()]
        while self.going_on:
            await anyio.sleep(dice.expovariate(1 / pause_seconds))
            name = dice.choices(list(deeds), weights)[0]
            await self._do(name, deeds[name][1], dice, dice.choice(self._plan))

    async def _do(
        self,
        name: str,
        deed: Callable[[random.Random, Planned], Awaitable[None]],
        dice: random.Random,
        server: Planned,
    ) -> None:
        outcome = "done"
        with anyio.move_on_after(DEED_SECONDS) as scope:
            try:
                await deed(dice, server)
            except UnavailableError:
                outcome = "not to be had"
            except Exception as error:  # noqa: BLE001 # anything else is a difference, not the end of the soak
                outcome = "wrong"
                self._books.differ(f"{name} of {server.name} raised {type(error).__name__}: {error}")

        if scope.cancelled_caught:
            self._books.differ(f"{name} of {server.name} did not end: {self.connection.status()[server.name]}")

        self.deeds[f"{name}: {outcome}"] += 1

    async def _kill_process(self, dice: random.Random, server: Planned) -> None:
        if server.name in self._keepers:
            self._keepers[server.name].kill()
        else:
            self._signal(server, signal.SIGKILL)

    async def _pause_process(self, dice: random.Random, server: Planned) -> None:
        """It does not run for a while, as on a machine that swaps."""
        seconds = dice.choice([0.1, 0.5, 2])
        pid = self._signal(server, signal.SIGSTOP)
        if pid is not None:
            try:
                await anyio.sleep(seconds)
            finally:
                _signal(pid, signal.SIGCONT)

    def _signal(self, server: Planned, number: signal.Signals) -> int | None:
        pid = self.connection.status()[server.name].pid
        return pid if pid is not None and _signal(pid, number) else None

    async def _reload(self, dice: random.Random, server: Planned) -> None:
        await self.connection.reload(server.name, repin=dice.random() < 0.3)

    async def _stop_and_start(self, dice: random.Random, server: Planned) -> None:
        await self.connection.stop(server.name)
        await anyio.sleep(dice.choice([0, 0.1, 1]))
        await self.connection.start(server.name)

    async def _kill_and_start(self, dice: random.Random, server: Planned) -> None:
        await self.connection.kill(server.name)
        await anyio.sleep(dice.choice([0, 0.1, 1]))
        await self.connection.start(server.name)

    async def _release(self, dice: random.Random, server: Planned) -> None:
        await self.connection.release(server.name)

    # -- mending -------------------------------------------------------------------------------------------------

    async def run_mender(self, *, pause_seconds: float) -> None:
        """Lets servers that are down try again, one at a time and not at once: being down is part of it."""
        dice = self.dice("mender")
        while self.going_on:
            await anyio.sleep(dice.expovariate(1 / pause_seconds))
            down = [server for server in self._plan if self.connection.status()[server.name].state in DOWN]
            if down:
                await self._do("mend", self._mend, dice, dice.choice(down))

    async def _mend(self, dice: random.Random, server: Planned) -> None:
        state = self.connection.status()[server.name].state
        if state in (ServerState.QUARANTINED, ServerState.FAILED):
            await self.connection.release(server.name)
        else:
            await self.connection.start(server.name)

    async def bring_back(self, server: Planned) -> None:
        """After all the havoc, and left in peace, a server answers again; else it is a difference."""
        for attempt in range(4):
            # The first call may find it frozen or just gone; after a fresh start there is no more excuse.
            with contextlib.suppress(UnavailableError):
                if attempt:
                    await self.connection.reload(server.name)

            if self.connection.status()[server.name].state in DOWN:
                await self._do("mend", self._mend, self.dice("last"), server)

            if await self.call(server, "echo", 3) is Ending.RESULT:
                return

        self._books.differ(f"{server.name} did not come back: {self.connection.status()[server.name]}")


def _signal(pid: int, number: signal.Signals) -> bool:
    """Signal a process that bears the mark of this run; a number may have been given to somebody else meanwhile."""
    mark = f"{MARK}={os.environ[MARK]}".encode()
    try:
        if mark not in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            return False

        os.kill(pid, number)
    except OSError:
        return False

    return True
