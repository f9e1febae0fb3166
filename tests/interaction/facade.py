"""The SDK's `Client` and `ClientSession`, as far as its interaction suite uses them, over our `McpConnection`.

Thin on purpose: each method is one public call of the connection and the SDK's type around what came. Nothing here
speaks to a server beside the connection, repeats what it does, or makes up what it does not tell. What it has nothing
for is a `NotOffered` that names it, and the test that wanted it is listed under that name.

What is done for a test, since our connection asks for it and the SDK's does not:
- permissions are all granted, and nothing is restarted: the suite's servers live once;
- resources and prompts are allowlisted, so every text in the test's own source is (`Running.texts`);
- a tool is listed before it is called, so a server without a listing gets one of the tools the test calls (`Server`).
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any, NoReturn

import mcp.client.auth
import mcp.server
import sniffio
from mcp import MCPError
from mcp.client._memory import InMemoryTransport
from mcp.server.mcpserver import MCPServer
from mcp_types import (
    CONNECTION_CLOSED,
    REQUEST_TIMEOUT,
    CallToolRequest,
    CallToolResult,
    CompleteResult,
    CreateMessageRequestParams,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ErrorData,
    GetPromptResult,
    Implementation,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceResult,
)
from places import Address
from pydantic import ValidationError
from running import NAME, NotOffered, running

from deputy_mcp import (
    CallTimeoutError,
    CustomServer,
    Limits,
    MalformedReplyError,
    McpConnection,
    Permissions,
    RemoteError,
    RestartPolicy,
    ServerLostError,
    ServerState,
    WaitTimeoutError,
)

START_SECONDS = {"asyncio": 3.0, "trio": 7200.0}
"""For a start. The suite bounds its own waits by 5 s; what runs on trio runs on a virtual clock, on which a person
takes an hour to log in: our start deadline covers a login, so a host sets it to what one may take."""

CALL_SECONDS = 60.0
"""For a call of a client that the test gave no timeout."""

LEAST_TIMEOUT_SECONDS = 0.05
"""The suite's timeout of a microsecond means "as soon as it was sent"; ours covers the way there as well."""


@asynccontextmanager
async def _given(streams: tuple[Any, Any]) -> AsyncIterator[tuple[Any, Any]]:
    yield streams


# -- the client ----------------------------------------------------------------------------------------------------


class Client:
    """In place of the SDK's `Client`: the parameters and methods that the suite uses, with the SDK's meaning."""

    def __init__(
        self,
        server: Any,
        *,
        mode: str = "auto",
        read_timeout_seconds: float | None = None,
        sampling_callback: Any = None,
        list_roots_callback: Any = None,
        elicitation_callback: Any = None,
        message_handler: Any = None,
        logging_callback: Any = None,
        log_level: Any = None,
        client_info: Any = None,
        extensions: Any = None,
        prior_discover: Any = None,
    ) -> None:
        # `prior_discover` spares the SDK a question that our connection always asks; it changes nothing here.
        self._server = server
        self._mode = mode
        self._read_timeout_seconds = read_timeout_seconds
        self._sampling = sampling_callback
        self._roots = list_roots_callback
        self._elicitation = elicitation_callback
        self._wanted = {
            "a callback for log messages": logging_callback,
            "a log level": log_level,
            "a message handler": message_handler,
            "a client_info of the caller's": client_info,
            "client extensions": extensions,
        }
        self._stack = AsyncExitStack()
        self._connection: McpConnection | None = None

    async def __aenter__(self) -> "Client":
        for what, value in self._wanted.items():
            if value is not None:
                raise NotOffered(what)

        async with AsyncExitStack() as stack:
            answers = await self._answers()
            spec = await self._spec(stack)
            connection = McpConnection(
                {NAME: spec}, permissions=Permissions.full(), restart=RestartPolicy(when="never"), **answers
            )
            if isinstance(self._server, Address):
                stack.callback(self._server.close, connection)

            await stack.enter_async_context(connection)
            running.connected = True
            status = connection.status()[NAME]
            # Agreed on a version but without a listing: quarantined, and what it is can still be asked.
            unlisted = status.state is ServerState.QUARANTINED and status.protocol_version
            if status.state is not ServerState.READY and not unlisted:
                raise _start_error(status.last_error or "")

            self._connection = connection
            self._stack = stack.pop_all()

        return self

    async def __aexit__(self, *problem: Any) -> None:
        await self._stack.__aexit__(*problem)

    async def _spec(self, stack: AsyncExitStack) -> Any:
        limits = Limits(
            startup_timeout_seconds=START_SECONDS[sniffio.current_async_library()],
            call_timeout_seconds=self._read_timeout_seconds or CALL_SECONDS,
        )
        common: dict[str, Any] = {
            "protocol": self._mode,
            "limits": limits,
            "resources": running.texts,
            "prompts": running.texts,
        }
        server = self._server
        if isinstance(server, Address):
            return await server.open_spec(stack, common)

        if isinstance(server, mcp.server.Server | MCPServer):
            return CustomServer(lambda: InMemoryTransport(server), **common)

        return CustomServer(lambda: server, **common)

    # -- what the server may ask of us --------------------------------------------------------------------------

    async def _answers(self) -> dict[str, Any]:
        """The connection's parameters that stand for the callbacks."""
        answers: dict[str, Any] = {}
        if self._elicitation is not None:
            answers["elicitor"] = self._elicit

        if self._sampling is not None:
            answers["sampler"] = self._sample

        if self._roots is not None:
            answers["roots"] = await self._root_texts()

        return answers

    async def _root_texts(self) -> list[str]:
        try:
            result = await self._roots(SimpleNamespace())
        except NotImplementedError:
            return ["file:///never/asked/for"]  # "registered only so that the capability is declared"

        if isinstance(result, ErrorData):
            raise NotOffered("roots that are an error")

        return [str(root.uri) for root in result.roots]

    async def _elicit(self, request: Any) -> Any:
        params: ElicitRequestFormParams | ElicitRequestURLParams
        if request.mode == "form":
            schema = dict(request.requested_schema)
            params = ElicitRequestFormParams(message=request.message, requested_schema=schema)
        else:
            params = ElicitRequestURLParams(message=request.message, url=request.url, elicitation_id=None)

        return _answered(await self._elicitation(SimpleNamespace(), params))

    async def _sample(self, request: Any) -> Any:
        told = {
            "messages": request.messages,
            "systemPrompt": request.system_prompt,
            "maxTokens": request.max_tokens,
            "temperature": request.temperature,
            "stopSequences": list(request.stop_sequences) or None,
            "modelPreferences": request.model_preferences,
            "metadata": request.metadata,
        }
        params = CreateMessageRequestParams.model_validate(
            {name: value for name, value in told.items() if value is not None}
        )
        return _answered(await self._sampling(SimpleNamespace(), params))

    # -- facts --------------------------------------------------------------------------------------------------

    @property
    def connection(self) -> McpConnection:
        """The connection behind it."""
        assert self._connection is not None
        return self._connection

    @property
    def protocol_version(self) -> str | None:
        return self.connection.status()[NAME].protocol_version

    @property
    def server_info(self) -> Implementation | None:
        info = self.connection.status()[NAME].server_info
        return None if info is None else Implementation.model_validate(info)

    @property
    def server_capabilities(self) -> NoReturn:
        raise NotOffered("the server's capabilities")

    @property
    def instructions(self) -> str | None:
        return self.connection.instructions(NAME)

    @property
    def session(self) -> "_Session":
        return _Session()

    # -- requests -----------------------------------------------------------------------------------------------

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        read_timeout_seconds: float | None = None,
        progress_callback: Any = None,
        *,
        meta: object = None,
    ) -> CallToolResult:
        if meta is not None:
            raise NotOffered("_meta on a request")

        seconds = None if read_timeout_seconds is None else max(read_timeout_seconds, LEAST_TIMEOUT_SECONDS)
        with _sdk_errors("tools/call"):
            result = await self.connection.call_tool(
                NAME, name, arguments, timeout_seconds=seconds, progress=progress_callback
            )

        return CallToolResult(
            content=list(result.content), structured_content=result.structured_content, is_error=result.is_error
        )

    async def _page(self, kind: Any, member: str, method: str, cursor: str | None) -> dict[str, Any]:
        with _sdk_errors(method):
            page = await self.connection.discover(NAME, kind, cursor)

        return {member: list(page.items), "nextCursor": page.next_cursor}

    async def list_tools(self, *, cursor: str | None = None, cache_mode: object = None) -> ListToolsResult:
        return ListToolsResult.model_validate(await self._page("tools", "tools", "tools/list", cursor))

    async def list_resources(self, *, cursor: str | None = None) -> ListResourcesResult:
        return ListResourcesResult.model_validate(await self._page("resources", "resources", "resources/list", cursor))

    async def list_resource_templates(self, *, cursor: str | None = None) -> ListResourceTemplatesResult:
        page = await self._page("resource_templates", "resourceTemplates", "resources/templates/list", cursor)
        return ListResourceTemplatesResult.model_validate(page)

    async def list_prompts(self, *, cursor: str | None = None) -> ListPromptsResult:
        return ListPromptsResult.model_validate(await self._page("prompts", "prompts", "prompts/list", cursor))

    async def read_resource(self, uri: str) -> ReadResourceResult:
        with _sdk_errors("resources/read"):
            result = await self.connection.read_resource(NAME, uri)

        return ReadResourceResult.model_validate({"contents": list(result.contents)})

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        with _sdk_errors("prompts/get"):
            result = await self.connection.get_prompt(NAME, name, arguments)

        return GetPromptResult.model_validate({"description": result.description, "messages": list(result.messages)})

    async def complete(self, ref: Any, argument: Mapping[str, str], context_arguments: object = None) -> CompleteResult:
        if context_arguments is not None:
            raise NotOffered("arguments as a completion's context")

        with _sdk_errors("completion/complete"):
            values = await self.connection.complete(NAME, ref.model_dump(by_alias=True, exclude_none=True), argument)

        return CompleteResult.model_validate({"completion": {"values": values}})

    def __getattr__(self, name: str) -> NoReturn:
        raise NotOffered(f"Client.{name}")


class _Session:
    """What `Client.session` gives: a way around the client, which a connection has not."""

    def __getattr__(self, name: str) -> NoReturn:
        raise NotOffered(f"Client.session.{name}")


class ClientSession:
    """In place of the SDK's session over a pair of streams: negotiated by `initialize`, with tool calls as requests."""

    def __init__(self, read: Any, write: Any, read_timeout_seconds: float | None = None, **callbacks: Any) -> None:
        streams = (read, write)
        self._client = Client(_given(streams), mode="legacy", read_timeout_seconds=read_timeout_seconds, **callbacks)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "ClientSession":
        return self

    async def __aexit__(self, *problem: Any) -> None:
        await self._stack.__aexit__(*problem)

    async def initialize(self) -> Any:
        await self._stack.enter_async_context(self._client)
        return SimpleNamespace(protocol_version=self._client.protocol_version, server_info=self._client.server_info)

    async def send_request(self, request: Any, result_type: object, **options: Any) -> CallToolResult:
        if not isinstance(request, CallToolRequest) or options:
            raise NotOffered(f"ClientSession.send_request({type(request).__name__})")

        return await self._client.call_tool(request.params.name, request.params.arguments)

    def __getattr__(self, name: str) -> NoReturn:
        raise NotOffered(f"ClientSession.{name}")


@contextmanager
def _sdk_errors(method: str) -> Iterator[None]:
    """Our errors as the SDK's, where both know the kind; the rest is raised as it is."""
    try:
        yield
    except RemoteError as error:
        raise MCPError(error.rpc_code, error.message, error.details) from error
    except (CallTimeoutError, WaitTimeoutError) as error:
        raise MCPError(REQUEST_TIMEOUT, f"Request {method!r} timed out") from error
    except ServerLostError as error:
        raise MCPError(CONNECTION_CLOSED, "Connection closed") from error
    except MalformedReplyError as error:
        raise ValidationError.from_exception_data(error.message, []) from error


def _start_error(text: str) -> Exception:
    """Why a server did not become READY: the SDK's error where the connection names its kind, else a RuntimeError."""
    name, _, rest = text.removeprefix("its sign-in failed: ").partition(": ")
    kind = getattr(mcp.client.auth, name, None)
    return kind(rest) if isinstance(kind, type) and issubclass(kind, Exception) else RuntimeError(text)


def _answered(answer: Any) -> Any:
    if isinstance(answer, ErrorData):
        raise NotOffered("an error of the caller's own as the answer")

    return answer
