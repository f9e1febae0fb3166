"""The client that the official conformance suite drives: one small function per kind of scenario, over our public API.

The suite starts a server for each scenario, runs this file with the server's URL and judges what came over the wire.
`MCP_CONFORMANCE_SCENARIO` names the scenario, `MCP_CONFORMANCE_PROTOCOL_VERSION` the revision its server speaks, and
`MCP_CONFORMANCE_CONTEXT` holds what the scenario hands over, as JSON.

All MCP traffic goes through an `McpConnection`; nothing here speaks HTTP to an MCP server. What does is the host's own
part of OAuth: the person's browser that follows the authorization URL, and the asking of an enterprise's identity
provider. The authorization providers are the MCP SDK's, and two of `authorization.py`, given as `HttpServer(auth=...)`.

Its last line says how it ended: `done`, `refused` (the connection or a call was: some servers must be), or neither when
it broke. The suite does not look at it, `conformance_suite.py` does.
"""

import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
from authorization import Dpop, WorkloadIdentity
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from deputy_mcp import DeputyError, ElicitationRequest, HttpServer, InvalidArgumentsError, McpConnection, Permissions

NAME = "judge"
"""What we call the scenario's server."""

MODERN = "2026-07-28"
CLIENT_SECONDS = 60
"""No scenario takes a tenth of it; a client that hangs must not keep the others from their turn."""
HOST_SECONDS = 30
"""For what the host's own requests may take."""
CALLBACK = "http://localhost:3000/callback"
"""Where the authorization server sends the browser back to; nothing listens there, the address is read."""
CLIENT_ID_DOCUMENT = "https://conformance-test.local/client-metadata.json"
"""The suite's own address for a client that is known by a document instead of a registration."""


def revision() -> str:
    """What the scenario's server speaks."""
    return os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"]


def server(url: str, **fields: Any) -> HttpServer:
    """The scenario's server: spoken to in the revision the suite names, and by `auto`, our default, in the newest."""
    return HttpServer(url, required=True, protocol="auto" if revision() == MODERN else revision(), **fields)


def connect(spec: HttpServer, **options: Any) -> McpConnection:
    """A connection on which the server may be used without a question: the suite judges the wire, not the host."""
    return McpConnection({NAME: spec}, permissions=Permissions.full(), **options)


def context() -> dict[str, Any]:
    """What the scenario hands over."""
    handed: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    return handed


# -- the protocol --------------------------------------------------------------------------------------------------


async def list_tools(url: str) -> None:
    """Entering lists the tools; more is not asked for."""
    async with connect(server(url)):
        pass


async def add_numbers(url: str) -> None:
    async with connect(server(url)) as connection:
        await connection.call_tool(NAME, "add_numbers", {"a": 5, "b": 3})


async def request_metadata(url: str) -> None:
    """With everything a host can give, so that the capabilities are stamped on each request."""

    async def sample(request: object) -> dict[str, Any]:
        return {"role": "assistant", "content": {"type": "text", "text": ""}, "model": "none"}

    async with connect(server(url), elicitor=accept, sampler=sample, roots=["file:///tmp"]) as connection:
        await connection.discover(NAME, "tools")


async def reconnect(url: str) -> None:
    """The stream that should answer ends before it has; the answer comes over the resumed one."""
    async with connect(server(url)) as connection:
        result = await connection.call_tool(NAME, "test_reconnection")
        assert "completed successfully" in result.text


async def accept(request: ElicitationRequest) -> Mapping[str, Any]:
    """Accept, with what the form has defaults for and nothing else."""
    return {"action": "accept", "content": {}}


async def elicitation_defaults(url: str) -> None:
    async with connect(server(url), elicitor=accept) as connection:
        result = await connection.call_tool(NAME, "test_client_elicitation_defaults")
        assert "completed" in result.text


async def request_state(url: str) -> None:
    """Calls that are asked back in their result; between two of them one that is not."""

    async def confirm(request: ElicitationRequest) -> Mapping[str, Any]:
        return {"action": "accept", "content": {"confirmed": True}}

    async with connect(server(url), elicitor=confirm) as connection:
        for tool in ("test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type"):
            result = await connection.call_tool(NAME, tool)
            assert not result.is_error


async def standard_headers(url: str) -> None:
    """One of each kind of request. What may be read is named by the host, as always."""
    resource, prompt = "file:///path/to/file%20name.txt", "test_prompt"
    spec = server(url, resources=[resource], prompts=[prompt])
    async with connect(spec) as connection:
        for tool in connection.tools():
            await tool()

        await connection.discover(NAME, "resources")
        await connection.read_resource(NAME, resource)
        await connection.discover(NAME, "prompts")
        await connection.get_prompt(NAME, prompt)


async def custom_headers(url: str) -> None:
    """The calls that the scenario hands over. A model that is told of a null the schema forbids leaves it out."""
    async with connect(server(url)) as connection:
        for call in context()["toolCalls"]:
            arguments = call["arguments"]
            try:
                await connection.call_tool(NAME, call["name"], arguments)
            except InvalidArgumentsError as error:
                print(f"{call['name']}: {error}", file=sys.stderr)
                given = {name: value for name, value in arguments.items() if value is not None}
                await connection.call_tool(NAME, call["name"], given)


async def every_tool(url: str) -> None:
    """Call whatever is offered to the model, with the least that its schema takes."""
    least = {"string": "x", "integer": 0, "number": 0, "boolean": False, "object": {}, "array": [], "null": None}
    async with connect(server(url)) as connection:
        for tool in connection.tools():
            schema = tool.input_schema
            wanted = {name: least[schema["properties"][name]["type"]] for name in schema.get("required", ())}
            await tool(**wanted)


async def echo_schema(url: str) -> None:
    """Give the server back the schema that a model would see."""
    async with connect(server(url)) as connection:
        (focal,) = (tool for tool in connection.tools() if tool.tool == "json_schema_2020_12_tool")
        await connection.call_tool(NAME, "json_schema_echo", {"schema": plain(focal.input_schema)})


def plain(value: Any) -> Any:
    """A read-only tree as one that can be an argument."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}

    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


# -- authorization -------------------------------------------------------------------------------------------------


class Memory:
    """The SDK's `TokenStorage`, for as long as we run."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self._client = client
        self._tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


class Browser:
    """The person's: it follows the authorization URL and reads where it is sent back to. She agrees to everything."""

    def __init__(self) -> None:
        self._sent_back_to = ""

    async def visit(self, authorization_url: str) -> None:
        async with httpx2.AsyncClient(timeout=HOST_SECONDS) as web:
            answer = await web.get(authorization_url)
            self._sent_back_to = answer.headers["location"]

    async def sent_back(self) -> AuthorizationCodeResult:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self._sent_back_to).query).items()}
        return AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))


async def use(url: str, auth: httpx2.Auth) -> None:
    """List, and call the first tool."""
    async with connect(server(url, auth=auth)) as connection:
        for tool in connection.tools()[:1]:
            await tool()


async def authorization_code(url: str) -> None:
    await use(url, person(url))


async def bound_token(url: str) -> None:
    """As before; the token is of use only to who holds a key."""
    await use(url, Dpop(person(url)))


def person(url: str) -> OAuthClientProvider:
    """A person agrees in a browser; the client is registered, known by a document, or known beforehand."""
    handed = context()
    client: OAuthClientInformationFull | None = None
    if "client_id" in handed:
        client = OAuthClientInformationFull(
            client_id=handed["client_id"],
            client_secret=handed.get("client_secret"),
            redirect_uris=[AnyUrl(CALLBACK)],
            token_endpoint_auth_method="client_secret_basic" if handed.get("client_secret") else "none",
        )

    browser = Browser()
    metadata = OAuthClientMetadata(
        client_name="deputy_mcp",
        redirect_uris=[AnyUrl(CALLBACK)],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
    )
    return OAuthClientProvider(
        server_url=url,
        client_metadata=metadata,
        storage=Memory(client),
        redirect_handler=browser.visit,
        callback_handler=browser.sent_back,
        client_metadata_url=CLIENT_ID_DOCUMENT,
    )


async def client_secret(url: str) -> None:
    """A program signs in with a secret."""
    handed = context()
    auth = ClientCredentialsOAuthProvider(
        server_url=url,
        storage=Memory(),
        client_id=handed["client_id"],
        client_secret=handed["client_secret"],
        token_endpoint_auth_method="client_secret_basic",
    )
    await use(url, auth)


async def client_key(url: str) -> None:
    """A program signs in with its own signature."""
    handed = context()
    signature = SignedJWTParameters(
        issuer=handed["client_id"],
        subject=handed["client_id"],
        signing_algorithm=handed["signing_algorithm"],
        signing_key=handed["private_key_pem"],
    )
    auth = PrivateKeyJWTOAuthProvider(
        server_url=url,
        storage=Memory(),
        client_id=handed["client_id"],
        assertion_provider=signature.create_assertion_provider(),
    )
    await use(url, auth)


async def enterprise(url: str) -> None:
    """The enterprise's identity provider vouches for its employee."""
    handed = context()
    parts = urlsplit(url)

    async def vouch(audience: str, resource: str) -> str:
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
            "subject_token": handed["idp_id_token"],
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
            "audience": audience,
            "resource": resource,
            "client_id": handed["idp_client_id"],
        }
        async with httpx2.AsyncClient(timeout=HOST_SECONDS) as web:
            answer = (await web.post(handed["idp_token_endpoint"], data=form)).raise_for_status()
            return str(answer.json()["access_token"])

    # In an enterprise the issuer is configured. The suite hands over none, so it is read where the suite publishes it.
    published = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}"
    async with httpx2.AsyncClient(timeout=HOST_SECONDS) as web:
        issuer = (await web.get(published)).raise_for_status().json()["authorization_servers"][0]

    auth = IdentityAssertionOAuthProvider(
        server_url=url,
        storage=Memory(),
        client_id=handed["client_id"],
        client_secret=handed["client_secret"],
        issuer=issuer,
        assertion_provider=vouch,
        token_endpoint_auth_method="client_secret_basic",
    )
    await use(url, auth)


async def workload(url: str) -> None:
    """The platform vouches for the program that runs on it."""
    handed = context()
    await use(url, WorkloadIdentity(client_id=handed["client_id"], assertion=handed["valid_jwt"]))


# -- the table -----------------------------------------------------------------------------------------------------

SCENARIOS: Mapping[str, Callable[[str], Awaitable[None]]] = {
    "initialize": list_tools,
    "tools_call": add_numbers,
    "elicitation-sep1034-client-defaults": elicitation_defaults,
    "sse-retry": reconnect,
    "request-metadata": request_metadata,
    "sep-2322-client-request-state": request_state,
    "http-standard-headers": standard_headers,
    "http-custom-headers": custom_headers,
    "http-invalid-tool-headers": every_tool,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": echo_schema,
    "auth/client-credentials-basic": client_secret,
    "auth/client-credentials-jwt": client_key,
    "auth/dpop": bound_token,
    "auth/dpop-nonce": bound_token,
    "auth/enterprise-managed-authorization": enterprise,
    "auth/wif-jwt-bearer": workload,
}
"""Another `auth/` scenario is one of the authorization code; what is not here is listed and left."""


def main() -> None:
    scenario, url = os.environ["MCP_CONFORMANCE_SCENARIO"], sys.argv[1]
    work = SCENARIOS.get(scenario, authorization_code if scenario.startswith("auth/") else list_tools)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    said = {"revision": revision(), "ended": "done"}
    try:
        anyio.run(bounded, work, url)
    except DeputyError as error:
        said |= {"ended": "refused", "why": f"{type(error).__name__}: {error}"}
        print(error.diagnostics(), file=sys.stderr)

    print(json.dumps(said))


async def bounded(work: Callable[[str], Awaitable[None]], url: str) -> None:
    with anyio.fail_after(CLIENT_SECONDS):
        await work(url)


if __name__ == "__main__":
    main()
