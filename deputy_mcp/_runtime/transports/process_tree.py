"""Which processes belong to one child of ours, and ending them all.

A launcher (`npx`, `uv run`, a shell) is not the server: killing it leaves the server behind. A process group catches
most; a descendant that made a session of its own is found by parentage, and one whose parent is gone already by the
mark that every descendant inherits in its environment (Linux only: elsewhere group and parentage must do).
"""

import contextlib
import os
import signal

MARK = "DEPUTY_MCP_RUN"
"""The environment variable that marks a child and all that it starts."""

READ_BYTES = 64 * 1024


def family(leader: int, mark: str) -> set[int]:
    """The living processes that descend from `leader` or carry `mark`, without zombies and without ourselves."""
    parents: dict[int, int] = {}
    marked: set[int] = set()
    needle = f"{MARK}={mark}".encode()
    for number in _numbers():
        stat = _read(f"/proc/{number}/stat")
        # Fields after the parenthesised name, which may itself hold spaces and parentheses: state, parent.
        fields = stat.rpartition(b")")[2].split()
        if len(fields) < 2 or fields[0] in (b"Z", b"X"):
            continue

        pid = int(number)
        parents[pid] = int(fields[1])
        if needle in _read(f"/proc/{number}/environ"):
            marked.add(pid)

    found = marked | ({leader} & parents.keys())
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more

    return found - {os.getpid()}


def _numbers() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _read(path: str) -> bytes:
    # Without the file objects of Python: with fifty servers to stop these are ten thousand files.
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""  # gone meanwhile, or somebody else's

    try:
        whole = b""
        while chunk := os.read(fd, READ_BYTES):
            whole += chunk
    except OSError:
        return b""
    finally:
        os.close(fd)

    return whole


def signal_group(leader: int, number: signal.Signals) -> None:
    """Signal the group that `leader` leads, if any of it is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def signal_each(pids: set[int], number: signal.Signals) -> None:
    """Signal single processes; those gone meanwhile are no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
