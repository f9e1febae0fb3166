"""How quick a governed call is, beside the bare SDK's client, the peers, and the floor below which nothing goes.

`python -m benchmarks.speed` prints tables; with `--write` it becomes `docs/explanation/speed.md`.

- `clients` are the columns, each in a process and, where versions may clash, an environment of its own; `drivers` hold
  one file per client; `rounds` has them measured in turn, one at a time;
- `works` is what they do; `parts` and `lives` measure what only we have: a decision, a digest, a death, a close;
- `figures` is pure: medians, spreads, ratios paired within a round, verdicts; `page` and `plot` show them.

Ratios are to be read, not microseconds: the machine is whatever it is.
"""

from benchmarks.speed.figures import Row
from benchmarks.speed.report import measure


async def run() -> list[Row]:
    """Rows of (what, figure, holds)."""
    return list((await measure()).rows)
