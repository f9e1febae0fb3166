"""What a server may ask of the host during a call: input from a person, a sample from a model, the roots.

A server's question is untrusted, and an answer is data that leaves: so a question is answered only while a call is
under way, only as often as `max_server_requests_per_call` says, only by what the host gave for it, and only with what
fits the question. Everything else is declined at once. Both eras end here: requests of the server's own, which name no
call, and those inside a call's result (2026-07-28), which do.

Not here: showing a form, opening a URL (we never do), running a model. That is the host's.
"""

import functools
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import anyio
import attrs
from attrs import field, frozen
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitationCapability,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    FormElicitationCapability,
    InputRequest,
    ListRootsRequest,
    ListRootsResult,
    Root,
    RootsCapability,
    SamplingCapability,
    UrlElicitationCapability,
)
from pydantic import BaseModel, TypeAdapter, ValidationError

from deputy_mcp._core.config import Limits
from deputy_mcp._core.errors import ConfigError
from deputy_mcp._core.frozen import check_texts, wrong_type
from deputy_mcp._core.sanitizing import UncleanSchemaError, clean_line, clean_schema, clean_text
from deputy_mcp._runtime.schemas import SchemaChecker

WEB_SCHEMES = frozenset({"http", "https"})
"""What a URL to visit may be; another scheme could start a program."""


@frozen(kw_only=True)
class ElicitationRequest:
    """A server asks a person for something, in the middle of a call."""

    server: str
    tool: str | None
    """The call it belongs to; None when several are under way and the server did not say for which."""
    mode: Literal["form", "url"]
    message: str
    """The server's own words, clean; untrusted."""
    requested_schema: Mapping[str, Any] | None = None
    """`form`: a flat JSON Schema of what is wanted, clean."""
    url: str | None = None
    """`url`: where the person should go. Nothing here opens it."""
    host: str | None = None
    """`url`: its host as it is looked up, in ASCII, so that no letter poses as another."""


@frozen(kw_only=True)
class SamplingRequest:
    """A server asks for a model's completion, in the middle of a call. All texts are the server's, clean, untrusted."""

    server: str
    tool: str | None
    """As in `ElicitationRequest`."""
    messages: tuple[Mapping[str, Any], ...] = field(repr=False)
    """The protocol's messages: `role` and `content`."""
    system_prompt: str | None = field(default=None, repr=False)
    max_tokens: int
    temperature: float | None = None
    stop_sequences: tuple[str, ...] = ()
    model_preferences: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None


Elicitor = Callable[[ElicitationRequest], Awaitable[ElicitResult | Mapping[str, Any]]]
"""Gives the protocol's result (`action` accept, decline or cancel; `content`), as the SDK's type or as on the wire."""

Sampler = Callable[[SamplingRequest], Awaitable[CreateMessageResult | Mapping[str, Any]]]
"""Gives the protocol's result (`role`, `content`, `model`, `stopReason`), as the SDK's type or as on the wire."""


@frozen(kw_only=True)
class HostAnswers:
    """What a host gave to answer servers with; made once for all servers of a connection."""

    elicitor: Elicitor | None = None
    sampler: Sampler | None = None
    roots: tuple[Root, ...] = ()

    @property
    def capabilities(self) -> ClientCapabilities:
        """What is advertised: only what there is an answer for."""
        elicitation = ElicitationCapability(form=FormElicitationCapability(), url=UrlElicitationCapability())
        return ClientCapabilities(
            elicitation=elicitation if self.elicitor is not None else None,
            sampling=SamplingCapability() if self.sampler is not None else None,
            roots=RootsCapability() if self.roots else None,
        )


def check_answers(elicitor: object, sampler: object, roots: object) -> HostAnswers:
    """The host's answers, checked. Raises `ConfigError`."""
    for key, value in (("elicitor", elicitor), ("sampler", sampler)):
        if value is not None and not callable(value):
            wrong_type(key, value, "an async callable")

    if isinstance(roots, str) or not isinstance(roots, Sequence):
        wrong_type("roots", roots, "a list of file URIs or paths")

    texts = check_texts("roots", [str(root) if isinstance(root, Path) else root for root in roots])
    return HostAnswers(elicitor=elicitor, sampler=sampler, roots=tuple(map(_root, texts)))  # type: ignore[arg-type] # callables, checked


def _root(text: str) -> Root:
    try:
        uri = text if "://" in text else Path(text).expanduser().absolute().as_uri()
        return Root.model_validate({"uri": uri, "name": Path(urlsplit(uri).path).name or None})
    except ValueError:
        raise ConfigError(
            f"roots: {clean_line(text, 120)!r} is neither a file:// URI nor a path", key="roots"
        ) from None


@attrs.define(eq=False)
class CallUnderWay:
    """One call on the wire, and how often its server asked meanwhile."""

    tool: str
    asked: int = 0


class ServerRequests:
    """See the module. One per server."""

    # Mutable state: the calls under way; the scopes of the answers that are being found for requests without a call.
    def __init__(self, server: str, answers: HostAnswers, limits: Limits, tell: Callable[..., None]) -> None:
        self.answers = answers
        self.calls: list[CallUnderWay] = []
        self._server = server
        self._limits = limits
        self._tell = tell
        self._finding: set[anyio.CancelScope] = set()

    def begin(self, tool: str) -> CallUnderWay:
        """A call goes out; `end` must follow."""
        call = CallUnderWay(tool)
        self.calls.append(call)
        return call

    def end(self, call: CallUnderWay) -> None:
        """It is over; with the last one, nobody is left for whom an answer could be found."""
        self.calls.remove(call)
        if not self.calls:
            for scope in self._finding:
                scope.cancel()

    # -- the legacy era: requests of the server's own ------------------------------------------------------------

    async def on_elicitation(self, context: object, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        """The SDK session's callback; its context says nothing of the call."""
        answer: ElicitResult | ErrorData = await self._for_some_call(ElicitRequest(params=params))
        return answer

    async def on_sampling(self, context: object, params: CreateMessageRequestParams) -> CreateMessageResult | ErrorData:
        """As `on_elicitation`."""
        answer: CreateMessageResult | ErrorData = await self._for_some_call(CreateMessageRequest(params=params))
        return answer

    async def on_roots(self, context: object) -> ListRootsResult | ErrorData:
        """As `on_elicitation`."""
        answer: ListRootsResult | ErrorData = await self._for_some_call(ListRootsRequest())
        return answer

    async def _for_some_call(self, request: InputRequest) -> Any:
        """It does not say for which call: charged to the one that was asked for least, so none pays for another."""
        call = min(self.calls, key=lambda one: one.asked, default=None)
        tool = call.tool if call is not None and len(self.calls) == 1 else None
        with anyio.CancelScope() as scope:
            self._finding.add(scope)
            try:
                return await self._answer(request, call, tool)
            finally:
                self._finding.discard(scope)

        return _refused("the call it belongs to is over")

    # -- 2026-07-28: requests inside a result --------------------------------------------------------------------

    async def answer_inputs(self, requests: object, call: CallUnderWay) -> dict[str, Any] | None:
        """`inputResponses` for a call's `inputRequests`; None when one of them is declined, and so the call is over.

        One after the other: a person answers one question at a time.
        """
        if not isinstance(requests, Mapping):
            return None

        responses: dict[str, Any] = {}
        for key, raw in requests.items():
            try:
                request = _requests().validate_python(raw)
            except ValidationError:
                return None

            answer = await self._answer(request, call, call.tool)
            if isinstance(answer, ErrorData):
                return None

            responses[key] = _wire(answer)

        return responses

    # -- both ----------------------------------------------------------------------------------------------------

    async def _answer(self, request: InputRequest, call: CallUnderWay | None, tool: str | None) -> Any:
        answer = await self._judged(request, call, tool)
        self._tell(
            "server_request",
            method=request.method,
            tool=tool,
            answer="declined" if isinstance(answer, ErrorData) else getattr(answer, "action", "given"),
            **({"detail": answer.message} if isinstance(answer, ErrorData) else {}),
            request_sha256=_digest(request),
            answer_sha256=_digest(answer),
        )
        return answer

    async def _judged(self, request: InputRequest, call: CallUnderWay | None, tool: str | None) -> Any:
        if call is None:
            return _refused("no call is under way")

        call.asked += 1
        if call.asked > self._limits.max_server_requests_per_call:
            return _refused("it asked too often during one call")

        try:
            answer = await self._found(request, tool)
        except Exception as error:  # noqa: BLE001 # the host's own code: the server learns no details, the host does
            return self._host_fault(f"it failed with {type(error).__name__}")

        if not isinstance(answer, ErrorData) and len(_encode(answer)) > self._limits.max_message_bytes:
            return self._host_fault("its answer has more than max_message_bytes")

        return answer

    def _host_fault(self, detail: str) -> ErrorData:
        self._tell("warning", detail=f"the host's answer to a request of the server was not sent: {detail}")
        return ErrorData(code=INTERNAL_ERROR, message="the host could not answer")

    async def _found(self, request: InputRequest, tool: str | None) -> Any:
        match request:
            case ElicitRequest(params=ElicitRequestFormParams() as params) if self.answers.elicitor is not None:
                return await self._fill_form(self.answers.elicitor, params, tool)
            case ElicitRequest(params=ElicitRequestURLParams() as params) if self.answers.elicitor is not None:
                return await self._show_url(self.answers.elicitor, params, tool)
            case CreateMessageRequest(params=params) if self.answers.sampler is not None:
                return await self._sample(self.answers.sampler, params, tool)
            case ListRootsRequest() if self.answers.roots:
                return ListRootsResult(roots=list(self.answers.roots))

        return _refused("the host gave no answer for this")

    async def _fill_form(self, elicitor: Elicitor, params: ElicitRequestFormParams, tool: str | None) -> Any:
        try:
            schema = clean_schema(params.requested_schema)
        except (UncleanSchemaError, RecursionError):
            return ErrorData(code=INVALID_PARAMS, message="the requested schema is not clean")

        answer = await elicitor(
            ElicitationRequest(
                server=self._server,
                tool=tool,
                mode="form",
                message=clean_text(params.message),
                requested_schema=schema,
            )
        )
        result = _as(ElicitResult, answer)
        if result.action != "accept":
            return ElicitResult(action=result.action)

        content = _defaults(schema) | dict(result.content or {})
        verdict = await SchemaChecker(schema).check(content)
        if verdict.status != "valid":
            return self._host_fault("what was entered does not fit what was asked for")

        return ElicitResult(action="accept", content=content)

    async def _show_url(self, elicitor: Elicitor, params: ElicitRequestURLParams, tool: str | None) -> Any:
        host = _host(params.url)
        if host is None:
            return ErrorData(code=INVALID_PARAMS, message="the URL is not one that may be shown")

        answer = await elicitor(
            ElicitationRequest(
                server=self._server,
                tool=tool,
                mode="url",
                message=clean_text(params.message),
                url=params.url,
                host=host,
            )
        )
        return ElicitResult(action=_as(ElicitResult, answer).action)

    async def _sample(self, sampler: Sampler, params: CreateMessageRequestParams, tool: str | None) -> Any:
        if params.tools:
            return ErrorData(code=INVALID_PARAMS, message="sampling with tools is not supported")

        wire = _clean_tree(_wire(params))
        answer = await sampler(
            SamplingRequest(
                server=self._server,
                tool=tool,
                messages=tuple(wire["messages"]),
                system_prompt=wire.get("systemPrompt"),
                max_tokens=params.max_tokens,
                temperature=params.temperature,
                stop_sequences=tuple(wire.get("stopSequences", ())),
                model_preferences=wire.get("modelPreferences"),
                metadata=wire.get("metadata"),
            )
        )
        return _as(CreateMessageResult, answer)


@functools.cache
def _requests() -> TypeAdapter[InputRequest]:
    # Built when first needed: it would take a tenth of the import of this library.
    return TypeAdapter(InputRequest)


Result = TypeVar("Result", bound=BaseModel)


def _refused(why: str) -> ErrorData:
    return ErrorData(code=INVALID_REQUEST, message=f"declined: {why}")


def _as(kind: type[Result], answer: object) -> Result:
    return answer if isinstance(answer, kind) else kind.model_validate(answer)


def _wire(value: BaseModel) -> dict[str, Any]:
    return value.model_dump(by_alias=True, mode="json", exclude_none=True)


def _encode(value: BaseModel) -> bytes:
    return json.dumps(_wire(value), sort_keys=True, separators=(",", ":")).encode()


def _digest(value: BaseModel) -> str:
    return hashlib.sha256(_encode(value)).hexdigest()


def _clean_tree(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)

    if isinstance(value, list):
        return [_clean_tree(item) for item in value]

    return {clean_text(key): _clean_tree(item) for key, item in value.items()} if isinstance(value, dict) else value


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What the form fills in by itself (SEP-1034)."""
    fields = schema.get("properties", {})
    return {name: sub["default"] for name, sub in fields.items() if isinstance(sub, dict) and "default" in sub}


def _host(url: str) -> str | None:
    """The host of a web address in ASCII; None when it is no plain web address."""
    if clean_line(url, len(url) + 1) != url:
        return None

    try:
        parts = urlsplit(url)
        host = parts.hostname
        return host.encode("idna").decode() if parts.scheme in WEB_SCHEMES and host else None
    except ValueError:
        return None
