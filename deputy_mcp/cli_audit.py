"""`deputy-mcp audit show | verify`: the journal, read back and checked. Rotated files count as part of it."""

import argparse
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from deputy_mcp._core.audit import decode_line
from deputy_mcp._core.audit_chain import Verdict, is_hash, verify_lines
from deputy_mcp._core.errors import ConfigError
from deputy_mcp._core.sanitizing import clean_line
from deputy_mcp._runtime.journal_file import read_lines, rotated_files
from deputy_mcp.terminal import Printer

SHOWN_LINES = 50
"""Of the end of a journal, where nothing else is said."""

_COLUMNS = ("seq", "time", "event", "server", "tool", "what")
_WHAT = ("decision", "code", "error_code", "outcome", "state", "reason")


def add_parser(commands: Any) -> None:
    """Add the command to the program's."""
    audit = commands.add_parser("audit", help="read and check an audit journal")
    actions = audit.add_subparsers(required=True, metavar="ACTION")
    show = actions.add_parser("show", help="print the end of a journal")
    show.add_argument("--last", type=int, default=SHOWN_LINES, metavar="N", help=f"so many lines ({SHOWN_LINES})")
    show.set_defaults(run=_run_show)
    verify = actions.add_parser(
        "verify", help="exit with 1 and name the first line that was edited, moved or taken out"
    )
    verify.add_argument("--head", metavar="HASH", help="a hash noted earlier, which must be one of the lines'")
    verify.add_argument("--key-file", metavar="FILE", help="the file with the key of an HMAC chain")
    verify.set_defaults(run=_run_verify)
    for action in (show, verify):
        action.add_argument("file", metavar="FILE", help="the journal; its rotated files are read too")
        action.add_argument("--json", action="store_true", help="print JSON")


async def _run_show(options: argparse.Namespace) -> int:
    if options.last < 1:
        raise ConfigError("--last must be 1 or more", key="last")

    lines = [decode_line(line) or {} for line in deque(_all_lines(options.file), maxlen=options.last)]
    out = Printer()
    if options.json:
        out.json(lines)
    else:
        out.table(_COLUMNS, [_row(line) for line in lines])

    return 0


def _row(line: dict[str, Any]) -> tuple[str, ...]:
    facts = [str(line[key]) for key in _WHAT if line.get(key) is not None]
    values = [line.get("seq", "?"), str(line.get("time", "?"))[:19], line.get("event", "no line of ours")]
    values += [line.get("server") or "-", line.get("tool") or "-", " ".join(facts) or "-"]
    return tuple(clean_line(str(value), 120) for value in values)


async def _run_verify(options: argparse.Namespace) -> int:
    if options.head is not None and not is_hash(options.head):
        raise ConfigError("--head must be a hash as verify prints it: 64 hexadecimal digits", key="head")

    verdict = verify_lines(_all_lines(options.file), key=_key(options.key_file), head=options.head)
    out = Printer()
    if options.json:
        out.json(_facts(verdict))
        return 0 if verdict.intact else 1

    if not verdict.intact:
        where = f"line {verdict.bad_line}: " if verdict.bad_line is not None else ""
        out.line(f"{verdict.code}: {where}{verdict.message}", "bad")
        out.line(f"{verdict.lines} lines before it are intact", "dim")
        return 1

    out.line(f"intact: {verdict.lines} lines", "ok")
    out.line(f"head {verdict.head}", "dim")
    if verdict.torn_bytes:
        out.line(f"the last {verdict.torn_bytes} bytes are no whole line: a write under way, or a crash in one", "ask")

    if not verdict.closed and not verdict.torn_bytes:
        out.line("it was not closed: its writer is at work or has died, or the tail was cut (--head shows that)", "ask")

    return 0


def _facts(verdict: Verdict) -> dict[str, Any]:
    return {
        "code": verdict.code,
        "message": verdict.message,
        "bad_line": verdict.bad_line,
        "lines": verdict.lines,
        "head": verdict.head,
        "closed": verdict.closed,
        "torn_bytes": verdict.torn_bytes,
    }


def _all_lines(path: str) -> Iterator[bytes]:
    """Of the journal and the full files before it."""
    if not Path(path).is_file():
        raise ConfigError(f"there is no journal {clean_line(path, 200)}; name the file", key="FILE", path=path)

    files: Iterable[Path] = (*rotated_files(path), Path(path))
    for file in files:
        try:
            yield from read_lines(file)
        except OSError as error:
            raise ConfigError(f"{file} cannot be read: {error.strerror}", key="FILE", path=str(file)) from None


def _key(path: str | None) -> bytes | None:
    if path is None:
        return None

    try:
        key = Path(path).read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"the key file {path} cannot be read: {error.strerror}", key="key-file", path=path) from None

    if not key:
        raise ConfigError(f"the key file {path} is empty", key="key-file", path=path)

    return key
