"""What an answer may look like, on either transport."""

from benchmarks.compare.situations import sources
from benchmarks.compare.situations.scripts import TOOLS, answer, block, one
from benchmarks.compare.values import (
    AFTER,
    Abandon,
    AtDeadline,
    Call,
    Cancelled,
    Delivered,
    Fails,
    OneOf,
    Release,
    Situation,
    Text,
    Together,
    ToolFails,
)
from deputy_mcp.testing import change_tools, fail, freeze, hold, list_changed, reply, send, tool, wait

FINE = Call(right=Text("fine"))
FAILS = Call(right=Fails())
NEEDS_NUMBER = {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}
TYPED = {"tools": (tool("echo", outputSchema=NEEDS_NUMBER), tool("well"))}
LARGE, HUGE = 600_000, 12_000_000

ANSWERS = (
    Situation(
        name="answer",
        says="answers as it should",
        source=sources.SPECIFICATION,
        servers=one(reply("fine")),
        over=("stdio", "http", "sse"),
        steps=(FINE, AFTER),
    ),
    Situation(
        name="fifty-at-once",
        says="fifty calls at once",
        source=sources.PARALLEL,
        servers=one(),
        over=("stdio", "http", "sse"),
        steps=(
            Together(
                calls=tuple(
                    Call(
                        tool="well",
                        arguments={"n": n},
                        right=Text(f'{{"tool": "well", "arguments": {{"n": {n}}}}}'),
                        deadline_seconds=3,
                    )
                    for n in range(50)
                )
            ),
        ),
    ),
    Situation(
        name="rpc-error",
        says="a JSON-RPC error",
        source=sources.ERRORS,
        servers=one(fail(-32000, "out of paper")),
        steps=(Call(right=Fails(("out of paper",))), AFTER),
    ),
    Situation(
        name="tool-error",
        says="a tool's own failure, with structured content that breaks the output schema",
        source=sources.TOOL_ERROR,
        servers=one(
            reply(result={**block("quota exceeded"), "isError": True, "structuredContent": {"error": "z"}}), **TYPED
        ),
        steps=(Call(right=ToolFails("quota exceeded")), AFTER),
    ),
    Situation(
        name="schema-broken",
        says="structured content that breaks the output schema",
        source=sources.OUTPUT_SCHEMA,
        servers=one(reply(result={**block("seven"), "structuredContent": {"a": "seven"}}), **TYPED),
        steps=(Call(right=Delivered("seven")), AFTER),
    ),
    Situation(
        name="schema-unmet",
        says="no structured content although an output schema is declared",
        source=sources.OUTPUT_SCHEMA,
        servers=one(reply("seven"), **TYPED),
        steps=(Call(right=Delivered("seven")), AFTER),
    ),
    Situation(
        name="unknown-block",
        says="a block of an unknown type",
        source=sources.ODD_RESULT,
        servers=one(reply(result={"content": [{"type": "widget", "x": 1}]})),
        steps=(Call(right=Delivered("widget")), AFTER),
    ),
    Situation(
        name="structured-only",
        says="structured content and no blocks",
        source=sources.ODD_RESULT,
        servers=one(reply(result={"structuredContent": {"rows": 3}})),
        steps=(Call(right=Delivered("rows")), AFTER),
    ),
    Situation(
        name="foreign-id",
        says="an answer to an id that was never used, then the right one",
        source=sources.ODD_ID,
        servers=one(send(answer("another's", 9999)) + reply("fine")),
        steps=(FINE, AFTER),
    ),
    Situation(
        name="id-as-text",
        says="the id echoed as a string",
        source=sources.ODD_ID,
        servers=one(send(answer("fine", "$id_text"))),
        steps=(FINE, AFTER),
    ),
    Situation(
        name="two-answers",
        says="two answers to one request",
        source=sources.LATE,
        servers=one(send(answer("fine")) + send(answer("second"))),
        steps=(FINE, AFTER, AFTER),
    ),
    Situation(
        name="no-result",
        says="an answer with neither result nor error",
        source=sources.INVALID_REPLY,
        servers=one(send({"jsonrpc": "2.0", "id": "$id"})),
        steps=(FAILS, AFTER),
    ),
    Situation(
        name="null-result",
        says="an answer whose result is null",
        source=sources.INVALID_REPLY,
        servers=one(send({"jsonrpc": "2.0", "id": "$id", "result": None})),
        steps=(FAILS, AFTER),
    ),
    Situation(
        name="result-and-error",
        says="an answer with result and error",
        source=sources.INVALID_REPLY,
        servers=one(send(answer("fine", error={"code": -32000, "message": "no"}))),
        steps=(FAILS, AFTER),
    ),
    Situation(
        name="error-without-code",
        says="an error without a code",
        source=sources.INVALID_REPLY,
        servers=one(send({"jsonrpc": "2.0", "id": "$id", "error": {"message": "no"}})),
        steps=(FAILS, AFTER),
    ),
    Situation(
        name="code-as-text",
        says="an error whose code is a string",
        source=sources.INVALID_REPLY,
        servers=one(send({"jsonrpc": "2.0", "id": "$id", "error": {"code": "E1", "message": "no"}})),
        steps=(FAILS, AFTER),
    ),
    Situation(
        name="answer-in-an-array",
        says="an answer wrapped in an array",
        source=sources.INVALID_REPLY,
        servers=one(send([answer("fine")])),
        steps=(Call(right=OneOf((Text("fine"), Fails()))), AFTER),
    ),
    Situation(
        name="odd-messages",
        says="an array, a string, a number, null and {} as messages, then the answer",
        source=sources.NOISE,
        servers=one(send([1, 2]) + send("text") + send(7) + send(None) + send({}) + reply("fine")),
        steps=(FINE, AFTER),
    ),
    Situation(
        name="lone-surrogate",
        says="half a surrogate pair in the text",
        source=sources.ODD_TEXT,
        servers=one(send(answer("a\ud800b"))),
        steps=(Call(right=OneOf((Text("a\ufffdb"), Text("a\\ud800b"), Fails()))), AFTER),
    ),
    Situation(
        name="large",
        says=f"a text of {LARGE:,} characters",
        source=sources.LARGE_LINE,
        servers=one(reply("a" * LARGE)),
        steps=(Call(right=Text("a" * LARGE)), AFTER),
    ),
    Situation(
        name="huge",
        says=f"a text of {HUGE:,} characters, with a deadline of 3 s",
        source=sources.LARGE_LINE,
        servers=one(reply("a" * HUGE)),
        steps=(Call(right=Text("a" * HUGE), deadline_seconds=3), AFTER),
    ),
    Situation(
        name="slow",
        says="an answer after 0.4 s",
        source=sources.LIMITS,
        servers=one(wait(0.4) + reply("fine")),
        steps=(FINE, AFTER),
    ),
    Situation(
        name="slow-beside-quick",
        says="a call that is held while another is answered",
        source=sources.LIMITS,
        servers=one(hold("slow") + reply("fine")),
        steps=(
            Together(
                calls=(
                    Call(right=Text("fine"), deadline_seconds=3),
                    Call(
                        tool="well",
                        right=Text('{"tool": "well", "arguments": {}}'),
                        deadline_seconds=2,
                        release="slow",
                    ),
                )
            ),
            AFTER,
        ),
    ),
    Situation(
        name="late-answer",
        says="an answer after the deadline",
        source=sources.LATE,
        servers=one(hold("late") + reply("late")),
        steps=(Call(right=AtDeadline()), Release(gate="late"), AFTER, AFTER),
    ),
    Situation(
        name="cancelled-call",
        says="a held call that its caller cancels",
        source=sources.CANCEL,
        servers=one(hold("late") + reply("late")),
        steps=(Abandon(call=Call(right=Cancelled(), deadline_seconds=3)), AFTER, Release(gate="late"), AFTER),
    ),
    Situation(
        name="frozen",
        says="reads and answers nothing any more, and later goes on",
        source=sources.LIMITS,
        servers=one(freeze("thaw") + reply("late")),
        steps=(Call(right=AtDeadline()), Release(gate="thaw"), AFTER),
    ),
    Situation(
        name="listing-changes",
        says="another listing, told in the middle of a call",
        source=sources.LIST_CHANGED,
        servers=one(change_tools(*TOOLS, tool("new")) + list_changed() + reply("fine")),
        steps=(FINE, AFTER),
    ),
    Situation(
        name="listing-spoils",
        says="a listing that turns malformed, told in the middle of a call",
        source=sources.BAD_ENTRY,
        servers=one(change_tools(*TOOLS, {"name": "bad", "inputSchema": None}) + list_changed() + reply("fine")),
        steps=(FINE, AFTER),
    ),
)
