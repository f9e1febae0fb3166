"""Imports run one way, and the SDK is touched where it may be: the house's rules, read out of the sources by `ast`.

`_core` ← `_runtime` ← surfaces ← `adapters`. Each rule is tried on a source that breaks it, too.
"""

import ast
import functools
import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import mcp
import pytest
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import CallOptions, Dispatcher, Outbound
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

from deputy_mcp._runtime.transports.http import HttpDispatcher
from deputy_mcp._runtime.transports.stream_dispatcher import StreamDispatcher

PACKAGE = Path(__file__).parents[1] / "deputy_mcp"

CORE, RUNTIME, SURFACE, ADAPTER, ROOT = range(5)
LEVELS = {"_version": CORE, "_core": CORE, "_runtime": RUNTIME, "adapters": ADAPTER, "__main__": SURFACE}
"""Everything else of the package is a surface; the package itself (`__init__`) only gathers names and stands on top."""

WORLD = """
os time random asyncio secrets uuid socket select selectors subprocess threading multiprocessing concurrent signal
shutil tempfile glob io logging sqlite3 http ftplib smtplib platform locale getpass pty fcntl resource ctypes
builtins importlib runpy contextvars sched queue
"""
IMPURE = frozenset(WORLD.split())
"""Of the standard library, what reads a clock, the environment, files, chance or other processes."""
IMPURE_MEMBERS = {"pathlib": {"Path", "PosixPath", "WindowsPath"}, "urllib": {"request"}, "urllib.request": None}
IMPURE_CALLS = frozenset({"open", "input", "print", "exec", "eval", "__import__", "breakpoint"})
CLOCKS = frozenset({"now", "utcnow", "today", "monotonic", "perf_counter", "environ", "getenv"})
CORE_LIBRARIES = frozenset({"attrs", "pydantic_core", "rfc8785"})
SDK = frozenset({"mcp", "mcp_types"})
SDK_SEAMS = ("deputy_mcp._runtime.session", "deputy_mcp._runtime.transports")
"""The modules that may use `mcp.client` and `mcp.shared`."""
PEER = "deputy_mcp.testing.peer."


@dataclass(frozen=True)
class Source:
    """One module: its name, its tree, and the package that its relative imports start from."""

    name: str
    tree: ast.Module
    package: str

    @property
    def level(self) -> int:
        room = self.name.removeprefix("deputy_mcp").lstrip(".").partition(".")[0]
        return ROOT if not room else LEVELS.get(room, SURFACE)


@dataclass(frozen=True)
class Import:
    """One imported module or member: `from a.b import c` is `a.b` and `c`."""

    module: str
    member: str | None
    line: int


def read(name: str, text: str) -> Source:
    package = name.removesuffix(".__init__") if name.endswith(".__init__") else name.rpartition(".")[0]
    return Source(name.removesuffix(".__init__"), ast.parse(text), package)


@functools.cache
def sources() -> tuple[Source, ...]:
    files = sorted(PACKAGE.rglob("*.py"))
    names = (".".join(("deputy_mcp", *file.relative_to(PACKAGE).with_suffix("").parts)) for file in files)
    return tuple(read(name, file.read_text()) for name, file in zip(names, files, strict=True))


def imports(source: Source) -> Iterator[Import]:
    """Every import, those inside functions and under TYPE_CHECKING too."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, None, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = source.package.split(".")[: len(source.package.split(".")) - node.level + 1] if node.level else []
            module = ".".join((*above, node.module) if node.module else above)
            yield from (Import(module, alias.name, node.lineno) for alias in node.names)


def level_of(found: Import) -> int | None:
    """The level of what is imported; None: it is not ours."""
    top, _, rest = found.module.partition(".")
    if top != "deputy_mcp":
        return None

    room = rest.partition(".")[0] or (found.member or "")
    is_module = rest or (PACKAGE / f"{room}.py").exists() or (PACKAGE / room).is_dir()
    return LEVELS.get(room, SURFACE) if is_module else ROOT


def said(source: Source, one: Import) -> str:
    return f"{source.name}:{one.line} imports {one.module} {one.member or ''}".rstrip()


# -- the rules: each gives one line for each breach ------------------------------------------------------------------


def upward(source: Source) -> list[str]:
    """Imports of something that stands higher; the package itself stands above all."""
    found = []
    for one in imports(source):
        level = level_of(one)
        if level is not None and level > source.level:
            found.append(said(source, one))

    return found


def impure(source: Source) -> list[str]:
    """What `_core` may not touch."""
    found = []
    for one in imports(source):
        top = one.module.partition(".")[0]
        members = IMPURE_MEMBERS.get(one.module, frozenset())
        banned_member = members is None or one.member in members or (one.member is None and one.module == "pathlib")
        foreign = top not in sys.stdlib_module_names and top not in CORE_LIBRARIES and top != "deputy_mcp"
        if top in IMPURE or banned_member or foreign:
            found.append(said(source, one))

    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            found.append(f"{source.name}:{node.lineno} calls {node.func.id}()")
        elif isinstance(node, ast.Attribute) and node.attr in CLOCKS:
            found.append(f"{source.name}:{node.lineno} reads .{node.attr}")

    return found


def astray(source: Source) -> list[str]:
    """`mcp.client` and `mcp.shared` outside the seams, by whatever way they are imported."""
    if source.name.startswith(SDK_SEAMS):
        return []

    found = []
    for one in imports(source):
        if one.module.partition(".")[0] != "mcp":
            continue

        member = getattr(mcp, one.member, None) if one.module == "mcp" and one.member else None
        # The SDK's one error is named wherever a call may fail; it opens nothing.
        home = "" if one.member == "MCPError" else str(getattr(member, "__module__", getattr(member, "__name__", "")))
        whole = one.module == "mcp" and one.member is None
        if (
            whole
            or f"{one.module}.".startswith(("mcp.client.", "mcp.shared."))
            or home.startswith(("mcp.client", "mcp.shared"))
        ):
            found.append(said(source, one))

    return found


def private(source: Source, ours: frozenset[str]) -> list[str]:
    """Private modules and members of the SDK, and private attributes that nothing of ours defines."""
    found = [
        said(source, one)
        for one in imports(source)
        if one.module.partition(".")[0] in SDK and any(map(is_private, (*one.module.split("."), one.member or "")))
    ]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node.value):
            name, value = node.attr, node.value
            of_python = isinstance(value, ast.Name) and value.id in sys.stdlib_module_names  # os._exit
            if not of_python and (name not in ours or name in SDK_PRIVATE):
                found.append(f"{source.name}:{node.lineno} reads .{name}")

    return found


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def defined(trees: Iterable[ast.AST]) -> frozenset[str]:
    """The private names that these sources define: functions, classes, variables, and attributes of `self`."""
    names = set()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
                names.add(node.attr)

    return frozenset(name for name in names if is_private(name))


SDK_PRIVATE = defined(
    ast.parse(inspect.getsource(import_module(kind.__module__))) for kind in (ClientSession, JSONRPCDispatcher)
)
"""What the SDK's sessions and dispatchers keep to themselves, `_task_group` among it."""


# -- on our sources --------------------------------------------------------------------------------------------------


def breaches(rule: Any, chosen: Iterable[Source], *more: Any) -> list[str]:
    return [line for source in chosen for line in rule(source, *more)]


def test_the_package_is_read_whole() -> None:
    """The checks below see the rooms they speak of."""
    names = {source.name for source in sources()}

    assert {"deputy_mcp", "deputy_mcp._core.errors", "deputy_mcp._runtime.transports.http", "deputy_mcp.cli"} <= names


def test_no_import_runs_upward() -> None:
    """`_core` ← `_runtime` ← surfaces ← `adapters`; the package itself is imported by none of them."""
    assert [] == breaches(upward, sources())


def test_the_core_is_pure() -> None:
    """The standard library without clock, environment, chance, files and tasks; attrs, and small pure libraries."""
    assert [] == breaches(impure, (source for source in sources() if source.name.startswith("deputy_mcp._core")))


def test_only_the_session_and_the_transports_use_the_clients_side_of_the_sdk() -> None:
    """`mcp.client` and `mcp.shared` are imported in `session.py` and `transports/`, and nowhere else."""
    assert [] == breaches(astray, sources())


def test_no_private_name_of_the_sdk_is_used() -> None:
    """Neither an underscored module or member, nor an attribute that the SDK keeps to itself."""
    found = sources()

    assert [] == breaches(private, found, defined(source.tree for source in found))


def test_nothing_of_the_library_imports_its_doubles() -> None:
    """`deputy_mcp.testing` is for those who test; the library runs without it."""
    rest = [source for source in sources() if not source.name.startswith("deputy_mcp.testing")]

    assert [] == [
        s.name for s in rest for one in imports(s) if f"{one.module}.{one.member}".startswith("deputy_mcp.testing")
    ]


def test_the_scripted_peer_needs_only_the_standard_library_and_itself() -> None:
    """It is started without `site-packages` and outside the package: whatever else it imported would not be there."""
    peers = [source for source in sources() if f"{source.name}.".startswith(PEER)]
    foreign = [
        said(source, one)
        for source in peers
        for one in imports(source)
        if one.module.partition(".")[0] not in sys.stdlib_module_names and not f"{one.module}.".startswith(PEER)
    ]

    assert peers
    assert [] == foreign


def test_the_package_itself_only_gathers_names() -> None:
    """`__init__` has a docstring, imports and `__all__`: nothing runs there that could fail or be patched."""
    (root,) = (source for source in sources() if source.name == "deputy_mcp")
    docstring, *rest = root.tree.body

    assert isinstance(docstring, ast.Expr)
    assert {ast.ImportFrom, ast.Assign} == {type(node) for node in rest}
    assert ["__all__"] == [ast.unparse(node.targets[0]) for node in rest if isinstance(node, ast.Assign)]


# -- the rules find what they are for --------------------------------------------------------------------------------

BROKEN = [
    (upward, "deputy_mcp._core.x", "from deputy_mcp._runtime.gate import Gate"),
    (upward, "deputy_mcp._core.x", "def later():\n    import deputy_mcp.agent"),
    (upward, "deputy_mcp._runtime.x", "from deputy_mcp.tools import tools_mcp"),
    (upward, "deputy_mcp._runtime.x", "from deputy_mcp import tools"),
    (upward, "deputy_mcp._runtime.x", "from .. import agent"),
    (upward, "deputy_mcp.cli", "from deputy_mcp.adapters.langchain import wrap"),
    (upward, "deputy_mcp.cli", "from deputy_mcp import McpConnection"),
    (impure, "deputy_mcp._core.x", "import os"),
    (impure, "deputy_mcp._core.x", "from time import monotonic"),
    (impure, "deputy_mcp._core.x", "import pathlib"),
    (impure, "deputy_mcp._core.x", "from pathlib import Path"),
    (impure, "deputy_mcp._core.x", "import anyio"),
    (impure, "deputy_mcp._core.x", "from mcp_types import Tool"),
    (impure, "deputy_mcp._core.x", "text = open('x').read()"),
    (impure, "deputy_mcp._core.x", "from datetime import datetime\nnow = datetime.now()"),
    (astray, "deputy_mcp._runtime.gate", "from mcp.shared.dispatcher import Dispatcher"),
    (astray, "deputy_mcp.agent", "import mcp.client.stdio"),
    (astray, "deputy_mcp.agent", "from mcp import ClientSession"),
    (astray, "deputy_mcp.agent", "from mcp import client"),
    (astray, "deputy_mcp.agent", "import mcp"),
]


@pytest.mark.parametrize(("rule", "name", "text"), BROKEN, ids=[text.replace("\n", "; ") for _, _, text in BROKEN])
def test_a_source_that_breaks_a_rule_is_found(rule: Any, name: str, text: str) -> None:
    """Each rule, on a source that breaks it."""
    assert 1 == len(rule(read(name, text)))


@pytest.mark.parametrize(
    "text",
    [
        "from mcp._version import x",
        "from mcp.client.session import _helper",
        "session._task_group.cancel()",
        "x = self._session._dispatcher",
    ],
)
def test_a_source_that_uses_a_private_name_of_the_sdk_is_found(text: str) -> None:
    """Even where a name of ours is called the same."""
    assert 1 == len(private(read("deputy_mcp._runtime.session", text), frozenset({"_task_group", "_session"})))


# -- the seam that may move ------------------------------------------------------------------------------------------

REQUIRED = inspect.Parameter.empty
SEAM: dict[str, list[tuple[str, Any, Any]]] = {
    "run": [
        ("on_request", inspect.Parameter.POSITIONAL_OR_KEYWORD, REQUIRED),
        ("on_notify", inspect.Parameter.POSITIONAL_OR_KEYWORD, REQUIRED),
        ("on_notify_intercept", inspect.Parameter.POSITIONAL_OR_KEYWORD, None),
        ("task_status", inspect.Parameter.KEYWORD_ONLY, anyio.TASK_STATUS_IGNORED),
    ],
    "send_raw_request": [
        ("method", inspect.Parameter.POSITIONAL_OR_KEYWORD, REQUIRED),
        ("params", inspect.Parameter.POSITIONAL_OR_KEYWORD, REQUIRED),
        ("opts", inspect.Parameter.POSITIONAL_OR_KEYWORD, None),
    ],
    "notify": [
        ("method", inspect.Parameter.POSITIONAL_OR_KEYWORD, REQUIRED),
        ("params", inspect.Parameter.POSITIONAL_OR_KEYWORD, REQUIRED),
        ("opts", inspect.Parameter.POSITIONAL_OR_KEYWORD, None),
    ],
}
"""The signatures our dispatchers were written for."""


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    found: Sequence[inspect.Parameter] = tuple(inspect.signature(function).parameters.values())
    return [(one.name, one.kind, one.default) for one in found if one.name != "self"]


@pytest.mark.parametrize("method", SEAM)
def test_the_sdks_dispatcher_has_the_signature_ours_were_written_for(method: str) -> None:
    """The SDK calls this surface provisional; when it moves, somebody must look at our dispatchers."""
    assert SEAM[method] == parameters(getattr(Dispatcher, method))


@pytest.mark.parametrize("ours", [StreamDispatcher, HttpDispatcher])
@pytest.mark.parametrize("method", SEAM)
def test_our_dispatchers_can_be_called_as_the_sdks_are(ours: type, method: str) -> None:
    """The same parameters, of the same kind and with the same default, and room for later ones."""
    *same, later = parameters(getattr(ours, method))

    assert SEAM[method] == same
    assert inspect.Parameter.VAR_KEYWORD is later[1]


def test_the_sdks_dispatcher_asks_for_no_further_method() -> None:
    """Ours implement all there is to implement."""
    asked = {name for kind in (Dispatcher, Outbound) for name in vars(kind) if not name.startswith("_")}

    assert set(SEAM) == asked


def test_the_sdks_call_options_are_those_our_dispatchers_know() -> None:
    """A new option would be ignored by ours without a word."""
    known = {"request_id", "timeout", "cancel_on_abandon", "on_progress", "headers"}
    ignored = {"resumption_token", "on_resumption_token"}  # of the SDK's own HTTP transport

    assert known | ignored == set(CallOptions.__annotations__)
