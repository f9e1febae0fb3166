"""Floods: what hostile servers cost us, and the bare SDK beside us.

`memory`: peak memory under endless messages, how soon the error comes, and what a healthy server loses. `growth`: how
the cost of a large result grows. `overruns`: how late a call with a timeout ends, in every state of a server.
`stalls`: how long the event loop stands still under any one message. Each measurement runs in a process of its own
(`child`), so that peaks do not mix and a client that hangs or grows can be killed. On Linux only are the figures
whole: peaks since a moment, and stalls without the time other processes had, are read from /proc.
"""

from benchmarks.floods import growth, memory, overruns, stalls
from benchmarks.floods.child import Row


async def run() -> list[Row]:
    """Rows of (what, figure, holds)."""
    return [*await memory.rows(), *await growth.rows(), *await overruns.rows(), *await stalls.rows()]
