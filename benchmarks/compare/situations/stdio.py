"""Bytes on stdout, and what becomes of a process."""

import json
from typing import Any

from attrs import evolve

from benchmarks.compare.situations import sources
from benchmarks.compare.situations.answers import FAILS, FINE
from benchmarks.compare.situations.scripts import answer, one
from benchmarks.compare.values import AFTER, AtDeadline, Call, Fails, Kill, OneOf, Release, Situation, Step, Text
from deputy_mcp.testing import (
    be_stubborn,
    close_stdout,
    die,
    dribble,
    endless,
    freeze,
    junk,
    leave,
    note,
    reply,
    silence,
    spawn,
    write_stderr,
)

BANNER = "A server, version 1.2\n\n┌──┐\n[09/15/25 00:30:17] INFO starting\n\n"
LINE = b'{"jsonrpc":"2.0","id":$id,"result":{"content":[{"type":"text","text":"%s"}]}}\n'
DEEP = b'{"jsonrpc":"2.0","id":$id,"result":' + b"[" * 5000 + b"]" * 5000 + b"}\n"
PRETTY = json.dumps(answer("fine"), indent=2).replace('"$id"', "$id") + "\n"
WAITS = Call(right=AtDeadline())
GIVES_UP = Call(right=OneOf((Fails(), AtDeadline())))
LARGE_ARGUMENT = {"text": "a" * 1_000_000}


def stdio(name: str, says: str, source: str, echo: Any, *steps: Step, **fields: Any) -> Situation:
    return Situation(
        name=name, says=says, source=source, servers=one(echo, **fields), over=("stdio",), steps=steps or (FINE, AFTER)
    )


STDIO = (
    stdio(
        "noise",
        "lines that are no JSON, before the handshake and before the answer",
        sources.NOISE,
        junk(BANNER) + reply("fine"),
        at_start=junk(BANNER),
    ),
    stdio(
        "invalid-line",
        "a line that is no UTF-8, then the answer",
        sources.BAD_UTF8,
        junk(b"\xff\xfe\n") + reply("fine"),
    ),
    stdio(
        "invalid-byte",
        "a byte of another encoding in the text",
        sources.BAD_UTF8,
        junk(LINE % b"it\x92s"),
        Call(right=OneOf((Text("it\ufffds"), Fails()))),
        AFTER,
    ),
    stdio(
        "byte-by-byte",
        "the answer a byte at a time",
        sources.SPLIT_UTF8,
        dribble(answer("é—😀")),
        Call(right=Text("é—😀")),
        AFTER,
    ),
    stdio(
        "byte-order-mark",
        "begins with a byte-order mark",
        sources.BOM,
        reply("fine"),
        at_start=junk(b"\xef\xbb\xbf"),
    ),
    stdio(
        "carriage-returns",
        "lines that end with CR LF",
        sources.BOM,
        reply("fine"),
        line_end="\r\n",
    ),
    stdio("deep", "an answer nested 5,000 deep", sources.ODD_TEXT, junk(DEEP), FAILS, AFTER),
    stdio("pretty-printed", "an answer printed over several lines", sources.ERRORS, junk(PRETTY), GIVES_UP, AFTER),
    evolve(
        stdio(
            "endless-line",
            "an answer in a line that never ends; the healthy call afterwards has 6 s",
            sources.ENDLESS,
            endless("a" * 65536, head=LINE.partition(b"%s")[0]),
            FAILS,
            evolve(AFTER, deadline_seconds=6),
        ),
        bound_seconds=14,
    ),
    stdio(
        "endless-noise",
        "lines that are no JSON, for ever",
        sources.LIMITS,
        endless("noise\n" * 2000),
        GIVES_UP,
        evolve(GIVES_UP, tool="well"),
    ),
    stdio("silent", "no answer", sources.LIMITS, silence(), WAITS, AFTER),
    stdio(
        "frozen-large-argument",
        "reads nothing while a call with 1 MB of arguments is made, and later goes on",
        sources.LIMITS,
        freeze("thaw") + reply("late"),
        WAITS,
        Call(tool="well", arguments=LARGE_ARGUMENT, right=AtDeadline()),
        Release(gate="thaw"),
        AFTER,
    ),
    stdio(
        "stderr",
        "300,000 bytes on stderr before the answer",
        sources.STDERR,
        write_stderr("a" * 300_000) + reply("fine"),
    ),
    stdio(
        "exits",
        "exits with 3 in the middle of a call",
        sources.DEATH,
        leave(3),
        Call(right=Fails(("3",))),
        AFTER,
    ),
    stdio("dies", "is killed in the middle of a call", sources.DEATH, die(), FAILS, AFTER),
    evolve(
        stdio(
            "works-and-dies",
            "does the work, then dies without an answer",
            sources.REPLAY,
            note("ran") + die(),
            FAILS,
            AFTER,
        ),
        notes=1,
    ),
    stdio("dies-idle", "is killed between two calls", sources.DEATH, reply("fine"), FINE, Kill(), AFTER),
    stdio("closes-stdout", "closes its stdout and lives on", sources.ERRORS, close_stdout(), FAILS, AFTER),
    stdio(
        "exits-child-holds-on",
        "exits while a child of its own session holds the pipes",
        sources.ORPHANS,
        spawn(own_session=True) + leave(1),
        FAILS,
        AFTER,
    ),
    stdio(
        "child",
        "starts a child that ignores TERM",
        sources.ORPHANS,
        spawn(ignores_term=True) + reply("fine"),
    ),
    stdio(
        "child-own-session",
        "starts a child in a session of its own",
        sources.ORPHANS,
        spawn(own_session=True) + reply("fine"),
    ),
    stdio(
        "stubborn",
        "ignores TERM and the end of stdin",
        sources.STUBBORN,
        be_stubborn() + reply("fine"),
    ),
)
