"""One session with a server: negotiation, raw listings and calls, and errors in our own tree.

The only user of the SDK's `ClientSession`, which does the handshake, answers the server's own requests and runs
`listen`. Calls and listings go through the dispatcher raw: the session would re-list inside a call, drop members it
does not know, read `"true"` as true and validate results in the loop with unbounded patterns.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
import attrs
from mcp import ClientSession, MCPError
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost, ToolsListChanged, listen
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
    ClientCapabilities,
    DiscoverResult,
    Implementation,
    InitializedNotification,
    InitializeRequest,
    InitializeRequestParams,
    InitializeResult,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from opentelemetry.context import get_current
from opentelemetry.propagate import inject
from pydantic import ValidationError

from deputy_mcp._core.catalog import Refusal
from deputy_mcp._core.config import Limits
from deputy_mcp._core.messages import MessageId, Reply
from deputy_mcp._core.sanitizing import clean_line
from deputy_mcp._runtime.server_requests import ServerRequests
from deputy_mcp._runtime.transports.dispatching import to_json
from deputy_mcp._runtime.transports.link import CallRecord, Link, LinkError, MintingDispatcher, Options, SignInError
from deputy_mcp._version import __version__

Era = Literal["modern", "legacy"]
ListKind = Literal["tools", "resources", "resource_templates", "prompts"]

HEDGE_SECONDS = 1.0
"""`server/discover` unanswered for so long: `initialize` goes out beside it, without taking it back."""

SECOND_PROBE_SECONDS = 5.0
"""So much longer for a server that refused our version and named one that we know."""

LISTEN_BACKOFF_SECONDS = (0.5, 1, 2, 5, 15, 30)
"""Waits before a `listen` stream that ended is opened again."""

LISTING_FACTOR = 4
"""All pages of one listing together may have so many times `max_message_bytes`: each page alone keeps within it, and
`max_list_pages` of them would still be gigabytes that are kept."""

METHODS: Mapping[ListKind, tuple[str, str]] = {
    "tools": ("tools/list", "tools"),
    "resources": ("resources/list", "resources"),
    "resource_templates": ("resources/templates/list", "resourceTemplates"),
    "prompts": ("prompts/list", "prompts"),
}

CLIENT_INFO = Implementation(name="deputy_mcp", version=__version__)


class NegotiationError(Exception):
    """No common protocol. `refused`: the server answered clearly, and trying again would not help."""

    def __init__(self, detail: str, *, refused: bool = False) -> None:
        super().__init__(detail)
        self.refused = refused


class DiedOnProbeError(Exception):
    """The server ended on `server/discover`; it is started once more with `initialize`."""


class ListingError(Exception):
    """The server gave no usable listing."""


@attrs.frozen(kw_only=True)
class Page:
    """One page of a listing, as the server sent it: untrusted, and nothing is allowed by standing in it."""

    items: tuple[Mapping[str, Any], ...]
    next_cursor: str | None


@attrs.frozen(kw_only=True, eq=False)
class Listed:
    """A whole listing, and the results it came in: the same objects again when the server's bytes were the same."""

    entries: list[Any]
    pages: tuple[Mapping[str, Any], ...]
    size_bytes: int
    """Of all pages on the wire, where the transport counts; else 0."""


class Session:
    """See the module. Made by `open_session`; `negotiate` before anything else."""

    # Mutable state: what negotiation found, and the stamp that follows from it; how often a listing was given up.
    def __init__(
        self, link: Link, dispatcher: MintingDispatcher, client: ClientSession, capabilities: ClientCapabilities
    ) -> None:
        self.link = link
        self._capabilities = capabilities
        self._dispatcher = dispatcher
        self.keeps_deadlines = dispatcher.keeps_deadlines
        self._client = client
        self.version = ""
        self.modern = False
        self._meta: dict[str, Any] = {}
        self._meta_json = b""
        self._listing_round = 0
        self._refused_version = False

    # -- negotiation ---------------------------------------------------------------------------------------------

    async def negotiate(self, protocol: str, remembered: Era | None) -> Era:
        """Agree on a version. Raises `NegotiationError`, `DiedOnProbeError`, `MCPError`."""
        try:
            if protocol in MODERN_PROTOCOL_VERSIONS:
                await self._discover(protocol)
            elif protocol in HANDSHAKE_PROTOCOL_VERSIONS:
                await self._initialize_at(protocol)
            elif protocol == "legacy" or remembered == "legacy":
                await self._client.initialize()
            else:
                await self._hedge()
        except ValidationError as error:
            raise NegotiationError(f"its handshake is malformed: {_first_problem(error)}") from None
        except RuntimeError as error:
            raise NegotiationError(clean_line(str(error)), refused=True) from None

        version = self._client.protocol_version
        assert version is not None
        self.version = version
        self.modern = version in MODERN_PROTOCOL_VERSIONS
        if self.modern:
            self._meta = {
                PROTOCOL_VERSION_META_KEY: version,
                CLIENT_INFO_META_KEY: CLIENT_INFO.model_dump(by_alias=True, mode="json", exclude_none=True),
                CLIENT_CAPABILITIES_META_KEY: self._capabilities.model_dump(
                    by_alias=True, mode="json", exclude_none=True
                ),
            }
            self._meta_json = to_json(self._meta)

        return "modern" if self.modern else "legacy"

    async def _discover(self, version: str) -> None:
        result = DiscoverResult.model_validate(await self._client.send_discover(version))
        if version not in result.supported_versions:
            raise NegotiationError(f"it does not speak protocol {version}", refused=True)

        self._client.adopt(result)

    async def _initialize_at(self, version: str) -> None:
        # The SDK's initialize() has no version parameter.
        params = InitializeRequestParams(
            protocol_version=version, capabilities=self._capabilities, client_info=CLIENT_INFO
        )
        result = await self._client.send_request(InitializeRequest(params=params), InitializeResult)
        if result.protocol_version != version:
            other = clean_line(result.protocol_version, 40)
            raise NegotiationError(f"it was asked for protocol {version} and answered with {other}", refused=True)

        self._client.adopt(result)
        await self._client.send_notification(InitializedNotification())

    async def _probe(self) -> dict[str, Any]:
        """`server/discover`; once more where the server refuses the version and names one that we know."""
        try:
            return await self._client.send_discover(LATEST_MODERN_VERSION)
        except MCPError as error:
            named = error.data.get("supported") if isinstance(error.data, dict) else None
            known = [version for version in MODERN_PROTOCOL_VERSIONS if isinstance(named, list) and version in named]
            if error.code != UNSUPPORTED_PROTOCOL_VERSION or not known:
                raise

            self._refused_version = True
            return await self._client.send_discover(known[-1])

    async def _hedge(self) -> None:
        """`server/discover`, and after a second `initialize` beside it; the first positive answer counts.

        The probe is not cancelled: a slow modern server that saw it withdrawn would refuse `initialize`.
        """
        probe: DiscoverResult | MCPError | None = None
        self._refused_version = False
        greeting: InitializeResult | Exception | None = None
        stir = anyio.Event()

        async def run_probe() -> None:
            nonlocal probe
            try:
                result = DiscoverResult.model_validate(await self._probe())
                mutual = any(version in MODERN_PROTOCOL_VERSIONS for version in result.supported_versions)
                probe = result if mutual else MCPError(0, "it offers no modern version")
            except ValidationError:
                probe = MCPError(0, "its answer to server/discover is malformed")
            except MCPError as error:
                probe = error

            stir.set()

        async def run_greeting() -> None:
            nonlocal greeting
            try:
                greeting = await self._client.initialize()
            except (MCPError, ValidationError, RuntimeError) as error:
                greeting = error

            stir.set()

        def settled() -> bool:
            if isinstance(probe, DiscoverResult) or isinstance(greeting, InitializeResult):
                return True

            gone = isinstance(probe, LinkError) and probe.fault in ("lost", "unreachable", "unsendable")
            # Signing in once more for `initialize` would ask a person twice.
            gone = gone or isinstance(probe, SignInError)
            return gone or (probe is not None and greeting is not None)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_probe)
            with anyio.move_on_after(HEDGE_SECONDS):
                await stir.wait()

            if self._refused_version:
                # The era is known by its refusal, and a version that it named is under way: `initialize` has no place,
                # unless the server then says nothing at all.
                with anyio.move_on_after(SECOND_PROBE_SECONDS):
                    await stir.wait()

            if not settled():
                tasks.start_soon(run_greeting)
                while not settled():
                    stir = anyio.Event()
                    await stir.wait()

            # The loser is only not waited for: initialize and discover must not be cancelled on the wire.
            tasks.cancel_scope.cancel()

        if isinstance(probe, DiscoverResult):
            self._client.adopt(probe)
        elif isinstance(greeting, Exception):
            raise greeting
        elif isinstance(probe, LinkError) and greeting is None:
            if probe.fault == "lost":
                raise DiedOnProbeError from probe

            raise probe

    # -- facts ---------------------------------------------------------------------------------------------------

    @property
    def server_info(self) -> Mapping[str, Any] | None:
        """The server's own name and version, as it says."""
        known = self._client.server_info
        return None if known is None else known.model_dump(by_alias=True, mode="json", exclude_none=True)

    @property
    def instructions(self) -> str | None:
        """The server's instructions, as it says."""
        return self._client.instructions

    def offers(self, kind: ListKind) -> bool:
        """Whether the server declares this kind at all."""
        capabilities = self._client.server_capabilities
        declared = "resources" if kind == "resource_templates" else kind
        return capabilities is not None and getattr(capabilities, declared) is not None

    # -- requests ------------------------------------------------------------------------------------------------

    def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        record: CallRecord,
        arguments_json: bytes | None = None,
        on_progress: ProgressFnT | None = None,
        headers: Mapping[str, str] | None = None,
        wire_id: MessageId | None = None,
    ) -> Awaitable[dict[str, Any]]:
        """Send one request, once this is awaited, and give its raw result.

        Raises `MCPError` and `LinkError`; see `translate`.
        """
        wire_id = self._dispatcher.mint_id() if wire_id is None else wire_id
        meta_json = self._meta_json
        trace: dict[str, Any] = {}
        if get_current():
            inject(trace)

        if on_progress is not None or trace:
            token = {"progressToken": wire_id} if on_progress is not None else {}
            meta_json = to_json(self._meta | trace | token)

        parts = [b'"%b":%b' % (key.encode(), to_json(value)) for key, value in params.items()]
        if arguments_json is not None:
            parts.append(b'"arguments":' + arguments_json)

        if meta_json:
            parts.append(b'"_meta":' + meta_json)

        options: Options = {"request_id": wire_id, "record": record, "params_json": b"{" + b",".join(parts) + b"}"}
        if self.link.has_headers:
            options["headers"] = self._headers(method, params, headers)

        if on_progress is not None:
            options["on_progress"] = on_progress

        return self._dispatcher.send_raw_request(method, params, options)

    def _headers(self, method: str, params: Mapping[str, Any], extra: Mapping[str, str] | None) -> dict[str, str]:
        headers = {MCP_PROTOCOL_VERSION_HEADER: self.version}
        if self.modern:
            headers[MCP_METHOD_HEADER] = method
            name = params.get(NAME_BEARING_METHODS.get(method, ""))
            if isinstance(name, str):
                headers[MCP_NAME_HEADER] = encode_header_value(name)

            headers.update(extra or {})

        return headers

    async def list_page(self, kind: ListKind, cursor: str | None, record: CallRecord) -> Page:
        """One page, raw. Raises `ListingError`, `MCPError`."""
        items, following = _page(kind, await self._list_raw(kind, cursor, record))
        return Page(items=tuple(items), next_cursor=following)

    async def _list_raw(
        self, kind: ListKind, cursor: str | None, record: CallRecord, wire_id: str | None = None
    ) -> dict[str, Any]:
        params = {} if cursor is None else {"cursor": cursor}
        return await self.request(METHODS[kind][0], params, record=record, wire_id=wire_id)

    async def list_all(
        self,
        kind: ListKind,
        limits: Limits,
        before: Listed | None = None,
        *,
        record: CallRecord,
        wanted: Collection[str] | None = None,
    ) -> Listed:
        """The whole listing, raw entries. A cursor that repeats ends the walk. Raises `ListingError`, `MCPError`.

        Each page is asked for under the same id every time, so that an unchanged answer is the same bytes and is not
        read again; then `before` itself is given back. `record` takes what became of the last page. `wanted`: only
        entries of these names or URIs are kept, and a listing that does not end is not an error.
        """
        pages: list[Mapping[str, Any]] = []
        entries: list[Any] = []
        seen: set[str] = set()
        cursor: str | None = None
        size = 0
        for number in range(limits.max_list_pages):
            wire_id = f"{kind}-{self._listing_round}-{number}"
            try:
                raw = await self._list_raw(kind, cursor, record, wire_id)
            except BaseException:
                # Its answer may still come; the next question must not take it for its own.
                self._listing_round += 1
                raise

            pages.append(raw)
            size += record.reply_bytes
            if size > LISTING_FACTOR * limits.max_message_bytes:
                if wanted is not None:
                    break

                raise ListingError(
                    f"the pages of its listing have more than {LISTING_FACTOR} x {limits.max_message_bytes} bytes "
                    "(max_message_bytes)"
                )

            items, cursor = _page(kind, raw)
            entries += items if wanted is None else [item for item in items if _name(kind, item) in wanted]
            if wanted is None and len(entries) > limits.max_tools:
                raise ListingError(f"it lists more than {limits.max_tools} {kind} (max_tools)")

            if cursor is None or cursor in seen:
                break

            seen.add(cursor)
        else:
            if wanted is None:
                raise ListingError(f"its listing has more than {limits.max_list_pages} pages (max_list_pages)")

        # Identical objects are unchanged where our own parser made them; a transport of the host's may change its own.
        same = before is not None and size > 0 and list(map(id, before.pages)) == list(map(id, pages))
        return before if before is not None and same else Listed(entries=entries, pages=tuple(pages), size_bytes=size)

    # -- changes -------------------------------------------------------------------------------------------------

    @property
    def announces(self) -> bool:
        """Whether the server tells of changes only to who runs `run_listen`: it tells of them, and is modern."""
        capabilities = self._client.server_capabilities
        tools = None if capabilities is None else capabilities.tools
        return self.modern and tools is not None and bool(tools.list_changed)

    async def run_listen(self, on_change: Callable[[], None]) -> None:
        """In the modern era changes are told on a stream that must be asked for; opened again when it drops."""
        failures = 0
        while True:
            try:
                async with listen(self._client, tools_list_changed=True) as subscription:
                    if not subscription.honored.tools_list_changed:
                        return

                    if failures:
                        on_change()  # what changed while nobody listened is not told again

                    opened = anyio.current_time()
                    async for event in subscription:
                        if isinstance(event, ToolsListChanged):
                            on_change()

                    if anyio.current_time() - opened > LISTEN_BACKOFF_SECONDS[-1]:
                        failures = 0
            except (ListenNotSupportedError, SignInError):
                return  # tried again, a sign-in that was refused would ask a person for ever
            except (MCPError, SubscriptionLost, TimeoutError) as error:
                if isinstance(error, MCPError) and not isinstance(error, LinkError) and error.code in (-32601, -32602):
                    return

            await anyio.sleep(LISTEN_BACKOFF_SECONDS[min(failures, len(LISTEN_BACKOFF_SECONDS) - 1)])
            failures += 1


@asynccontextmanager
async def open_session(link: Link, requests: ServerRequests) -> AsyncIterator[Session]:
    """A session over `link`, not negotiated yet; the server's own requests go to `requests`."""
    answers = requests.answers
    async with (
        link.open_dispatcher() as dispatcher,
        # The SDK's session advertises a capability for each callback that it is given.
        ClientSession(
            dispatcher=dispatcher,
            client_info=CLIENT_INFO,
            elicitation_callback=requests.on_elicitation if answers.elicitor is not None else None,
            sampling_callback=requests.on_sampling if answers.sampler is not None else None,
            list_roots_callback=requests.on_roots if answers.roots else None,
        ) as client,
    ):
        yield Session(link, dispatcher, client, answers.capabilities)


def _page(kind: ListKind, result: Mapping[str, Any]) -> tuple[list[Any], str | None]:
    method, member = METHODS[kind]
    items = result.get(member)
    if not isinstance(items, list):
        raise ListingError(f"its {method} has no list of {member}")

    following = result.get("nextCursor")
    # An empty string is a cursor; anything that is no string is none.
    return items, following if isinstance(following, str) else None


def _name(kind: ListKind, item: Any) -> Any:
    name = item.get("uri" if kind == "resources" else "name") if isinstance(item, dict) else None
    return name if isinstance(name, str) else None


HeaderMap = Mapping[tuple[str, ...], str]


def header_map(raw_tool: Mapping[str, Any]) -> HeaderMap:
    """Which arguments of a tool are mirrored in which HTTP headers (2026-07-28); empty for most tools."""
    return x_mcp_header_map(raw_tool.get("inputSchema"))


def header_parameters(mapping: HeaderMap, arguments: Mapping[str, Any]) -> dict[str, str]:
    """The HTTP headers that mirror `arguments`."""
    return mcp_param_headers(mapping, arguments)


def check_header_annotations(raw_tool: Mapping[str, Any]) -> Refusal | None:
    """2026-07-28: a client must not use a tool whose `x-mcp-header` annotations are invalid."""
    reason = find_invalid_x_mcp_header(raw_tool.get("inputSchema"))
    return None if reason is None else Refusal(code="invalid_header_annotation", reason=clean_line(reason))


def was_repaired(record: CallRecord) -> bool:
    """Whether the reply's bytes had to be repaired."""
    return isinstance(record.answer, Reply) and record.answer.repaired


MOST_PROBLEMS = 1_000
"""Faults of a handshake that are looked at; listing hundreds of thousands would hold the event loop."""


def _first_problem(error: ValidationError) -> str:
    if error.error_count() > MOST_PROBLEMS:
        return f"it has {error.error_count()} faults"

    first = error.errors(include_url=False, include_input=False)[0]
    return clean_line(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
