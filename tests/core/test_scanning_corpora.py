"""The figures that are wanted of the scanner hold on the published lines and the real tools."""

import pytest

from benchmarks import scanning

pytestmark = pytest.mark.slow


@pytest.mark.anyio
async def test_the_wanted_figures_hold():
    """Recall, false alarms, placements, encodings and characters, as `make bench` prints them; not the times."""
    rows = [row for row in await scanning.run() if not row[0].startswith("time,")]
    assert len(rows) > 50
    assert [] == [row for row in rows if not row[2]]
