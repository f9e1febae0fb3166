"""Plays one situation with one client, in a process of its own. The standard library and nothing else.

A driver's process imports its client once and then forks for each job, so that a fresh process costs no import. What
each step came to is a line in the job's `record`, written at once: what was seen stays when the process is killed.
"""

import asyncio
import hashlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

Json = dict[str, Any]

POLL_SECONDS = 0.005
MESSAGE_CHARACTERS = 400
BACK_SECONDS = 2.0


class Client(Protocol):
    """A connected client, as its driver presents it. Errors are the client's own."""

    async def tools(self, server: str) -> list[str]:
        """The wire names of all tools of this server."""

    async def call(self, server: str, tool: str, arguments: Mapping[str, Any], deadline_seconds: float) -> Json:
        """`text` (of all text blocks), `content` (JSON of everything), `failed` (the result says so itself)."""


Connect = Callable[[Mapping[str, Json], float], AbstractAsyncContextManager[Client]]
"""Entries by name and the deadline of a start → the connected client."""


def serve(connect: Connect) -> None:
    """Forks for each job whose path comes in on stdin; says the child's pid, and its end as `os.wait` gives it."""
    for line in sys.stdin:
        job = json.loads(Path(line.strip()).read_text(encoding="utf-8"))
        pid = os.fork()
        if pid == 0:
            _be_alone(job["log"])
            code = 70
            try:
                asyncio.run(_Player(connect, job).run())
                code = 0
            finally:
                os._exit(code)

        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _be_alone(log: str) -> None:
    """A session of its own, to be killed as one; what is said there goes to the log."""
    os.setsid()
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(out, 2)


class _Player:
    def __init__(self, connect: Connect, job: Json) -> None:
        self._connect = connect
        self._job = job
        self._record = os.open(job["record"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def run(self) -> None:
        begun = time.monotonic()
        place: Any = "open"
        try:
            async with self._connect(self._job["servers"], self._job["start_seconds"]) as client:
                self._note("open", begun, {"kind": "value"})
                for i, step in enumerate(self._job["steps"]):
                    place = i
                    await self._step(i, step, client)

                place, begun = "close", time.monotonic()

            self._note("close", begun, {"kind": "value"})
        except BaseException as error:
            # A driver's edge: what the client raises out of its block, a group or a stray cancellation too.
            torn = isinstance(error, asyncio.CancelledError) or place not in ("open", "close")
            self._note(place, begun, {"kind": "torn" if torn else "error", "error": said(error)})

        # The task that opened a connection goes on with its own work.
        begun = time.monotonic()
        try:
            await asyncio.sleep(0.02)
            self._note("task", begun, {"kind": "value"})
        except asyncio.CancelledError as error:
            self._note("task", begun, {"kind": "torn", "error": said(error)})

    def _note(self, place: Any, begun: float, outcome: Json) -> None:
        line = {"place": place, "seconds": round(time.monotonic() - begun, 3), **outcome}
        os.write(self._record, json.dumps(line).encode() + b"\n")

    async def _step(self, i: int, step: Json, client: Client) -> None:
        match step["do"]:
            case "call":
                await self._call(i, step, client)
            case "list":
                await self._noted(i, self._names(step, client))
            case "together":
                calls = (self._call((i, j), call, client) for j, call in enumerate(step["calls"]))
                await asyncio.gather(*calls)
            case "abandon":
                await self._noted(i, self._abandoned(step["call"], client))
            case "release":
                self._release(step["gate"])
            case "kill":
                os.kill(self._pids()[-1], signal.SIGKILL)
                await self._gone(self._pids()[-1])
                await self._back()
            case "back":
                await self._back()

    async def _noted(self, place: Any, work: Awaitable[Json]) -> Json:
        begun = time.monotonic()
        try:
            outcome = await work
        except Exception as error:
            outcome = {"kind": "error", "error": said(error)}

        self._note(place, begun, outcome)
        return outcome

    async def _call(self, place: Any, step: Json, client: Client) -> None:
        deadline = step["deadline_seconds"]
        begun = time.monotonic()
        outcome = await self._noted(place, self._answer(step, client))
        if step["release"] is not None:
            self._release(step["release"])

        # One that failed at once may have been the last of the trouble.
        if step["afterwards"] and outcome["kind"] == "error" and time.monotonic() - begun < deadline / 2:
            await asyncio.sleep(0.3)
            await self._noted([place, "again"], self._answer(step, client))

    async def _answer(self, step: Json, client: Client) -> Json:
        answer = await client.call(step["server"], step["tool"], step["arguments"], step["deadline_seconds"])
        return {"kind": "value", **answer}

    async def _names(self, step: Json, client: Client) -> Json:
        return {"kind": "value", "names": await client.tools(step["server"])}

    async def _abandoned(self, call: Json, client: Client) -> Json:
        task = asyncio.ensure_future(self._answer(call, client))
        while '"kind": "holding"' not in self._ledger() and not task.done():
            await asyncio.sleep(POLL_SECONDS)

        task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            return {"kind": "cancelled"}

    # -- the server's side ---------------------------------------------------------------------------------------

    def _ledger(self) -> str:
        path = Path(self._job["ledger"])
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def _pids(self) -> list[int]:
        lines = (json.loads(line) for line in self._ledger().splitlines() if '"kind": "started"' in line)
        return [line["pid"] for line in lines]

    def _release(self, gate: str) -> None:
        Path(self._job["gates"].format(gate)).touch()

    async def _gone(self, pid: int) -> None:
        """Until the process has ended; a zombie has."""
        until = time.monotonic() + BACK_SECONDS
        while time.monotonic() < until:
            try:
                os.kill(pid, 0)
                if Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] in "ZX":
                    return
            except OSError:
                return

            await asyncio.sleep(POLL_SECONDS)

    async def _back(self) -> None:
        url = self._job["servers"]["main"].get("url")
        if url is None:
            return

        parts = urlsplit(url)
        until = time.monotonic() + BACK_SECONDS
        while time.monotonic() < until:
            try:
                socket.create_connection((str(parts.hostname), int(parts.port or 80)), timeout=0.5).close()
                return
            except OSError:
                await asyncio.sleep(POLL_SECONDS)


def said(error: BaseException) -> str:
    """Type and text of an error; of a group, those of what it holds."""
    if isinstance(error, BaseExceptionGroup):
        inner = ", ".join(said(one) for one in error.exceptions)
        return f"{type(error).__name__}({inner})"[:MESSAGE_CHARACTERS]

    text = str(error).encode("utf-8", "backslashreplace").decode()
    return (f"{type(error).__name__}: {text}" if text else type(error).__name__)[:MESSAGE_CHARACTERS]


def answered(text: str, content: Any, *, failed: bool) -> Json:
    """The answer to a call, as a driver gives it; lone surrogates are shown."""
    seen = json.dumps(content, default=str, ensure_ascii=False)
    return {"text": short(text), "content": seen[:MESSAGE_CHARACTERS], "failed": failed}


def short(text: str) -> str:
    """A text as it stands in a record: a long one as its length and digest."""
    if len(text) <= MESSAGE_CHARACTERS:
        return text

    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{len(text)} characters, sha256 {digest[:16]}"
