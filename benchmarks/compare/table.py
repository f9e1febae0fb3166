"""The verdicts as a table of plain lines. A row is a situation over one transport, a column a client."""

import os
import platform
from collections import Counter
from collections.abc import Iterator, Mapping

from benchmarks.compare.environments import Missing, Ready
from benchmarks.compare.judging import MEANINGS, ORDER, Verdict
from benchmarks.compare.runner import Job
from benchmarks.compare.situations import HEADINGS

Clients = Mapping[str, Ready | Missing]
Verdicts = Mapping[Job, Verdict]
Row = tuple[Job, list[Verdict | None]]
"""The first job of a row, and its cells; None: that client could not be had."""

NAME_WIDTH = 34
WORD_WIDTH = 12


def machine() -> str:
    """The machine's kind and the interpreter; nothing that names it."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def line(job: Job, verdict: Verdict) -> str:
    """One verdict as it comes in."""
    return f"{title(job):{NAME_WIDTH}s}  {job.client:{WORD_WIDTH}s}  {verdict.word:5s}  {verdict.remark}".rstrip()


def title(job: Job) -> str:
    return f"{job.situation.name} ({job.over})"


def lines(clients: Clients, verdicts: Verdicts) -> Iterator[str]:
    """The whole table."""
    for word, meaning in MEANINGS.items():
        yield f"{word:6s} {meaning}"

    yield ""
    yield f"{'':{NAME_WIDTH}s}  " + "  ".join(f"{client:{WORD_WIDTH}s}" for client in clients)
    for heading, rows in by_heading(clients, verdicts):
        yield heading
        for job, cells in rows:
            words = ("–" if cell is None else str(cell.word) for cell in cells)
            columns = "  ".join(f"{word:{WORD_WIDTH}s}" for word in words)
            yield f"  {title(job):{NAME_WIDTH - 2}s}  {columns}".rstrip()

    for name, counts in totals(clients, verdicts):
        yield f"{name:{NAME_WIDTH}s}  " + "  ".join(f"{count:<{WORD_WIDTH}d}" for count in counts).rstrip()


def by_heading(clients: Clients, verdicts: Verdicts) -> Iterator[tuple[str, list[Row]]]:
    """The rows that were run, under their headings."""
    for heading, situations in HEADINGS.items():
        rows: list[Row] = []
        for situation in situations:
            for over in situation.over:
                jobs = [Job(situation, over, client) for client in clients]
                cells = [verdicts.get(job) for job in jobs]
                if any(cells):
                    rows.append((jobs[0], cells))

        if rows:
            yield heading, rows


def totals(clients: Clients, verdicts: Verdicts) -> Iterator[tuple[str, list[int]]]:
    """How often each client got each word, and of how many rows."""
    counts = {client: Counter(one.word for job, one in verdicts.items() if job.client == client) for client in clients}
    for word in ORDER:
        yield str(word), [counts[client][word] for client in clients]

    yield "rows", [counts[client].total() for client in clients]
