"""Runs situations: servers, a process per client and situation, and the bounds on both.

Each worker has one driver process per client, which forks for every job. What a run leaves behind is found by a mark
in the environment of the servers, counted, and killed.
"""

import json
import os
import signal
import socket
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from subprocess import PIPE
from typing import Any
from urllib.parse import urlsplit

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from attrs import Attribute, asdict, frozen

from benchmarks.compare.environments import ROOT, Ready
from benchmarks.compare.judging import Seen, Verdict, judge
from benchmarks.compare.values import START_SECONDS, Over, Script, Situation
from deputy_mcp.testing import ScriptedServer

SIDE_BY_SIDE = 2
MEMORY_BYTES = 1536 * 1024 * 1024
"""Resident memory of a client's process, which starts at some 100 MB; seen on Linux only."""
LOOK_SECONDS = 0.02
LEFT_SECONDS = 1.5
"""So long may a server take to go after its client's process has ended."""
MARK = "DEPUTY_MCP_COMPARE"
PROC = Path("/proc")


@frozen
class Job:
    """One cell of the table."""

    situation: Situation
    over: Over
    client: str


Told = Callable[[Job, Verdict], None]


async def run(situations: Sequence[Situation], clients: Mapping[str, Ready], told: Told) -> dict[Job, Verdict]:
    """All situations with all clients, two at a time; `told` hears of each verdict at once."""
    jobs = [Job(one, over, client) for one in situations for over in one.over for client in clients]
    waiting = iter(jobs)
    verdicts: dict[Job, Verdict] = {}

    async def work() -> None:
        async with AsyncExitStack() as stack:
            drivers: dict[str, _Driver] = {}
            for job in waiting:
                if job.client not in drivers:
                    drivers[job.client] = await stack.enter_async_context(_driver(clients[job.client]))

                verdicts[job] = judge(job.situation, await _seen(job, drivers[job.client]))
                told(job, verdicts[job])

    async with anyio.create_task_group() as tasks:
        for _ in range(SIDE_BY_SIDE):
            tasks.start_soon(work)

    return {job: verdicts[job] for job in jobs}


# -- one run ---------------------------------------------------------------------------------------------------------


async def _seen(job: Job, driver: "_Driver") -> Seen:
    with tempfile.TemporaryDirectory(prefix="compare-") as name:
        folder = Path(name)
        mark = uuid.uuid4().hex
        async with AsyncExitStack() as stack:
            servers = {}
            for server, script in job.situation.servers.items():
                servers[server] = await _entry(server, script, job.over, folder, mark, stack)

            record = folder / "record.jsonl"
            order = {
                "servers": servers,
                "steps": [asdict(step, filter=_for_the_client) for step in job.situation.all_steps],
                "start_seconds": START_SECONDS,
                "record": str(record),
                "log": str(folder / "log.txt"),
                "ledger": str(folder / "main.ledger.jsonl"),
                "gates": str(folder / "main.{}.gate"),
            }
            path = folder / "job.json"
            path.write_text(json.dumps(order), encoding="utf-8")
            ended, code = await driver.play(path, job.situation.bound_seconds)
            left = await _left(mark, 0.0 if ended else LEFT_SECONDS)

        lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
        notes = ScriptedServer(folder, name="main").ledger("note")
        return Seen(
            record=[json.loads(line) for line in lines],
            ended=ended,
            exit_code=code,
            notes=len(notes),
            left=left,
            hidden=(str(folder), str(ROOT)),
        )


def _for_the_client(attribute: "Attribute[Any]", value: Any) -> bool:
    """What is right is not told to the one who is judged."""
    return attribute.name != "right"


async def _entry(
    name: str, script: Script | str, over: Over, folder: Path, mark: str, stack: AsyncExitStack
) -> dict[str, Any]:
    """What a driver needs to know of one server; over HTTP the server is started here."""
    if script == "no such command":
        return {"command": "no-such-mcp-server", "args": [], "env": {}}

    if script == "nobody listens":
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            return {"url": f"http://127.0.0.1:{taken.getsockname()[1]}/mcp", "transport": "http"}

    assert not isinstance(script, str)
    server = ScriptedServer(folder, **{"name": name, "era": "legacy", **script})
    if over == "stdio":
        entry = server.stdio()
        return {"command": entry.command, "args": list(entry.args), "env": {MARK: mark}}

    url = await stack.enter_async_context(_listening(server, over))
    headers = {} if server.bearer is None else {"headers": {"authorization": f"Bearer {server.bearer}"}}
    return {"url": url, "transport": over, **headers}


@asynccontextmanager
async def _listening(server: ScriptedServer, over: Any) -> AsyncIterator[str]:
    """Its address. A server that died is started again at the same one, as a supervisor would."""
    up, enough = anyio.Event(), anyio.Event()
    url = ""

    async def keep() -> None:
        nonlocal url
        port = 0
        while not enough.is_set():
            async with server.http(transport=over, port=port) as entry:
                url = entry.url
                port = int(urlsplit(url).port or 0)
                up.set()
                await _until_gone(server.pids()[-1], enough)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep)
        await up.wait()
        yield url
        # Not cancelled: a process that is left in the middle of its end would be waited for twice.
        enough.set()


async def _until_gone(pid: int, enough: anyio.Event) -> None:
    # It is our child, and the loop reaps it; a zombie is gone a moment later.
    with suppress(ProcessLookupError):
        while not enough.is_set():
            os.kill(pid, 0)
            await anyio.sleep(LOOK_SECONDS)


# -- processes -------------------------------------------------------------------------------------------------------


class _Driver:
    """A driver process that forks for each job."""

    def __init__(self, process: Process) -> None:
        assert process.stdout is not None
        self._process = process
        self._lines = BufferedByteReceiveStream(process.stdout)

    async def play(self, job: Path, bound_seconds: float) -> tuple[str, int]:
        """How the child was ended (empty: by itself) and its exit code."""
        assert self._process.stdin is not None
        await self._process.stdin.send(f"{job}\n".encode())
        pid = await self._number()
        ended = ""

        async def watch() -> None:
            nonlocal ended
            until = time.monotonic() + bound_seconds
            while not ended:
                await anyio.sleep(LOOK_SECONDS)
                if _resident_bytes(pid) > MEMORY_BYTES:
                    ended = "memory"
                elif time.monotonic() > until:
                    ended = "bound"

            # The leader of a session of its own, so its group is all that it forked.
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            code = await self._number()
            tasks.cancel_scope.cancel()

        return ended, code

    async def _number(self) -> int:
        return int(await self._lines.receive_until(b"\n", 100))


@asynccontextmanager
async def _driver(ready: Ready) -> AsyncIterator[_Driver]:
    command = [ready.python, "-m", ready.module]
    async with await anyio.open_process(command, stdin=PIPE, stdout=PIPE, stderr=None, cwd=ROOT) as process:
        try:
            yield _Driver(process)
        finally:
            process.kill()


def _resident_bytes(pid: int) -> int:
    try:
        pages = int((PROC / str(pid) / "statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0

    return pages * os.sysconf("SC_PAGE_SIZE")


async def _left(mark: str, within_seconds: float) -> int:
    """How many processes with this mark are still there after a while; they are killed."""
    until = time.monotonic() + within_seconds
    while (pids := _marked(mark)) and time.monotonic() < until:
        await anyio.sleep(LOOK_SECONDS)

    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    return len(pids)


def _marked(mark: str) -> list[int]:
    """The live processes whose environment holds the mark. A zombie has no environment any more."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in PROC.iterdir() if PROC.exists() else ():
        if entry.name.isdecimal():
            with suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))

    return found
