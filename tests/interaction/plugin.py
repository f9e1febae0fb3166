"""The pytest plugin of the child that runs the SDK's interaction suite: it puts our facade where the SDK's client was.

The suite is taken as it is. In its modules the names of the SDK's client and transports are bound to `facade`'s, its
fixture that expects a result's identity stamp expects none (our results carry no `_meta`), and what each test did is
written as JSON to the file that `$DEPUTY_MCP_INTERACTION_REPORT` names.
"""

import ast
import functools
import json
import os
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import facade
import places
import pytest
import running

SUITE = "tests.interaction"
REPORT_VARIABLE = "DEPUTY_MCP_INTERACTION_REPORT"
WARNINGS = """\
error
ignore:.*is deprecated as of 2026-07-28 \\(SEP-2577\\).:mcp.MCPDeprecationWarning
ignore:Client-to-server progress is deprecated as of 2026-07-28.*:mcp.MCPDeprecationWarning
ignore:ping is removed as of 2026-07-28.*:mcp.MCPDeprecationWarning"""
"""As the SDK's own configuration has them."""


class _Snapshots(ModuleType):
    """`inline_snapshot`, of which the suite uses one name: outside its recording mode, `snapshot(value)` is `value`."""

    @staticmethod
    def snapshot(value: Any) -> Any:
        return value


sys.modules["inline_snapshot"] = _Snapshots("inline_snapshot")
_outcomes: dict[str, dict[str, Any]] = {}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "requirement(id): the entry of the suite's manifest that a test is about")
    for line in WARNINGS.splitlines():
        config.addinivalue_line("filterwarnings", line)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Swap the SDK's client for the facade, wherever a module of the suite holds one of its names."""
    # Now: Python 3.11 cannot parse while a finalizer runs, and a test that failed leaves many behind.
    for item in session.items:
        _functions(item.path)

    import mcp
    from mcp.client import sse, stdio, streamable_http

    swaps: list[tuple[object, object]] = [
        (mcp.Client, facade.Client),
        (mcp.ClientSession, facade.ClientSession),
        (streamable_http.streamable_http_client, places.streamable_http_client),
        (sse.sse_client, places.sse_client),
        (stdio.stdio_client, places.stdio_client),
        (mcp.server.Server, running.Server),
        (sys.modules["tests._stamp"].unstamped, _as_it_is),
    ]
    for name, module in list(sys.modules.items()):
        if name.partition(SUITE)[0] == "" and name.startswith(SUITE):
            for key, value in list(vars(module).items()):
                for theirs, ours in swaps:
                    if value is theirs:
                        setattr(module, key, ours)


def _as_it_is(result: Any) -> Any:
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Function) -> Generator[None, object, object]:
    found = _Reader(_functions(item.path), item.originalname)
    now = running.Running(texts=tuple(found.texts), called=tuple(found.called))
    vars(running.running).update(vars(now))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    known = _outcomes.setdefault(item.nodeid.partition("tests/interaction/")[2], {"outcome": "passed", "error": ""})
    if report.outcome != "passed" and known["outcome"] == "passed":
        problem = _first(call.excinfo.value) if call.excinfo is not None else None
        known["outcome"] = report.outcome
        known["error"] = " ".join(f"{type(problem).__name__}: {problem}".split())[:300]

    known["connected"] = running.running.connected
    known["listed"] = running.running.listed
    return report


def _first(problem: BaseException | None) -> BaseException | None:
    """What a group of errors is about."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]

    return problem


def pytest_sessionfinish() -> None:
    if path := os.environ.get(REPORT_VARIABLE):
        Path(path).write_text(json.dumps(_outcomes, indent=1), encoding="utf-8")


class _Reader(ast.NodeVisitor):
    """What stands in a test's source, and in the functions of its module that it uses."""

    def __init__(self, functions: Mapping[str, ast.AST], test: str) -> None:
        self.texts: dict[str, None] = {}
        self.called: dict[str, None] = {}
        self._functions = functions
        self._seen = {test}
        self.visit(functions[test])

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self._functions and node.id not in self._seen:
            self._seen.add(node.id)
            self.visit(self._functions[node.id])

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and node.value:
            self.texts[node.value] = None

    def visit_Call(self, node: ast.Call) -> None:
        named = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        values = [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "name")]
        if named in ("call_tool", "CallToolRequestParams"):
            self.called |= {str(value.value): None for value in values if isinstance(value, ast.Constant)}

        self.generic_visit(node)


@functools.cache
def _functions(path: Path) -> Mapping[str, ast.AST]:
    """The functions of a module of the suite, by name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
