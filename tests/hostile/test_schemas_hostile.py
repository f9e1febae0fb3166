"""Schemas and values made to hang, crash or call home: the loop keeps beating, and the verdict is honest."""

import http.server
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio
import pytest

from deputy_mcp._runtime import schema_worker, schemas
from deputy_mcp._runtime.schemas import SchemaChecker, Verdict

HERE = {"$ref": "#"}
LONGEST_PAUSE_SECONDS = 0.5
"""The promise is about a tenth of this; the rest is slack for a loaded machine."""
CHILDREN = Path("/proc/self/task")

needs_proc = pytest.mark.skipif(not CHILDREN.is_dir(), reason="children are read from /proc")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Heart:
    """The longest time between two turns of the event loop, and the most child processes seen meanwhile."""

    longest_pause_seconds = 0.0
    most_children = 0


@asynccontextmanager
async def beating() -> AsyncIterator[Heart]:
    heart = Heart()

    async def beat() -> None:
        last = time.monotonic()
        while True:
            await anyio.sleep(0.005)
            now = time.monotonic()
            heart.longest_pause_seconds = max(heart.longest_pause_seconds, now - last)
            heart.most_children = max(heart.most_children, len(children()))
            last = now

    async with anyio.create_task_group() as group:
        group.start_soon(beat)
        await anyio.lowlevel.checkpoint()
        yield heart
        await anyio.sleep(0.01)  # one more beat, so that a pause at the very end is seen
        group.cancel_scope.cancel()


def children() -> set[str]:
    """Ids of this process's children, the dead but not yet reaped among them."""
    found: set[str] = set()
    for task in CHILDREN.glob("*/children"):
        try:
            found.update(task.read_text().split())
        except OSError:  # the thread has ended since
            continue

    return found


def nested(levels: int, keyword: str | None = "not") -> Any:
    inner: Any = True
    for _ in range(levels):
        inner = [inner] if keyword is None else {keyword: inner}

    return inner


def doubling(definitions: int, last: dict[str, Any]) -> dict[str, Any]:
    """So many definitions, each of which refers to the next one twice."""
    shelf: dict[str, Any] = {
        f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(definitions)
    }
    return {"$ref": "#/$defs/d0", "$defs": shelf | {f"d{definitions}": last}}


def unevaluated(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"properties": {"a": {"type": "number"}}}
    for _ in range(levels):
        schema = {"allOf": [schema], "unevaluatedProperties": False}

    return schema


def now(schema: Any, instance: Any) -> Verdict:
    """The verdict, which must be cheap enough for the loop."""
    verdict = SchemaChecker(schema).check_now(instance)
    assert verdict is not None
    return verdict


SMALL_VALUES: list[Any] = [
    {"a": 1},
    {"a": "x"},
    {"b": [1, 1]},
    [10**25, 10**25],
    "\ud800",
    "a" * 200 + "!",
    nested(120, None),
    nested(60, "a"),
]


@pytest.mark.parametrize(
    ("schema", "uncounted"),
    [
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, True),
        ({"properties": {"a": HERE}, "items": HERE, "uniqueItems": True}, True),
        ({"pattern": "^(a+)+$"}, True),
        ({"pattern": "^(?=a)(a+)+$"}, False),
        (doubling(30, {"type": "object"}), False),
        ({"$ref": "https://elsewhere.example/x"}, False),
        ([], False),
    ],
)
@pytest.mark.anyio
async def test_a_small_value_is_judged_as_if_it_had_been_counted(schema: Any, uncounted: bool) -> None:
    """Where no value of so few bytes can do harm, none is counted; where one could, each is."""
    checker = SchemaChecker(schema)
    for value in SMALL_VALUES:
        counted, judged = checker.check_now(value), await checker.check(value)
        for json_bytes in (schemas.SMALL_BYTES, schemas.SMALL_BYTES + 1):
            assert checker.check_now(value, json_bytes=json_bytes) in (counted, judged)

    state = checker._state
    assert state is not None
    assert uncounted is state.small_in_loop


# --- the loop keeps beating ---------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_catastrophic_pattern_on_100_kb_does_not_stop_the_loop() -> None:
    """Patterns run in a linear engine: `(a+)+$` would take `re` longer than the universe has."""
    checker = SchemaChecker({"type": "string", "pattern": "(a+)+$"})

    async with beating() as heart:
        verdict = await checker.check("a" * 100_000 + "!")

    assert verdict.status == "invalid"
    assert heart.longest_pause_seconds < LONGEST_PAUSE_SECONDS


BOMBS: dict[str, tuple[Any, Any]] = {
    "doubling references": (doubling(40, {"type": "number"}), 1),
    "doubling through recursion": (
        doubling(16, {"properties": {"a": {"$ref": "#/$defs/d0"}}, "type": ["number", "object"]}),
        {"a": {"a": 1}},
    ),
    "nested unevaluated properties": (unevaluated(24), {"a": 1}),
    "lookaheads in lookaheads": ({"pattern": "^(?:(?=(?:(?=.*b)a)*)a)*"}, "a" * 9_000 + "b"),
    "unique integers of many digits": ({"uniqueItems": True}, [10**50 + i for i in range(10_000)]),
}


@pytest.mark.anyio
@needs_proc
async def test_bombs_are_unchecked_after_a_bounded_time_while_the_loop_beats() -> None:
    """What is too costly is tried in a process and given up; afterwards no process is left."""
    verdicts: dict[str, Verdict] = {}
    before = children()

    async def check(name: str) -> None:
        schema, instance = BOMBS[name]
        checker = SchemaChecker(schema)
        assert checker.check_now(instance) is None
        verdicts[name] = await checker.check(instance)

    start = time.monotonic()
    async with beating() as heart, anyio.create_task_group() as group:
        for name in BOMBS:
            group.start_soon(check, name)

    assert dict.fromkeys(BOMBS, "unchecked") == {name: verdict.status for name, verdict in verdicts.items()}
    assert {"it cannot be checked: it took longer than 2 seconds"} == {v.problems[0] for v in verdicts.values()}
    assert heart.longest_pause_seconds < LONGEST_PAUSE_SECONDS
    assert 1 <= heart.most_children - len(before) <= schemas.WORKERS
    assert time.monotonic() - start < 2 * schemas.WORKER_SECONDS + 3
    assert before == children()


@pytest.mark.anyio
async def test_a_recursion_whose_problems_double_is_judged_outside_the_loop() -> None:
    """Listing the problems of `{"a": {"a": ...}}` doubles with each level; the judgement itself is kept."""
    checker = SchemaChecker({"properties": {"a": {"allOf": [HERE, HERE]}}, "type": ["object", "number"]})
    instance: Any = "no number"
    for _ in range(40):
        instance = {"a": instance}

    async with beating() as heart:
        verdict = await checker.check(instance)

    assert verdict.status == "invalid"
    assert heart.longest_pause_seconds < LONGEST_PAUSE_SECONDS


@pytest.mark.anyio
async def test_an_enum_of_200_000_is_checked_in_a_process() -> None:
    """Compiling costs too, and every problem would show the options; the verdict is right all the same."""
    checker = SchemaChecker({"enum": [f"value {i}" for i in range(200_000)]})

    async with beating() as heart:
        assert checker.check_now("value 7") is None
        inside = await checker.check("value 7")
        outside = await checker.check("value")

    assert Verdict("valid") == inside
    assert outside.status == "invalid"
    assert len(outside.problems[0]) <= 300
    assert heart.longest_pause_seconds < LONGEST_PAUSE_SECONDS


@pytest.mark.anyio
async def test_a_large_value_with_countless_problems_is_invalid_in_time() -> None:
    """The first problem is enough where all of them would take seconds; none of them blocks the loop."""
    checker = SchemaChecker({"type": "array", "items": {"type": "number"}})

    async with beating() as heart:
        verdict = await checker.check(["x"] * 400_000)

    assert Verdict("invalid", problems=("/0: 'x' is not of type \"number\"",)) == verdict
    assert heart.longest_pause_seconds < LONGEST_PAUSE_SECONDS


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("schema", "instance", "reason"),
    [
        pytest.param(nested(100_000), 1, "its schema cannot be used: it is nested deeper than 200", id="schema"),
        pytest.param({"type": "array"}, nested(100_000, None), "nested deeper than 500", id="instance"),
        pytest.param({"items": HERE}, nested(100_000, None), "nested deeper than 500", id="recursive schema"),
        pytest.param(nested(100_000), nested(100_000, None), "nested deeper than 200", id="both"),
    ],
)
async def test_100_000_levels_are_unchecked_and_take_nobody_down(schema: Any, instance: Any, reason: str) -> None:
    """The engine recurses on its stack: 30,000 levels ended the whole process."""
    async with beating() as heart:
        verdict = await SchemaChecker(schema).check(instance)

    assert verdict.status == "unchecked"
    assert reason in verdict.problems[0]
    assert heart.longest_pause_seconds < LONGEST_PAUSE_SECONDS


@pytest.mark.anyio
async def test_a_list_that_holds_itself_or_doubles_is_unchecked() -> None:
    """Arguments come from the caller's Python and may be any graph of objects."""
    cycle: list[Any] = []
    cycle.append(cycle)
    twice: list[Any] = [1]
    for _ in range(60):
        twice = [twice, twice]

    async with beating() as heart:
        verdicts = [await SchemaChecker(True).check(value) for value in (cycle, twice)]

    assert ["unchecked", "unchecked"] == [verdict.status for verdict in verdicts]
    assert heart.longest_pause_seconds < LONGEST_PAUSE_SECONDS


# --- processes ----------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@needs_proc
async def test_a_cancelled_check_leaves_no_process() -> None:
    """Killed and reaped before the cancellation goes on, also while others wait for their turn."""
    before = children()
    schema, instance = BOMBS["doubling references"]

    async with beating() as heart:
        with anyio.move_on_after(0.4) as scope:
            async with anyio.create_task_group() as group:
                for _ in range(schemas.WORKERS + 2):
                    group.start_soon(SchemaChecker(schema).check, instance)

        after = children()

    assert scope.cancelled_caught
    assert heart.most_children > len(before)
    assert before == after


@pytest.mark.anyio
async def test_more_checks_than_processes_wait_for_their_turn() -> None:
    """The number of processes is bounded, the number of checks is not."""
    checker = SchemaChecker({"enum": list(range(30_000))})
    verdicts: list[Verdict] = []

    async def check(value: int) -> None:
        verdicts.append(await checker.check(value))

    async with anyio.create_task_group() as group:
        for value in range(schemas.WORKERS * 2 + 1):
            group.start_soon(check, value)

    assert [Verdict("valid")] * (schemas.WORKERS * 2 + 1) == verdicts


@pytest.mark.anyio
async def test_waiting_for_a_turn_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server with many bombs makes other costly checks unchecked, never endless."""
    monkeypatch.setattr(schemas, "WAIT_SECONDS", 0.1)
    schema, instance = BOMBS["doubling references"]
    reasons: list[str] = []

    async def check() -> None:
        reasons.extend((await SchemaChecker(schema).check(instance)).problems)

    async with anyio.create_task_group() as group:
        for _ in range(schemas.WORKERS + 1):
            group.start_soon(check)

    assert "it cannot be checked: too many costly checks at once" == reasons[0]
    assert ["it cannot be checked: it took longer than 2 seconds"] * schemas.WORKERS == reasons[1:]


@pytest.mark.anyio
async def test_a_frozen_program_is_not_started_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """There `sys.executable` is the program itself; unchecked is better than a second agent."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)

    verdict = await SchemaChecker(doubling(40, {})).check(1)

    assert verdict.status == "unchecked"
    assert "no other process can be started" in verdict.problems[0]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("executable", "reason"),
    [("/bin/false", "ended without a verdict"), ("/nowhere/python", "no process could be started (FileNotFoundError)")],
)
async def test_a_process_that_does_not_answer_means_unchecked(
    monkeypatch: pytest.MonkeyPatch, executable: str, reason: str
) -> None:
    """Crashed, out of memory, or never started: no verdict is no yes."""
    monkeypatch.setattr(sys, "executable", executable)

    verdict = await SchemaChecker(doubling(40, {})).check((1,))

    assert verdict.status == "unchecked"
    assert reason in verdict.problems[0]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_one_checker_serves_several_event_loops(backend: str) -> None:
    """Nothing in the module is bound to the loop it was first used in."""
    checker = SchemaChecker({"enum": list(range(30_000))})

    verdicts = [anyio.run(checker.check, value, backend=backend) for value in (1, 2)]

    assert [Verdict("valid")] * 2 == verdicts


def test_the_process_does_not_run_the_callers_main_module(tmp_path: Path) -> None:
    """A script without `if __name__ == "__main__"` runs once, as it would without us."""
    script = tmp_path / "agent.py"
    script.write_text(
        "import anyio\n"
        "from deputy_mcp._runtime.schemas import SchemaChecker\n"
        "print('started')\n"
        "print(anyio.run(SchemaChecker({'enum': list(range(30_000))}).check, 3).status)\n"
    )

    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=True)

    assert ["started", "valid"] == done.stdout.split()


@pytest.mark.parametrize(
    ("schema", "instance", "expected"),
    [
        ({"type": "string"}, "x", "valid"),
        ({"type": "string"}, 1, "invalid"),
        ({"pattern": "^(a|a)*(?!x)b$"}, "a" * 60, "unchecked"),
        ({"pattern": "("}, "x", "unchecked"),
        ({"const": "\ud800"}, "x", "unchecked"),
    ],
)
def test_the_worker_runs_by_its_path_alone(schema: Any, instance: Any, expected: str) -> None:
    """Isolated, with nothing of this package importable; its last line is the verdict."""
    document = json.dumps({"schema": schema, "instance": instance})

    done = subprocess.run(
        [sys.executable, "-I", schema_worker.__file__],
        input=document,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert expected == json.loads(done.stdout.splitlines()[-1])["status"]
    assert done.stderr == ""


def test_importing_the_module_does_not_import_the_engine() -> None:
    """`import deputy_mcp` stays cheap; the engine comes with the first check."""
    code = "import sys, deputy_mcp._runtime.schemas; sys.exit('jsonschema_rs' in sys.modules)"

    assert 0 == subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode


# --- nothing is fetched -------------------------------------------------------------------------------------------


@pytest.fixture
def witness() -> Iterator[tuple[str, list[str]]]:
    """A loopback web server that would serve a permissive schema: (its address, the paths it was asked for)."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"true")

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


@pytest.mark.anyio
async def test_references_to_web_addresses_are_never_fetched(witness: tuple[str, list[str]]) -> None:
    """Not by the loop, not by the process, under no keyword; the engine would fetch by itself if it were let."""
    address, asked = witness
    fetching: list[dict[str, Any]] = [
        {"$ref": f"{address}/a"},
        {"properties": {"x": {"$ref": f"{address}/b#/c"}}},
        {"$dynamicRef": f"{address}/d"},
        {"$id": f"{address}/e/", "$ref": "f"},
    ]
    for schema in fetching:
        verdict = await SchemaChecker(schema).check({"x": 1})
        assert verdict.status == "unchecked"
        with pytest.raises(schema_worker.UncheckableError):
            schema_worker.compile_schema(schema)

    ignored: list[dict[str, Any]] = [
        {"$schema": f"{address}/h", "type": "object"},
        # By its specification "#" is the only value this may have, and the engine takes any other for it.
        {"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": f"{address}/i"},
    ]
    assert [Verdict("valid")] * 2 == [await SchemaChecker(schema).check({}) for schema in ignored]
    assert [] == asked


@pytest.mark.anyio
async def test_references_to_files_are_never_read(tmp_path: Path) -> None:
    """The file holds a schema that says yes to all; had it been read, the verdict would be valid."""
    file = tmp_path / "schema.json"
    file.write_text("true")

    for reference in (file.as_uri(), f"{file.as_uri()}#", str(file)):
        assert (await SchemaChecker({"$ref": reference}).check(1)).status == "unchecked"
        with pytest.raises(schema_worker.UncheckableError):
            schema_worker.compile_schema({"$ref": reference})


# --- honest verdicts ----------------------------------------------------------------------------------------------


def test_lookarounds_work_through_the_second_engine() -> None:
    """One real pattern in 36 needs them; on values of ordinary size they are checked in the loop."""
    password = {"type": "string", "pattern": r"^(?=.*[A-Z])(?=.*\d).{8,}$"}

    assert Verdict("valid") == now(password, "Passw0rdPassw0rd")
    assert now(password, "password").status == "invalid"
    assert now({"pattern": r"^(a|b)\1$"}, "ab").status == "invalid"


GIVEN_UP = {"pattern": "^(a|a)*(?!x)b$"}
LETTERS = "a" * 60


@pytest.mark.parametrize(
    ("schema", "instance"),
    [
        (GIVEN_UP, LETTERS),
        ({"not": GIVEN_UP}, LETTERS),
        ({"not": {"not": GIVEN_UP}}, LETTERS),
        ({"anyOf": [GIVEN_UP, {"type": "number"}]}, LETTERS),
        ({"oneOf": [GIVEN_UP, {"type": "string"}]}, LETTERS),
        ({"if": GIVEN_UP, "then": False, "else": True}, LETTERS),
        ({"contains": GIVEN_UP, "minContains": 0, "maxContains": 0}, [LETTERS]),
        ({"not": {"items": GIVEN_UP}}, [LETTERS]),
        ({"patternProperties": {GIVEN_UP["pattern"]: False}}, {LETTERS: 1}),
        ({"propertyNames": {"not": GIVEN_UP}}, {LETTERS: 1}),
        ({"dependentSchemas": {"a": {"not": {"properties": {"a": GIVEN_UP}}}}}, {"a": LETTERS}),
    ],
)
def test_a_match_that_was_given_up_is_unchecked_wherever_it_stands(schema: Any, instance: Any) -> None:
    """Neither yes nor no is known, and `not` must not make one of them out of it."""
    assert now(schema, instance).status == "unchecked"


def test_a_recursive_schema_is_checked() -> None:
    """A tree of nodes, as real servers send it."""
    tree = {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "children": {"items": {"$ref": "#/$defs/node"}}},
                "required": ["name"],
            }
        },
    }

    assert Verdict("valid") == now(tree, {"name": "a", "children": [{"name": "b", "children": [{"name": "c"}]}]})
    assert Verdict("invalid", problems=('/children/0: "name" is a required property',)) == now(
        tree, {"name": "a", "children": [{}]}
    )


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("schema", "instance", "reason"),
    [
        ({"properties": {"a": {"$ref": "#/$defs/nowhere"}}}, {}, "Pointer '/$defs/nowhere' does not exist"),
        ({"pattern": "("}, "x", "at /pattern: '(' is not a \"regex\""),
        ({"pattern": r"\p{L}{9000}"}, "x", 'is not a "regex"'),
        ({"type": "any"}, "x", "at /type: 'any' is not valid"),
        ({"const": float("nan")}, 1, "it holds nan"),
        ({"const": "\ud800"}, "x", "its schema cannot be used: it holds a lone surrogate"),
        ({"properties": {"\ud800": {"type": "string"}}}, {}, "its schema cannot be used: it holds a lone surrogate"),
        ({"enum": {1}}, 1, "type 'set'"),
        (None, 1, "neither an object nor a boolean"),
        ([], 1, "neither an object nor a boolean"),
        ({"type": "number"}, float("nan"), "it holds nan"),
        ({"type": "number"}, [float("inf")], "it holds inf"),
        ({"type": "string"}, "\ud800", "it cannot be checked: it holds a lone surrogate"),
        ({"type": "object"}, {"a": {1}}, "type 'set'"),
        ({"type": "object"}, {1: 2}, "key of type 'int'"),
        pytest.param({"type": "integer"}, 10**5000, "integer of 16610 bits", id="huge integer"),
        pytest.param(True, [0] * 600_000, "more than 500000 values", id="many values"),
        pytest.param({"enum": list(range(600_000))}, 1, "more than 500000 values", id="many options"),
    ],
)
async def test_what_cannot_be_checked_says_why(schema: Any, instance: Any, reason: str) -> None:
    """Never an exception, never a guess; and asking again gives the same."""
    checker = SchemaChecker(schema)

    first, second = [await checker.check(instance) for _ in range(2)]

    assert first.status == "unchecked"
    assert reason in first.problems[0]
    assert second == first


@pytest.mark.parametrize(
    ("schema", "instance", "expected"),
    [
        (MappingProxyType({"type": "array", "items": {"type": "integer"}}), (1, 2), "valid"),
        (True, {"a": 1}, "valid"),
        (False, {"a": 1}, "invalid"),
        ({"properties": {"a": {"type": "string", "required": True}}, "required": ["a"]}, {"a": "x"}, "valid"),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "required": []}, {}, "valid"),
        (
            {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 3, "exclusiveMinimum": True},
            3,
            "invalid",
        ),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "minimum": 3, "exclusiveMinimum": True}, 3, "invalid"),
        ({"$schema": "http://json-schema.org/draft-06/schema", "items": [{"type": "null"}]}, [1], "invalid"),
        ({"$schema": "https://json-schema.org/draft/2019-09/schema", "items": [{"type": "null"}]}, [1], "invalid"),
        (
            {"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [{"type": "null"}]},
            [1],
            "invalid",
        ),
        ({"$schema": "urn:nothing", "prefixItems": [{"type": "null"}]}, [1], "invalid"),
        ({"$schema": 42, "prefixItems": [{"type": "null"}]}, [1], "invalid"),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "format": "email"}, "x", "valid"),
    ],
)
def test_the_draft_is_chosen_by_us_and_sloppy_schemas_still_check(schema: Any, instance: Any, expected: str) -> None:
    """Known drafts by `$schema`, everything else as 2020-12; `format` is an annotation in each."""
    assert expected == now(schema, instance).status


def test_problems_are_few_short_clean_and_do_not_carry_the_value() -> None:
    """They end in a model's context and on terminals: no escapes, no documents, no secrets beyond forty characters."""
    schema = {"type": "object", "additionalProperties": {"type": "number"}}
    secret = "\x1b[31m\u202e" + "secret" * 5_000

    verdict = now(schema, {f"key {i} ~/" + "k" * 500: secret for i in range(9)})

    assert verdict.status == "invalid"
    assert 5 == len(verdict.problems)
    for problem in verdict.problems:
        assert problem.startswith("/key ")
        assert "~0~1" in problem
        assert len(problem) <= 300
        assert problem.isprintable()
        assert problem.count("secret") < 8
        assert problem.endswith('is not of type "number"')


@pytest.mark.parametrize(
    ("instance", "expected"),
    [
        ("x" * 41, "(root): 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…' is not of type \"boolean\""),
        (["secret"], '(root): this array is not of type "boolean"'),
        ({"secret": "s"}, '(root): this object is not of type "boolean"'),
        (None, '(root): null is not of type "boolean"'),
        (1.5, '(root): 1.5 is not of type "boolean"'),
    ],
)
def test_a_value_is_shown_by_its_beginning_or_its_kind(instance: Any, expected: str) -> None:
    """Enough to recognise it."""
    assert (expected,) == now({"type": "boolean"}, instance).problems


@pytest.mark.parametrize("schema", [None, 3, "x", b"", [], {1: 2}, {"$ref": 3}, {"type": nested(1000, None)}, object()])
def test_making_a_checker_never_raises(schema: Any) -> None:
    """A listing survives whatever a server calls a schema."""
    checker = SchemaChecker(schema)

    assert "<SchemaChecker new>" == repr(checker)
    assert now(schema, {}).status == "unchecked"
    checker.check_now({})
    assert "<SchemaChecker unusable>" == repr(checker)
