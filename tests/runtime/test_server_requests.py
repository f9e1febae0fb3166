"""The servers' own requests: elicitation, sampling, roots; declined, answered, judged and bounded, in both eras."""

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_types import CreateMessageResult, ElicitResult, TextContent

from deputy_mcp import (
    CallError,
    CallTimeoutError,
    ConfigError,
    ElicitationRequest,
    Limits,
    McpConnection,
    Permissions,
    SamplingRequest,
)
from deputy_mcp.testing import Action, ScriptedServer, ask, hold, reply

pytestmark = pytest.mark.anyio

FORM = {
    "mode": "form",
    "message": "Which \x1b[31mcolour?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "colour": {"type": "string", "enum": ["red", "blue"]},
            "size": {"type": "integer", "default": 3},
        },
        "required": ["colour"],
    },
}
URL = {"mode": "url", "message": "log in", "url": "https://exämple.org/login", "elicitationId": "e1"}
SAMPLE = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "hi\x00 there"}}],
    "maxTokens": 10,
    "systemPrompt": "be brief\x1b[0m",
}
REQUESTS = {"elicitation/create": FORM, "sampling/createMessage": SAMPLE, "roots/list": {}}
ACCEPT = {"action": "accept", "content": {"colour": "red"}}
SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "m", "stopReason": "endTurn"}


def host_answers(folder: Path) -> dict[str, Any]:
    async def elicit(_: ElicitationRequest) -> dict[str, Any]:
        return ACCEPT

    async def sample(_: SamplingRequest) -> dict[str, Any]:
        return SAMPLED

    return {"elicitor": elicit, "sampler": sample, "roots": [folder]}


def inputs(*requests: tuple[str, Any], state: str = "s1") -> Action:
    """A result of 2026-07-28 that asks for input."""
    asked = {f"k{i}": {"method": method, "params": params} for i, (method, params) in enumerate(requests)}
    return reply(result={"resultType": "input_required", "inputRequests": asked, "requestState": state})


@asynccontextmanager
async def opened(server: ScriptedServer, **options: Any) -> AsyncIterator[McpConnection]:
    with anyio.fail_after(20):
        async with McpConnection({"a": server.stdio()}, permissions=Permissions.full(), **options) as connection:
            yield connection


def answers(server: ScriptedServer) -> list[dict[str, Any]]:
    return [entry["answer"] for entry in server.ledger("answer")]


def sent_capabilities(server: ScriptedServer) -> dict[str, Any]:
    """What the client last said it can do."""
    if greetings := server.received("initialize"):
        capabilities = greetings[-1]["params"]["capabilities"]
    else:
        capabilities = server.received("tools/call")[-1]["params"]["_meta"][
            "io.modelcontextprotocol/clientCapabilities"
        ]

    assert isinstance(capabilities, dict)
    return capabilities


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_what_the_host_did_not_give_is_not_advertised(tmp_path: Path, era: Any) -> None:
    """No capability without an answer behind it; each answer advertises its own and no other."""
    silent = ScriptedServer(tmp_path, name="silent", era=era)
    async with opened(silent) as connection:
        await connection.call_tool("a", "echo")

    assert sent_capabilities(silent) == {}
    for given, expected in (("elicitor", "elicitation"), ("sampler", "sampling"), ("roots", "roots")):
        server = ScriptedServer(tmp_path, name=given, era=era)
        async with opened(server, **{given: host_answers(tmp_path)[given]}) as connection:
            await connection.call_tool("a", "echo")

        assert set(sent_capabilities(server)) == {expected}


@pytest.mark.parametrize("method", list(REQUESTS))
async def test_without_an_answer_a_request_is_declined_at_once(tmp_path: Path, method: str) -> None:
    """The server gets an error, and its call goes on."""
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": ask(method, REQUESTS[method]) + reply("done")})
    async with opened(server) as connection:
        assert (await connection.call_tool("a", "echo")).text == "done"

    assert [answer["error"]["code"] for answer in answers(server)] == [-32600]


@pytest.mark.parametrize("method", list(REQUESTS))
async def test_without_an_answer_a_modern_call_is_given_up(tmp_path: Path, method: str) -> None:
    """2026-07-28 has no way to decline but to stop asking; the caller is told, and that the tool may have run."""
    server = ScriptedServer(
        tmp_path, era="modern", calls={"echo": [inputs((method, REQUESTS[method])), reply("never")]}
    )
    async with opened(server) as connection:
        with pytest.raises(CallError) as caught:
            await connection.call_tool("a", "echo")

    assert (caught.value.code, caught.value.outcome) == ("input_declined", "unknown")
    assert server.runs("echo") == 1


async def test_a_form_is_shown_clean_and_its_answer_sent(tmp_path: Path) -> None:
    """A person sees clean words and the server's name; what they leave out is filled with the form's defaults."""
    seen: list[ElicitationRequest] = []

    async def elicit(request: ElicitationRequest) -> ElicitResult:
        seen.append(request)
        return ElicitResult(action="accept", content={"colour": "blue"})

    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": ask("elicitation/create", FORM) + reply("done")})
    async with opened(server, elicitor=elicit) as connection:
        await connection.call_tool("a", "echo")

    (request,) = seen
    assert (request.server, request.tool, request.mode, request.url) == ("a", "echo", "form", None)
    assert request.message == "Which \\u001b[31mcolour?"
    assert answers(server)[0]["result"] == {"action": "accept", "content": {"colour": "blue", "size": 3}}


async def test_a_url_is_shown_with_its_host(tmp_path: Path) -> None:
    """The host is the one that is looked up, in ASCII; nothing is opened, and no content goes back."""
    seen: list[ElicitationRequest] = []

    async def elicit(request: ElicitationRequest) -> dict[str, Any]:
        seen.append(request)
        return {"action": "accept", "content": {"not": "wanted"}}

    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": ask("elicitation/create", URL) + reply("done")})
    async with opened(server, elicitor=elicit) as connection:
        await connection.call_tool("a", "echo")

    assert (seen[0].mode, seen[0].url, seen[0].host) == ("url", URL["url"], "xn--exmple-cua.org")
    assert answers(server)[0]["result"] == {"action": "accept"}


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "javascript:alert(1)", "https://", "https://a/\x1b[2J", "http://["]
)
async def test_an_odd_url_is_never_shown(tmp_path: Path, url: str) -> None:
    """Only a plain web address reaches a person."""

    async def elicit(_: ElicitationRequest) -> dict[str, Any]:
        raise AssertionError("it was shown")

    server = ScriptedServer(
        tmp_path, era="legacy", calls={"echo": ask("elicitation/create", URL | {"url": url}) + reply("done")}
    )
    async with opened(server, elicitor=elicit) as connection:
        assert (await connection.call_tool("a", "echo")).text == "done"

    assert "URL" in answers(server)[0]["error"]["message"]


async def test_a_sample_is_asked_for_clean_and_sent(tmp_path: Path) -> None:
    """The model reads no escape or NUL of the server's; the reply goes out in the protocol's form."""
    seen: list[SamplingRequest] = []

    async def sample(request: SamplingRequest) -> CreateMessageResult:
        seen.append(request)
        return CreateMessageResult(
            role="assistant", content=TextContent(type="text", text="hello"), model="m", stop_reason="endTurn"
        )

    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": ask("sampling/createMessage", SAMPLE) + reply("x")})
    async with opened(server, sampler=sample) as connection:
        await connection.call_tool("a", "echo")

    assert (seen[0].server, seen[0].tool, seen[0].max_tokens) == ("a", "echo", 10)
    assert seen[0].messages[0]["content"]["text"] == "hi\\u0000 there"
    assert seen[0].system_prompt == "be brief\\u001b[0m"
    assert answers(server)[0]["result"] == SAMPLED


async def test_the_roots_are_told_as_uris(tmp_path: Path) -> None:
    """Paths and file URIs alike."""
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": ask("roots/list") + reply("x")})
    async with opened(server, roots=[tmp_path, "file:///srv/other"]) as connection:
        await connection.call_tool("a", "echo")

    assert answers(server)[0]["result"]["roots"] == [
        {"uri": tmp_path.as_uri(), "name": tmp_path.name},
        {"uri": "file:///srv/other", "name": "other"},
    ]


async def test_a_modern_server_gets_its_inputs_and_its_state(tmp_path: Path) -> None:
    """The call is sent again with an answer for each request, and the state as it came; it counts as one call."""
    asked = inputs(*REQUESTS.items(), state='{"opaque": 1}')
    server = ScriptedServer(tmp_path, era="modern", calls={"echo": [asked, reply("done")]})
    async with opened(server, **host_answers(tmp_path)) as connection:
        assert (await connection.call_tool("a", "echo", {"x": 1})).text == "done"

    first, second = (message["params"] for message in server.received("tools/call"))
    assert "inputResponses" not in first
    assert second["requestState"] == '{"opaque": 1}'
    assert second["arguments"] == {"x": 1}
    assert second["inputResponses"] == {
        "k0": {"action": "accept", "content": {"colour": "red", "size": 3}},
        "k1": SAMPLED,
        "k2": {"roots": [{"uri": tmp_path.as_uri(), "name": tmp_path.name}]},
    }


async def test_requests_past_the_bound_are_declined(tmp_path: Path) -> None:
    """`max_server_requests_per_call`: the server may go on, but nobody is asked any more; the next call starts anew."""
    count = 0

    async def elicit(_: ElicitationRequest) -> dict[str, Any]:
        nonlocal count
        count += 1
        return ACCEPT

    asks = Action()
    for number in range(4):
        asks += ask("elicitation/create", FORM, request_id=f"ask-{number}")

    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": [asks + reply("one"), asks + reply("two")]})
    async with opened(server, elicitor=elicit, limits=Limits(max_server_requests_per_call=2)) as connection:
        await connection.call_tool("a", "echo")
        assert [("error" in answer) for answer in answers(server)] == [False, False, True, True]
        await connection.call_tool("a", "echo")

    assert count == 4


async def test_a_modern_server_that_asks_for_too_much_is_given_up(tmp_path: Path) -> None:
    """The bound counts over the rounds of one call, and over the requests inside one of them."""
    server = ScriptedServer(tmp_path, era="modern", calls={"echo": [inputs(("elicitation/create", FORM))] * 9})
    options = host_answers(tmp_path) | {"limits": Limits(max_server_requests_per_call=3)}
    async with opened(server, **options) as connection:
        with pytest.raises(CallError) as caught:
            await connection.call_tool("a", "echo")

    assert caught.value.code == "input_declined"
    assert server.runs("echo") == 4


async def test_a_request_outside_a_call_is_declined(tmp_path: Path) -> None:
    """Without a call under way nobody is asked, whatever the host gave."""

    async def elicit(_: ElicitationRequest) -> dict[str, Any]:
        raise AssertionError("somebody was asked")

    server = ScriptedServer(
        tmp_path, era="legacy", methods={"notifications/initialized": ask("elicitation/create", FORM)}
    )
    async with opened(server, elicitor=elicit) as connection:
        await server.wait_for(answers)
        assert (await connection.call_tool("a", "echo")).text

    assert "no call is under way" in answers(server)[0]["error"]["message"]


@pytest.mark.parametrize(
    "answer",
    [
        {"action": "accept", "content": {"colour": "green"}},
        {"action": "accept", "content": {}},
        {"action": "accept", "content": {"colour": "red", "size": "large"}},
        {"action": "perhaps"},
        None,
        "accept",
        ValueError("a secret"),
    ],
)
async def test_an_answer_that_does_not_fit_is_not_sent(tmp_path: Path, answer: Any) -> None:
    """The server learns that there is none, and no details; the host learns of its fault; the call goes on."""

    async def elicit(_: ElicitationRequest) -> Any:
        if isinstance(answer, Exception):
            raise answer

        return answer

    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": ask("elicitation/create", FORM) + reply("done")})
    async with opened(server, elicitor=elicit) as connection:
        assert (await connection.call_tool("a", "echo")).text == "done"

    assert answers(server)[0]["error"] == {"code": -32603, "message": "the host could not answer"}


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_person_may_decline_or_cancel(tmp_path: Path, action: str) -> None:
    """Both words reach the server, and no content with them."""

    async def elicit(_: ElicitationRequest) -> dict[str, Any]:
        return {"action": action, "content": {"colour": "red"}}

    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": ask("elicitation/create", FORM) + reply("done")})
    async with opened(server, elicitor=elicit) as connection:
        await connection.call_tool("a", "echo")

    assert answers(server)[0]["result"] == {"action": action}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_an_answer_that_takes_too_long_ends_with_its_call(tmp_path: Path, era: Any) -> None:
    """The call's deadline covers the answer: the caller is free, the question is taken back."""
    cancelled = anyio.Event()

    async def elicit(_: ElicitationRequest) -> dict[str, Any]:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    first = ask("elicitation/create", FORM) + reply("x") if era == "legacy" else inputs(("elicitation/create", FORM))
    server = ScriptedServer(tmp_path, era=era, calls={"echo": [first, reply("next")]})
    async with opened(server, elicitor=elicit) as connection:
        with pytest.raises(CallTimeoutError):
            await connection.call_tool("a", "echo", timeout_seconds=0.3)

        await cancelled.wait()
        if era == "modern":
            assert (await connection.call_tool("a", "echo")).text == "next"


async def test_a_request_is_told_as_digests(tmp_path: Path) -> None:
    """An event names method, tool and answer, and holds digests instead of what was asked and said."""
    server = ScriptedServer(tmp_path, era="legacy", calls={"echo": ask("roots/list") + hold("go") + reply("x")})
    async with opened(server, roots=[tmp_path]) as connection:
        events = connection.events()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.call_tool, "a", "echo")
            async for event in events:
                if event.kind == "server_request":
                    break

            server.release("go")

    facts = dict(event.facts)
    said = {"roots": [{"name": tmp_path.name, "uri": tmp_path.as_uri()}]}
    expected = hashlib.sha256(json.dumps(said, separators=(",", ":")).encode()).hexdigest()
    assert (facts["method"], facts["tool"], facts["answer"]) == ("roots/list", "echo", "given")
    assert facts["answer_sha256"] == expected
    assert str(tmp_path) not in str(facts)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"elicitor": "yes"}, "elicitor"),
        ({"sampler": 3}, "sampler"),
        ({"roots": "/srv"}, "roots"),
        ({"roots": [3]}, "roots"),
        ({"roots": ["https://example.org"]}, "roots"),
    ],
)
async def test_odd_answers_are_refused_before_anything_starts(options: Any, key: str) -> None:
    """A wrong type is named when the connection is made."""
    with pytest.raises(ConfigError, match=key):
        McpConnection({}, **options)
