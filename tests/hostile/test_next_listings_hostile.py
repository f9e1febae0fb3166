"""Listings and handshakes that are each within their bounds, and together are not."""

import json

import anyio
import httpx2
import pytest
from bounds import connected
from raw_sockets import Exchange, listening

from deputy_mcp import Limits, ServerState
from deputy_mcp.testing import ScriptedServer, respond, tool

pytestmark = pytest.mark.anyio

SMALL = Limits(max_message_bytes=20_000, startup_timeout_seconds=6)


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_pages_that_are_too_large_together_are_no_listing(tmp_path, transport):
    """Every page keeps within `max_message_bytes`; all of them may have four times as much."""
    tools = [tool(f"t{number}", description="a" * 12_000) for number in range(7)]
    server = ScriptedServer(tmp_path, tools=tools, page_size=1)
    fitting = ScriptedServer(tmp_path, name="fitting", tools=tools[:5], page_size=1)
    async with server.http() as one, fitting.http() as other:
        entries = {"a": one, "b": other} if transport == "http" else {"a": server.stdio(), "b": fitting.stdio()}
        async with connected(entries, limits=SMALL) as connection:
            status = connection.status()

    assert ServerState.QUARANTINED is status["a"].state
    assert "4 x 20000 bytes (max_message_bytes)" in (status["a"].reason or "")
    assert (ServerState.READY, 5) == (status["b"].state, status["b"].tools)


async def test_a_server_that_refused_a_version_is_not_greeted_in_the_old_way():
    """Its refusal names a version that we know, so its era is known: only `server/discover` is asked again, however
    long the answer takes."""
    asked: list[str] = []

    async def handle(exchange: Exchange) -> bool | None:
        message = await exchange.message()
        asked.append(message["method"] if message else exchange.method)
        if asked[-1] != "server/discover":
            return None

        if asked.count("server/discover") == 1:
            error = {"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"], "requested": "x"}}
            await exchange.respond(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode())
        else:
            await anyio.sleep(1.2)  # the scripted delay of the server, past the second after which we would hedge
            info = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"}
            await exchange.answer(info | {"ttlMs": 0, "cacheScope": "private"})

        return True

    async with listening(handle) as site, connected({"a": site.server(protocol="auto")}) as connection:
        assert "2026-07-28" == connection.status()["a"].protocol_version

    assert ["server/discover", "server/discover"] == asked[:2]
    assert "initialize" not in asked


class Counting(httpx2.Auth):
    """Signs in with something each time, and counts."""

    asked = 0

    async def async_auth_flow(self, request):
        self.asked += 1
        yield request


async def test_a_sign_in_refused_at_the_probe_is_not_made_again_for_the_greeting(tmp_path):
    """HTTP 401 to `server/discover`, with an auth flow: a person is not asked a second time for `initialize`."""
    server, auth = ScriptedServer(tmp_path, methods={"server/discover": respond(401, "no")}), Counting()
    async with server.http(auth=auth, protocol="auto") as entry, connected({"a": entry}) as connection:
        state = connection.status()["a"].state

    assert ServerState.QUARANTINED is state
    assert 1 == auth.asked
