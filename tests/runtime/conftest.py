"""Fixtures: a ledger and a mark for each test, and a check after each that nothing is left."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))

from workbench import Bench, Belongings, Ledger, left_since  # noqa: E402 - found through the line above


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def bench(anyio_backend: object, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    """Servers for one test. After it no task, thread, descriptor or living child is left of them."""
    mark = f"{request.node.name}-{tmp_path.name}"
    ledger = Ledger(tmp_path / "ledger")
    before = Belongings.now(mark)
    yield Bench(ledger, mark)
    left = await left_since(before, mark)
    ledger.close()
    assert [] == left
