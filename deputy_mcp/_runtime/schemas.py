"""JSON Schema checks that cannot hang the event loop, whatever schema a server sends.

Not the place that decides what a verdict means: "unchecked" is refused for arguments and a finding for results, by
the caller. Promises:

- A check that runs in the loop was counted first (`_core.schema_cost`) and is small.
- Anything else runs in a process of its own, killed after `WORKER_SECONDS`; no process outlives the `check` that
  started it, cancelled or not.
- No reference is fetched, no user code runs, and neither schema nor value makes a check raise.

Mutable: a checker's `_state`, set once, and the engine's objects in it; the slots for processes, one set a loop.
"""

import importlib.util
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, cast

import anyio
from anyio.abc import Process
from anyio.lowlevel import RunVar
from attrs import define, field, frozen

from deputy_mcp._core.schema_cost import GRAPH_TEXT, GRAPH_VALUES, JsonSchema, Load, SchemaCost
from deputy_mcp._core.schema_values import (
    MAX_INSTANCE_DEPTH,
    Measure,
    NotPlainError,
    TooLargeError,
    measure,
    plain_copy,
)
from deputy_mcp._runtime import schema_worker
from deputy_mcp._runtime.schema_worker import Compiled, UncheckableError, clean

Status = Literal["valid", "invalid", "unchecked"]

LOOP_SIZE = 100_000
"""Load that is checked in the loop. Of 1,739 real schemas the largest came to 8,230, half of them to 8 or less."""
LOOP_VALUES = 200_000
"""Values of an instance that are counted in the loop; counting so many takes 25 ms."""
LOOP_WORK = 2_000_000
"""Load times values: 10 ms of plain keywords, 80 ms if all of it is enums of objects."""
LOOP_TEXT_WORK = 200_000_000
"""Load times characters, for `maxLength` and the like."""
LOOP_STATES = 10_000_000
"""Regex states times characters, at up to 8 ns each in the linear engine."""
LOOP_BACKTRACKS = 20_000
"""Load times text to the power of nested lookarounds. The backtrack limit alone does not bound the other engine:
`^(?:(?=.*b)a)*` is quadratic without ever stepping back, and each lookaround inside adds a power."""
SMALL_BYTES = 256
"""A value whose JSON is no longer need not be counted, where a schema is harmless for the worst such value."""
LOOP_HEIGHT = 1_000
"""Subschemas inside each other on the engine's stack, a twentieth of what fits into 8 MiB (threads have less)."""
LOOP_LISTING = 10_000
"""Load times values when problems are listed: 12 us each."""
PROCESS_LISTING = 50_000
"""The same in a process, where the deadline bounds it."""
UNKNOWN_LISTING_SIZE = 100
"""Taken for the load where it could not be counted."""
LOOP_LISTING_TEXT = 2_000_000
"""Load times characters when problems are listed: each problem copies its value (1,000 branches on 1 MB took 17 s)."""

WORKER_SECONDS = 2
"""One check in a process, start included; then it is killed and the value is unchecked."""
WORKERS = 3
"""Processes at once, of 1 GiB at most each."""
WAIT_SECONDS = 10
"""How long a check waits for its turn; then the value is unchecked."""
MAX_VERDICT_BYTES = 64 * 1024


@frozen
class Verdict:
    """What a check found.

    `problems`: for "invalid" up to five texts of at most 300 characters, each beginning with a JSON pointer
    (`/amount: 'x' is not of type "number"`; `(root)` for the whole); for "unchecked" the reason; else empty.
    """

    status: Status
    problems: tuple[str, ...] = field(default=(), kw_only=True)


_VALID = Verdict("valid")


def _unchecked(reason: str) -> Verdict:
    return Verdict("unchecked", problems=(reason,))


@define
class _State:
    """What is known of the schema so far."""

    fault: str | None = None
    """Why nothing can be checked with it, for good."""
    cost: SchemaCost | None = None
    """None: too large to count; always the process."""
    plain: Any = None
    """The copy that was counted and mended, until it is compiled or written down."""
    compiled: Compiled | None = None
    small_in_loop: bool = False
    """Whether every value whose JSON has at most `SMALL_BYTES` is checked in the loop; said once it is compiled."""
    document: bytes | None = None
    """The schema as JSON, made when a process first needs it."""


class SchemaChecker:
    """Checks values against one schema. Making one does nothing; the schema is looked at when first needed."""

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        self._state: _State | None = None

    def __repr__(self) -> str:
        state = self._state
        word = "new" if state is None else "unusable" if state.fault else "compiled" if state.compiled else "counted"
        return f"<SchemaChecker {word}>"

    async def check(self, instance: Any) -> Verdict:
        """The verdict on `instance`; never raises, but for cancellation."""
        verdict = self.check_now(instance)
        return verdict if verdict is not None else await self._check_in_process(instance)

    def check_now(self, instance: Any, *, json_bytes: int | None = None) -> Verdict | None:
        """The verdict if it is cheap enough for the event loop, else None: then ask `check`.

        `json_bytes`: how many bytes of JSON it was read from, where it was.
        """
        state = self._state = self._state or _look_at(self._schema)
        if json_bytes is not None and json_bytes <= SMALL_BYTES and state.small_in_loop:
            assert state.compiled is not None
            with suppress(UncheckableError):
                if schema_worker.is_valid(state.compiled, instance):
                    return _VALID

        if state.fault is not None:
            return _unchecked(state.fault)

        if state.cost is None or not state.cost.compiles_in_loop:
            return None

        try:
            size = measure(instance, max_values=LOOP_VALUES)
            if size.odd_types:
                instance = plain_copy(instance, max_depth=MAX_INSTANCE_DEPTH)
        except TooLargeError:
            return None
        except NotPlainError as error:
            return _unchecked(f"it cannot be checked: {error}")

        load = state.cost.load(size.depth)
        if not _fits_loop(load, size):
            return None

        try:
            if state.compiled is None:
                state.compiled = schema_worker.compile_schema(self._take_plain(state))
                worst = Measure(SMALL_BYTES, SMALL_BYTES, SMALL_BYTES // 2, wide_integers=False, odd_types=False)
                harmless = _fits_loop(state.cost.load(worst.depth), worst)
                state.small_in_loop = harmless and not state.compiled.backtracking
        except UncheckableError as error:
            state.fault = str(error)
            return _unchecked(state.fault)

        compiled = state.compiled
        if compiled.backtracking and not _fits_backtracking(load, size, state.cost.lookaround_depth):
            return None

        try:
            if schema_worker.is_valid(compiled, instance):
                return _VALID

            if load.size * size.values > LOOP_LISTING or load.size * size.text > LOOP_LISTING_TEXT:
                return None

            return Verdict("invalid", problems=schema_worker.list_problems(compiled, instance))
        except UncheckableError as error:
            return _unchecked(str(error))

    def _take_plain(self, state: _State) -> Any:
        # Not kept beside what is made of it: a schema may be large, and the caller's own is there to copy again.
        plain, state.plain = state.plain, None
        if plain is None:
            plain = plain_copy(self._schema)
            if state.cost is not None:
                SchemaCost(plain)  # mends it, as it did the first copy

        return plain

    async def _check_in_process(self, instance: Any) -> Verdict:
        state = cast("_State", self._state)
        try:
            if state.document is None:
                plain = self._take_plain(state)
                # Each of these steps may hold the loop for a tenth of a second; others go in between.
                await anyio.lowlevel.checkpoint()
                state.document = _to_json(plain)
                await anyio.lowlevel.checkpoint()

        except (ValueError, RecursionError) as error:
            state.fault = f"its schema cannot be used: {clean(str(error), 200)}"
            return _unchecked(state.fault)

        try:
            size = measure(instance)
            if size.odd_types:
                instance = plain_copy(instance, max_depth=MAX_INSTANCE_DEPTH)

            await anyio.lowlevel.checkpoint()
            listing = b"true" if _lists_in_process(state.cost, size) else b"false"
            document = b'{"schema":%b,"list":%b,"instance":%b}' % (state.document, listing, _to_json(instance))
        except (ValueError, RecursionError) as error:
            # ValueError: what JSON does not have, limits, and integers of more than 4,300 digits.
            return _unchecked(f"it cannot be checked: {clean(str(error), 200)}")

        verdict, fault = await _ask_process(document)
        if fault:
            state.fault = verdict.problems[0]

        return verdict


def _look_at(schema: Any) -> _State:
    """Count the schema, in the loop: at most `GRAPH_VALUES` of it."""
    try:
        plain = plain_copy(schema, max_values=GRAPH_VALUES, max_text=GRAPH_TEXT)
    except TooLargeError:
        return _State()
    except NotPlainError as error:
        return _State(fault=f"its schema cannot be used: {error}")

    if not isinstance(plain, dict | bool):
        return _State(fault="its schema cannot be used: it is neither an object nor a boolean")

    return _State(cost=SchemaCost(plain), plain=plain)


def _fits_loop(load: Load, size: Measure) -> bool:
    return (
        not size.wide_integers
        and load.size <= LOOP_SIZE
        and load.height <= LOOP_HEIGHT
        and load.size * size.values <= LOOP_WORK
        and load.size * size.text <= LOOP_TEXT_WORK
        and load.states * size.text <= LOOP_STATES
    )


def _fits_backtracking(load: Load, size: Measure, lookaround_depth: int) -> bool:
    text = size.text + size.values
    return lookaround_depth <= 4 and load.size * text ** max(lookaround_depth, 1) <= LOOP_BACKTRACKS


def _lists_in_process(cost: SchemaCost | None, size: Measure) -> bool:
    """Whether all problems are looked for, or only the first: the engine would work on each for its 12 us."""
    known = cost is not None and not cost.opaque
    load = cost.load(size.depth).size if cost is not None and known else UNKNOWN_LISTING_SIZE
    return load * size.values <= PROCESS_LISTING and load * size.text <= PROCESS_LISTING * 100


def _to_json(value: Any) -> bytes:
    # Escaped to ASCII: lone surrogates travel, and the process finds them as the loop would.
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


_slots: RunVar[anyio.CapacityLimiter] = RunVar("deputy_mcp_schema_workers")


def _limiter() -> anyio.CapacityLimiter:
    # A limiter belongs to the loop it is used in, and this module may see several.
    try:
        return _slots.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(WORKERS)
        _slots.set(limiter)
        return limiter


async def _ask_process(document: bytes) -> tuple[Verdict, bool]:
    """The verdict of a process of its own, and whether it is the schema's fault for good."""
    command = _command()
    if command is None:
        return _unchecked("it cannot be checked: its schema is too costly, and no other process can be started"), False

    limiter = _limiter()
    with anyio.move_on_after(WAIT_SECONDS) as wait:
        await limiter.acquire()

    if wait.cancelled_caught:
        return _unchecked("it cannot be checked: too many costly checks at once"), False

    try:
        return await _run_process(command, document)
    finally:
        limiter.release()


def _command() -> list[str] | None:
    script = Path(schema_worker.__file__)
    engine = importlib.util.find_spec("jsonschema_rs")
    # In a frozen program sys.executable is the program itself, and starting it would run it a second time.
    if not sys.executable or getattr(sys, "frozen", False) or not script.is_file() or not (engine and engine.origin):
        return None

    # -I and -S: no user paths, no .pth files, no user code. The one library it needs is named.
    return [sys.executable, "-I", "-S", str(script), str(Path(engine.origin).parent.parent)]


async def _run_process(command: list[str], document: bytes) -> tuple[Verdict, bool]:
    answer = bytearray()
    with anyio.move_on_after(WORKER_SECONDS) as deadline:
        try:
            # Shielded, and short: cancelled half-way, nobody would own the process.
            with anyio.CancelScope(shield=True):
                process = await anyio.open_process(command, stderr=subprocess.DEVNULL)
        except OSError as error:
            return _unchecked(f"it cannot be checked: no process could be started ({type(error).__name__})"), False

        try:
            await _converse(process, document, answer)
            # Let it end by itself: a kill here would race with its own exit for the exit code.
            await process.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)

    line = _last_line(answer)
    if line is not None:
        return line

    if deadline.cancelled_caught:
        return _unchecked(f"it cannot be checked: it took longer than {WORKER_SECONDS} seconds"), False

    return _unchecked("it cannot be checked: the checking process ended without a verdict"), False


async def _converse(process: Process, document: bytes, answer: bytearray) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        await process.stdin.send(document)
        await process.stdin.aclose()
        while len(answer) <= MAX_VERDICT_BYTES:
            answer += await process.stdout.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        return


async def _end(process: Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()

    await process.aclose()


def _last_line(answer: bytearray) -> tuple[Verdict, bool] | None:
    lines = bytes(answer).split(b"\n")[:-1]
    if not lines:
        return None

    said = json.loads(lines[-1])
    verdict = _VALID if said["status"] == "valid" else Verdict(said["status"], problems=tuple(said["problems"]))
    return verdict, said["fault"]
