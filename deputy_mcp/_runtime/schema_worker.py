"""The checking itself, and the process it moves to when it may take long.

`schemas.py` imports the functions; the same file, started by its path, reads one `{"schema", "instance"}` document
from stdin and writes its verdict, a line of JSON each time it knows more (the last complete line counts). So it
imports the standard library and jsonschema_rs, and nothing of this package: starting it must not run the user's code.

Not the place of any budget on time: who calls a function here in the event loop has counted the cost before, and the
process is killed from outside. What stands here are the engine's own bounds: linear patterns, or limited backtracking.
"""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar

T = TypeVar("T")

BACKTRACK_LIMIT = 10_000
"""Steps back of the second regex engine for one match; past it the value is unchecked. About 25 ms on 100 KB."""
MAX_PROBLEMS = 5
MAX_PROBLEM_CHARACTERS = 300
MAX_POINTER_CHARACTERS = 120
MAX_SHOWN_CHARACTERS = 40
"""A value is shown in a problem up to here: enough to recognise it, too short to carry a document or most keys."""
MEMORY_BYTES = 1024**3
"""Address space of the process; an enum of a million entries takes 0.3 GB."""
CPU_SECONDS = 4
"""Should its parent be killed before it can kill the process, this ends it."""

MASK = "\ue000"
"""Stands for the value in the engine's messages (a private-use character), so that we decide how much is shown."""

VALID, INVALID, UNCHECKED = "valid", "invalid", "unchecked"

DRAFTS = {
    "json-schema.org/draft-04/schema": "Draft4Validator",
    "json-schema.org/draft-06/schema": "Draft6Validator",
    "json-schema.org/draft-07/schema": "Draft7Validator",
    "json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "json-schema.org/draft/2020-12/schema": "Draft202012Validator",
}


class UncheckableError(ValueError):
    """The schema cannot be used, or the value cannot be judged by it. The text is clean and says why."""


class Compiled(NamedTuple):
    """A schema ready to check with. `backtracking`: some pattern needs the engine that is not linear."""

    validator: Any
    backtracking: bool


def compile_schema(schema: Any) -> Compiled:
    """Compile a plain schema; raises `UncheckableError`.

    `$schema` chooses the draft and is never fetched; absent or unknown means 2020-12, as MCP says. `format` is an
    annotation in every draft: its checkers differ, and some compile what the instance holds.
    """
    import jsonschema_rs

    if isinstance(schema, dict) and not isinstance(schema.get("$schema", ""), str):
        schema = {keyword: value for keyword, value in schema.items() if keyword != "$schema"}

    kind = getattr(jsonschema_rs, _draft(schema))
    linear = jsonschema_rs.RegexOptions()
    limited = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACK_LIMIT)
    try:
        return Compiled(_build(kind, schema, linear), backtracking=False)
    except UncheckableError as error:
        # A lookaround or a back-reference is refused as `is not a "regex"`, like a pattern that is broken.
        if '"regex"' not in str(error):
            raise

    return Compiled(_build(kind, schema, limited), backtracking=True)


def _draft(schema: Any) -> str:
    named = schema.get("$schema") if isinstance(schema, dict) else None
    address = named.rstrip("#").partition("://")[2] if isinstance(named, str) else ""
    return DRAFTS.get(address, "Draft202012Validator")


def _build(kind: Any, schema: Any, patterns: Any) -> Any:
    return _guarded(
        "its schema cannot be used",
        lambda: kind(schema, retriever=_refuse, pattern_options=patterns, validate_formats=False, mask=MASK),
    )


def _refuse(address: str) -> NoReturn:
    # Without this the engine fetches by itself, http: and file: alike.
    raise LookupError("references to other documents are not followed")


def is_valid(compiled: Compiled, instance: Any) -> bool:
    """Whether `instance` fits. False may still mean that a match was given up (see `list_problems`)."""
    try:
        return bool(compiled.validator.is_valid(instance))
    except BaseException as error:  # noqa: BLE001 # what is none of the engine's is raised again
        raise _uncheckable("it cannot be checked", error) from None


def list_problems(compiled: Compiled, instance: Any) -> tuple[str, ...]:
    """What is wrong with `instance`, at most `MAX_PROBLEMS` texts, each clean and short, each with its JSON pointer.

    Raises `UncheckableError` if a match was given up. The engine finds all problems before it shows the first, and
    copies the value into each: 12 us a problem, and much more for large values.
    """
    return _guarded("it cannot be checked", lambda: _collect(compiled.validator.iter_errors(instance), instance))


def first_problem(compiled: Compiled, instance: Any) -> str:
    """One of the problems of an instance that does not fit; much cheaper than all."""
    from jsonschema_rs import ValidationError

    def act() -> str:
        try:
            compiled.validator.validate(instance)
        except ValidationError as error:
            return _describe(error, instance)

        return "(root): it does not match"

    return _guarded("it cannot be checked", act)


def _collect(errors: Any, instance: Any) -> tuple[str, ...]:
    problems: list[str] = []
    for error in errors:
        kind = type(error.kind).__name__
        if kind.endswith(("BacktrackLimitExceeded", "RegexEngineFailure", "Referencing")):
            raise UncheckableError(clean(f"it cannot be checked: {error.message}", MAX_PROBLEM_CHARACTERS))

        if len(problems) < MAX_PROBLEMS:
            problems.append(_describe(error, instance))

    return tuple(problems)


def _describe(error: Any, instance: Any) -> str:
    value = instance
    try:
        for step in error.instance_path:
            value = value[step]
    except (LookupError, TypeError):
        value = None

    pointer = _pointer(error.instance_path) or "(root)"
    return clean(f"{pointer}: {error.message.replace(MASK, show(value), 1)}", MAX_PROBLEM_CHARACTERS)


def _pointer(path: Sequence[str | int]) -> str:
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return clean("".join("/" + step for step in steps), MAX_POINTER_CHARACTERS)


def show(value: Any) -> str:
    """`value` for a problem's text: its kind if it is a container, its beginning if it is long."""
    if isinstance(value, dict):
        return "this object"

    if isinstance(value, list):
        return "this array"

    # Cut first: a repr of megabytes is work, and str() of a huge integer is refused by the interpreter.
    if isinstance(value, str):
        return repr(value if len(value) <= MAX_SHOWN_CHARACTERS else value[:MAX_SHOWN_CHARACTERS] + "…")

    if isinstance(value, int) and value.bit_length() > 128:
        return "this number"

    return json.dumps(value)


def clean(text: str, most: int) -> str:
    """`text` with everything unprintable as an escape (terminals and models read it), at most `most` characters."""
    shown = "".join(char if char.isprintable() else _escape(char) for char in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


def _guarded(what: str, act: Callable[[], T]) -> T:
    try:
        return act()
    except BaseException as error:  # noqa: BLE001 # what is none of the engine's is raised again
        raise _uncheckable(what, error) from None


def _uncheckable(what: str, error: BaseException) -> UncheckableError:
    """What an error of the engine means; raises those that are none of its."""
    match error:
        case UncheckableError():
            return error
        case UnicodeEncodeError():
            return UncheckableError(f"{what}: it holds a lone surrogate")
        case ValueError():
            # A ValidationError's str is the whole report, with the value in it; `message` is one line.
            message = str(getattr(error, "message", error)).replace(MASK, show(getattr(error, "instance", None)), 1)
            reason = "it holds a lone surrogate" if "surrogates not allowed" in message else message
            where = _pointer(getattr(error, "instance_path", ()))
            place = f"at {where}: " if where else ""
            return UncheckableError(clean(f"{what}: {place}{reason}", MAX_PROBLEM_CHARACTERS))

    # A panic inside the engine is no Exception, so that nobody swallows it; for us it is "unchecked".
    if type(error).__name__ != "PanicException":
        raise error

    return UncheckableError(f"{what}: the engine failed")


def main() -> None:
    """Read the document, write verdicts. Any other ending means: no verdict."""
    sys.path.extend(sys.argv[1:2])
    _limit_resources()
    document = json.loads(sys.stdin.buffer.read())
    instance = document["instance"]
    try:
        compiled = compile_schema(document["schema"])
    except UncheckableError as error:
        _write(UNCHECKED, str(error), fault=True)
        return

    try:
        if is_valid(compiled, instance):
            _write(VALID)
            return

        if not compiled.backtracking:
            # Listing can take far longer than judging: the judgement goes first, so that it is kept if we are killed.
            _write(INVALID, "(root): it does not match; saying where took too long")

            _write(INVALID, first_problem(compiled, instance))

        if compiled.backtracking or document.get("list", True):
            _write(INVALID, *list_problems(compiled, instance))
    except UncheckableError as error:
        _write(UNCHECKED, str(error))


def _write(status: str, *problems: str, fault: bool = False) -> None:
    line = json.dumps({"status": status, "problems": problems, "fault": fault})
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _limit_resources() -> None:
    try:
        import resource
    except ImportError:  # Windows has none; the deadline still holds
        return

    limits = (("RLIMIT_AS", MEMORY_BYTES), ("RLIMIT_CPU", CPU_SECONDS), ("RLIMIT_CORE", 0))
    for name, most in limits:
        number = getattr(resource, name, None)
        if number is None:
            continue

        try:
            hard = resource.getrlimit(number)[1]
            resource.setrlimit(number, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
        except (ValueError, OSError):  # macOS refuses some
            continue


if __name__ == "__main__":
    main()
