"""A healthy server beside a bad one: does its tool survive?"""

from benchmarks.compare.situations import sources
from benchmarks.compare.situations.scripts import TOOLS
from benchmarks.compare.values import (
    START_SECONDS,
    STOP_SECONDS,
    Anything,
    Call,
    List,
    Names,
    Nobody,
    Opens,
    Over,
    Script,
    Situation,
    Step,
    after,
)
from deputy_mcp.testing import die, endless, freeze, hang_up, junk, leave, reply, tool

GOOD = {"tools": (tool("good"),)}
SURVIVES = (List(server="main", right=Names(("good",))), after("good"))


def beside(
    name: str, says: str, source: str, bad: Script | Nobody, *steps: Step, over: tuple[Over, ...] = ("stdio",)
) -> Situation:
    return Situation(
        name=f"beside-{name}",
        says=f"beside one that {says}",
        source=source,
        servers={"bad": bad, "main": GOOD},
        over=over,
        opens=Opens(within_seconds=START_SECONDS + STOP_SECONDS),
        lists=None,
        steps=(*steps, *SURVIVES),
        bound_seconds=14,
    )


def bad(**fields: object) -> Script:
    return {"tools": TOOLS, **fields}


TROUBLE = Call(server="bad", right=Anything())

SEVERAL = (
    beside("no-command", "has no such command", sources.ONE_BAD, "no such command"),
    beside(
        "nobody-listens",
        "does not listen",
        sources.DEAD_URL_BESIDE,
        "nobody listens",
        over=("stdio", "http"),
    ),
    beside(
        "exits-at-once",
        "exits before it reads anything",
        sources.ONE_BAD,
        bad(at_start=leave(3)),
    ),
    beside("silent", "reads nothing", sources.SILENT_START, bad(at_start=freeze())),
    beside(
        "malformed",
        "lists nonsense",
        sources.BAD_ENTRY,
        bad(methods={"tools/list": reply(result={"tools": 7})}),
    ),
    beside("dies", "dies in a call", sources.DEATH, bad(calls={"echo": die()}), TROUBLE),
    beside(
        "invalid-line",
        "sends a line that is no UTF-8",
        sources.BAD_UTF8,
        bad(calls={"echo": junk(b"\xff\xfe\n")}),
        TROUBLE,
    ),
    beside(
        "floods",
        "sends a line that never ends",
        sources.ENDLESS,
        bad(calls={"echo": endless("a" * 65536)}),
        TROUBLE,
    ),
    beside(
        "hangs-up",
        "hangs up in a call",
        sources.DROPPED,
        bad(calls={"echo": hang_up()}),
        TROUBLE,
        over=("http",),
    ),
)
