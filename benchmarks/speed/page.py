"""The page `docs/explanation/speed.md` and its plot, drawn from the kept results."""

from collections.abc import Iterable, Iterator, Sequence

from benchmarks.compare.environments import ROOT
from benchmarks.speed.plot import svg
from benchmarks.speed.results import FILE, Results
from benchmarks.speed.table import by_work, cell, columns

FOLDER = ROOT / "docs" / "explanation"

HEAD = """\
# Speed

The same work through this project, the bare SDK's client and the peers, in one run. This page is generated: `make
bench` runs it all, writes [`{file}`](../../{file}) and draws the page from it. How to run parts of it:
[run the benchmarks](../how-to/run-the-benchmarks.md).

{date}, {machine}. {versions}.

## How it is measured

- Each client runs in a process of its own, in an environment of its own where versions may clash, and is driven as its
  documentation says, with its defaults. A call is one call of a tool from a client that is held open.
- The servers are small, the same for all, and answer whatever has arrived in one write: the client is what is measured.
- One measurement at a time. In each round every client has its turn, and each round begins with another. A cell gives
  the median of the rounds, the lowest and the highest, and the ratio to the baseline: the median of the ratios within
  each round. Read the ratios: the machine has other work.
- *floor* is asyncio and `json` on the same pipes or sockets, without MCP and without any check.
- *deputy_mcp* is governed: allowlist, permissions, arguments checked, pins in a file (`verify="change"`), results
  scanned, a journal in a file, structlog at info. *… verify=call* lists the tools again before each call. *… defaults*
  is `McpConnection(servers)`: pins in memory, listed again before each call, neither journal nor log.
- CPU is what the client's process used, user and system, for one call.

![Ratios to the bare SDK](speed.svg)
"""

WHY = """
Where a figure is missed, profiles say why:

- **Echo.** A governed call runs some 500 functions, of Python and of C, 440 with 128 in flight. There a third of the
  processor time goes into the gate's own steps (arguments, permissions, pin, the line before the call), a quarter into
  the line and the log event of its end, an eighth into cleaning, scanning and modelling the result, a fifth onto the
  wire and back, the rest is the event loop's. Writes, journal appends and turns of the loop are shared by all calls of
  a turn, so what is left is the work itself; structlog's share of it is as much as a third of what is wanted in all.
  A call alone lies about its bound of processor time: 0.78 to 0.90 in four runs on one day.
- **An unchanged listing.** The listing itself is compared and not read, in a hundredth of the time that reading takes;
  what is above the floor is the governed call that follows it, and the turns of the loop between the two.
- **64 MB.** The SDK's time is reckoned from 16 MB, and moves the ratio; ours grows in proportion to the bytes.
- **HTTP.** Two thirds of a call are `httpx2` and the layers under it, which write head and body apart and set up
  some ten cancel scopes. Requests go from the caller's task straight to them, without the SDK's transport.
- **Startup.** With two cores the children's own start is most of it, for every client. Ours is READY when its tools
  were judged, scanned and pinned, and compared with other servers'; the first one also loads the scanner.
- **A listing that changed.** Entries of the same text are known again as text. What is left is the changed entry,
  whose schema is measured anew, and the journal's and the log's line of a listing.
- **Import.** Half of what is ours beside the SDK is the making of some eighty `attrs` classes.
- Rows about floods and isolation that are near their bound move with the machine's other work.
"""

OTHERS = {
    "floods": "Hostile and large messages",
    "isolation": "One bad server among ten",
    "scanning": "Scanning of texts",
    "verdicts": "Verdicts over real servers",
    "journal": "The journal",
}


def draw(found: Results) -> None:
    """Write the page and the plot."""
    (FOLDER / "speed.md").write_text(page(found), encoding="utf-8")
    (FOLDER / "speed.svg").write_text(svg(found.figures), encoding="utf-8")


def page(found: Results) -> str:
    """The whole page."""
    versions = "; ".join(dict.fromkeys(found.versions.values()))
    head = HEAD.format(file=FILE.relative_to(ROOT), date=found.measured, machine=found.machine, versions=versions)
    return head + "\n" + "\n".join(_body(found)) + "\n"


def _body(found: Results) -> Iterator[str]:
    yield "## What is wanted\n"
    yield from _rows(found, "speed")
    yield WHY.rstrip()
    for work, part in by_work(found.figures).items():
        yield f"\n## {work[0].upper()}{work[1:]}\n"
        yield from _table(
            ["", *(one.heading for one in part)],
            ([client, *(cell(one, client) for one in part)] for client in columns(part)),
        )

    for name in found.rows:
        if name != "speed":
            yield f"\n## {OTHERS.get(name, name)}\n"
            yield from _rows(found, name)

    if found.left_out:
        yield "\n## Left out\n"
        yield from (f"- {what}: {reason}" for what, reason in found.left_out.items())


def _rows(found: Results, name: str) -> Iterator[str]:
    rows = ([what, text, "ok" if holds else "**MISS**"] for what, text, holds in found.rows.get(name, ()))
    yield from _table(["work", "figure", ""], rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for number, row in enumerate([head, *rows]):
        yield f"| {' | '.join(one.replace('|', chr(92) + '|') for one in row)} |"
        if number == 0:
            yield f"|{'---|' * len(head)}"
