"""The page `docs/explanation/compared.md`."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from benchmarks.compare.environments import Ready
from benchmarks.compare.judging import MEANINGS, Verdict, Word
from benchmarks.compare.runner import MEMORY_BYTES, SIDE_BY_SIDE
from benchmarks.compare.table import Clients, Verdicts, by_heading, machine, title, totals
from benchmarks.compare.values import (
    AFTER_SECONDS,
    BOUND_SECONDS,
    CALL_SECONDS,
    LATE_SECONDS,
    START_SECONDS,
    STOP_SECONDS,
)

HEAD = """\
# Compared with the bare SDK and fastmcp

Every action of [`deputy_mcp.testing`](../reference/testing.md), and servers that fail to start, before three clients.
This page is generated: `make compare` runs it all and prints it, `python -m benchmarks.compare --write` writes it.

{date}, {machine}. {versions}.

## What the words mean
"""

HOW = f"""
Each client runs each situation in a fresh process, {SIDE_BY_SIDE} at a time, in at most {BOUND_SECONDS:g} s (14 s where
a start is waited for) and {MEMORY_BYTES // 1024**2} MB of resident memory. A call has a deadline of {CALL_SECONDS:g} s
unless the row says otherwise, the healthy call afterwards {AFTER_SECONDS:g} s, a start {START_SECONDS:g} s, each given
by the client's own means: `read_timeout_seconds` of the SDK, `timeout` and `init_timeout` of fastmcp, `timeout_seconds`
and `startup_timeout_seconds` here. Up to {LATE_SECONDS} s more are forgiven. After the trouble a healthy tool of the
same server is called, and once more if that failed at once. A situation gets the gravest word of its steps.

The right value comes from the place in the third column: a public report about some client, or a page of these docs,
whose promise another client need not have made. Where several values can be defended, each of them is right: a repaired
text, or an error at once. A server that did not start may be taken down first, for up to {STOP_SECONDS:g} s.

What to bear in mind:

- The situations are ours, so this shows where we looked.
- Each client is driven as its documentation says, with its defaults. Options of the SDK mend some rows:
  `StdioServerParameters(encoding_error_handler="replace")` those with invalid bytes, `max_sse_event_size` the one with
  a large event.
- Neither the SDK nor fastmcp promises to start a dead server again inside the block that opened it. A host can open a
  new client by hand; *dies* says that it must.
- A timeout is a hang only where something better was to be had. Both other clients wait without end by default, so a
  host that sets no timeout does not come back there at all.
- Permissions, pins and cleaned texts are not compared.
"""


def page(clients: Clients, verdicts: Verdicts) -> str:
    """The whole page."""
    versions = "; ".join(one.versions if isinstance(one, Ready) else one.reason for one in clients.values())
    head = HEAD.format(date=f"{datetime.now(UTC):%Y-%m-%d}", machine=machine(), versions=versions)
    return head + "\n" + "\n".join(_body(clients, verdicts)) + "\n"


def _body(clients: Clients, verdicts: Verdicts) -> Iterator[str]:
    yield from _table(["word", "meaning"], MEANINGS.items())
    yield HOW
    yield "## Totals"
    yield ""
    yield from _table(["", *clients], ([name, *map(str, counts)] for name, counts in totals(clients, verdicts)))
    for heading, rows in by_heading(clients, verdicts):
        yield f"\n## {heading}\n"
        yield from _table(
            ["the server", "over", "right by", *clients],
            ([job.situation.says, job.over, _source(job.situation.source), *map(_cell, cells)] for job, cells in rows),
        )

    yield "\n## What was seen where it was not right\n"
    yield from _table(
        ["situation", "client", "word", "seen"],
        (
            [title(job), job.client, verdict.word, f"`{_code(verdict.remark)}`"]
            for job, verdict in verdicts.items()
            if verdict.word is not Word.RIGHT
        ),
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def _source(source: str) -> str:
    if "#" in source:
        return f"[{source}](https://github.com/{source.replace('#', '/issues/')})"

    return f"[{source.rpartition('/')[2].removesuffix('.md')}](../{source})" if source.endswith(".md") else source


def _cell(verdict: Verdict | None) -> str:
    if verdict is None:
        return "–"

    return str(verdict.word) if verdict.word is Word.RIGHT else f"**{verdict.word}**"


def _code(text: str) -> str:
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text).replace("`", "'")
