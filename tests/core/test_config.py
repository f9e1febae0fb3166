"""Server specs, limits and restart policy: each wrong value is one error that names its key and keeps its secret.

The defaults are copied from the tables of api.md section 1.
"""

import re
import ssl
import sys

import pytest
from attrs import evolve, fields
from attrs.exceptions import FrozenInstanceError
from hypothesis import given
from hypothesis import strategies as st

from deputy_mcp._core.config import (
    MIB,
    PROTOCOL_VERSIONS,
    CommonFields,
    CustomServer,
    HttpServer,
    Limits,
    RestartPolicy,
    StdioServer,
)
from deputy_mcp._core.errors import ConfigError
from deputy_mcp._core.permissions import Permissions

SECRET = "hunter2-hunter2"
NAN, INF = float("nan"), float("inf")


def opener():
    """As little of a transport as the configuration looks at."""


def stdio(**options):
    return StdioServer(**{"command": "server", **options})


def http(**options):
    return HttpServer(**{"url": "https://example.org/mcp", **options})


def custom(**options):
    return CustomServer(**{"open_transport": opener, **options})


EVERY = [stdio, http, custom]


def ids(value):
    """A parameter as its test's name shows it: the same in every run, so without addresses."""
    if isinstance(value, type) or callable(value):
        return value.__name__

    text = ascii(value)
    return type(value).__name__ if " at 0x" in text else text[:60]


# --- Defaults ---------------------------------------------------------------------------------------------------------

COMMON = {
    "tools": None,
    "resources": (),
    "prompts": (),
    "required": False,
    "permissions": None,
    "trust_annotations": True,
    "pin_ignore": {},
    "annotations": {},
    "limits": None,
    "restart": None,
    "protocol": "auto",
}
LIMITS = {
    "call_timeout_seconds": 60,
    "startup_timeout_seconds": 60,
    "shutdown_timeout_seconds": 5,
    "approval_timeout_seconds": 300,
    "idle_timeout_seconds": None,
    "max_timeouts_in_row": 3,
    "max_message_bytes": 16 * 1024 * 1024,
    "max_message_values": 1_000_000,
    "max_result_bytes": 1_000_000,
    "on_large_result": "truncate",
    "spill_directory": None,
    "max_spill_bytes": 256 * 1024 * 1024,
    "max_concurrent_calls": 32,
    "max_tools": 2_000,
    "max_list_pages": 100,
    "max_description_bytes": 16 * 1024,
    "max_stderr_bytes": 64 * 1024,
    "max_server_requests_per_call": 8,
}
MAY_BE_ZERO = {"max_stderr_bytes", "max_server_requests_per_call"}
RESTART = {
    "when": "on_loss",
    "max_restarts": 5,
    "window_seconds": 60,
    "backoff_initial_seconds": 0.5,
    "backoff_factor": 2,
    "backoff_max_seconds": 30,
    "cooldown_seconds": 60,
}


@pytest.mark.parametrize(
    ("value", "table"),
    [
        (stdio(), {**COMMON, "command": "server", "args": (), "env": {}, "cwd": None}),
        (
            http(),
            {
                **COMMON,
                "url": "https://example.org/mcp",
                "headers": {},
                "auth": None,
                "verify": True,
                "proxy": None,
                "transport": "http",
            },
        ),
        (custom(), {**COMMON, "open_transport": opener}),
        (Limits(), LIMITS),
        (RestartPolicy(), RESTART),
    ],
    ids=lambda item: type(item).__name__,
)
def test_every_field_has_the_contracts_default(value, table):
    """api.md section 1, field for field; a field that is not in the table does not exist."""
    assert table == {attribute.name: getattr(value, attribute.name) for attribute in fields(type(value))}


@pytest.mark.parametrize("make", [*EVERY, Limits, RestartPolicy])
def test_what_does_not_exist_is_not_accepted(make):
    """A key whose feature is not there is never taken and ignored."""
    with pytest.raises(TypeError):
        make(no_such_key=1)


@pytest.mark.parametrize("kind", [Limits, RestartPolicy])
def test_limits_take_names_only(kind):
    """A number alone says nothing of what it bounds."""
    with pytest.raises(TypeError):
        kind(60)


def test_only_what_a_server_is_may_go_without_a_name():
    """Command, URL and callable; everything else is named."""
    assert ("c", "http://h", opener) == (
        StdioServer("c").command,
        HttpServer("http://h").url,
        CustomServer(opener).open_transport,
    )
    with pytest.raises(TypeError):
        StdioServer("c", ["a"])
    with pytest.raises(TypeError):
        HttpServer("http://h", {})


# --- Wrong values -----------------------------------------------------------------------------------------------------

NO_TEXTS = [SECRET, 5, {SECRET: 1}, [5], [None], [b"x"], [SECRET + "\0"]]
NO_FLAGS = [1, 0, "true", None, []]
WRONG_COMMON = [
    *(("tools", value) for value in NO_TEXTS),
    *(("resources", value) for value in [None, *NO_TEXTS]),
    *(("prompts", value) for value in [None, *NO_TEXTS]),
    *(("required", value) for value in NO_FLAGS),
    *(("trust_annotations", value) for value in NO_FLAGS),
    *(("permissions", value) for value in [{}, True, "full", Permissions]),
    *(("limits", value) for value in [{}, 60, Limits, RestartPolicy()]),
    *(("restart", value) for value in [{}, "never", RestartPolicy, Limits()]),
    *(("protocol", value) for value in ["", "latest", "2025-6-18", None, 5, [], "AUTO"]),
    *(
        ("annotations", value)
        for value in [
            None,
            [],
            {"t": None},
            {"t": {"readOnly": True}},
            {"t": {"readOnlyHint": "true"}},
            {"t": {"readOnlyHint": 1}},
            {"t": {"readOnlyHint": True, "destructiveHint": True}},
            {5: {}},
        ]
    ),
]


@pytest.mark.parametrize("make", EVERY, ids=ids)
@pytest.mark.parametrize(("key", "value"), WRONG_COMMON, ids=ids)
def test_a_wrong_value_of_a_common_field_names_its_key(make, key, value):
    """Whatever the transport; nothing is coerced, and the value is not shown."""
    check_wrong(make, key, value)


NO_ENVS = [
    *(None, [], "A=1", {"A": None}, {"A": 5}, {"A": True}, {5: "x"}, {"": SECRET}, {"A\0": "x"}),
    *({"A": SECRET + "\0"}, {"A=" + SECRET: ""}, {"A": SECRET.encode()}),
]
WRONG_STDIO = [
    *(("command", value) for value in [None, "", 5, ["server"], b"server", SECRET + "\0"]),
    *(("args", value) for value in [None, *NO_TEXTS]),
    *(("cwd", value) for value in ["", 5, b"/", SECRET + "\0"]),
    *(("env", value) for value in NO_ENVS),
]
NO_URLS = [
    *(None, "", 5, b"http://h", "example.org", "ftp://h/", "http://", "http:///x", "file:///etc", "//h/", "http://h\0"),
    *("http://h:" + SECRET, "http://h:99999/", "http://[::1", f"https://u:{SECRET}@", f"http://u:{SECRET}@[x/"),
    *("http://h/\n", "http://ho\tst/", " http://h/", "http://h /", "http://h/\x1b"),
]
NO_HEADERS = [
    *(None, [], "A: 1", {"A": None}, {"A": 5}, {5: "x"}, {"": SECRET}, {"A b": SECRET}, {"A:": SECRET}),
    *({"A\r\n": SECRET}, {"é": SECRET}, {"A": f"{SECRET}\r\nB: 1"}, {"A": SECRET + "\n"}, {"A": SECRET + "\0"}),
    *({"A": SECRET.encode()}, {"A\0": SECRET}, {"A": SECRET + "é"}),
]
NO_PROXIES = ["", 5, b"http://p", "p:8080", "ftp://p", f"http://u:{SECRET}@p:x", "http://[", "http://p\0", "http://"]
WRONG_HTTP = [
    *(("url", value) for value in NO_URLS),
    *(("headers", value) for value in NO_HEADERS),
    *(("transport", value) for value in [None, "", "stdio", "streamable-http", "HTTP", 5, []]),
    *(("verify", value) for value in [None, 1, 0, b"x", [], ssl.SSLContext, ""]),
    *(("proxy", value) for value in NO_PROXIES),
    *(("auth", value) for value in [SECRET, (SECRET, SECRET), 5, object(), {}, opener]),
]
WRONG_CUSTOM = [("open_transport", value) for value in [None, "x", 5, {}]]


@pytest.mark.parametrize(
    ("make", "key", "value"),
    [
        *((stdio, *row) for row in WRONG_STDIO),
        *((http, *row) for row in WRONG_HTTP),
        *((custom, *row) for row in WRONG_CUSTOM),
    ],
    ids=ids,
)
def test_a_wrong_value_of_a_transports_field_names_its_key_and_never_shows_the_value(make, key, value):
    """A password in a URL, a token in a header or in an env name: none of them reaches the error's text."""
    check_wrong(make, key, value)


WRONG_LIMITS = [
    *(
        (key, value)
        for key in LIMITS
        if key.endswith("_seconds")
        for value in [0, -1, "60", True, NAN, INF, 10**400, [60]]
    ),
    *((key, value) for key in LIMITS if key.endswith("_seconds") and LIMITS[key] is not None for value in [None]),
    *((key, value) for key in LIMITS if key.startswith("max_") for value in [-1, "5", True, 5.0, NAN, [5]]),
    *((key, 0) for key in LIMITS if key.startswith("max_") and key not in MAY_BE_ZERO),
    *((key, None) for key in LIMITS if key.startswith("max_") and key != "max_timeouts_in_row"),
    *(("on_large_result", value) for value in [None, "", "TRUNCATE", "cut", 5, [], True]),
    ("spill_directory", "/somewhere/spill"),
    ("max_message_bytes", 1023),
    ("max_message_values", 99),
    ("max_result_bytes", 63),
    ("max_description_bytes", 63),
]
WRONG_RESTART = [
    *(("when", value) for value in [None, "", "always", 5, [], True]),
    *(("max_restarts", value) for value in [None, -1, 1.0, "5", True, NAN]),
    *(
        (key, value)
        for key in RESTART
        if key.endswith(("_seconds", "_factor"))
        for value in [None, 0, -1, "60", True, NAN, INF, 10**400]
    ),
    ("backoff_factor", 0.99),
    ("backoff_max_seconds", 0.49),
]


@pytest.mark.parametrize(
    ("make", "key", "value"),
    [*((Limits, *row) for row in WRONG_LIMITS), *((RestartPolicy, *row) for row in WRONG_RESTART)],
    ids=ids,
)
def test_a_wrong_limit_names_its_key(make, key, value):
    """`"60"` is no timeout, 1 is no flag, and nothing is without bounds by accident."""
    check_wrong(make, key, value)


@pytest.mark.parametrize("value", ["", 5, "a\0"])
def test_a_spill_directory_is_a_path(value):
    """Also where spilling is asked for."""
    check_wrong(lambda **options: Limits(on_large_result="spill", **options), "spill_directory", value)


def check_wrong(make, key, value):
    with pytest.raises(ConfigError) as caught:
        make(**{key: value})
    error = caught.value
    assert key in error.key
    assert key in str(error)
    assert SECRET not in error.diagnostics()
    # What was being handled when it was raised would show in a traceback as well.
    assert error.__suppress_context__ or error.__context__ is None


def test_a_stdio_server_on_windows_is_refused(monkeypatch):
    """api.md, head: an error rather than half working; the other transports work there."""
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ConfigError, match="Windows") as caught:
        stdio()
    assert "command" == caught.value.key
    assert http().url
    assert custom().open_transport


# --- Right values -----------------------------------------------------------------------------------------------------

RIGHT = [
    (stdio, "tools", ["b", "a"], ("b", "a")),
    (stdio, "tools", (), ()),
    (http, "resources", ["file:///x"], ("file:///x",)),
    (custom, "prompts", ("p",), ("p",)),
    (stdio, "args", ["-x", ""], ("-x", "")),
    (stdio, "env", {"A": "", "B": "x"}, {"A": "", "B": "x"}),
    (stdio, "cwd", "/tmp", "/tmp"),
    (stdio, "permissions", Permissions.full(), Permissions.full()),
    (http, "limits", Limits(max_tools=1), Limits(max_tools=1)),
    (http, "restart", RestartPolicy(when="never"), RestartPolicy(when="never")),
    (stdio, "annotations", {"t": {"readOnlyHint": True}}, {"t": {"readOnlyHint": True}}),
    *((stdio, "protocol", version, version) for version in ("auto", "legacy", *PROTOCOL_VERSIONS)),
    (http, "headers", {"A": "", "B": opener}, {"A": "", "B": opener}),
    (http, "transport", "sse", "sse"),
    (http, "verify", False, False),
    (http, "verify", "/etc/ca.pem", "/etc/ca.pem"),
    *((http, "proxy", url, url) for url in ("http://p", "https://p:1", "socks5://u:p@p", "socks5h://p")),
    *((http, "url", url, url) for url in ("http://h", "HTTPS://H:8/x?y#z", "http://[::1]:80/", "http://u:p@h/")),
    (Limits, "max_timeouts_in_row", None, None),
    (Limits, "max_stderr_bytes", 0, 0),
    (Limits, "idle_timeout_seconds", 0.5, 0.5),
    (Limits, "max_message_bytes", 1024, 1024),
    (Limits, "max_message_values", 100, 100),
    (Limits, "max_result_bytes", 64, 64),
    (Limits, "max_description_bytes", 64, 64),
    (Limits, "on_large_result", "error", "error"),
    (RestartPolicy, "max_restarts", 0, 0),
    (RestartPolicy, "backoff_factor", 1, 1),
    (RestartPolicy, "backoff_max_seconds", 0.5, 0.5),
]


@pytest.mark.parametrize(("make", "key", "value", "expected"), RIGHT, ids=ids)
def test_a_right_value_is_kept_as_it_is(make, key, value, expected):
    """Lists become tuples and mappings read-only copies; everything else is the very value."""
    assert expected == getattr(make(**{key: value}), key)


def test_a_tls_context_verifies():
    """The third way of saying how, beside a flag and a path."""
    context = ssl.create_default_context()
    assert context is http(verify=context).verify


def test_spilling_may_have_a_directory():
    """Only together do the two mean something."""
    assert "/somewhere/x" == Limits(on_large_result="spill", spill_directory="/somewhere/x").spill_directory
    assert 256 * MIB == Limits(on_large_result="spill").max_spill_bytes


# --- Values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [*EVERY, Limits, RestartPolicy])
def test_a_value_is_frozen_and_equal_to_its_like(make):
    """A change is `evolve`, which checks again."""
    value = make()
    assert make() == value
    name = fields(type(value))[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(value, name, None)
    assert value == evolve(value)
    with pytest.raises(ConfigError):
        evolve(value, **{fields(type(value))[0].name: object()})


def test_what_a_spec_was_made_from_can_be_changed_without_changing_it():
    """Mappings are copied, at both levels of `annotations` too."""
    env, hints = {"A": "x"}, {"t": {"readOnlyHint": True}}
    server = stdio(env=env, annotations=hints)
    env["B"] = "y"
    hints["t"]["destructiveHint"] = True
    hints["u"] = {}
    assert {"A": "x"} == server.env
    assert {"t": {"readOnlyHint": True}} == server.annotations


@pytest.mark.parametrize(
    "server",
    [
        stdio(env={"TOKEN": SECRET}),
        http(headers={"Authorization": f"Bearer {SECRET}"}),
        http(url=f"https://user:{SECRET}@example.org/mcp"),
        http(url=f"https://example.org/mcp?key={SECRET}"),
        http(proxy=f"http://user:{SECRET}@proxy.example.org"),
    ],
    ids=["env", "headers", "url password", "url query", "proxy password"],
)
def test_a_repr_shows_no_secret(server):
    """A repr ends up in logs and tracebacks; it names env and headers by their keys."""
    assert SECRET not in repr(server)
    assert SECRET not in str(server)


def test_a_repr_names_what_was_set():
    """It is a status line: keys are no secrets."""
    assert "env={'TOKEN': …}" in repr(stdio(env={"TOKEN": SECRET}))
    assert "headers={'Authorization': …}" in repr(http(headers={"Authorization": SECRET}))


# --- Identity and secrets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "identity"),
    [
        ("https://example.org/mcp", "https://example.org/mcp"),
        (f"https://user:{SECRET}@example.org/mcp", "https://example.org/mcp"),
        (f"https://{SECRET}@example.org:8443/mcp", "https://example.org:8443/mcp"),
        (f"https://example.org/mcp?key={SECRET}#{SECRET}", "https://example.org/mcp"),
        ("HTTP://Example.ORG", "http://example.org"),
        ("http://[::1]:8000/x", "http://[::1]:8000/x"),
        ("http://[fe80::1]/x", "http://[fe80::1]/x"),
        ("http://h:0/", "http://h:0/"),
    ],
)
def test_an_http_server_is_its_url_without_what_may_be_secret(url, identity):
    """User, password, query and fragment are left out; an IPv6 host keeps its brackets."""
    assert identity == HttpServer(url).identity


def test_a_stdio_server_is_its_command_line():
    """Without the environment: its values are secrets."""
    assert (
        "uvx mcp-server-time --tz UTC"
        == StdioServer("uvx", args=["mcp-server-time", "--tz", "UTC"], env={"A": SECRET}).identity
    )


def test_a_custom_server_is_its_callable():
    """By its qualified name, or its class where it has none."""

    class Opener:
        def __call__(self):
            """Open."""

    assert "opener" == CustomServer(opener).identity
    assert "Opener" == CustomServer(Opener()).identity


def test_the_common_fields_alone_are_no_server():
    """What a server is, only its transport knows; and by themselves they hold no secret."""
    common = CommonFields()
    assert () == common.secrets == custom().secrets
    with pytest.raises(NotImplementedError):
        _ = common.identity


def test_the_secrets_of_a_stdio_server_are_its_env_values():
    """api.md section 8; which of them are long enough to mask is the masker's business."""
    assert {"x", SECRET} == set(stdio(env={"A": "x", "B": SECRET}).secrets)


def test_the_secrets_of_an_http_server_are_its_header_values_their_parts_and_passwords():
    """`Bearer abc`: a server echoes the token without its scheme. A callable's value is not known here."""
    server = http(
        url="https://user:urlpassword@example.org/",
        headers={"Authorization": "Bearer " + SECRET, "X-Key": "key-key-key", "X-Late": opener},
        proxy="http://user:proxypassword@proxy.example.org",
    )
    assert {"Bearer " + SECRET, SECRET, "key-key-key", "urlpassword", "proxypassword"} <= set(server.secrets)
    assert () == http().secrets


@given(st.text(alphabet="abcdef0123456789-_.~", min_size=8, max_size=40))
def test_no_header_value_is_missing_from_the_secrets(token):
    """Whatever it is, as a whole and in its parts."""
    secrets = http(headers={"A": f"Token {token}"}).secrets
    assert token in secrets
    assert f"Token {token}" in secrets


# --- Authentication ---------------------------------------------------------------------------------------------------


def auth_of(module, *bases):
    return type("Auth", bases or (object,), {"__module__": module})


def test_an_httpx2_auth_is_taken():
    """The class itself, or one derived from it anywhere."""
    base = auth_of("httpx2._auth")
    derived = type("Bearer", (base,), {"__module__": "app"})
    for value in (base(), derived(), auth_of("httpx2")()):
        assert value is http(auth=value).auth


@pytest.mark.parametrize("module", ["httpx", "httpx._auth"])
@pytest.mark.parametrize("derive", [False, True])
def test_an_httpx_auth_is_refused_and_the_text_says_why(module, derive):
    """api.md section 1: the SDK speaks httpx2; the old class would only fail at the first request."""
    kind = auth_of(module)
    value = type("Bearer", (kind,), {"__module__": "app"})() if derive else kind()
    with pytest.raises(ConfigError, match=re.escape("httpx2.Auth")) as caught:
        http(auth=value)
    assert "httpx.Auth" in str(caught.value)
    assert "auth" == caught.value.key


@pytest.mark.parametrize("module", ["app", "httpx3", "httpx2_like", "my.httpx2"])
def test_another_class_of_that_name_is_refused(module):
    """The family counts, not the word."""
    with pytest.raises(ConfigError, match=r"auth must be an httpx2\.Auth"):
        http(auth=auth_of(module)())


def test_a_class_of_both_families_is_taken():
    """Somebody bridges the two on purpose."""
    value = auth_of("app", auth_of("httpx2._auth"), auth_of("httpx._auth"))()
    assert value is http(auth=value).auth
