"""What one run found, as the JSON that is kept in `benchmarks/results/` and that the page is drawn from."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from benchmarks.compare.environments import ROOT
from benchmarks.compare.table import machine
from benchmarks.speed.figures import Figure, Row

FILE = ROOT / "benchmarks" / "results" / "bench.json"


@frozen
class Results:
    """One run of everything."""

    measured: str
    """The day."""
    machine: str
    versions: Mapping[str, str]
    left_out: Mapping[str, str]
    """Clients, or clients and a work, with the reason."""
    figures: Sequence[Figure]
    rows: Mapping[str, Sequence[Row]]
    """By benchmark; what belongs to another row, and is indented for it, is not kept."""


def results(
    versions: Mapping[str, str],
    left_out: Mapping[str, str],
    figures: Sequence[Figure],
    rows: Mapping[str, Sequence[Row]],
) -> Results:
    """Of today, on this machine."""
    kept = {name: [row for row in part if not row[0].startswith("  ")] for name, part in rows.items()}
    return Results(f"{datetime.now(UTC):%Y-%m-%d}", machine(), versions, left_out, figures, kept)


def save(found: Results, path: Path = FILE) -> None:
    """Write them. Four digits of each sample are more than it means."""
    text = json.dumps(asdict(found, value_serializer=_short), indent=1, ensure_ascii=False)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")


def _short(_: object, __: object, value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def load(path: Path = FILE) -> Results:
    """Read them."""
    found = json.loads(path.read_text(encoding="utf-8"))
    figures = [Figure(**one) for one in found.pop("figures")]
    rows = {name: [(what, text, holds) for what, text, holds in part] for name, part in found.pop("rows").items()}
    return Results(**found, figures=figures, rows=rows)
