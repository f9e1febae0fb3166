"""What a user's type checker says of the public API: nothing of what is right, and the right thing of what is wrong."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RIGHT, WRONG = HERE / "public_api.py", HERE / "mistakes.py"

Errors = dict[int, set[str]]
"""The codes by line."""


@pytest.fixture(scope="module")
def found() -> dict[Path, Errors]:
    """What mypy finds, strictly, in both files: one run, with the cache that `make lint` fills too."""
    from mypy import api

    out, err, _ = api.run(["--strict", "--config-file", str(ROOT / "pyproject.toml"), *map(str, (RIGHT, WRONG))])
    errors: dict[Path, Errors] = {RIGHT: defaultdict(set), WRONG: defaultdict(set)}
    for line in out.splitlines():
        match = re.fullmatch(r"(.+?):(\d+): error: .*\[([\w-]+)\]", line)
        if match:
            errors[ROOT / match[1]][int(match[2])].add(match[3])

    assert "" == err
    assert re.search(r"^(Found \d+ error|Success)", out, re.MULTILINE), out
    return errors


def test_a_program_that_uses_the_api_as_documented_has_no_type_errors(found: dict[Path, Errors]) -> None:
    """Strictly checked: every public function is typed, and gives what its page says."""
    lines = RIGHT.read_text().splitlines()

    assert [] == [f"{number}: {lines[number - 1].strip()}  # {codes}" for number, codes in sorted(found[RIGHT].items())]


EXPECTED = {
    number: set(marked[1].split(", "))
    for number, line in enumerate(WRONG.read_text().splitlines(), 1)
    if (marked := re.search(r"# E: (.+)$", line))
}


@pytest.mark.parametrize(
    "number", EXPECTED, ids=lambda n: WRONG.read_text().splitlines()[n - 1].split("  # E")[0].strip()
)
def test_a_mistake_is_found_by_the_type_checker(found: dict[Path, Errors], number: int) -> None:
    """Before the program is run."""
    assert EXPECTED[number] & found[WRONG][number]


def test_the_type_checker_finds_nothing_else_in_the_mistakes(found: dict[Path, Errors]) -> None:
    """Each line has the one mistake it is there for."""
    assert {} == {number: codes for number, codes in found[WRONG].items() if codes - EXPECTED.get(number, set())}
