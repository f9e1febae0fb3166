"""The benchmark of speed measures what it says, and its page is the kept results and nothing else."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from attrs import evolve
from workbench import within

from benchmarks.speed import page, results
from benchmarks.speed.clients import FLOOR, OURS, SDK, Client
from benchmarks.speed.figures import Figure, Wanted, judge
from benchmarks.speed.plot import svg
from benchmarks.speed.rounds import Failures, Job, measured, opened, stdio
from benchmarks.speed.table import table

FIGURE = Figure("echo", "CPU", "µs", SDK, {SDK: [1.0, 10.0, 2.0], OURS: [0.5, 20.0, 1.0]})


def of(name: str, driver: str) -> Client:
    return Client(name, sys.executable, f"benchmarks.speed.drivers.{driver}", name)


def test_a_ratio_is_paired_within_its_round() -> None:
    """A round in which the machine was busy counts once, and not against one of the two."""
    assert 0.5 == FIGURE.ratio(OURS)
    assert 1.0 == FIGURE.median(OURS)
    assert (0.5, 20.0) == FIGURE.spread(OURS)


@pytest.mark.parametrize(
    ("wish", "holds"),
    [
        (Wanted("echo", "CPU", OURS, 0.5), True),
        (Wanted("echo", "CPU", OURS, 0.49), False),
        (Wanted("echo", "CPU", OURS, least=0.5), True),
        (Wanted("echo", "CPU", OURS, least=0.51), False),
        (Wanted("echo", "CPU", OURS, 1.0, absolute=True), True),
        (Wanted("echo", "CPU", OURS, 0.9, absolute=True), False),
        (Wanted("echo", "p50", OURS, 9.0), False),
        (Wanted("echo", "CPU", "nobody", 9.0), False),
    ],
)
def test_what_is_missed_or_was_not_measured_does_not_hold(wish: Wanted, holds: bool) -> None:
    """A wished figure that is not there is a miss, not a pass."""
    ((_, _, found),) = judge([FIGURE], [wish])
    assert holds == found


@pytest.mark.anyio
@within(60)
async def test_clients_are_measured_in_turn_and_one_that_fails_is_left_out() -> None:
    """The floor, the SDK and ours give every figure in every round; a driver that dies is named with its reason."""
    failures = Failures()
    broken = evolve(of("broken", "with_sdk"), driver="benchmarks.speed.drivers.no_such_driver")
    clients = [of(FLOOR, "with_floor"), of(SDK, "with_sdk"), broken, of(OURS, "with_deputy")]
    jobs = [Job("sequential", ("p50", "cpu"), {"calls": 5}), Job("flight", ("rate 4",), {"calls": 8, "in_flight": 4})]
    async with opened(clients, stdio(), failures, "echo") as drivers:
        samples = await measured(drivers, jobs, 2)
        counts = [await one.work("count") for one in drivers.values()]

    assert ["broken, echo"] == list(failures.reasons)
    assert {"p50", "cpu", "rate 4"} == set(samples)
    for by_client in samples.values():
        assert {FLOOR: 2, SDK: 2, OURS: 2} == {name: len(values) for name, values in by_client.items()}

    # Each called as often as it was told, warm-up and this last count included, and listed once, at its start.
    assert [(1, counts[0]["calls"])] * 3 == [(one["listings"], one["calls"]) for one in counts]


def test_the_page_and_the_plot_are_drawn_from_the_kept_results() -> None:
    """Nobody edits them by hand, and they are never of another run than the file beside them."""
    kept = results.load()
    assert (page.FOLDER / "speed.md").read_text(encoding="utf-8") == page.page(kept)
    drawn = svg(kept.figures)
    assert (page.FOLDER / "speed.svg").read_text(encoding="utf-8") == drawn
    assert "svg" in ElementTree.fromstring(drawn).tag


def test_results_come_back_as_they_were_kept(tmp_path: Path) -> None:
    """What is written is what is read, and every client stands in the table."""
    kept = results.results({SDK: "mcp 1"}, {"peer": "no"}, [FIGURE], {"speed": [("a", "b", True), ("  c", "d", True)]})
    results.save(kept, tmp_path / "bench.json")
    found = results.load(tmp_path / "bench.json")
    assert kept == found
    assert [("a", "b", True)] == found.rows["speed"]
    assert 4 == len(list(table(found.figures))) + 1
