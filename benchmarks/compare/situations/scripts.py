"""Pieces of scripts that several situations use."""

from collections.abc import Mapping
from typing import Any

from benchmarks.compare.values import Script
from deputy_mcp.testing import tool

TOOLS = (tool("echo"), tool("well"))


def one(echo: Any = None, **fields: Any) -> Mapping[str, Script]:
    """A server with two tools: `echo` does as told, `well` is healthy."""
    calls = {} if echo is None else {"echo": echo}
    return {"main": {"tools": TOOLS, "calls": calls, **fields}}


def block(text: str) -> dict[str, Any]:
    """A tool's result."""
    return {"content": [{"type": "text", "text": text}]}


def answer(text: str, request_id: Any = "$id", **members: Any) -> dict[str, Any]:
    """A whole reply."""
    return {"jsonrpc": "2.0", "id": request_id, "result": block(text), **members}


def complete(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result with what 2026-07-28 requires of it."""
    return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}
