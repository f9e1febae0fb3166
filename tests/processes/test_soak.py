"""A few seconds of the soak, of which `make soak` makes ten minutes; and its books, which notice what they should."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from workbench import within

from deputy_mcp import Journal
from tests.soak.books import Books, Ending, Ledger
from tests.soak.journal import compare_journal
from tests.soak.plan import make_plan
from tests.soak.run import soak

SEED = 3
SECONDS = 6


@pytest.mark.anyio
@pytest.mark.slow
@within(110)
async def test_twenty_servers_killed_flooded_and_restarted_under_calls_leave_books_that_agree(tmp_path: Path) -> None:
    """Every call ended once, in time, with its own result or an honest error; nothing ran twice; nothing is left."""
    report = await soak(SEED, SECONDS, tmp_path)
    print("\n".join(report.lines()))
    assert [] == report.differences

    # A soak in which nothing happened would agree with itself as well.
    assert report.by_kind[Ending.RESULT] > 50
    assert all(report.by_kind[kind] for kind in (Ending.NOT_SENT, Ending.UNKNOWN, Ending.CANCELLED))
    assert report.processes > 25
    assert report.states["backing_off"] > 5
    assert report.runs > report.by_kind[Ending.RESULT]


# -- the books themselves --------------------------------------------------------------------------------------------


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Books]:
    books = Books(make_plan(SEED, tmp_path), tmp_path / "book.jsonl")
    yield books
    books.close()


def enter(books: Books, ending: Ending, arrivals: int, *, repeatable: bool = False, refusing: bool = False) -> int:
    """A call in the book and in its server's ledger."""
    server, tool = next(
        (server.name, name)
        for server in books.servers
        for name, what in server.tools.items()
        if what.runs is not refusing and what.arrivals == 1
    )
    call = books.open(server, tool, repeatable=repeatable)
    if ending is not Ending.OPEN:
        books.end(call, ending, ending.name.lower())

    for _ in range(arrivals):
        books.count(server, call)

    return call


def end_twice(books: Books) -> None:
    books.end(enter(books, Ending.RESULT, 1), Ending.UNKNOWN, "lost")


def arrive_elsewhere(books: Books) -> None:
    books.count("sse01", enter(books, Ending.UNKNOWN, 0))


def arrive_from_nowhere(books: Books) -> None:
    books.count("sse01", len(books))


MISTAKES: dict[str, tuple[Callable[[Books], object], str]] = {
    "a result that nobody computed": (lambda b: enter(b, Ending.RESULT, 0), "ran 0 times"),
    "a result computed twice": (lambda b: enter(b, Ending.RESULT, 2), "ran 2 times"),
    "a call replayed after a loss": (lambda b: enter(b, Ending.UNKNOWN, 2), "ran 2 times"),
    "a call replayed after a cancellation": (lambda b: enter(b, Ending.CANCELLED, 2), "ran 2 times"),
    "a repeatable call that ran a third time": (lambda b: enter(b, Ending.UNKNOWN, 3, repeatable=True), "ran 3 times"),
    "not sent, but it ran": (lambda b: enter(b, Ending.NOT_SENT, 1), "NOT_SENT and ran 1 times"),
    "not sent, but it ran, being repeatable": (
        lambda b: enter(b, Ending.NOT_SENT, 1, repeatable=True),
        "NOT_SENT and ran 1 times",
    ),
    "refused, but it ran": (lambda b: enter(b, Ending.REFUSED, 1), "REFUSED and ran 1 times"),
    "a result from a server that refuses": (lambda b: enter(b, Ending.RESULT, 1, refusing=True), "gave a result"),
    "a refusal asked about again": (lambda b: enter(b, Ending.REFUSED, 2, refusing=True), "asked for 2 times"),
    "a call without an end": (lambda b: enter(b, Ending.OPEN, 1), "never ended"),
    "a call with two ends": (end_twice, "ended twice"),
    "a call that ran on another server": (arrive_elsewhere, "arrived at sse01"),
    "a call that was never made": (arrive_from_nowhere, "never made"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_one_wrong_call_among_right_ones_is_found_and_named(mistake: str, books: Books) -> None:
    """The rules of the books, each broken once."""
    for ending, arrivals, repeatable, refusing in (
        (Ending.RESULT, 1, False, False),
        (Ending.RESULT, 2, True, False),
        (Ending.NOT_SENT, 0, True, False),
        (Ending.UNKNOWN, 0, False, False),
        (Ending.UNKNOWN, 1, False, False),
        (Ending.CANCELLED, 1, False, False),
        (Ending.REFUSED, 1, False, True),
    ):
        enter(books, ending, arrivals, repeatable=repeatable, refusing=refusing)

    books.compare()
    assert [] == books.differences

    make, words = MISTAKES[mistake]
    make(books)
    books.compare()
    assert 1 == len(books.differences)
    assert words in books.differences[0]


# -- the journal beside them -----------------------------------------------------------------------------------------


def write_journal(path: Path, call: int, *, announced: bool = True, outcomes: Sequence[str | None] = (None,)) -> None:
    """The lines of one call."""
    journal = Journal(path, record_arguments=True)
    journal.open()
    arguments = b'{"call":%d}' % call
    if announced:
        journal.append("call", call=1, server="stdio00", tool="echo", arguments=arguments)

    for outcome in outcomes:
        code = None if outcome is None else "cancelled" if outcome == "not_sent" else "call_timeout"
        journal.append("result", call=1, arguments=arguments, error_code=code, outcome=outcome)

    journal.close()


JOURNALS: dict[str, tuple[dict[str, Any], Ending, str]] = {
    "nothing wrong": ({}, Ending.RESULT, ""),
    "sent without being announced": ({"announced": False}, Ending.RESULT, "announced 0 times"),
    "two ends": ({"outcomes": (None, None)}, Ending.RESULT, "has 2 ends"),
    "no end": ({"outcomes": ()}, Ending.RESULT, "has 0 ends"),
    "another end": ({"outcomes": ("unknown",)}, Ending.RESULT, "stands in the journal as UNKNOWN"),
    "cancelled as if not sent": ({"outcomes": ("not_sent",)}, Ending.CANCELLED, "in the journal as not sent"),
}


@pytest.mark.parametrize("case", JOURNALS)
def test_a_journal_that_says_something_else_is_a_difference(case: str, books: Books, tmp_path: Path) -> None:
    """The journal is the third book; each of its rules broken once."""
    options, ending, words = JOURNALS[case]
    write_journal(tmp_path / "journal", enter(books, ending, 1), **options)
    compare_journal(tmp_path / "journal", books)
    assert (1 if words else 0) == len(books.differences)
    assert all(words in difference for difference in books.differences)


def test_a_journal_with_a_line_changed_is_a_difference(books: Books, tmp_path: Path) -> None:
    """Its chain is checked, not only its lines."""
    path = tmp_path / "journal"
    write_journal(path, enter(books, Ending.RESULT, 1))
    path.write_bytes(path.read_bytes().replace(b'"tool":"echo"', b'"tool":"ohce"'))
    compare_journal(path, books)
    assert 1 == len(books.differences)
    assert "journal is" in books.differences[0]


# -- ledgers and plan ------------------------------------------------------------------------------------------------


def test_a_ledger_is_read_as_it_grows_and_a_torn_line_is_counted(books: Books) -> None:
    """Half a line is left for later; a line whose writer was killed in it is no reason to read no further."""
    server = books.servers[0]
    ledger = Ledger(server, books.count)
    ledger.read()
    for _ in range(3):
        books.open(server.name, "echo", repeatable=False)

    path = server.script.ledger_path
    path.write_text('{"kind": "started", "pid": 7}\n{"kind": "ran", "tool": "echo", "argu')
    ledger.read()
    assert ([7], 0) == (ledger.pids, ledger.runs)

    with path.open("a") as file:
        file.write('ments": {"call": 1}}\n{"kind": "ran", "tool"{"kind": "started", "pid": 8}\n')
        file.write('{"kind": "ran", "tool": "echo", "arguments": {"call": 2}}\n')

    ledger.read()
    assert (2, 1) == (ledger.runs, ledger.torn)
    assert [0, 1, 1] == list(books.arrived)
    assert [] == books.differences


def test_a_seed_gives_the_same_servers_again(tmp_path: Path) -> None:
    """Otherwise the printed seed would be worth nothing."""
    first, again, other = (make_plan(seed, tmp_path) for seed in (SEED, SEED, SEED + 1))
    assert list(map(str, first)) == list(map(str, again))
    assert list(map(str, first)) != list(map(str, other))
    assert 20 == len(first)
