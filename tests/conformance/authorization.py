"""Ways to be authorized that the MCP SDK has no provider for, as a host would write them: each an `httpx2.Auth`.

Both are extensions of the protocol. They show that what is given as `HttpServer(auth=...)` sees each request as it goes
out, those that are sent again included. Not a part of the library, and not made for use.
"""

import base64
import hashlib
import json
import time
import uuid
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric import ec

Flow = AsyncGenerator[httpx2.Request, httpx2.Response]


async def body(response: httpx2.Response) -> dict[str, Any]:
    """A JSON answer."""
    await response.aread()
    found: dict[str, Any] = response.raise_for_status().json()
    return found


class WorkloadIdentity(httpx2.Auth):
    """SEP-1933: the platform's signed word for who we are is exchanged for a token (RFC 7523). Asked for once."""

    def __init__(self, *, client_id: str, assertion: str) -> None:
        self._client_id = client_id
        self._assertion = assertion
        self._token = ""

    async def async_auth_flow(self, request: httpx2.Request) -> Flow:
        if not self._token:
            parts = urlsplit(str(request.url))
            origin = f"{parts.scheme}://{parts.netloc}"
            resource = await body(
                (yield httpx2.Request("GET", f"{origin}/.well-known/oauth-protected-resource{parts.path}"))
            )
            issuer = resource["authorization_servers"][0]
            metadata = await body((yield httpx2.Request("GET", f"{issuer}/.well-known/oauth-authorization-server")))
            form = {
                "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
                "assertion": self._assertion,
                "client_id": self._client_id,
                "resource": resource["resource"],
            }
            token = await body((yield httpx2.Request("POST", metadata["token_endpoint"], data=form)))
            self._token = token["access_token"]

        request.headers["authorization"] = f"Bearer {self._token}"
        yield request


class Dpop(httpx2.Auth):
    """SEP-1932 (RFC 9449): around another flow, whose token it binds to a key, and each request is signed with it."""

    def __init__(self, inner: httpx2.Auth) -> None:
        self._inner = inner
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key()))
        self._nonces: dict[str, str] = {}
        """What each origin asked to find in the next proof."""

    async def async_auth_flow(self, request: httpx2.Request) -> Flow:
        flow = self._inner.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                response = yield self._proved(outgoing)
                if "dpop-nonce" in response.headers and response.status_code in (400, 401):
                    self._nonces[outgoing.url.netloc.decode()] = response.headers["dpop-nonce"]
                    response = yield self._proved(outgoing)

                outgoing = await flow.asend(await _as_bearer(response))
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    def _proved(self, request: httpx2.Request) -> httpx2.Request:
        """The request with a fresh proof, where it wants a token or carries one."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme in ("Bearer", "DPoP"):
            request.headers["authorization"] = f"DPoP {token}"
        elif b"grant_type=" not in request.content:
            return request

        claims: dict[str, Any] = {
            "jti": uuid.uuid4().hex,
            "htm": request.method,
            "htu": str(request.url.copy_with(query=None, fragment=None)),
            "iat": int(time.time()),
        }
        if scheme in ("Bearer", "DPoP"):
            claims["ath"] = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).rstrip(b"=").decode()

        if nonce := self._nonces.get(request.url.netloc.decode()):
            claims["nonce"] = nonce

        head = {"typ": "dpop+jwt", "jwk": self._public}
        request.headers["dpop"] = jwt.encode(claims, self._key, algorithm="ES256", headers=head)
        return request


async def _as_bearer(response: httpx2.Response) -> httpx2.Response:
    """The SDK's provider knows one type of token; which it is in truth, we know."""
    if response.request.method != "POST" or b"grant_type=" not in response.request.content:
        return response

    await response.aread()
    granted = response.json()
    if response.status_code != 200 or granted.get("token_type") != "DPoP":
        return response

    return httpx2.Response(200, json=granted | {"token_type": "Bearer"}, request=response.request)
