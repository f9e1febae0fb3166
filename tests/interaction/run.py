"""Runs the SDK's interaction suite through our connection and compares what happened with `expected.toml`.

`python tests/interaction/run.py [PART …]`: without parts the whole suite, after which the page in the docs is written
anew. Exit code 1 and one line for each difference: a test that failed and is not listed, one that is listed and passed,
a pattern that names nothing. The suite is fetched first (`sdk_suite.py`); where it cannot be had, that is said.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from sdk_suite import Missing, provide_suite

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "reference" / "interaction-suite.md"
CHILD_SECONDS = 600
"""The whole suite takes about one minute on two shared cores."""
TEST_SECONDS = 30
KINDS = {
    "server": "concerns the server, or the suite itself",
    "offer": "the connection offers nothing for it",
    "design": "the connection decides otherwise",
    "sequence": "the connection's own requests are among those that the test counts",
    "type": "the SDK's own type or text, or a limit of the facade",
    "gap": "what the connection should do, and does not yet",
}


@dataclass(frozen=True)
class Group:
    """Tests that end otherwise than passed through the connection, for one reason."""

    kind: str
    ends: str
    why: str
    tests: tuple[str, ...]

    def names(self, test: str) -> bool:
        """Whether one of its patterns names this test."""
        return any(_fits(test, pattern) for pattern in self.tests)


@dataclass(frozen=True)
class Verdict:
    """What a run came to."""

    counts: Mapping[str, int]
    """Tests by outcome: `through`, `aside`, `fails`."""
    listed: Mapping[Group, int]
    differences: tuple[str, ...]


def read_groups() -> tuple[Group, ...]:
    """`expected.toml`, checked."""
    raw = tomllib.loads((HERE / "expected.toml").read_text(encoding="utf-8"))
    groups = tuple(Group(**{**entry, "tests": tuple(entry["tests"])}) for entry in raw["group"])
    for group in groups:
        if group.kind not in KINDS or group.ends not in ("aside", "fails"):
            raise ValueError(f"expected.toml: kind or ends is none of ours in {group}")

    return groups


def run_suite(folder: Path, parts: Sequence[str] = ()) -> dict[str, Any]:
    """What each test did, by its name below `tests/interaction/`. Raises `RuntimeError` when the child told nothing."""
    with tempfile.TemporaryDirectory() as scratch:
        report, config = Path(scratch) / "report.json", Path(scratch) / "pytest.ini"
        config.write_text("[pytest]\nxfail_strict = true\n", encoding="utf-8")
        options = ["-p", "anyio", "-p", "plugin", "-p", "no:cacheprovider", "--quiet", "--tb=no"]
        where = ["-c", str(config), "--rootdir", str(folder), "--timeout", str(TEST_SECONDS)]
        path = os.pathsep.join((str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])))
        chosen = [str(folder / "tests" / "interaction" / part) for part in parts or ("",)]
        child = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *where, *chosen],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, "DEPUTY_MCP_INTERACTION_REPORT": str(report)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=CHILD_SECONDS,
            check=False,
        )
        if not report.exists() or child.returncode not in (0, 1):
            raise RuntimeError(f"the suite did not run: exit code {child.returncode}:\n{child.stdout[-4000:]}")

        found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
        return found


def judge(outcomes: Mapping[str, Any], groups: Sequence[Group], *, whole: bool) -> Verdict:
    """Compare what happened with what is listed; `whole`: a pattern that names nothing is a difference, too."""
    counts: Counter[str] = Counter()
    listed: Counter[Group] = Counter()
    differences: list[str] = []
    for name, outcome in outcomes.items():
        ended = _ended(outcome)
        counts[ended] += 1
        fitting = [group for group in groups if group.names(name)]
        wanted = fitting[0].ends if fitting else "through"
        if len(fitting) > 1:
            differences.append(f"{name}: is listed {len(fitting)} times")

        if ended != wanted:
            differences.append(f"{name}: {wanted} was expected, {ended} came {outcome['error']}")

        listed.update(fitting[:1])

    if whole:
        for pattern in (pattern for group in groups for pattern in group.tests):
            if not any(_fits(name, pattern) for name in outcomes):
                differences.append(f"expected.toml: {pattern} names no test")

    return Verdict(counts, listed, tuple(differences))


def _fits(test: str, pattern: str) -> bool:
    name, _, parameters = test.partition("[")
    wanted, _, cells = pattern.partition(" (")
    return fnmatchcase(name, wanted) and fnmatchcase(parameters.removesuffix("]"), cells.removesuffix(")") or "*")


def _ended(outcome: Mapping[str, Any]) -> str:
    if outcome["outcome"] != "passed":
        return "fails"

    return "through" if outcome["connected"] else "aside"


def page(verdict: Verdict, groups: Iterable[Group], pin: str) -> str:
    """The page in the docs."""
    through, total = verdict.counts["through"], sum(verdict.counts.values())
    lines = [
        "# The SDK's interaction suite",
        "",
        f"The source distribution of `mcp` {pin} holds a suite of {total} tests of what a client and a server do",
        "together, over memory, stdio, Streamable HTTP and legacy SSE, in both eras. Here its client is a thin facade",
        "over `McpConnection` (`tests/interaction/facade.py`); the tests are taken as they are. The page is written by",
        "",
        "```sh",
        "python tests/interaction/run.py",
        "```",
        "",
        "which fetches the suite, runs it, and fails when a test ends otherwise than it is listed, in either",
        "direction. Each test that is not passed through the connection stands in `tests/interaction/expected.toml`,",
        "with its reason.",
        "",
        "| tests | |",
        "|---|---:|",
        f"| all | {total} |",
        f"| passed through our connection | {through} |",
    ]
    by_kind: Counter[str] = Counter()
    for group, count in verdict.listed.items():
        by_kind[group.kind] += count

    lines += [f"| {text} | {by_kind[kind]} |" for kind, text in KINDS.items() if by_kind[kind]]
    lines += ["", "## Reasons", "", "| | reason | tests |", "|---|---|---:|"]
    lines += [f"| {group.kind} | {group.why} | {verdict.listed[group]} |" for group in groups if verdict.listed[group]]
    return "\n".join(lines) + "\n"


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="Run the SDK's interaction suite through our connection.")
    parser.add_argument("parts", nargs="*", metavar="PART", help="a folder, file or test below tests/interaction")
    parts = parser.parse_args().parts
    folder = provide_suite()
    if isinstance(folder, Missing):
        print(f"missing: {folder.reason}")
        return 1

    began = time.monotonic()
    groups = read_groups()
    verdict = judge(run_suite(folder, parts), groups, whole=not parts)
    print(f"{sum(verdict.counts.values())} tests in {time.monotonic() - began:.0f} s: ", end="")
    print(f"{verdict.counts['through']} passed through the connection, {verdict.counts['aside']} without it, ", end="")
    print(f"{verdict.counts['fails']} failed, {sum(verdict.listed.values())} are listed")
    for difference in verdict.differences:
        print(f"- {difference}")

    if not parts and not verdict.differences:
        PAGE.write_text(page(verdict, groups, version("mcp")), encoding="utf-8")
        print(f"written: {PAGE.relative_to(ROOT)}")

    return 1 if verdict.differences else 0


if __name__ == "__main__":
    sys.exit(main())
