"""The docs do what they say: programs run, outputs match, links resolve, names and codes are complete.

How a page is written (each page has a folder of its own, in which its blocks run in order):

- a ```python block is a whole program and is run; a ```text block that follows it is what it prints (`...` stands for
  anything);
- a ```python fragment block is only compiled; names from outside, `await` and `async with` may stand in it;
- `<!-- file: NAME -->` above a block writes it into the folder instead of running it; `<!-- from: PAGE NAME -->` takes
  such a file over from another page; `<!-- setup: git repository -->` makes the folder one;
- in a ```console block the lines that begin with `$ ` are run, and what follows each is its output;
- ```json blocks are read as configuration files are; ```sh blocks are for people only.
"""

import ast
import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

import deputy_mcp
from deputy_mcp._core.lifecycle import mermaid
from deputy_mcp._runtime.configfile import load_config, parse_jsonc

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")])
PROGRAM_SECONDS = 60
"""One program or command; a hang in the docs must not be one of the suite."""

_BLOCK = re.compile(
    r"^(?:<!-- (?P<key>file|from|setup): (?P<value>.+?) -->\n)?"
    r"```(?P<language>[a-z]+)(?P<mark>[ \w]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


class Block:
    """One fenced block of a page."""

    def __init__(self, page: Path, found: re.Match[str]) -> None:
        self.page = page
        self.key, self.value = found["key"], found["value"]
        self.language, self.mark, self.text = found["language"], found["mark"].strip(), found["text"]
        self.line = found.string.count("\n", 0, found.start("text"))
        self.place = f"{page.relative_to(ROOT)}:{self.line}"


@cache
def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@cache
def blocks(page: Path) -> tuple[Block, ...]:
    return tuple(Block(page, found) for found in _BLOCK.finditer(read(page)))


def file_block(page: Path, name: str) -> Block:
    return next(block for block in blocks(page) if (block.key, block.value) == ("file", name))


def is_run(block: Block) -> bool:
    return ((block.language, block.mark) == ("python", "") and block.key != "file") or block.language == "console"


def environment(home: Path) -> dict[str, str]:
    """A reader's: the installed commands on the PATH, an empty home, no colours."""
    scripts = os.path.dirname(sys.executable)
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "TMPDIR")}
    return kept | {
        "PATH": f"{scripts}{os.pathsep}{kept.get('PATH', os.defpath)}",
        "HOME": str(home),
        "PYTHONIOENCODING": "utf-8",
        "PYTHONWARNINGS": "error",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def compare(expected: str, got: str, place: str) -> None:
    lines = "\n".join(line.rstrip() for line in got.strip("\n").split("\n")) + "\n"
    wanted = "\n".join(line.rstrip() for line in expected.strip("\n").split("\n")) + "\n"
    same = doctest.OutputChecker().check_output(wanted, lines, doctest.ELLIPSIS)
    assert same, f"{place}: the docs show\n{wanted}\nand what came is\n{lines}"


def run(command: list[str], folder: Path, place: str, *, merge: bool) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merge else subprocess.PIPE,
            text=True,
            encoding="utf-8",
            timeout=PROGRAM_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"{place}: not over after {PROGRAM_SECONDS} s; it had printed {error.stdout!r}")


def run_program(block: Block, folder: Path) -> str:
    program = folder / f"program_{block.line}.py"
    program.write_text(block.text, encoding="utf-8")
    done = run([sys.executable, program.name], folder, block.place, merge=False)
    assert done.returncode == 0, f"{block.place} ended with {done.returncode}:\n{done.stderr}"
    assert done.stderr == "", f"{block.place} wrote to stderr:\n{done.stderr}"
    return done.stdout


def run_console(block: Block, folder: Path) -> None:
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        done = run(["bash", "-c", command], folder, block.place, merge=True)
        compare(expected, done.stdout, f"{block.place}: {command}")


def set_up(block: Block, folder: Path) -> None:
    if block.key == "file":
        (folder / block.value).write_text(block.text, encoding="utf-8")
    elif block.key == "from":
        page, name = block.value.split()
        (folder / name).write_text(file_block(DOCS / page, name).text, encoding="utf-8")
    elif block.key == "setup":
        assert block.value == "git repository"
        subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)


def ids(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


RUN_PAGES = [page for page in PAGES if any(is_run(block) for block in blocks(page))]


def run_page(page: Path, folder: Path) -> None:
    """Run the blocks of a page in order, and compare what they print with what it says."""
    printed: tuple[Block, str] | None = None
    for block in blocks(page):
        set_up(block, folder)
        if block.language == "text" and printed is not None:
            compare(block.text, printed[1], printed[0].place)

        printed = None
        if block.language == "console":
            run_console(block, folder)
        elif is_run(block):
            printed = block, run_program(block, folder)


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[Path, "Future[None]"]]:
    """The pages that were selected, on their way, two at a time: half of a program's time is spent waiting."""
    items = [item for item in request.session.items if item.path == Path(__file__) and "runs" in item.fixturenames]
    pages = [item.callspec.params["page"] for item in items]
    pool = ThreadPoolExecutor(2)
    try:
        yield {page: pool.submit(run_page, page, tmp_path_factory.mktemp("docs")) for page in pages}
    finally:
        pool.shutdown(cancel_futures=True)


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN_PAGES, ids=ids(RUN_PAGES))
def test_the_programs_and_commands_of_a_page_print_what_it_says(
    page: Path, runs: Mapping[Path, "Future[None]"]
) -> None:
    """Whole programs run as printed, on a reader's machine, without a warning or a word on stderr."""
    runs[page].result()


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_every_block_of_a_page_is_of_a_known_kind_and_well_formed(page: Path) -> None:
    """Python compiles, JSON is what our own reader takes, and no block is of a kind that nothing checks."""
    assert read(page).count("\n```") + read(page).startswith("```") == 2 * len(blocks(page)), "a block is not closed"
    for block in blocks(page):
        assert block.language in {"python", "text", "json", "console", "sh", "mermaid"}, block.place
        if block.language == "python":
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if block.mark == "fragment" else 0
            compile(block.text, block.place, "exec", flags=flags)
        elif block.language == "json":
            parse_jsonc(block.text)


class _AnyVariables(Mapping[str, str]):
    """An environment in which every variable is set."""

    def __getitem__(self, name: str) -> str:
        if name == "DEPUTY_MCP_CONFIG":
            raise KeyError(name)

        return "/home/reader" if name == "HOME" else "value"

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


CONFIGURATIONS = [
    block for page in PAGES for block in blocks(page) if block.language == "json" and block.mark != "fragment"
]


@pytest.mark.parametrize("block", CONFIGURATIONS, ids=[block.place for block in CONFIGURATIONS])
def test_every_configuration_in_the_docs_is_accepted(block: Block, tmp_path: Path) -> None:
    """What the docs show as a configuration file is one, without a warning."""
    file = tmp_path / "mcp.json"
    file.write_text(block.text, encoding="utf-8")
    load_config(file, env=_AnyVariables())


def prose(page: Path) -> str:
    """A page without its blocks and without code in its lines."""
    return re.sub(r"^```.*?^```$|`[^`\n]+`", "", read(page), flags=re.MULTILINE | re.DOTALL)


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", read(page), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_every_internal_link_of_a_page_resolves(page: Path) -> None:
    """A link to a file or a heading of this repository leads somewhere."""
    for target in _LINK.findall(prose(page)):
        if "://" in target:
            continue

        path, _, anchor = target.partition("#")
        other = (page.parent / path).resolve() if path else page
        assert other.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in headings(other), f"{page.name} links to {target}"


def test_the_diagram_is_the_table_of_the_lifecycle() -> None:
    """The diagram in the docs is drawn from the table that decides."""
    page = DOCS / "explanation" / "architecture.md"
    drawn = [block.text for block in blocks(page) if block.language == "mermaid"]
    assert drawn == [mermaid()]


# -- names and codes -------------------------------------------------------------------------------------------------


@cache
def reference() -> str:
    return "\n".join(read(page) for page in sorted((DOCS / "reference").glob("*.md")))


def test_every_public_name_stands_in_the_reference() -> None:
    """What can be imported is explained."""
    missing = [name for name in deputy_mcp.__all__ if f"`{name}`" not in reference()]
    assert missing == []


FIRST_ARGUMENT_IS_A_CODE = {"Finding", "_finding", "tell", "lose"}


def codes_in_the_source() -> set[str]:
    """Every stable code that stands in the library as a literal."""
    found: set[str] = set()
    for file in sorted((ROOT / "deputy_mcp").rglob("*.py")):
        if {"testing", "demo"} & set(file.relative_to(ROOT).parts):
            continue

        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                values = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
                values += node.args[:1] if name in FIRST_ARGUMENT_IS_A_CODE else []
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = {target.id for target in targets if isinstance(target, ast.Name)}
                values = [node.value] if names & {"default_code", "code", "codes"} else []
            else:
                continue

            found |= {text for value in values for text in _texts(value)}

    return found


def _texts(value: ast.expr) -> set[str]:
    """The literals that `value` can be: itself, both arms of a condition, the values of a table."""
    match value:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.IfExp(body=body, orelse=orelse):
            return _texts(body) | _texts(orelse)
        case ast.BoolOp(values=values):
            return {text for one in values for text in _texts(one)}
        case ast.Dict(values=values):
            return {text for one in values for text in _texts(one)}

    return set()


def test_the_codes_are_looked_for_where_they_are() -> None:
    """The search below finds codes of every kind: errors, decisions, endings, refusals, findings."""
    kinds = {"not_allowlisted", "tool_denylist", "startup_timeout", "flooded", "duplicate_name", "spill_full"}
    assert kinds <= codes_in_the_source()
    assert {"connection_dropped", "idle_timeout", "max_tool_calls", "schema_unchecked"} <= codes_in_the_source()


def test_every_code_in_the_source_stands_in_the_reference() -> None:
    """A code that a user can meet is explained."""
    codes = {code for code in codes_in_the_source() if re.fullmatch(r"[a-z][a-z0-9_]+", code)}
    missing = sorted(code for code in codes if f"`{code}`" not in reference())
    assert missing == []


def test_every_decision_code_stands_in_the_table_of_permissions() -> None:
    """The reasons of Allow, Ask and Deny are all on one page."""
    page = read(DOCS / "reference" / "permissions.md")
    codes = {"allowed", "tool_denylist", "tool_allowlist", "web", "write", "destructive", "finding", "callback"}
    assert {code for code in codes | {"max_tool_calls"} if f"| `{code}`" not in page} == set()


def test_every_error_class_stands_on_the_page_of_errors() -> None:
    """The tree is whole."""
    page = read(DOCS / "reference" / "errors.md")
    names = [name for name in deputy_mcp.__all__ if name.endswith("Error")]
    assert [name for name in names if f"`{name}`" not in page] == []


# -- guarantees ------------------------------------------------------------------------------------------------------

_GUARANTEE = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def guarantees() -> list[str]:
    section = read(ROOT / "README.md").partition("\n## Guarantees\n")[2].partition("\n## ")[0]
    return re.findall(r"^- (.+?)(?=^- |^$|\Z)", section, re.MULTILINE | re.DOTALL)


def test_every_guarantee_names_a_test_that_exists() -> None:
    """A promise without a test is none."""
    assert len(guarantees()) >= 15
    for line in guarantees():
        named = _GUARANTEE.findall(line)
        assert named, f"this guarantee names no test: {line}"
        for path, name in named:
            assert (ROOT / path).is_file(), f"{path} does not exist"
            source = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            functions = {
                node.name for node in ast.walk(source) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            }
            assert name in functions, f"{path} has no {name}"
