"""A part of the SDK's own interaction suite, through our connection; `tests/interaction/run.py` runs the whole.

The suite comes out of the source distribution of the SDK; where that cannot be had, the test says why it is skipped.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "interaction"
PARTS = (
    "auth/test_lifecycle.py",
    "lowlevel/test_cancellation.py",
    "lowlevel/test_timeouts.py",
    "mcpserver/test_prompts.py",
    "transports",
)
"""What takes about a fifth of the whole, and has something of each transport and of each kind of reason in it."""
LEAST_PASSED = 70
"""Through a connection, of these parts; so that no fault of ours makes them pass by not connecting."""


def _load() -> ModuleType:
    """`run.py` under a name of its own: there are other modules called so."""
    spec = importlib.util.spec_from_file_location("interaction_suite_run", FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


suite = _load()


def outcome(*, outcome: str = "passed", connected: bool = True) -> dict[str, Any]:
    return {"outcome": outcome, "error": "", "connected": connected, "listed": False}


def group(*tests: str, ends: str = "fails") -> Any:
    return suite.Group(kind="design", ends=ends, why="so we decided", tests=tests)


@pytest.mark.slow
@pytest.mark.suite
@pytest.mark.network
@pytest.mark.timeout(600)
def test_a_part_of_the_sdk_s_interaction_suite_ends_as_it_is_listed() -> None:
    """Each test passes through our connection, or is listed with its reason and ends as the list says."""
    folder = suite.provide_suite()
    if not isinstance(folder, Path):
        pytest.skip(folder.reason)

    verdict = suite.judge(suite.run_suite(folder, PARTS), suite.read_groups(), whole=False)
    assert () == verdict.differences
    assert verdict.counts["through"] >= LEAST_PASSED


@pytest.mark.parametrize(
    ("name", "ended", "said"),
    [
        ("a.py::test_new", outcome(outcome="failed"), "through was expected, fails came"),
        ("a.py::test_new", outcome(connected=False), "through was expected, aside came"),
        ("a.py::test_listed[x]", outcome(), "fails was expected, through came"),
        ("a.py::test_listed[x]", outcome(connected=False), "fails was expected, aside came"),
        ("a.py::test_cell[in-memory]", outcome(outcome="failed"), "through was expected, fails came"),
        ("a.py::test_twice", outcome(outcome="failed"), "is listed 2 times"),
    ],
)
def test_a_test_that_ends_otherwise_than_listed_is_a_difference(name: str, ended: dict[str, Any], said: str) -> None:
    """Unexpected failures and unexpected passes count alike, and a pass without a connection of ours is none."""
    groups = [group("a.py::test_listed", "a.py::test_cell (sse-*)", "a.py::test_tw*"), group("a.py::test_twice")]
    (difference,) = suite.judge({name: ended}, groups, whole=False).differences
    assert said in difference


def test_what_ends_as_listed_makes_no_difference() -> None:
    """The other half of the check above."""
    groups = [group("a.py::test_listed", "a.py::test_cell (sse-*)"), group("a.py::test_raw", ends="aside")]
    ended = {
        "a.py::test_new": outcome(),
        "a.py::test_listed[x]": outcome(outcome="failed"),
        "a.py::test_cell[in-memory]": outcome(),
        "a.py::test_cell[sse-2025]": outcome(outcome="failed"),
        "a.py::test_raw": outcome(connected=False),
    }
    verdict = suite.judge(ended, groups, whole=True)
    assert () == verdict.differences
    assert {"through": 2, "fails": 2, "aside": 1} == verdict.counts


def test_a_pattern_that_names_no_test_is_a_difference() -> None:
    """The list does not outlive what it is about."""
    (difference,) = suite.judge({"a.py::test_new": outcome()}, [group("a.py::test_gone")], whole=True).differences
    assert "a.py::test_gone names no test" in difference


def test_the_page_has_the_reasons_of_the_list() -> None:
    """The page in the docs was written from the list as it stands."""
    text = suite.PAGE.read_text(encoding="utf-8")
    assert [] == [one.why for one in suite.read_groups() if one.why not in text]
