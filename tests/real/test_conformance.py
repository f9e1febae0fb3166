"""A part of the official client conformance suite, with our connection as the client; `make conformance` runs it all.

The suite comes from a registry; where it cannot be had, the tests say why they are skipped.
"""

import sys
from pathlib import Path

import pytest

CONFORMANCE = Path(__file__).resolve().parents[1] / "conformance"
sys.path.insert(0, str(CONFORMANCE))

from conformance_suite import PASS_TIMEOUT_SECONDS, PIN, Missing, Pass, installed, required, run  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.suite,
    pytest.mark.network,
    # The first of them may install Node and the suite: up to four commands, each bounded by itself.
    pytest.mark.timeout(PASS_TIMEOUT_SECONDS + 240),
]

PAGE = CONFORMANCE.parents[1] / "docs" / "reference" / "conformance.md"
REVISION = "2026-07-28"
LEAST_REQUIRED = 32
"""What the revision requires of a client is frozen: a pass of fewer scenarios has not run them all."""


@pytest.fixture(scope="module")
def command() -> tuple[str, ...]:
    """The suite, installed."""
    found = installed()
    if isinstance(found, Missing):
        pytest.skip(found.reason)

    return found


def test_our_connection_passes_all_that_the_newest_revision_requires_of_a_client(command: tuple[str, ...]) -> None:
    """The suite has no fault to find in what came over the wire, and each client ended as it should."""
    done = run(command, required(REVISION))
    scored = [row for row in done.rows if row.scenario not in done.not_scored]
    assert [] == [row for row in scored if row.verdict != "passes"]
    assert LEAST_REQUIRED <= len(scored)


def test_a_client_that_does_nothing_does_not_pass(command: tuple[str, ...], tmp_path: Path) -> None:
    """What the suite looks for must have happened; that a client ended well is not enough."""
    idle = tmp_path / "idle.py"
    idle.write_text("""print('{"revision": "2026-07-28", "ended": "done"}')""", encoding="utf-8")
    (row,) = run(command, Pass("one", ("--scenario", "tools_call")), client=idle).rows
    assert "fails" == row.verdict
    assert any("tool-add-numbers" in fault for fault in row.faults)


def test_the_page_of_results_is_of_the_suite_that_is_pinned() -> None:
    """Another pin is another suite: the page is made anew by `make conformance`."""
    assert f"`{PIN}`" in PAGE.read_text(encoding="utf-8")
