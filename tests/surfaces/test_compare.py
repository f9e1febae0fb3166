"""The comparison with the bare SDK and fastmcp: its verdicts, its situations and its page.

A few situations are run with real servers and the real clients; the whole table is `make compare`.
"""

import ast
from pathlib import Path
from types import FunctionType

import anyio
import pytest

import deputy_mcp.testing
from benchmarks.compare import page, runner, situations
from benchmarks.compare.__main__ import PAGE
from benchmarks.compare.environments import CLIENTS, Missing, Ready, is_installed, prepared
from benchmarks.compare.judging import Seen, Verdict, Word, judge
from benchmarks.compare.runner import Job
from benchmarks.compare.situations import HEADINGS, SITUATIONS
from benchmarks.compare.values import Call, Fails, Situation, Text
from deputy_mcp.testing import Action

BOUND_SECONDS = 40
"""For the few runs below, which take a few seconds."""

EXPECTED = {
    ("answer", "stdio"): dict.fromkeys(CLIENTS, Word.RIGHT),
    # The SDK's reader drops an invalid reply, and waits; its deadline is all that ends the call.
    ("no-result", "stdio"): {"deputy_mcp": Word.RIGHT, "bare SDK": Word.HANGS, "fastmcp": Word.HANGS},
    ("foreign-id", "http"): {"deputy_mcp": Word.RIGHT, "bare SDK": Word.LIES, "fastmcp": Word.LIES},
    ("hangs-up", "http"): {"deputy_mcp": Word.RIGHT, "bare SDK": Word.DIES, "fastmcp": Word.DIES},
    ("status-503", "http"): {"deputy_mcp": Word.RIGHT, "bare SDK": Word.ERROR, "fastmcp": Word.ERROR},
}
"""Known words, one of each kind; a new SDK may mend one, and then the page is due as well."""


@pytest.mark.slow
def test_a_few_situations_get_the_verdicts_that_they_are_known_to_deserve() -> None:
    """Real servers and real clients; fastmcp is run where its environment has been installed."""
    clients = {name: prepared(name) for name in CLIENTS if is_installed(name)}
    ready = {name: client for name, client in clients.items() if isinstance(client, Ready)}

    async def run() -> dict[Job, Verdict]:
        with anyio.fail_after(BOUND_SECONDS):
            return await runner.run([SITUATIONS[name] for name, _ in EXPECTED], ready, lambda *_: None)

    seen = {(job.situation.name, job.over, job.client): verdict for job, verdict in anyio.run(run).items()}
    for (name, over), words in EXPECTED.items():
        for client in ready:
            assert (words[client], client) == (seen[name, over, client].word, client), seen[name, over, client].remark


# -- verdicts --------------------------------------------------------------------------------------------------------

ASKED = Situation(
    name="asked", says="", source="", servers={}, steps=(Call(right=Text("fine")), Call(right=Fails(("503",)))), notes=1
)

OPEN = {"place": "open", "seconds": 0.1, "kind": "value"}
LISTED = {"place": 0, "seconds": 0.1, "kind": "value", "names": ["well", "echo"]}
ANSWERED = {"place": 1, "seconds": 0.1, "kind": "value", "text": "fine", "content": "fine", "failed": False}
FAILED = {"place": 2, "seconds": 0.1, "kind": "error", "error": "SomeError: HTTP status 503"}
CLOSED = {"place": "close", "seconds": 0.1, "kind": "value"}
TASK = {"place": "task", "seconds": 0.1, "kind": "value"}
WELL = (OPEN, LISTED, ANSWERED, FAILED, CLOSED, TASK)

CASES = {
    "all is well": ({}, {}, Word.RIGHT),
    "another text": ({1: ANSWERED | {"text": "another's"}}, {}, Word.LIES),
    "a failure in the tool's name": ({1: ANSWERED | {"failed": True}}, {}, Word.LIES),
    "a success for an error": ({2: ANSWERED | {"place": 2}}, {}, Word.LIES),
    "a tool missing from the listing": ({0: LISTED | {"names": ["well"]}}, {}, Word.LIES),
    "a tool twice in the listing": ({0: LISTED | {"names": ["well", "echo", "echo"]}}, {}, Word.LIES),
    "the effect twice": ({}, {"notes": 2}, Word.LIES),
    "an error for a result": ({1: FAILED | {"place": 1}}, {}, Word.ERROR),
    "an error that does not say": ({2: FAILED | {"error": "SomeError"}}, {}, Word.ERROR),
    "an error at the deadline": ({2: FAILED | {"seconds": 1.0}}, {}, Word.HANGS),
    "a result long after the deadline": ({1: ANSWERED | {"seconds": 1.6}}, {}, Word.HANGS),
    "no return": ({2: None, "close": None, "task": None}, {"ended": "bound"}, Word.HANGS),
    "no end": ({"close": None, "task": None}, {"ended": "bound"}, Word.HANGS),
    "a slow end": ({"close": CLOSED | {"seconds": 7.0}}, {}, Word.HANGS),
    "too much memory": ({}, {"ended": "memory"}, Word.DIES),
    "a crash": ({"task": None}, {"exit_code": -11}, Word.DIES),
    "a task cancelled afterwards": ({"task": TASK | {"kind": "torn", "error": "CancelledError"}}, {}, Word.DIES),
    "a block torn down": (
        {2: {"place": 2, "seconds": 0.1, "kind": "torn", "error": "ExceptionGroup"}, "close": None},
        {},
        Word.DIES,
    ),
    "processes left": ({}, {"left": 1}, Word.LEAKS),
    "the gravest counts": ({1: ANSWERED | {"text": "another's"}}, {"left": 1}, Word.LIES),
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_gets_the_gravest_word_that_fits(case: str) -> None:
    """Each word has its own evidence, and only *right* needs no remark."""
    changed, facts, word = CASES[case]
    record = [changed.get(line["place"], line) for line in WELL]
    verdict = judge(ASKED, Seen(record=[line for line in record if line is not None], **{"notes": 1, **facts}))
    assert word is verdict.word
    assert (word is Word.RIGHT) == (verdict.remark == "")


# -- situations ------------------------------------------------------------------------------------------------------

ACTIONS = sorted(
    name
    for name in deputy_mcp.testing.__all__
    if isinstance(one := getattr(deputy_mcp.testing, name), FunctionType) and one.__annotations__["return"] is Action
)


def played(folder: Path) -> set[str]:
    """The names that the situations' files call."""
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in folder.glob("*.py"))
    calls = (node.func for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name)}


def test_every_action_of_the_scripted_server_is_played_in_a_situation() -> None:
    """Whoever adds an action adds what the three clients make of it."""
    assert {"reply", "endless", "gzip_bomb", "spawn"} <= set(ACTIONS)
    assert [] == sorted(set(ACTIONS) - played(Path(str(situations.__file__)).parent))


def test_every_situation_has_a_name_of_its_own_and_says_where_its_right_value_stands() -> None:
    """A name is how the command line finds it; a source is how a reader judges it."""
    every = [one for group in HEADINGS.values() for one in group]
    assert len(every) == len(SITUATIONS)
    for one in every:
        assert one.says
        assert "#" in one.source or one.source == "the specification" or (PAGE.parents[1] / one.source).exists()


# -- the page --------------------------------------------------------------------------------------------------------


def fixed(text: str) -> list[str]:
    """The lines of a page without what a run brings: its date and versions, its counts, its verdicts and remarks."""
    lines: list[str] = []
    heading = ""
    for line in text.partition("\n## What was seen")[0].splitlines():
        heading = line if line.startswith("#") else heading
        if "Python 3." in line or (heading == "## Totals" and line.startswith("|")):
            continue

        cells = line.split(" | ")
        lines.append(" | ".join(cells[:3]) if len(cells) == 3 + len(CLIENTS) else line)

    return lines


def test_the_page_has_the_words_and_the_rows_of_today() -> None:
    """Only a run knows the verdicts; everything else on the page is written from the code, so it cannot be stale."""
    every = [one for group in HEADINGS.values() for one in group]
    verdicts = {Job(one, over, client): Verdict(Word.RIGHT) for one in every for over in one.over for client in CLIENTS}
    clients: dict[str, Ready | Missing] = {name: Ready("", "", name) for name in CLIENTS}
    written = fixed(PAGE.read_text(encoding="utf-8"))
    assert fixed(page.page(clients, verdicts)) == written
