"""What a server asks or tells of its own accord; in 2026-07-28 too."""

from typing import Any

from benchmarks.compare.situations import sources
from benchmarks.compare.situations.answers import FINE
from benchmarks.compare.situations.scripts import TOOLS, block, complete, one
from benchmarks.compare.values import AFTER, Call, Fails, OneOf, Script, Situation, Text, after
from deputy_mcp.testing import Action, ask, drop_listeners, notify, reply, tell_listeners

FORM = {"message": "your name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
SAMPLING = {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}], "maxTokens": 10}
LOG = {"level": "info", "data": "a line"}
FLOOD = 5_000

MODERN_AFTER = after(text="well")


def modern(echo: Any) -> dict[str, Script]:
    """A server of 2026-07-28 whose sane answers have all that this version requires."""
    return {
        "main": {
            "era": "modern",
            "tools": TOOLS,
            "methods": {"tools/list": reply(result=complete({"tools": list(TOOLS)}))},
            "calls": {"echo": echo, "well": reply(result=complete(block("well")))},
        }
    }


def asks(name: str, method: str, action: Action) -> Situation:
    return Situation(
        name=f"asks-{name}",
        says=f"`{method}` in the middle of a call, then the answer",
        source=sources.ELICITED if name == "elicitation" else sources.ASKED,
        servers=one(action + reply("fine")),
        steps=(FINE, AFTER),
    )


FINE_MODERN = reply(result=complete(block("fine")))
ASKS_INPUT = reply(
    result={
        "resultType": "input_required",
        "inputRequests": {"q": {"method": "elicitation/create", "params": {"mode": "form", **FORM}}},
        "requestState": "s",
    }
)

ASKING = (
    asks("ping", "ping", ask("ping")),
    asks("roots", "roots/list", ask("roots/list")),
    asks("sampling", "sampling/createMessage", ask("sampling/createMessage", SAMPLING)),
    asks("elicitation", "elicitation/create", ask("elicitation/create", FORM)),
    Situation(
        name="asks-with-our-id",
        says="an unknown request with the id of the call itself, then the answer",
        source=sources.ASKED,
        servers=one(ask("x/unknown", request_id="$id") + reply("fine")),
        steps=(FINE, AFTER),
    ),
    Situation(
        name="unknown-notification",
        says="a notification that nobody knows, and progress that nobody asked for",
        source=sources.HANDSHAKE,
        servers=one(
            notify("x/unknown", {"a": 1})
            + notify("notifications/progress", {"progressToken": "nobody's", "progress": 1})
            + reply("fine")
        ),
        steps=(FINE, AFTER),
    ),
    Situation(
        name="flood",
        says=f"{FLOOD:,} log lines before the answer, with a deadline of 3 s",
        source=sources.LIMITS,
        servers=one(notify("notifications/message", LOG, times=FLOOD) + reply("fine")),
        steps=(Call(right=Text("fine"), deadline_seconds=3), AFTER),
    ),
    Situation(
        name="modern-answer",
        says="2026-07-28: answers as it should",
        source=sources.SPECIFICATION,
        servers=modern(FINE_MODERN),
        steps=(FINE, MODERN_AFTER),
    ),
    Situation(
        name="modern-list-changed",
        says="2026-07-28: tells listeners of a changed listing in the middle of a call",
        source=sources.LISTENING,
        servers=modern(tell_listeners() + FINE_MODERN),
        steps=(FINE, MODERN_AFTER),
    ),
    Situation(
        name="modern-drops-listeners",
        says="2026-07-28: cuts the streams of listeners in the middle of a call",
        source=sources.LISTENING,
        servers=modern(drop_listeners() + FINE_MODERN),
        steps=(FINE, MODERN_AFTER, MODERN_AFTER),
    ),
    Situation(
        name="modern-asks-input",
        says="2026-07-28: asks for input that nobody gives, once",
        source=sources.ELICITED,
        servers=modern([ASKS_INPUT, FINE_MODERN]),
        steps=(Call(right=OneOf((Text("fine"), Fails()))), MODERN_AFTER),
    ),
)
