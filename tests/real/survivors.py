"""Who is still alive, read from `/proc`: the witness of "nothing left" that does not ask the library.

Linux only. A zombie is not alive: under a PID 1 that reaps nothing it keeps its entry for ever.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import anyio

PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """One process; its start time keeps a reused number apart."""

    pid: int
    started: int
    """In clock ticks after boot."""
    command: str


def living_descendants(mark: str | None = None) -> frozenset[Process]:
    """The live processes that descend from this one, and those whose environment holds the line `mark`.

    Parentage alone is not enough: what outlives its parent is handed to PID 1. A variable given to a server is
    inherited by all it starts, so `NAME=VALUE` finds them; with a value of its own, another run's are not ours.
    """
    parents: dict[int, int] = {}
    living: dict[int, Process] = {}
    for entry in PROC.iterdir():
        if not entry.name.isdecimal():
            continue

        try:
            # The name in brackets may hold anything, a bracket too.
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue  # it ended while we looked

        pid = int(entry.name)
        parents[pid] = int(fields[1])
        if fields[0] not in "ZX":
            living[pid] = Process(pid, int(fields[19]), command)

    ours = {pid for pid in living if _descends(pid, parents) or (mark is not None and _holds(pid, mark))}
    # A worker of `anyio.to_process` belongs to the event loop and ends with it; it is no server.
    return frozenset(
        living[pid] for pid in ours if pid != os.getpid() and "-m anyio.to_process" not in living[pid].command
    )


async def wait_gone(processes: Iterable[Process], *, within_seconds: float) -> frozenset[Process]:
    """Waits until all of them have ended, through pidfds; gives those that have not."""
    waited_for = frozenset(processes)
    with anyio.move_on_after(within_seconds):
        for process in waited_for:
            try:
                descriptor = os.pidfd_open(process.pid)
            except ProcessLookupError:
                continue

            try:
                await anyio.wait_readable(descriptor)
            finally:
                os.close(descriptor)

    return frozenset(process for process in waited_for if _lives(process))


def _descends(pid: int, parents: dict[int, int]) -> bool:
    seen = set()
    while pid in parents and pid not in seen:
        seen.add(pid)
        pid = parents[pid]
        if pid == os.getpid():
            return True

    return False


def _holds(pid: int, mark: str) -> bool:
    try:
        return mark.encode() in (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False  # another user's, or ended


def _lives(process: Process) -> bool:
    try:
        fields = (PROC / str(process.pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return False

    return fields[0] not in "ZX" and int(fields[19]) == process.started
