"""Server specs, limits and restart policy as frozen values, validated once, when they are made.

Not a reader of files (that is `_runtime.configfile`). Every wrong value is a `ConfigError` that names the key and
the mend; nothing is coerced, so `"60"` is no timeout and `1` is no flag.
"""

import re
import ssl
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, get_args
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from attrs import field, fields, frozen

from deputy_mcp._core.annotations import check_host_annotations
from deputy_mcp._core.errors import ConfigError
from deputy_mcp._core.frozen import (
    FrozenMapping,
    check_count,
    check_flag,
    check_mapping,
    check_number,
    check_text,
    check_texts,
    wrong_type,
)
from deputy_mcp._core.permissions import Permissions

MIB = 1024 * 1024

OnLargeResult = Literal["truncate", "error", "spill"]
HeaderValue = str | Callable[[], str | Awaitable[str]]
"""A header's value, or a callable (sync or async) that gives it anew for each request."""

PROTOCOL_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
"""The released protocol revisions, oldest first."""


_LEAST = {"max_message_bytes": 1024, "max_message_values": 100, "max_result_bytes": 64, "max_description_bytes": 64}
_MAY_BE_ZERO = {"max_stderr_bytes", "max_restarts", "max_server_requests_per_call"}


def _check_numbers(value: Any, *, optional: set[str]) -> None:
    """Check every bound of a value by its name: `max_…` is a whole number, the rest are numbers above zero."""
    for name in (attribute.name for attribute in fields(type(value))):
        number = getattr(value, name)
        if number is None and name in optional:
            continue

        if name.startswith("max_") and not name.endswith("_seconds"):
            check_count(name, number, least=_LEAST.get(name, 0 if name in _MAY_BE_ZERO else 1))
        elif name.endswith(("_seconds", "_factor")):
            check_number(name, number, above_zero=True)


@frozen(kw_only=True)
class Limits:
    """The bounds on one server. Times in seconds, sizes in bytes; each bound is documented with what happens at it."""

    call_timeout_seconds: float = 60
    """The hard end of one call, waiting included; `CallTimeoutError` or `WaitTimeoutError`."""
    startup_timeout_seconds: float = 60
    """Spawn to READY; past it the start has failed."""
    shutdown_timeout_seconds: float = 5
    """The whole ladder of stopping: close stdin, TERM, KILL."""
    approval_timeout_seconds: float = 300
    """How long a person may take; then `ApprovalExpiredError`. The call's deadline stands still meanwhile."""
    idle_timeout_seconds: float | None = None
    """When set: no progress for this long ends a call; the call timeout stays the hard end."""
    max_timeouts_in_row: int | None = 3
    """So many timeouts with nothing read in between end the server as hung; None: never."""
    max_message_bytes: int = 16 * MIB
    """One message on the wire, any transport, after decompression; past it that call alone fails."""
    max_message_values: int = 1_000_000
    """JSON values in one message; more counts as too large, because parsing holds the event loop."""
    max_result_bytes: int = 1_000_000
    """The text of one result; past it `on_large_result` says what happens."""
    on_large_result: OnLargeResult = "truncate"
    spill_directory: str | None = None
    """Where `spill` writes; None: a private folder that is removed at the connection's end."""
    max_spill_bytes: int = 256 * MIB
    """All spill files of one connection together; past it a large result is cut instead, with a finding."""
    max_concurrent_calls: int = 32
    """Calls in flight on one server; more wait inside their deadline."""
    max_tools: int = 2_000
    """Tools in one listing; a longer one is not taken."""
    max_list_pages: int = 100
    """Pages in one listing; a longer one is not taken."""
    max_description_bytes: int = 16 * 1024
    """A description as a model sees it, in UTF-8; the rest is cut with a mark. Pins cover the whole text."""
    max_stderr_bytes: int = 64 * 1024
    """How much of the end of a child's stderr is kept; older bytes are dropped."""
    max_server_requests_per_call: int = 8
    """Questions a server may ask the host during one call (elicitation, sampling, roots); more are declined."""

    def __attrs_post_init__(self) -> None:
        _check_numbers(self, optional={"idle_timeout_seconds", "max_timeouts_in_row"})
        if self.on_large_result not in get_args(OnLargeResult):
            raise ConfigError(
                f"on_large_result must be one of {', '.join(get_args(OnLargeResult))}", key="on_large_result"
            )

        if self.spill_directory is not None:
            check_text("spill_directory", self.spill_directory)
            if self.on_large_result != "spill":
                raise ConfigError(
                    'spill_directory has no effect without on_large_result="spill"', key="spill_directory"
                )


@frozen(kw_only=True)
class RestartPolicy:
    """When and how often a lost server is started again.

    OTP's rule: more than `max_restarts` within `window_seconds` and the server is FAILED, until `cooldown_seconds`
    have passed and somebody calls. Between restarts the wait grows from `backoff_initial_seconds` by
    `backoff_factor` up to `backoff_max_seconds`, with jitter.
    """

    when: Literal["on_loss", "never"] = "on_loss"
    max_restarts: int = 5
    window_seconds: float = 60
    backoff_initial_seconds: float = 0.5
    backoff_factor: float = 2
    backoff_max_seconds: float = 30
    cooldown_seconds: float = 60

    def __attrs_post_init__(self) -> None:
        _check_numbers(self, optional=set())
        if self.when not in ("on_loss", "never"):
            raise ConfigError('when must be "on_loss" or "never"', key="when")

        if self.backoff_factor < 1:
            raise ConfigError("backoff_factor must be 1 or more: waits never shrink", key="backoff_factor")

        if self.backoff_max_seconds < self.backoff_initial_seconds:
            raise ConfigError(
                "backoff_max_seconds must not be below backoff_initial_seconds", key="backoff_max_seconds"
            )


def _args(value: object) -> tuple[str, ...]:
    return check_texts("args", value)


def _resources(value: object) -> tuple[str, ...]:
    return check_texts("resources", value)


def _prompts(value: object) -> tuple[str, ...]:
    return check_texts("prompts", value)


def _tools(value: object) -> tuple[str, ...] | None:
    return None if value is None else check_texts("tools", value)


def _pin_ignore(value: object) -> FrozenMapping[tuple[str, ...]]:
    pointers = {
        tool: check_texts(f"pin_ignore.{tool}", items) for tool, items in check_mapping("pin_ignore", value).items()
    }
    for tool, items in pointers.items():
        for pointer in items:
            if not pointer.startswith("/") or pointer in ("/", "/name") or re.search("~(?![01])", pointer):
                raise ConfigError(
                    f"pin_ignore.{tool}: {pointer!r} is no JSON pointer below the tool, such as "
                    '"/inputSchema/properties/now/default"',
                    key="pin_ignore",
                )

    return FrozenMapping(pointers)


@frozen(kw_only=True)
class CommonFields:
    """What every kind of server entry has, whatever its transport."""

    tools: tuple[str, ...] | None = field(default=None, converter=_tools)
    """Fixed allowlist of tool names, exact. None: everything offered at the first listing; (): nothing."""
    resources: tuple[str, ...] = field(default=(), converter=_resources)
    """Fixed allowlist of resource URIs."""
    prompts: tuple[str, ...] = field(default=(), converter=_prompts)
    """Fixed allowlist of prompt names."""
    required: bool = field(default=False)
    """True: if this server is not READY at the end of its first start, entering the connection fails."""
    permissions: Permissions | None = field(default=None)
    """This server's share of the effective permissions."""
    trust_annotations: bool = field(default=True)
    """False: the server's own hints count for nothing."""
    annotations: Mapping[str, Mapping[str, bool]] = field(factory=FrozenMapping, converter=check_host_annotations)
    """The host's own word, per tool and hint; merged hint by hint over the server's."""
    pin_ignore: Mapping[str, tuple[str, ...]] = field(factory=FrozenMapping, converter=_pin_ignore)
    """Per tool, JSON pointers that its pin leaves out: what truly moves, such as a clock in a default."""
    limits: Limits | None = field(default=None)
    """Overrides the connection's."""
    restart: RestartPolicy | None = field(default=None)
    """Overrides the connection's."""
    protocol: str = field(default="auto")
    """`auto`, `legacy` (the initialize handshake) or one protocol version, proposed as it stands."""

    def __attrs_post_init__(self) -> None:
        check_flag("required", self.required)
        check_flag("trust_annotations", self.trust_annotations)
        for key, kind in (("permissions", Permissions), ("limits", Limits), ("restart", RestartPolicy)):
            value = getattr(self, key)
            if value is not None and not isinstance(value, kind):
                wrong_type(key, value, f"a {kind.__name__}")

        known = ("auto", "legacy", *PROTOCOL_VERSIONS)
        if self.protocol not in known:
            raise ConfigError(f"protocol must be one of {', '.join(known)}", key="protocol")

        self._check_own()

    def _check_own(self) -> None:
        """Checks of the transport's own fields."""

    @property
    def identity(self) -> str:
        """What this server is, for a person: its command line or its URL, without secrets."""
        raise NotImplementedError

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must never be shown, longest first (see `sanitizing.mask_secrets`)."""
        return ()


def _env(value: object) -> FrozenMapping[str]:
    items = check_mapping("env", value)
    for name in items:
        if "=" in name:
            # Without the name: what follows the sign is a value, and may be a secret.
            raise ConfigError('env: a name holds \'=\'; write {"NAME": "value"}', key="env")

    return FrozenMapping({name: check_text(f"env.{name}", text, empty=True) for name, text in items.items()})


@frozen(kw_only=True)
class StdioServer(CommonFields):
    """A server that we start as a child process and speak to over its pipes."""

    command: str = field(kw_only=False)
    """The program; looked up in the child's PATH. Never a shell."""
    args: tuple[str, ...] = field(default=(), converter=_args)
    env: Mapping[str, str] = field(factory=FrozenMapping, converter=_env)
    """Added to the small default environment; the parent's own is not inherited. Values are secrets."""
    cwd: str | None = field(default=None)
    """The working folder, None: ours."""

    def _check_own(self) -> None:
        if sys.platform == "win32":
            raise ConfigError("stdio servers need Linux or macOS; on Windows use an HTTP server", key="command")

        check_text("command", self.command)
        if self.cwd is not None:
            check_text("cwd", self.cwd)

    @property
    def identity(self) -> str:
        return " ".join((self.command, *self.args))

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(self.env.values())


def _headers(value: object) -> FrozenMapping[HeaderValue]:
    items = check_mapping("headers", value)
    for name, item in items.items():
        if not name.isascii() or any(c in name for c in " \r\n:\0"):
            raise ConfigError(
                "headers: a name holds a space, a colon or a line break; write the name alone", key="headers"
            )

        if callable(item):
            continue

        text = check_text(f"headers.{name}", item, empty=True)
        if not (text.isascii() and (text.isprintable() or text.replace("\t", "").isprintable())):
            raise ConfigError(f"headers.{name} holds a character that no header can carry; remove it", key="headers")

    return FrozenMapping(items)


@frozen(kw_only=True)
class HttpServer(CommonFields):
    """A server that we reach over HTTP: Streamable HTTP, or the legacy SSE transport."""

    url: str = field(kw_only=False, repr=lambda url: repr(_shown_url(url)))
    headers: Mapping[str, HeaderValue] = field(factory=FrozenMapping, converter=_headers)
    """Sent to the server's own origin only. A callable is asked for each request and once more after a 401."""
    auth: Any = field(default=None)
    """An `httpx2.Auth`."""
    verify: Any = field(default=True)
    """True, False, the path of a CA bundle, or an `ssl.SSLContext`."""
    proxy: str | None = field(default=None, repr=lambda url: repr(url and _shown_url(url)))
    """A proxy's URL; None: the environment's proxy variables, never for localhost."""
    transport: Literal["http", "sse"] = field(default="http")

    def _check_own(self) -> None:
        check_text("url", self.url)
        parts = _split_url("url", self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("url must start with http:// or https:// and name a host", key="url")

        if self.transport not in ("http", "sse"):
            raise ConfigError('transport must be "http" or "sse"', key="transport")

        if not isinstance(self.verify, bool | str | ssl.SSLContext) or self.verify == "":
            wrong_type("verify", self.verify, "true, false, the path of a CA bundle or an ssl.SSLContext")

        self._check_auth()
        if self.proxy is not None:
            check_text("proxy", self.proxy)
            proxy = _split_url("proxy", self.proxy)
            if proxy.scheme not in ("http", "https", "socks5", "socks5h") or not proxy.hostname:
                raise ConfigError("proxy must be an http, https or socks5 URL that names a host", key="proxy")

    def _check_auth(self) -> None:
        # By name: importing the HTTP library is the runtime's business.
        families = {base.__module__.partition(".")[0] for base in type(self.auth).__mro__ if base.__name__ == "Auth"}
        if self.auth is None or "httpx2" in families:
            return

        if "httpx" in families:
            raise ConfigError(
                "auth is an httpx.Auth; the MCP SDK speaks httpx2: derive it from httpx2.Auth instead", key="auth"
            )

        wrong_type("auth", self.auth, "an httpx2.Auth")

    @property
    def identity(self) -> str:
        """The URL without user, password, query and fragment."""
        return _shown_url(self.url)

    @property
    def secrets(self) -> tuple[str, ...]:
        fixed = [value for value in self.headers.values() if isinstance(value, str)]
        # "Bearer abc": the token alone must be masked too, since servers echo it without its scheme.
        parts = [part for value in fixed for part in value.split()]
        for url in (self.url, self.proxy or ""):
            split = urlsplit(url)
            for part in (split.password, split.username):
                parts += [part, unquote(part)] if part else []

            parts += [value for _, value in parse_qsl(split.query)]

        return (*fixed, *parts)


def _shown_url(url: str) -> str:
    """`url` without user, password, query and fragment: each of them can be a secret."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    port = f":{parts.port}" if parts.port is not None else ""
    return f"{parts.scheme}://{host}{port}{parts.path}"


def _split_url(key: str, url: str) -> SplitResult:
    # urlsplit() drops some of these silently, and the address would be another one than was written.
    if any(character <= " " or character == "\x7f" for character in url):
        raise ConfigError(f"{key} holds a space or a control character; remove it", key=key)

    try:
        parts = urlsplit(url)
        _ = parts.port  # raises when it is no number
    except ValueError:
        # Without the parser's words: they quote the URL, which may hold a password.
        raise ConfigError(f"{key} is no URL: its host or port cannot be read", key=key) from None

    return parts


@frozen(kw_only=True)
class CustomServer(CommonFields):
    """The seam for other transports: a callable that gives an `mcp.client.Transport` for each start."""

    open_transport: Callable[[], Any] = field(kw_only=False)

    def _check_own(self) -> None:
        if not callable(self.open_transport):
            wrong_type("open_transport", self.open_transport, "a callable without arguments")

    @property
    def identity(self) -> str:
        return getattr(self.open_transport, "__qualname__", type(self.open_transport).__name__)


Server = StdioServer | HttpServer | CustomServer
