"""Shared by all tests: asynchronous ones run on asyncio, the supported loop."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
