"""Shared by all tests: asynchronous ones run on asyncio, the supported loop; `bench` checks that nothing is left."""

import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest
import structlog

sys.path.insert(0, str(Path(__file__).parent / "servers"))

from workbench import Belongings, Bench, Ledger, left_since


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _quiet_log() -> Iterator[None]:
    """Capturing logs configures structlog for good, and its default prints: the next test begins without."""
    yield
    structlog.reset_defaults()


@pytest.fixture
async def bench(anyio_backend: object, tmp_path: Path) -> AsyncIterator[Bench]:
    """Servers for one test. After it no task, thread, descriptor or living child is left of them."""
    mark = f"{tmp_path.name}-{os.getpid()}"
    if anyio_backend != "asyncio":
        # What another loop opens for itself at its first child is its own.
        await anyio.run_process(["true"])

    ledger = Ledger(tmp_path / "ledger")
    before = Belongings.now(mark)
    yield Bench(ledger, mark)
    left = await left_since(before, mark)
    ledger.close()
    assert [] == left
