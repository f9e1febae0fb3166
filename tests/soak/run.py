"""One soak from its first server to its last check."""

import ctypes
import gc
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from workbench import MARK, Belongings, left_since

from deputy_mcp import ApprovalRequest, Approve, Journal, Limits, McpConnection, Permissions, ServerState

from .behaviours import MOST_MESSAGE_BYTES, MOST_RESULT_BYTES, STDIO
from .books import Books, Ending, Ledger
from .journal import compare_journal
from .keeping import Keeper, free_ports
from .load import Load
from .plan import Planned, make_plan
from .pulse import Pause

CALLERS = 40
HAVOC = 3
LIMITS = Limits(
    call_timeout_seconds=4,
    startup_timeout_seconds=6,
    shutdown_timeout_seconds=1,
    max_message_bytes=MOST_MESSAGE_BYTES,
    max_result_bytes=MOST_RESULT_BYTES,
    max_concurrent_calls=6,
)
WARM_SECONDS = 60
"""Or a third of the run: after it pools, caches and arenas are filled."""
MOST_GROWTH_BYTES = 8 * 1024 * 1024
"""What the resident memory may grow by after that: caches that fill, and the pieces between what is freed."""
OWN_FAULT = "failed"
"""The code of an ending that is no end of the server's: something raised that should not have."""
CLOSING_SECONDS = 20
"""Closing takes a stop of `shutdown_timeout_seconds`, side by side; more than this is a hang."""


@dataclass
class Report:
    """What a soak saw; `differences` is empty when the books agree."""

    seed: int
    seconds: float
    calls: int = 0
    differences: list[str] = field(default_factory=list)
    endings: Counter[str] = field(default_factory=Counter)
    """By ending in words."""
    by_tool: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_kind: Counter[Ending] = field(default_factory=Counter)
    deeds: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    """How often a server entered each state."""
    runs: int = 0
    """What the ledgers hold."""
    processes: int = 0
    latest_seconds: float = 0
    longest_pause: Pause = field(default_factory=Pause)
    """The longest that the event loop did not turn."""
    peak_bytes: int = 0
    warm_bytes: int | None = None
    growth_bytes: int | None = None

    def lines(self) -> list[str]:
        """For people."""
        kinds = ", ".join(f"{count} {kind.name.lower()}" for kind, count in sorted(self.by_kind.items()))
        growth = "not measured" if self.growth_bytes is None else f"{self.growth_bytes / 2**20:+.1f} MiB"
        return [
            f"{self.calls} calls: {kinds}",
            f"{self.runs} arrivals in the ledgers of {self.processes} server processes",
            "endings: " + ", ".join(f"{words} {count}" for words, count in self.endings.most_common()),
            "deeds: " + ", ".join(f"{name} {count}" for name, count in sorted(self.deeds.items())),
            "states: " + ", ".join(f"{name} {count}" for name, count in self.states.most_common()),
            f"latest end {self.latest_seconds:.2f} s after its deadline",
            f"longest pause of the loop {self.longest_pause}",
            f"peak memory {self.peak_bytes / 2**20:.1f} MiB, growth after warming up {growth}",
            f"differences: {len(self.differences)}",
            *(f"  {difference}" for difference in self.differences),
        ]


async def soak(seed: int, seconds: float, folder: Path, *, tell: Callable[[str], None] = print) -> Report:
    """Run it. `folder` is empty, and afterwards holds scripts, ledgers, `book.jsonl` and `journal.jsonl`."""
    mark = os.environ[MARK] = f"soak-{seed}-{os.getpid()}"
    plan = make_plan(seed, folder)
    books = Books(plan, folder / "book.jsonl")
    journal = folder / "journal.jsonl"
    ledgers = {server.name: Ledger(server, books.count) for server in plan}
    report = Report(seed=seed, seconds=seconds)
    # What an event loop opens for itself at its first child is its own, and kept.
    await anyio.run_process(["true"])
    before = Belongings.now(mark)
    try:
        async with _kept(plan, ledgers, seed) as keepers:
            await _use(plan, keepers, books, report, Journal(journal, record_arguments=True), mark, tell)

        for left in await left_since(before, mark):
            books.differ(f"left behind: {left}")

        for ledger in ledgers.values():
            ledger.read()
            if ledger.torn:
                books.differ(f"{ledger.torn} lines of the ledger of {ledger.name} are torn")

        books.compare()
        compare_journal(journal, books)
    finally:
        books.close()
        del os.environ[MARK]

    _fill(report, books, ledgers)
    return report


def _fill(report: Report, books: Books, ledgers: dict[str, Ledger]) -> None:
    report.calls = len(books)
    report.differences = list(books.differences)
    if books.more_differences:
        report.differences.append(f"and {books.more_differences} more")

    for (tool, words), count in books.endings.items():
        report.by_tool[tool, words] += count
        report.endings[words] += count

    report.by_kind.update(Ending(kind) for kind in books.ending)
    report.runs = sum(ledger.runs for ledger in ledgers.values())
    report.processes = sum(len(ledger.pids) for ledger in ledgers.values())


@asynccontextmanager
async def _kept(plan: list[Planned], ledgers: dict[str, Ledger], seed: int) -> AsyncIterator[dict[str, Keeper]]:
    """The HTTP servers, running for the block."""
    web = [server for server in plan if server.transport != STDIO]
    ports = dict(zip((server.name for server in web), free_ports(len(web)), strict=True))
    keepers = {
        server.name: Keeper(
            server, ports[server.name], ledgers[server.name], random.Random(f"keeper {server.name} {seed}")
        )
        for server in web
    }
    async with anyio.create_task_group() as tasks:
        for keeper in keepers.values():
            tasks.start_soon(keeper.run)

        for keeper in keepers.values():
            await keeper.up.wait()

        yield keepers
        tasks.cancel_scope.cancel()


async def _use(
    plan: list[Planned],
    keepers: dict[str, Keeper],
    books: Books,
    report: Report,
    journal: Journal,
    mark: str,
    tell: Callable[[str], None],
) -> None:
    """The connection, from entering to its end under calls."""
    servers = {
        server.name: keepers[server.name].entry()
        if server.name in keepers
        else server.script.stdio(env={MARK: mark}, **server.options)
        for server in plan
    }
    connection = McpConnection(
        servers, permissions=Permissions.full(), limits=LIMITS, approver=_approve, journal=journal
    )
    load = Load(connection, plan, keepers, books, seed=report.seed)
    await connection.__aenter__()
    try:
        async with anyio.create_task_group() as watching:
            watching.start_soon(_count_states, connection, report, books)
            watching.start_soon(load.pulse.run)
            watching.start_soon(_weigh, report, report.seconds)
            await _work(load, report.seconds, tell)
            watching.cancel_scope.cancel()

        if report.warm_bytes is not None:
            report.growth_bytes = _held_bytes() - report.warm_bytes
            if report.growth_bytes > MOST_GROWTH_BYTES:
                books.differ(f"memory grew by {report.growth_bytes} bytes after warming up")

        await _bring_all_back(load, plan, keepers, books)
    finally:
        await _close_under_calls(connection, load, plan, books)

    report.deeds = load.deeds
    report.latest_seconds = load.latest_seconds
    report.longest_pause = load.pulse.longest
    report.peak_bytes = _status_bytes("VmHWM")


async def _work(load: Load, seconds: float, tell: Callable[[str], None]) -> None:
    """Callers, havoc and menders for so long; returns when the last call has ended."""
    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        for number in range(CALLERS):
            tasks.start_soon(lambda n=number: load.run_caller(n, pause_seconds=0.15))  # type: ignore[misc] # a bound default

        for number in range(HAVOC):
            tasks.start_soon(lambda n=number: load.run_havoc(n, pause_seconds=1.0))  # type: ignore[misc] # a bound default

        tasks.start_soon(lambda: load.run_mender(pause_seconds=1.0))
        while (left := began + seconds - anyio.current_time()) > 0:
            await anyio.sleep(min(left, 30))
            held = _status_bytes("VmRSS") / 2**20
            tell(f"{anyio.current_time() - began:5.0f} s: {load.summary()}; {held:.0f} MiB")

        load.going_on = False


async def _bring_all_back(load: Load, plan: list[Planned], keepers: dict[str, Keeper], books: Books) -> None:
    """Left in peace, every server serves again, and no call is still counted as under way."""
    for keeper in keepers.values():
        keeper.prompt = True
        await keeper.up.wait()

    async with anyio.create_task_group() as tasks:
        for server in plan:
            tasks.start_soon(load.bring_back, server)

    for name, status in load.connection.status().items():
        if status.calls_in_flight or status.awaiting_approval:
            books.differ(f"{name} counts {status.calls_in_flight} calls in flight when there are none")


async def _close_under_calls(connection: McpConnection, load: Load, plan: list[Planned], books: Books) -> None:
    """Close while every server has calls under way; each of them ends all the same."""
    async with anyio.create_task_group() as tasks:
        for server in plan:
            for tool in ("slow", "late", "silent", "echo"):
                if tool in server.tools:
                    tasks.start_soon(load.call, server, tool, 3)

        await anyio.sleep(0.05)
        with anyio.move_on_after(CLOSING_SECONDS) as closing:
            await connection.aclose()

        if closing.cancelled_caught:
            books.differ(f"closing took more than {CLOSING_SECONDS} s: {connection!r}")


async def _approve(request: ApprovalRequest) -> Approve:
    """For tools whose names alone make somebody ask."""
    await anyio.sleep(0.02)
    return Approve()


# -- watching --------------------------------------------------------------------------------------------------------


async def _count_states(connection: McpConnection, report: Report, books: Books) -> None:
    async with aclosing(connection.events()) as events:  # type: ignore[type-var] # an async generator
        async for event in events:
            if event.kind == "state":
                state = ServerState(event.facts["state"])
                report.states[str(state)] += 1
                if state is ServerState.CLOSING and event.facts["code"] == OWN_FAULT:
                    books.differ(f"{event.server} was lost by a fault of our own: {event.facts['detail']}")
            elif event.kind == "dropped":
                report.states["(events dropped)"] += event.facts["count"]


async def _weigh(report: Report, seconds: float) -> None:
    """What the process holds once it has warmed up."""
    await anyio.sleep(min(WARM_SECONDS, seconds / 3))
    report.warm_bytes = _held_bytes()


def _held_bytes() -> int:
    """Resident memory without what the allocator only keeps for later: else a burst would look like a leak."""
    gc.collect()
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)

    return _status_bytes("VmRSS")


def _status_bytes(field_name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field_name:
            return int(value.split()[0]) * 1024

    raise LookupError(field_name)
