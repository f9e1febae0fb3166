"""`load_config` on real files: finding, reading, the three forms, choosing servers, and what no file may cause."""

import json
import os
import time
import warnings
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deputy_mcp._core.config import HttpServer, StdioServer
from deputy_mcp._core.errors import ConfigError, DeputyWarning
from deputy_mcp._core.permissions import Permissions
from deputy_mcp._runtime.configfile import (
    MAX_CONFIG_BYTES,
    MAX_CONFIG_DEPTH,
    PATH_VARIABLE,
    Config,
    load_config,
    parse_jsonc,
)

SECRET = "hunter2-correct-horse"


@pytest.fixture
def write(tmp_path):
    """Write a file (text, bytes, or a value as JSON) and return its path."""

    def write(content, name="mcp.json"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(content, str | bytes):
            content = json.dumps(content)

        file.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
        return file

    return write


def refused(path=None, servers=None, **options):
    with pytest.raises(ConfigError) as caught:
        load_config(path, servers, env=options.pop("env", {}), **options)

    return caught.value


# --- The three forms --------------------------------------------------------------------------------------------------

ENTRIES = {"time": {"command": "uvx", "args": ["mcp-server-time"]}, "docs": {"url": "https://example.org/mcp"}}
SPECS = {"time": StdioServer("uvx", args=["mcp-server-time"]), "docs": HttpServer("https://example.org/mcp")}


@pytest.mark.parametrize(
    "document",
    [
        {"mcpServers": ENTRIES},
        {"mcpServers": ENTRIES, "theme": "dark", "numStartups": 3},
        {"servers": ENTRIES, "inputs": [{"id": "token", "type": "promptString"}]},
        ENTRIES,
        {"$schema": "https://example.org/schema.json", **ENTRIES},
        {"deputy": {}, **ENTRIES},
    ],
)
def test_the_three_forms_give_the_same_servers(write, document):
    """Claude's `mcpServers`, VS Code's `servers` and the bare map; what else stands beside them is no error."""
    config = load_config(write(document), env={})
    assert SPECS == config
    assert ["time", "docs"] == list(config)


@pytest.mark.parametrize("document", [{}, {"mcpServers": {}}, {"servers": {}}, {"deputy": {}}])
def test_no_servers_are_an_empty_config(write, document):
    """It is what the file says."""
    assert {} == load_config(write(document), env={})


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([], "the top level must be an object"),
        ('"x"', "the top level must be an object"),
        (None, "the top level must be an object"),
        ({"mcpServers": []}, "mcpServers must be an object of server names and entries, not a list"),
        ({"servers": None}, "servers must be an object of server names and entries, not NoneType"),
        ({"mcpServers": {}, "servers": {}}, "both 'mcpServers', 'servers' are given; keep one"),
        ({"theme": "dark", "editor": {}}, "unlike 'theme'; put the servers under \"mcpServers\""),
        ('{"mcpServers": {}, "mcpServers": {}}', '"mcpServers" is written twice'),
        ('{"deputy": {}, "deputy": {}}', '"deputy" is written twice'),
    ],
)
def test_a_file_without_readable_servers_is_refused_as_a_whole(write, document, text):
    """A settings file of another kind is not read as one without servers."""
    file = write(document)
    error = refused(file)
    assert error.message.startswith(f"{file}: ")
    assert text in error.message
    assert str(file) == error.path


def test_a_config_is_a_frozen_mapping_with_a_status_line_for_a_repr(write):
    """It is read-only and shows names, never a command line."""
    file = write({"time": {"command": "${S}"}})
    config = load_config(file, env={"S": SECRET})
    assert isinstance(config, Config)
    assert file == config.path
    assert f"<Config {str(file)!r}: 'time'>" == repr(config)
    with pytest.raises(TypeError):
        config["other"] = config["time"]

    with pytest.raises(AttributeError):
        config.path = file

    with pytest.raises(KeyError):
        config["other"]


# --- Finding the file -------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home folder of this process, and a current folder that holds a tempting file."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv(PATH_VARIABLE, raising=False)
    (tmp_path / "clone").mkdir()
    monkeypatch.chdir(tmp_path / "clone")
    for name in ("config.json", "mcp.json", ".mcp.json", "deputy-mcp/config.json", ".vscode/mcp.json"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text('{"mcpServers": {"evil": {"command": "evil"}}}')

    return home


def own_place():
    import platformdirs

    return Path(platformdirs.user_config_dir("deputy-mcp", appauthor=False), "config.json")


def test_without_any_file_the_error_lists_where_it_looked(home):
    """A file in the current folder is never picked up: a cloned repository must not start commands."""
    error = refused()
    for place in (f"${PATH_VARIABLE} (not set)", str(own_place()), str(home / ".config/mcptools/config.json")):
        assert place in error.message

    # A home folder that is not known is no place to look in, least of all under the current one.
    assert "mcptools" not in refused(env={"HOME": "clone"}).message


def test_the_default_places_are_tried_in_order(home):
    """The variable, then our folder, then mcptools'."""
    file = home / ".config/mcptools/config.json"
    places = [home / "named.json", own_place(), file]
    for i, place in reversed(list(enumerate(places))):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps({f"server{i}": {"command": "a"}}))
        env = {PATH_VARIABLE: str(place)} if i == 0 else {}
        config = load_config(env=env)
        assert [f"server{i}"] == list(config)
        assert place == config.path


def test_a_default_file_that_cannot_be_read_is_not_passed_over(home):
    """An unreadable file is not an absent one: the next place would be another configuration."""
    place = own_place()
    place.parent.mkdir(parents=True)
    place.symlink_to(home / "gone.json")
    (home / ".config/mcptools").mkdir(parents=True, exist_ok=True)
    (home / ".config/mcptools/config.json").write_text("{}")
    error = refused()
    assert f"{place}: there is no such file" in error.message


def test_the_variable_is_found_in_the_process_too_and_is_final(write, monkeypatch):
    """A file that was named is looked for nowhere else."""
    monkeypatch.setenv(PATH_VARIABLE, str(write(ENTRIES)))
    assert SPECS == load_config(env={})
    assert "no such file" in refused(env={PATH_VARIABLE: "/nonexistent/mcp.json"}).message


def test_a_path_may_be_relative_and_begin_with_a_tilde(write, monkeypatch, tmp_path):
    """`Config.path` is absolute either way, and paths in the file are its folder's, not the current one's."""
    write({"a": {"command": "./run", "cwd": "work"}}, name="deep/mcp.json")
    monkeypatch.chdir(tmp_path)
    for path in ("deep/mcp.json", Path("deep/mcp.json"), "~/deep/mcp.json"):
        config = load_config(path, env={"HOME": str(tmp_path)})
        assert tmp_path / "deep/mcp.json" == config.path
        assert StdioServer(str(tmp_path / "deep/run"), cwd=str(tmp_path / "deep/work")) == config["a"]


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", 5, b"mcp.json"])
def test_a_path_that_is_none_is_refused(path):
    """It neither becomes the default nor an error of the OS."""
    assert "path" == refused(path).key


def test_a_current_folder_that_is_gone_is_an_error_of_the_path(tmp_path, monkeypatch):
    """A relative path means nothing there."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "current folder is gone" in refused("mcp.json").message


# --- Reading it -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "it is empty"),
        (b"\xef\xbb\xbf \n", "it is empty"),
        (b'{"a": "\xff"}', "it is not UTF-8 (byte 7)"),
        ('{"a": {}}'.encode("utf-16"), "it is not UTF-8"),
        (b"{}" + b" " * MAX_CONFIG_BYTES, f"larger than {MAX_CONFIG_BYTES} bytes"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": -Infinity}', "-Infinity is no number"),
        (b"// nothing but this", "it is not JSON"),
        (b'{"a": {}} {"b": {}}', "line 1, column 11: it is not JSON"),
        (b'{"a": "unterminated', "line 1, column 7: it is not JSON"),
        (b"[,]", "line 1, column 2: it is not JSON"),
        (b'{"a": {},,}', "it is not JSON"),
    ],
)
def test_a_file_that_is_no_json_is_refused(write, content, text):
    """F69: refused with the place, and never silently empty."""
    file = write(content)
    error = refused(file)
    assert error.message.startswith(f"{file}: ")
    assert text in error.message


def test_a_file_that_cannot_be_opened_is_refused(tmp_path):
    """A folder, a missing file, a path through a file: each says what it is."""
    (tmp_path / "file").write_text("{}")
    assert "it is a folder" in refused(tmp_path).message
    assert "there is no such file" in refused(tmp_path / "gone").message
    assert "it cannot be read: Not a directory" in refused(tmp_path / "file" / "mcp.json").message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_to_read_it_is_refused(write):
    """An unreadable file is not an empty one."""
    file = write(ENTRIES)
    file.chmod(0)
    assert "it cannot be read: Permission denied" in refused(file).message


def test_an_endless_file_is_read_up_to_the_limit():
    """A path can turn out to be a device."""
    assert "larger than" in refused("/dev/zero").message


# --- Comments ---------------------------------------------------------------------------------------------------------


def test_comments_trailing_commas_and_a_byte_order_mark_are_read(write):
    """F69: strings are untouched, even where they look like comments."""
    text = """\ufeff// the servers
    {
        "mcpServers": { /* a
            block */
            // "off": {"command": "rm"},
            "docs": {"url": "https://example.org//mcp", /* here */},
            "time": {"command": "a", "args": ["/* no */", "a,]", "\\"//", "\\\\",], "env": {"X": "y, }",},},
        },
    } // the end"""
    expected = {
        "docs": HttpServer("https://example.org//mcp"),
        "time": StdioServer("a", args=["/* no */", "a,]", '"//', "\\"], env={"X": "y, }"}),
    }
    assert expected == load_config(write(text), env={})


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('// one\n/* two\nthree */ {"a": tru}', 3, 16),
        ('{"a": [1, 2,], // x\n  /* y */ b}', 2, 11),
        ('{\n  "a": 1 /* never', 2, 10),
        ("{\n /*/", 2, 2),
        ('{"a": 1 / 2}', 1, 9),
        ("\n" + "[" * (MAX_CONFIG_DEPTH + 1), 2, MAX_CONFIG_DEPTH + 1),
    ],
)
def test_an_error_gives_the_position_in_the_file_itself(text, line, column):
    """F69: comments before it do not move it."""
    with pytest.raises(ConfigError, match=rf"^line {line}, column {column}: "):
        parse_jsonc(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"a":' * 200_000,
        '{"a": ' + "9" * 200_000 + "}",
        '{"a": 1e' + "9" * 200_000 + "}",
        '"' + '\\"' * 200_000,
        '"' * 200_001,
        "/*" * 200_000,
        "/" * 200_000,
        "," * 200_000,
        "[" + "1, " * 200_000,
        '{"a": {"command": "x"}' + " // y\n" * 100_000 + "}",
        '{"mcpServers": {' + ", ".join(f'"s{i}": {{}}' for i in range(20_000)) + "}}",
    ],
    ids=lambda text: text[:12],
)
def test_reading_is_linear_and_never_a_recursion_error(write, text):
    """Deep nesting, long numbers and half-open strings or comments cost no more than their length."""
    file = write(text)
    started = time.process_time()
    with suppress(ConfigError):
        load_config(file, ["a"], env={})

    assert time.process_time() - started < 5


def test_a_deep_file_is_refused_whatever_the_callers_stack(write):
    """The limit is ours, so the answer does not depend on who asks."""
    deep = {"a": {"command": "x"}, "b": {}}
    for _ in range(MAX_CONFIG_DEPTH - 2):
        deep["b"] = {"c": deep["b"]}

    assert StdioServer("x") == load_config(write(deep), ["a"], env={})["a"]
    deep["b"] = {"c": deep["b"]}
    assert f"deeper than {MAX_CONFIG_DEPTH}" in refused(write(deep), ["a"]).message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
GAPS = st.sampled_from(["", " ", "\n", "/**/", "/* a, ] */", "// b, }\n", "/*/ c */", '/* " */', '// "\n', "/***/"])


@given(value=JSON, gaps=st.lists(GAPS, min_size=1, max_size=8), comma=st.booleans())
def test_comments_and_trailing_commas_change_no_value(value, gaps, comma):
    """F69: for any value, written with any of them between its tokens."""
    count = 0

    def gap():
        nonlocal count
        count += 1
        return gaps[count % len(gaps)]

    def written(value):
        match value:
            case dict():
                items = [f"{gap()}{json.dumps(key)}{gap()}:{written(item)}" for key, item in value.items()]
                text = "{" + ",".join(items) + ("," if comma and items else "") + gap() + "}"
            case list():
                text = "[" + ",".join(map(written, value)) + ("," if comma and value else "") + gap() + "]"
            case _:
                text = json.dumps(value, ensure_ascii=comma)

        return gap() + text + gap()

    assert value == parse_jsonc(written(value))


# --- Choosing servers -------------------------------------------------------------------------------------------------

MIXED = {
    "good": {"command": "a"},
    "Good": {"url": "https://h/"},
    "broken": {"command": "${UNSET}"},
    "worse": 5,
    "off": {"command": "a", "disabled": True},
    "also-off": {"enabled": False},
    "asks": {"command": "a", "env": {"KEY": "${input:key}"}},
}


def test_only_the_named_servers_are_judged(write):
    """A broken entry nobody asked for blocks nothing."""
    file = write({"mcpServers": MIXED})
    assert {"good": StdioServer("a")} == load_config(file, ["good"], env={})
    assert ["Good", "good"] == list(load_config(file, ("Good", "good", "Good"), env={}))
    assert {} == load_config(file, [], env={})


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["broken"], "server 'broken': command needs the variable UNSET"),
        (["worse"], "server 'worse': the entry must be an object, not int"),
        (["off"], "server 'off' is disabled; enable it"),
        (["also-off"], "server 'also-off' is disabled"),
        (["asks"], "server 'asks': env.KEY holds ${input:…}, which is not supported"),
        (["goods"], "there is no server 'goods'; did you mean 'good' or 'Good'? (known: 'good', 'Good', 'broken'"),
        (["good", "GOOD"], "there is no server 'GOOD'"),
        (["go*"], "there is no server 'go*'"),
    ],
)
def test_an_error_of_a_named_server_names_file_and_server(write, names, text):
    """Names match exactly; unknown and disabled ones are errors, and the known are listed."""
    file = write({"mcpServers": MIXED})
    error = refused(file, names)
    assert error.message.startswith(f"{file}: ")
    assert text in error.message
    assert names[-1] == error.server
    assert str(file) == error.path


def test_without_names_every_server_that_is_not_disabled_is_judged(write):
    """F70: `disabled: true` is honoured, and a broken one is not left out in silence."""
    assert ["a"] == list(load_config(write({"a": {"command": "a"}, "b": {"disabled": True}}), env={}))
    assert "broken" == refused(write({"mcpServers": MIXED})).server


@pytest.mark.parametrize("names", ["good", 5, [5], {"good": True}])
def test_names_are_a_list_of_strings(write, names):
    """A bare string would be its letters."""
    assert "servers" in refused(write({"mcpServers": MIXED}), names).message


@pytest.mark.parametrize("form", ['{{"mcpServers": {{{}}}}}', "{{{}}}"])
def test_two_servers_of_one_name_are_refused_when_it_is_asked_for(write, form):
    """The last would win without a word, and the other be the one that was meant."""
    file = write(form.format('"a": {"command": "x"}, "b": {"command": "x"}, "a": {"command": "y"}'))
    assert ["b"] == list(load_config(file, ["b"], env={}))
    assert "two servers are named 'a'" in refused(file, ["a"]).message
    assert "a" == refused(file).server


def test_a_key_written_twice_is_refused_in_the_named_entry(write):
    """The contract: a duplicate key is an error for the named servers only."""
    file = write('{"a": {"command": "x", "env": {"K": "1", "K": "2"}}, "b": {"command": "x"}}')
    assert ["b"] == list(load_config(file, ["b"], env={}))
    assert "env.K" == refused(file, ["a"]).key


# --- Settings and warnings --------------------------------------------------------------------------------------------


def test_permissions_at_the_top_are_the_constructors_fields(write):
    """They are `Permissions`, for all servers of the file; without them the file says nothing."""
    document = {"mcpServers": ENTRIES, "deputy": {"permissions": {"web": True, "write": "ask"}}}
    assert Permissions(web=True, write="ask") == load_config(write(document), env={}).permissions
    assert load_config(write(ENTRIES), env={}).permissions is None


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"deputy": 5}', "deputy"),
        ('{"deputy": {"permission": {}}}', "deputy.permission"),
        ('{"deputy": {"pins": 5}}', "deputy.pins"),
        ('{"deputy": {"journal": {"pth": "j"}}}', "deputy.journal.pth"),
        ('{"deputy": {"permissions": {"wriet": false}}}', "deputy.permissions.wriet"),
        ('{"deputy": {"permissions": {"write": 1}}}', "deputy.permissions.write"),
        ('{"deputy": {"permissions": {"write": false, "write": true}}}', "deputy.permissions.write"),
    ],
)
def test_wrong_settings_at_the_top_are_errors_whoever_is_asked_for(write, text, key):
    """A misspelt restriction must not become none."""
    assert key == refused(write(text), []).key


def test_keys_that_grant_trust_elsewhere_are_said_once_and_grant_nothing(write):
    """F70: the warning names file, server and keys, and no value; a server nobody asked for warns of nothing."""
    entry = {"command": "a", "autoApprove": [SECRET], "alwaysAllow": ["x"], "disabledTools": [SECRET]}
    file = write({"a": entry, "b": {"command": "b", "trust": True}, "c": {"command": "c"}})
    with pytest.warns(DeputyWarning) as caught:
        config = load_config(file, ["a", "c"], env={})

    assert StdioServer("a") == config["a"]
    assert [__file__] == [warning.filename for warning in caught]
    assert str(caught[0].message).startswith(f"{file}: server 'a': 'autoApprove', 'alwaysAllow' grants nothing here")
    assert "'disabledTools' has no effect here" in str(caught[0].message)
    assert SECRET not in str(caught[0].message)


# --- Variables --------------------------------------------------------------------------------------------------------


def test_variables_come_from_the_process_unless_they_are_given(write, monkeypatch):
    """`env=` replaces the process's environment for `${VAR}`."""
    file = write({"a": {"command": "a", "env": {"KEY": "${DEPUTY_TEST_KEY}"}}})
    monkeypatch.setenv("DEPUTY_TEST_KEY", SECRET)
    assert SECRET == load_config(file)["a"].env["KEY"]
    assert "env.KEY needs the variable DEPUTY_TEST_KEY" in refused(file, env={}).message


def test_the_values_of_variables_are_kept_per_server_for_masking(write):
    """They can stand in command lines and URLs, which are shown."""
    local, remote = {"command": "a", "args": ["--key", "${K}"]}, {"url": "https://h/${K}/${L}"}
    file = write({"a": local, "b": remote, "c": ENTRIES["time"]})
    config = load_config(file, env={"K": SECRET, "L": "x"})
    assert {"a": (SECRET,), "b": (SECRET, "x"), "c": ()} == config.secrets
    assert SECRET not in repr(config.secrets)


# --- Whatever the bytes -----------------------------------------------------------------------------------------------


def load_any(folder, content):
    """A Config or a ConfigError's text, for any bytes; anything else propagates."""
    file = folder / "any.json"
    file.write_bytes(content)
    for names in (None, ["a"]):
        with warnings.catch_warnings(), suppress(ConfigError):
            warnings.simplefilter("ignore", DeputyWarning)
            assert SECRET not in repr(load_config(file, names, env={"S": SECRET}))
            continue

        error = refused(file, names, env={"S": SECRET})
        assert SECRET not in error.diagnostics()
        assert str(file) == error.path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("any")


FRAGMENTS = st.sampled_from(
    (
        *(
            '{"mcpServers":',
            '{"a":',
            '"command":',
            '"url":',
            '"${S}"',
            '"https://h:${S}/"',
            '"',
            "\\",
            "//",
            "/*",
            "*/",
        ),
        *("[", "]", "{", "}", ",", ":", "null", "1e999", "NaN", "\ufeff", "\\ud800", "\n", '"deputy":', '"env":'),
    )
)


@settings(deadline=None)  # each example writes a file
@given(content=st.binary(max_size=200) | st.lists(FRAGMENTS, max_size=20).map(lambda parts: "".join(parts).encode()))
@example(content=b'{"a": {"command": "\\ud800"}}')
@example(content=b'{"\\ud800": {"command": "x"}}')
def test_any_bytes_are_a_config_or_a_config_error(folder, content):
    """Nothing else comes out of a file."""
    load_any(folder, content)


ENTRY_KEYS = st.sampled_from(
    ["command", "args", "env", "cwd", "url", "headers", "type", "deputy", "limits", "permissions", "disabled", "trust"]
)
SHAPES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6) | st.just("a${S}"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ENTRY_KEYS | st.text(max_size=4), inner, max_size=4),
    max_leaves=10,
)


@settings(deadline=None)  # each example writes a file
@given(value=SHAPES | SHAPES.map(lambda entry: {"a": entry}) | SHAPES.map(lambda entry: {"servers": {"a": entry}}))
@example(value={"a": {"command": "x", "deputy": {"limits": {"call_timeout_seconds": 10**400}}}})
def test_any_json_is_a_config_or_a_config_error(folder, value):
    """Nothing else comes out, and no expanded value stands in an error."""
    load_any(folder, json.dumps(value).encode("utf-8", "surrogatepass"))
