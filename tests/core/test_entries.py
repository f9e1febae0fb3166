"""One entry becomes one server spec: spellings, expansion, paths, our own settings, and what is never shown."""

import re
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deputy_mcp._core.config import HttpServer, Limits, RestartPolicy, StdioServer
from deputy_mcp._core.entries import (
    MAX_SHOWN_CHARACTERS,
    MAX_SHOWN_NAMES,
    JsonObject,
    expand,
    listed,
    nearest,
    placed,
    read_entry,
    shown,
)
from deputy_mcp._core.errors import ConfigError
from deputy_mcp._core.permissions import Permissions

SECRET = "hunter2-correct-horse"


def parsed(value):
    """A plain value as the reader hands it in."""
    if isinstance(value, dict) and not isinstance(value, JsonObject):
        return JsonObject([(key, parsed(item)) for key, item in value.items()])

    return [parsed(item) for item in value] if isinstance(value, list) else value


def judged(entry, *, name="time", home="/home/me", **variables):
    return read_entry(name, parsed(entry), folder="/etc/mcp", home=home, variables=variables)


def refused(entry, **options):
    with pytest.raises(ConfigError) as caught:
        judged(entry, **options)

    return caught.value


# --- Which transport --------------------------------------------------------------------------------------------------


def test_an_entry_with_a_command_is_a_child_process():
    """F70: `command` needs no type."""
    entry = {"command": "uvx", "args": ["mcp-server-time", "--utc"], "env": {"TZ": "UTC"}, "cwd": "/srv"}
    expected = StdioServer("uvx", args=["mcp-server-time", "--utc"], env={"TZ": "UTC"}, cwd="/srv")
    assert expected == judged(entry).server
    assert expected == judged({**entry, "type": "stdio"}).server


@pytest.mark.parametrize("key", ["type", "transport"])
@pytest.mark.parametrize(
    ("spelling", "transport"),
    [("http", "http"), ("streamable-http", "http"), ("streamableHttp", "http"), ("sse", "sse")],
)
def test_every_spelling_of_a_remote_transport_is_read(key, spelling, transport):
    """F70: vendors write the same transport in many ways, under two keys."""
    expected = HttpServer("https://example.org/mcp", headers={"X-Team": "a"}, transport=transport)
    entry = {key: spelling, "url": "https://example.org/mcp", "headers": {"X-Team": "a"}}
    assert expected == judged(entry).server


@pytest.mark.parametrize("key", ["url", "serverUrl", "httpUrl"])
def test_every_spelling_of_the_url_is_read_as_http_without_a_type(key):
    """F70: `url` without a type is HTTP, and so are `serverUrl` and `httpUrl`."""
    assert HttpServer("https://example.org/mcp") == judged({key: "https://example.org/mcp"}).server


@pytest.mark.parametrize(
    ("entry", "key", "text"),
    [
        ({}, "command", "neither command nor url"),
        ({"args": []}, "command", "neither command nor url"),
        ({"command": "a", "url": "https://h/"}, "url", "both command and url"),
        ({"command": "a", "httpUrl": "https://h/"}, "httpUrl", "both command and httpUrl"),
        ({"url": "https://h/", "serverUrl": "https://h/"}, "serverUrl", "both url and serverUrl"),
        ({"command": "a", "type": "websocket"}, "type", "type is unknown; write one of stdio"),
        ({"command": "a", "transport": "HTTP"}, "transport", "transport is unknown"),
        ({"command": "a", "type": "http"}, "type", "does not go with command"),
        ({"url": "https://h/", "type": "stdio"}, "type", "does not go with url"),
        ({"url": "https://h/", "type": "http", "transport": "sse"}, "type", "disagree"),
        ({"command": "a", "type": 1}, "type", "type must be a string, not int"),
        ({"command": None}, "command", "command must be a string, not NoneType"),
        ({"command": ""}, "command", "command must not be empty"),
        ({"command": "a\0b"}, "command", "NUL"),
        ({"command": "a", "args": "b c"}, "args", "args must be a list of strings, not str"),
        ({"command": "a", "args": ["b", 8080]}, "args[1]", "args[1] must be a string, not int"),
        ({"command": "a", "env": []}, "env", "env must be an object"),
        ({"command": "a", "env": {"PORT": 8080}}, "env.PORT", "env.PORT must be a string, not int"),
        ({"command": "a", "env": {"X": {"y": "z"}}}, "env.X", "env.X must be a string, not dict"),
        ({"command": "a", "cwd": ""}, "cwd", "cwd must not be empty"),
        ({"command": "a", "cwd": None}, "cwd", "cwd must be a string, not NoneType"),
        ({"url": 5}, "url", "url must be a string, not int"),
        ({"url": ""}, "url", "url must not be empty"),
        ({"url": "ftp://h/"}, "url", "http:// or https://"),
        ({"url": "https://h/", "headers": ["a"]}, "headers", "headers must be an object"),
        ({"url": "https://h/", "headers": {"A": 1}}, "headers.A", "headers.A must be a string, not int"),
        ({"command": "a", "disabled": "true"}, "disabled", "disabled must be true or false, not str"),
        ({"command": "a", "enabled": 1}, "enabled", "enabled must be true or false, not int"),
        ({"command": "a\ud800"}, "command", "surrogate"),
        ([], None, "the entry must be an object, not a list"),
        (None, None, "the entry must be an object, not NoneType"),
    ],
)
def test_an_error_names_the_server_the_key_and_the_mend(entry, key, text):
    """F70: a broken entry says which field is wrong, and nothing is guessed or coerced."""
    error = refused(entry)
    assert "time" == error.server
    assert key == error.key
    assert error.message.startswith("server 'time': ")
    assert text in error.message


@pytest.mark.parametrize("name", ["", "a\0b", "\udfff\ud800"])
def test_a_name_that_no_text_can_hold_is_refused(name):
    """Names go into logs, journals and files."""
    assert "the name" in refused({"command": "a"}, name=name).message


@pytest.mark.parametrize(
    ("place", "expected"),
    [("command", "command"), ("env", "env.TZ"), ("args", "args.1.x"), ("elsewhere", "elsewhere.a.0.b")],
)
def test_a_key_that_stands_twice_is_refused_however_deep(place, expected):
    """Which of the two counts is a matter of taste among parsers, so neither does."""
    twice = JsonObject([("TZ", "UTC"), ("TZ", "CET")])
    deep = JsonObject([("a", [JsonObject([("b", 1), ("b", 1)])])])
    entries = {
        "command": JsonObject([("command", "a"), ("command", "b")]),
        "env": JsonObject([("command", "a"), ("env", twice)]),
        "args": JsonObject([("command", "a"), ("args", ["-v", JsonObject([("x", 1), ("x", 2)])])]),
        "elsewhere": JsonObject([("command", "a"), ("elsewhere", deep)]),
    }
    error = refused(entries[place])
    assert expected == error.key
    assert f"{expected} is written twice" in error.message


# --- Expansion --------------------------------------------------------------------------------------------------------


def expanded(text, **variables):
    return expand("args[0]", text, variables, lambda value: None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${A}", "one"),
        ("${env:A}", "one"),
        ("-${A}-${A}-", "-one-one-"),
        ("${A:-x}", "one"),
        ("${MISSING:-x}", "x"),
        ("${env:MISSING:-x}", "x"),
        ("${MISSING:-}", ""),
        ("${MISSING:-a:-b}", "a:-b"),
        ("${MISSING:-$A}", "$A"),
        ("${EMPTY}", ""),
        ("${EMPTY:-x}", "x"),
        ("${NESTED}", "${A}"),
        ("${NESTED}${A}", "${A}one"),
        ("$A $$ $5 {A} $", "$A $$ $5 {A} $"),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("$${", "${"),
        ("$${A}${A}", "${A}one"),
    ],
)
def test_references_are_replaced_in_a_single_pass(text, expected):
    """F71: values are never read again, `$${X}` is a literal, and every other dollar stays."""
    assert expected == expanded(text, A="one", EMPTY="", NESTED="${A}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${MISSING}", "args[0] needs the variable MISSING, which is not set"),
        ("${env:MISSING}", "args[0] needs the variable MISSING, which is not set"),
        ("${input:token}", "args[0] holds ${input:…}, which is not supported"),
        ("${A", "args[0] holds ${ without a closing }"),
        ("${}", "none of ${VAR}"),
        ("${A-x}", "none of ${VAR}"),
        ("${A?}", "none of ${VAR}"),
        ("${command:x}", "none of ${VAR}"),
        ("${1}", "none of ${VAR}"),
        ("${A:-${B}}", "none of ${VAR}"),
        ("${NUMBER}", "the variable NUMBER must be a string, not int"),
    ],
)
def test_what_begins_like_a_reference_and_is_none_is_an_error(text, expected):
    """F71: sending it as it stands is how literal `Bearer ${TOKEN}` reached servers."""
    with pytest.raises(ConfigError, match=re.escape(expected)):
        expanded(text, A="one", NUMBER=1)


def test_every_field_of_an_entry_is_expanded():
    """F71: command, args, env, cwd, url and headers."""
    local = {"command": "${X}", "args": ["a${X}"], "env": {"${X}": "${X}"}, "cwd": "/srv/${X}"}
    assert StdioServer("x", args=["ax"], env={"${X}": "x"}, cwd="/srv/x") == judged(local, X="x").server
    remote = {"url": "https://${X}.org/", "headers": {"Authorization": "Bearer ${X}"}}
    assert HttpServer("https://x.org/", headers={"Authorization": "Bearer x"}) == judged(remote, X="x").server


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ({"command": "${T}"}, "command"),
        ({"command": "a", "args": ["b", "${T}"]}, "args[1]"),
        ({"command": "a", "env": {"KEY": "${T}"}}, "env.KEY"),
        ({"command": "a", "cwd": "${T}"}, "cwd"),
        ({"url": "${T}"}, "url"),
        ({"serverUrl": "https://${T}/"}, "serverUrl"),
        ({"url": "https://h/", "headers": {"Authorization": "Bearer ${T}"}}, "headers.Authorization"),
    ],
)
def test_an_unset_variable_names_the_field_and_the_variable(entry, key):
    """F71: the error says where, which and what to do."""
    error = refused(entry)
    assert key == error.key
    assert f"{key} needs the variable T, which is not set; set it or write ${{T:-default}}" in error.message


def test_the_values_of_variables_are_the_secrets_longest_first():
    """Whoever shows a command line masks them; defaults stand in the file already and are none."""
    entry = {"command": "${A}", "args": ["${B}${A}", "${C:-plain}", "${EMPTY}"], "env": {"K": "${D:-d}"}}
    assert ("longest", "longer", "l") == judged(entry, A="l", B="longer", D="longest", EMPTY="").secrets
    assert () == judged({"command": "a", "env": {"K": "v"}}).secrets


def test_bytes_that_are_no_utf8_come_in_through_a_variable():
    """The OS hands them over as escapes, and gives them to the child as they were."""
    assert "\udcff" == judged({"command": "a", "env": {"K": "${X}"}}, X="\udcff").server.env["K"]


# --- Paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python3", "python3"),
        ("./server.py", "/etc/mcp/server.py"),
        ("bin/server", "/etc/mcp/bin/server"),
        ("../server", "/etc/mcp/../server"),
        ("/usr/bin/env", "/usr/bin/env"),
        ("~/bin/server", "/home/me/bin/server"),
        ("${B}", "python3"),
        ("${D}/server", "/etc/mcp/~/server"),
    ],
)
def test_a_command_with_a_slash_is_relative_to_the_file(command, expected):
    """F73: without one it is looked up in the PATH, and `~` is read in the file alone, never in a variable's value."""
    assert expected == judged({"command": command}, B="python3", D="~").server.command


@pytest.mark.parametrize(
    ("cwd", "expected"),
    [
        ("/srv", "/srv"),
        ("work", "/etc/mcp/work"),
        (".", "/etc/mcp"),
        ("~", "/home/me"),
        ("~/x", "/home/me/x"),
        ("${H}/x", "/opt/x"),
    ],
)
def test_a_working_folder_is_relative_to_the_file(cwd, expected):
    """F73: absolute, relative and `~/x` all arrive."""
    assert expected == judged({"command": "a", "cwd": cwd}, H="/opt").server.cwd


def test_a_tilde_is_expanded_in_command_and_cwd_only():
    """F73: an argument is the program's own business."""
    server = judged({"command": "~/a", "args": ["~/b"], "env": {"P": "~/c"}, "cwd": "~"}, home="/").server
    assert StdioServer("/a", args=["~/b"], env={"P": "~/c"}, cwd="/") == server


@pytest.mark.parametrize(
    ("cwd", "home", "text"),
    [("~you/x", "/home/me", "only ~/ is known"), ("~/x", None, "home folder is unknown")],
)
def test_a_tilde_that_means_nothing_here_is_an_error(cwd, home, text):
    """It is not left as the name of a folder."""
    error = refused({"command": "a", "cwd": cwd}, home=home)
    assert "cwd" == error.key
    assert text in error.message


def test_a_cwd_that_expands_to_nothing_is_an_error():
    """F73: empty is not the same as not stated."""
    assert "cwd must not be empty" in refused({"command": "a", "cwd": "${X:-}"}).message


# --- Our own settings -------------------------------------------------------------------------------------------------


def test_our_settings_are_the_fields_of_a_server_spec():
    """The contract's section 2: `common` under "deputy", with limits, restart and permissions as objects."""
    deputy = {
        "tools": ["now"],
        "resources": ["file:///a"],
        "prompts": [],
        "required": True,
        "trust_annotations": False,
        "annotations": {"now": {"readOnlyHint": True}},
        "limits": {"call_timeout_seconds": 5, "on_large_result": "spill", "spill_directory": "spill"},
        "restart": {"when": "never"},
        "permissions": {"web": True, "write": "ask", "tool_allowlist": ["time__now"], "tool_denylist": []},
        "protocol": "legacy",
    }
    expected = {
        "tools": ("now",),
        "resources": ("file:///a",),
        "required": True,
        "trust_annotations": False,
        "annotations": {"now": {"readOnlyHint": True}},
        "limits": Limits(call_timeout_seconds=5, on_large_result="spill", spill_directory="/etc/mcp/spill"),
        "restart": RestartPolicy(when="never"),
        "permissions": Permissions(web=True, write="ask", tool_allowlist=["time__now"]),
        "protocol": "legacy",
    }
    assert StdioServer("a", **expected) == judged({"command": "a", "deputy": deputy}).server
    assert HttpServer("https://h/", **expected) == judged({"url": "https://h/", "deputy": deputy}).server


def test_null_says_nothing():
    """`null` is the default of these fields, as it is in the constructor."""
    deputy = {"tools": None, "limits": None, "restart": None, "permissions": None}
    assert StdioServer("a") == judged({"command": "a", "deputy": deputy}).server
    assert StdioServer("a") == judged({"command": "a", "deputy": {}}).server


@pytest.mark.parametrize(
    ("deputy", "key", "text"),
    [
        ([], "deputy", "it must be an object, not a list"),
        ({"tool": []}, "deputy.tool", "'tool' is no key here; did you mean 'tools'"),
        ({"pin_ignore": {"a": ["b"]}}, "deputy.pin_ignore", "is no JSON pointer"),
        ({"x" * 200: 1}, "deputy." + "x" * 80 + "…", "is no key here (known: tools"),
        ({"tools": "now"}, "deputy.tools", "tools must be a list of strings, not str"),
        ({"required": 1}, "deputy.required", "required must be true or false, not int"),
        ({"protocol": "new"}, "deputy.protocol", "protocol must be one of auto"),
        ({"annotations": {"now": {"readOnlyHint": 1}}}, "deputy.annotations.now.readOnlyHint", "true or false"),
        ({"limits": 5}, "deputy.limits", "limits must be an object"),
        ({"limits": {"timeout": 5}}, "deputy.limits.timeout", "limits: 'timeout' is no key here"),
        ({"limits": {"call_timeout_seconds": "5"}}, "deputy.limits.call_timeout_seconds", "must be a number, not str"),
        ({"limits": {"on_large_result": "spill", "spill_directory": 5}}, "deputy.limits.spill_directory", "a string"),
        ({"restart": {"when": "always"}}, "deputy.restart.when", 'when must be "on_loss" or "never"'),
        ({"permissions": {"write": "yes"}}, "deputy.permissions.write", "permissions: write must be"),
        ({"permissions": {"can_use_tool": None}}, "deputy.permissions.can_use_tool", "is no key here"),
        ({"permissions": True}, "deputy.permissions", "permissions must be an object"),
    ],
)
def test_a_wrong_setting_of_ours_is_an_error_that_says_where(deputy, key, text):
    """A misspelt restriction must not become none: unknown keys inside "deputy" are errors."""
    error = refused({"command": "a", "deputy": deputy})
    assert key == error.key
    assert text in error.message


# --- Other programs' keys ---------------------------------------------------------------------------------------------


def test_keys_that_widen_trust_elsewhere_grant_nothing():
    """F70: they are reported by name, and the spec is the one without them."""
    entry = {"command": "a", "autoApprove": ["*"], "always_allow": ["x"], "trust": True, "alwaysAllow": []}
    found = judged(entry)
    assert StdioServer("a") == found.server
    assert ("autoApprove", "always_allow", "trust") == found.ungranted
    assert () == found.unheeded


def test_restrictions_that_have_no_effect_where_they_stand_are_reported():
    """A list that another program would obey, or our own setting beside "deputy", is not dropped in silence."""
    entry = {"command": "a", "disabledTools": ["rm"], "excludeTools": [], "tools": [], "trust_annotations": False}
    assert ("disabledTools", "tools", "trust_annotations") == judged(entry).unheeded
    assert () == judged({"command": "a", "tools": ["*"]}).unheeded


def test_other_keys_are_passed_over():
    """F70: `timeout`, `description` and the like are no error."""
    entry = {"command": "a", "timeout": 5, "description": "d", "icon": None, "disabled": False, "enabled": True}
    found = judged(entry)
    assert (StdioServer("a"), (), ()) == (found.server, found.ungranted, found.unheeded)


# --- What is never shown ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    [
        {"url": "https://u:${S}@h:${S}/"},
        {"url": "https://[${S}/"},
        {"url": "${S}"},
        {"url": f"https://h:{SECRET}/"},
        {"url": f"https://h/{SECRET}", "headers": {f"Authorization: Bearer {SECRET}": ""}},
        {"url": "https://h/", "headers": {"A": "${S}\n"}},
        {"command": "a", "env": {f"KEY={SECRET}": ""}},
        {"command": "${S}\0"},
        {"command": "a", "args": ["${S}\ud800"]},
        {"command": "a", "cwd": "~${S}"},
        {"command": "${S}", "url": SECRET},
        {"command": "${S}", "type": SECRET},
        {"command": "a", "args": ["${S}", f"${{{SECRET}!}}"]},
        {"command": "a", "args": SECRET},
        {"command": "${S}", "deputy": {"protocol": SECRET}},
        {"command": "${S}", "deputy": {"limits": {"on_large_result": SECRET}}},
        {"command": "${S}", "deputy": {"permissions": {"web": SECRET}}},
    ],
)
def test_a_value_never_stands_in_an_error(entry):
    """F71: whatever is wrong, the text names fields; a value may be a secret, expanded or written out."""
    error = refused(entry, S=SECRET)
    assert SECRET not in error.diagnostics()
    assert SECRET not in repr(error)
    assert error.__cause__ is None


def test_a_judged_entry_shows_nothing_in_its_repr():
    """A repr ends up in logs."""
    assert SECRET not in repr(judged({"command": "a", "args": ["${S}"]}, S=SECRET))


KEYS = (
    *("command", "args", "env", "cwd", "url", "headers", "type", "transport", "deputy", "disabled", "limits"),
    *("restart", "permissions", "tools", "annotations", "required", "protocol", "write", "call_timeout_seconds"),
    *("when", "spill_directory", "trust"),
)


@given(
    shape=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("${S}"),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(KEYS) | st.text(max_size=8),
                inner,
                max_size=5,
            )
        ),
        max_leaves=12,
    ),
    base=st.sampled_from([{}, {"command": "${S}"}, {"url": "https://${S}.org/"}, {"url": "https://h:${S}/"}]),
)
@example(shape={"limits": {"call_timeout_seconds": float("inf")}}, base={})
def test_any_json_is_judged_or_refused_and_no_secret_is_shown(shape, base):
    """Nothing but a `ConfigError` comes out, and no expanded value stands in it."""
    for entry in ({**base, **shape} if isinstance(shape, dict) else shape, {**base, "deputy": shape}):
        with suppress(ConfigError):
            assert SECRET not in repr(judged(entry, S=SECRET))
            continue

        assert SECRET not in refused(entry, S=SECRET).diagnostics()


@given(text=st.text(alphabet="${}:-AB env\\\n", max_size=30), value=st.text(max_size=10))
def test_expansion_gives_a_text_or_a_config_error(text, value):
    """Whatever the text, and the values are put in as they are."""
    with suppress(ConfigError):
        assert isinstance(expanded(text, A=value.replace("\0", "")), str)


# --- The words of an error --------------------------------------------------------------------------------------------


def test_names_in_an_error_are_escaped_and_bounded():
    """A name comes from a file: it must not reorder a terminal's line or fill the screen."""
    assert r"'a\u202eb'" == shown("a\u202eb")
    assert MAX_SHOWN_CHARACTERS + 3 == len(shown("x" * 1_000_000))
    assert "none" == listed([])
    assert "'0', '1'" == listed(["0", "1"])
    assert listed(map(str, range(MAX_SHOWN_NAMES + 5))).endswith("'19' and 5 more")


def test_likeness_is_looked_for_among_short_names_only():
    """It is quadratic: two long names would take minutes."""
    assert "; did you mean 'tools'?" == nearest("tool", ["tools", "limits"])
    assert "" == nearest("x" * 100_000, ["x" * 100_001, "tools"])
    assert "" == nearest("zzz", ["x" * 100_001, "tools"])


def test_a_placed_error_keeps_what_it_knew():
    """The inner server and path win over the outer ones."""
    with pytest.raises(ConfigError) as caught, placed("outer", server="b", path="/b"), placed("inner", under="u"):
        raise ConfigError("text", server="a", key="k")

    assert ("outer: inner: text", "a", "u.k", "/b") == (
        caught.value.message,
        caught.value.server,
        caught.value.key,
        caught.value.path,
    )
