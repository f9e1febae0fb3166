"""`tools_mcp(servers=[…])`: a configuration's tools in one line.

Entered, it is private and closes at the block's end. Awaited, it uses one registry per event loop, in which a second
load of a server takes the earlier one over.
"""

import asyncio  # noqa: TID251 # one registry per running loop; anyio has no handle on it
import os
import warnings
import weakref
from collections.abc import Generator, Iterable, Mapping
from types import TracebackType
from typing import Any, Literal

from attrs import evolve

from deputy_mcp._core.config import Server
from deputy_mcp._core.errors import ConfigError, DeputyError, DeputyWarning
from deputy_mcp._core.frozen import FrozenMapping
from deputy_mcp._runtime.configfile import Config, read_config
from deputy_mcp._runtime.connection import McpConnection
from deputy_mcp._runtime.handles import McpTool

OnError = Literal["warn", "raise"]


class ToolList(list[McpTool]):
    """The handles that were loaded, the connection behind them, and what failed."""

    def __init__(
        self,
        tools: Iterable[McpTool] = (),
        *,
        connection: McpConnection | None = None,
        failures: Mapping[str, DeputyError] | None = None,
    ) -> None:
        super().__init__(tools)
        self.connection = connection
        """None when nothing could be loaded at all."""
        self.failures: Mapping[str, DeputyError] = FrozenMapping(failures or {})
        """By server; under `""` when the configuration itself could not be read."""


def tools_mcp(
    config: Any = None,
    servers: Iterable[str] | None = None,
    *,
    on_error: OnError = "warn",
    **connection_options: Any,
) -> "ToolsLoader":
    """Start the servers of a configuration and give their tools.

    `async with tools_mcp(...) as tools` closes them at the block's end; `tools = await tools_mcp(...)` (asyncio)
    keeps them until `close_mcp()` or the loop's end, and takes over servers loaded before, whose handles become stale.
    `config`: a path, a `Config`, a mapping of name to server, or None for the default file. `servers`: exact names.
    Under `"warn"` what fails gives a `DeputyWarning` and its tools are missing; under `"raise"` it is raised and
    nothing stays started.
    """
    if on_error not in ("warn", "raise"):
        raise ConfigError('on_error must be "warn" or "raise"', key="on_error")

    return ToolsLoader(config, servers, on_error, connection_options)


class ToolsLoader:
    """What `tools_mcp` gives: to be awaited or entered, once."""

    def __init__(
        self, config: Any, servers: Iterable[str] | None, on_error: OnError, options: Mapping[str, Any]
    ) -> None:
        self._config = config
        self._servers = None if servers is None else servers if isinstance(servers, str) else tuple(servers)
        self._on_error = on_error
        self._options = options
        self._loaded: ToolList | None = None

    def __await__(self) -> Generator[Any, None, ToolList]:
        return self._load_shared().__await__()

    async def __aenter__(self) -> ToolList:
        self._loaded, _ = await open_tools(self._config, self._servers, self._on_error, self._options)
        return self._loaded

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loaded is not None and self._loaded.connection is not None:
            await self._loaded.connection.aclose()

    async def _load_shared(self) -> ToolList:
        registry = _registry()
        loaded, source = await open_tools(self._config, self._servers, self._on_error, self._options)
        if loaded.connection is not None:
            for name in loaded.connection.status():
                earlier = registry.pop((source, name), None)
                registry[source, name] = loaded.connection
                if earlier is not None:
                    await earlier.supersede(name)

        return loaded


_registries: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str], McpConnection]] = (
    weakref.WeakKeyDictionary()
)
"""Connections loaded by awaiting, per loop, by configuration file and server name. They end with their loop."""


def _registry() -> dict[tuple[str, str], McpConnection]:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigError(
            "awaiting tools_mcp() needs asyncio; on another loop use `async with tools_mcp(...)`"
        ) from None

    return _registries.setdefault(loop, {})


async def close_mcp() -> None:
    """Close every connection that was loaded by awaiting `tools_mcp` on this loop."""
    registry = _registry()
    connections = list(dict.fromkeys(registry.values()))
    registry.clear()
    for connection in connections:
        await connection.aclose()


async def open_tools(
    config: Any, servers: Iterable[str] | None, on_error: OnError, options: Mapping[str, Any]
) -> tuple[ToolList, str]:
    """Load, start and sort out what failed. Also gives the name of the configuration, for the registry."""
    failures: dict[str, DeputyError] = {}
    try:
        specs, source = _read(config, servers, failures if on_error == "warn" else None)
        connection = McpConnection(specs, **options)
        await connection.__aenter__()
    except DeputyError as error:
        if on_error == "raise":
            raise

        failures[error.server or ""] = error
        return _warned(ToolList(failures=failures)), ""

    for name in connection.status():
        failure = connection.failure(name)
        if failure is not None:
            failures[name] = failure

    try:
        if failures and on_error == "raise":
            raise next(iter(failures.values()))

        return _warned(ToolList(connection.tools(), connection=connection, failures=failures)), source
    except BaseException:
        # A warning may be an error here, and then nobody would own what was started.
        await connection.aclose()
        raise


def _read(
    config: Any, servers: Iterable[str] | None, broken: dict[str, DeputyError] | None
) -> tuple[Mapping[str, Server], str]:
    """The servers and the configuration's name; servers that cannot be read go into `broken`."""
    if isinstance(config, Config):
        return evolve(config, servers=_chosen(config, servers)), os.path.realpath(config.path)

    if isinstance(config, Mapping):
        return _chosen(config, servers), ""

    found: dict[str, ConfigError] = {}
    read = read_config(config, servers, env=None, broken=found if broken is not None else None)
    if broken is not None:
        broken.update(found)

    # Resolved: the same file by another path is the same configuration.
    return read, os.path.realpath(read.path)


def _chosen(specs: Mapping[str, Server], servers: Iterable[str] | None) -> Mapping[str, Server]:
    if servers is None:
        return dict(specs)

    if isinstance(servers, str):
        raise ConfigError('servers must be a list of names, not one string; write ["name"]', key="servers")

    names = list(dict.fromkeys(servers))
    for name in names:
        if name not in specs:
            known = ", ".join(map(repr, specs)) or "none"
            raise ConfigError(f"there is no server {name!r} (known: {known})", server=name, key="servers")

    return {name: specs[name] for name in names}


def _warned(tools: ToolList) -> ToolList:
    for error in tools.failures.values():
        warnings.warn(str(error), DeputyWarning, stacklevel=4)

    return tools
