"""A sign-in that is refused: the person is asked once, and the server waits for somebody to look."""

from collections.abc import AsyncGenerator, Awaitable, Callable

import anyio
import httpx2
import pytest
from bounds import EAGER, connected
from raw_sockets import Exchange, listening

from deputy_mcp import (
    PinBook,
    QuarantinedError,
    RestartLimitError,
    RestartPolicy,
    ServerState,
    UnavailableError,
)
from deputy_mcp.testing import ScriptedServer, change_tools, list_changed, reply, respond, tool

pytestmark = pytest.mark.anyio

TWICE = RestartPolicy(max_restarts=2, backoff_initial_seconds=0.01, backoff_max_seconds=0.05)


class Asking(httpx2.Auth):
    """A flow that asks a person each time it is needed; `answer` is raised, or None signs in."""

    def __init__(self, answer: Exception | None, *, first: int = 0) -> None:
        self.answer = answer
        self.asked = 0
        self.left = first
        """Requests that are let pass before anybody is asked."""

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        if self.left > 0:
            self.left -= 1
        else:
            self.asked += 1
            if self.answer is not None:
                raise self.answer

        yield request


class Renewing(httpx2.Auth):
    """A flow that asks an authorization server for a token, and gives up unless it gets one."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.asked = 0

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        self.asked += 1
        response = yield httpx2.Request("POST", self._url)
        if response.status_code != 200:
            raise LookupError("no token")

        yield request


def token_endpoint(status: str) -> Callable[[Exchange], Awaitable[bool | None]]:
    """A sane server, whose `/mcp/token` answers with this status."""

    async def handle(exchange: Exchange) -> bool | None:
        if not exchange.path.endswith("/token"):
            return None

        await exchange.respond(status=status)
        return True

    return handle


@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_a_sign_in_that_fails_is_not_tried_again_until_somebody_looked(tmp_path, transport, protocol):
    """A person who said no is asked once, not at every restart; released, the server asks again and serves."""
    server, auth = ScriptedServer(tmp_path), Asking(LookupError("nobody signed in"))
    async with (
        server.http(transport=transport, auth=auth, protocol=protocol) as entry,
        connected({"a": entry}) as connection,
    ):
        with pytest.raises(QuarantinedError) as caught:
            await connection.call_tool("a", "echo")

        asked, restarts = auth.asked, connection.status()["a"].restarts
        auth.answer = None
        await connection.release("a")
        result = await connection.call_tool("a", "echo")

    assert (1, 0) == (asked, restarts)
    assert "nobody signed in" in str(caught.value)
    assert not result.is_error


@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize("status", [401, 403])
async def test_a_sign_in_that_the_server_refuses_is_not_tried_again(tmp_path, transport, status):
    """The flow brought something, and the server will not have it."""
    refuses = {"GET" if transport == "sse" else "initialize": respond(status, "no")}
    server, auth = ScriptedServer(tmp_path, methods=refuses, bearer="other"), Asking(None)
    if transport == "http":
        server = ScriptedServer(tmp_path, methods=refuses)

    async with server.http(transport=transport, auth=auth, protocol="legacy") as entry:
        async with connected({"a": entry}) as connection:
            found = connection.status()["a"]

    assert (ServerState.QUARANTINED, 0) == (found.state, found.restarts)
    assert "HTTP" in (found.reason or "")
    assert 1 == auth.asked


@pytest.mark.parametrize("trouble", ["no route", "token endpoint down"])
async def test_a_sign_in_that_only_could_not_be_made_is_tried_again(trouble):
    """A broken connection or an authorization server in trouble is nobody's no: the restart policy counts it."""
    async with listening(token_endpoint("503 Service Unavailable")) as site:
        auth = Asking(ConnectionRefusedError("no route")) if trouble == "no route" else Renewing(f"{site.url}/token")
        async with connected({"a": site.server(auth=auth, restart=TWICE)}) as connection:
            with pytest.raises(RestartLimitError):
                await connection.call_tool("a", "echo")

    assert 3 == auth.asked


async def test_a_token_that_is_not_renewed_is_a_refusal():
    """The authorization server answers, and what it says is no."""
    async with listening(token_endpoint("400 Bad Request")) as site:
        auth = Renewing(f"{site.url}/token")
        async with connected({"a": site.server(auth=auth, restart=EAGER)}) as connection:
            found = connection.status()["a"]

    assert ServerState.QUARANTINED is found.state
    assert "no token" in (found.reason or "")
    assert 1 == auth.asked


async def test_a_sign_in_that_fails_at_a_call_costs_that_call_alone(tmp_path):
    """It may have asked for more than others need; it was not sent, and the server stays READY."""
    server, auth = ScriptedServer(tmp_path), Asking(None)
    async with server.http(auth=auth) as entry:
        async with connected({"a": entry}, pins=PinBook(verify="change")) as connection:
            auth.answer = LookupError("no more rights")
            with pytest.raises(UnavailableError) as caught:
                await connection.call_tool("a", "echo")

            auth.answer = None
            result = await connection.call_tool("a", "echo")
            state = connection.status()["a"].state

    assert ("sign_in_failed", "not_sent") == (caught.value.code, caught.value.outcome)
    assert not result.is_error
    assert ServerState.READY is state


async def test_a_sign_in_that_fails_at_a_listing_of_our_own_is_not_tried_again(tmp_path):
    """A server that tells of changes would have a person asked every second."""
    changes = change_tools(tool("echo"), tool("new")) + list_changed() + reply("fine")
    server, auth = ScriptedServer(tmp_path, calls={"echo": changes}), Asking(None)
    async with server.http(auth=auth, protocol="legacy") as entry:
        async with connected({"a": entry}, pins=PinBook(verify="change")) as connection:
            auth.left, auth.asked, auth.answer = 1, 0, LookupError("session over")
            result = await connection.call_tool("a", "echo")
            with anyio.fail_after(5):
                async for event in connection.events():
                    if event.facts.get("state") == "quarantined":
                        break

            asked = auth.asked

    assert "fine" == result.text
    assert 1 == asked
