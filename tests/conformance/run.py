"""`make conformance`: the official client conformance suite against our connection, as one table.

Runs what two revisions require and everything else the suite has, prints the table, and writes it with the reason of
each miss to `docs/reference/conformance.md`. Ends with 0 when the bar is met, 1 when it is not, 2 when the suite cannot
be run here.
"""

import importlib.metadata
import platform
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from conformance_suite import (
    EVERYTHING,
    PIN,
    Missing,
    Pass,
    Row,
    Verdict,
    applicable,
    everything_at,
    installed,
    node_version,
    required,
    run,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "conformance.md"
PASSES = (
    required("2025-11-25"),
    required("2026-07-28"),
    EVERYTHING,
    # What the first three do not reach.
    everything_at("2025-03-26"),
    everything_at("2025-06-18"),
)
EXTENSION = "extension"
COLUMNS = ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", EXTENSION)
LEAST_PASSED = 64
"""Of the 69 that there are when each scenario counts once for each revision it belongs to: as many as the bare SDK."""

SKILLS = "the Skills extension (SEP-2640) is not implemented: `skills/list` is never sent, so there is nothing to judge"
REASONS: Mapping[str, str] = {
    "sep-2640-client-no-prefetch": SKILLS,
    "sep-2640-client-verify-digest": SKILLS,
    "sep-2640-client-verify-frontmatter": SKILLS,
    "sep-2640-client-verify-size": SKILLS,
}
"""Why a scenario is missed. One that is missed without a reason, or passes with one, is below the bar."""

Cells = dict[tuple[str, str], Verdict]
"""What came of a scenario in a column."""

WORST: Sequence[Verdict] = ("fails", "not judged", "passes")

INTRODUCTION = """\
# Conformance

The [official client conformance suite](https://github.com/modelcontextprotocol/conformance) starts a server for each
scenario, runs a client against it and judges what came over the wire. Here the client is an `McpConnection`:
`tests/conformance/client.py` has a few lines for each kind of scenario. It speaks `auto` to servers of 2026-07-28 and
proposes the revision of older ones. `make conformance` runs it all and writes this page; Node is brought along where
there is none.

We are stricter than the suite: a scenario passes when the suite finds no fault, has judged anything at all, and the
client ended as it should, with a refusal where the server must not be trusted. What a host gives to be authorized
(`HttpServer(auth=...)`) is the MCP SDK's; for DPoP and workload identities, which the SDK has nothing for, it is an
`httpx2.Auth` of `tests/conformance/authorization.py`.
"""


def main() -> int:
    command = installed()
    if isinstance(command, Missing):
        print(f"The conformance suite was not run: {command.reason}", file=sys.stderr)
        return 2

    belongs = applicable(command)
    done: list[Pass] = []
    for wanted in PASSES:
        print(f"{wanted.name} ...", flush=True)
        done.append(run(command, wanted))

    cells = combine(belongs, done)
    faults = [*shortfalls(cells, done)]
    tables = f"{summary(cells, done)}\n{table(belongs, cells)}"
    PAGE.write_text(
        f"{INTRODUCTION}\n{versions(command)}\n## Results\n\n{tables}\n## Misses\n\n{misses(cells, done)}",
        encoding="utf-8",
    )
    print(f"\n{tables}\n{misses(cells, done)}")
    for fault in faults:
        print(f"below the bar: {fault}", file=sys.stderr)

    return 1 if faults else 0


def combine(belongs: Mapping[str, tuple[str, ...]], done: Iterable[Pass]) -> Cells:
    """Each scenario once for each revision it belongs to, an extension's once in all; the worst of what came of it."""
    cells: Cells = {(scenario, column): "passes" for scenario, columns in belongs.items() for column in columns}
    seen = set()
    for row in (row for one in done for row in one.rows):
        cell = (row.scenario, EXTENSION if EXTENSION in belongs[row.scenario] else row.revision)
        if cell in cells:
            seen.add(cell)
            cells[cell] = min(cells[cell], row.verdict, key=WORST.index)

    return cells | dict.fromkeys(cells.keys() - seen, "not judged")


def scored(one: Pass) -> tuple[Row, ...]:
    """What a revision requires."""
    return tuple(row for row in one.rows if row.scenario not in one.not_scored)


def shortfalls(cells: Cells, done: Iterable[Pass]) -> Iterator[str]:
    """What is below the bar, one line each."""
    for one in done:
        if "--requirements" in one.arguments:
            if not scored(one):
                yield f"{one.name}: nothing was run"

            yield from (f"{one.name}: {row.scenario} {row.verdict}" for row in scored(one) if row.verdict != "passes")

    passed = Counter(cells.values())["passes"]
    if passed < LEAST_PASSED:
        yield f"{passed} of {len(cells)} pass; at least {LEAST_PASSED} must"

    missed = {scenario for (scenario, _), verdict in cells.items() if verdict != "passes"}
    yield from (f"{scenario} is missed without a reason" for scenario in sorted(missed - REASONS.keys()))
    yield from (f"{scenario} passes; its reason can go" for scenario in sorted(REASONS.keys() - missed))


def versions(command: tuple[str, ...]) -> str:
    """With what this was found."""
    package = f"`{PIN}` on Node {node_version(command).lstrip('v')}"
    ours = f"mcp {importlib.metadata.version('mcp')}, Python {platform.python_version()}"
    return f"Found with {package}, {ours}.\n"


def summary(cells: Cells, done: Iterable[Pass]) -> str:
    """A line for each kind of count."""
    lines = ["| counted | passes | of |", "|---|---|---|"]
    for one in done:
        if "--requirements" in one.arguments:
            rows = scored(one)
            lines.append(f"| `--requirements {one.arguments[-1]}` | {_passed(rows)} | {len(rows)} |")
        elif one.arguments == EVERYTHING.arguments:
            lines.append(f"| `--suite all`, each where the suite puts it | {_passed(one.rows)} | {len(one.rows)} |")

    lines.append(
        f"| everything, once for each revision it belongs to | {Counter(cells.values())['passes']} | {len(cells)} |"
    )
    return "\n".join(lines) + "\n"


def _passed(rows: Iterable[Row]) -> int:
    return sum(row.verdict == "passes" for row in rows)


def table(belongs: Mapping[str, tuple[str, ...]], cells: Cells) -> str:
    """A line for each scenario."""
    lines = [f"| scenario | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for scenario in belongs:
        lines.append(f"| `{scenario}` | {' | '.join(cells.get((scenario, column), '') for column in COLUMNS)} |")

    return "\n".join(lines) + "\n"


def misses(cells: Cells, done: Iterable[Pass]) -> str:
    """What does not pass, and why."""
    rows = [row for one in done for row in one.rows]
    lines = []
    for scenario, column in sorted(cells):
        verdict = cells[scenario, column]
        if verdict != "passes":
            found = dict.fromkeys(fault for row in rows if row.scenario == scenario for fault in row.faults)
            why = REASONS.get(scenario, f"no reason is known; {'; '.join(found) or 'it was not run'}")
            lines.append(f"- `{scenario}` ({column}) {verdict}: {why}.")

    return "\n".join(lines or ["None."]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
