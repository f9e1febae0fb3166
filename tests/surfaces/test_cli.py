"""The command line: exit codes, JSON, plain text, wrong input, secrets, escape sequences, Ctrl-C.

Most run in this process; what is about pipes, signals and the environment runs in one of its own.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from conftest import Scene

from deputy_mcp.testing import ScriptedServer, die, fail, hold, reply, silence, tool, write_stderr

Command = Callable[..., tuple[int, str, str]]
Process = Callable[..., "subprocess.Popen[bytes]"]

FINE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
SECRET = "hunter2-correct-horse"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What a terminal may obey, and what turns a line around; tab and newline are plain."""
ATTACK = "a\x1b[31mb\x1b]0;owned\x07c\x9b2Jd\u202ee\rf\x00g"
"""Colour, window title, the one-byte CSI, an override of direction, a carriage return, a NUL."""


# -- exit codes and output -------------------------------------------------------------------------------------------


def test_check_prints_each_tool_with_its_verdict(place: Scene, command: Command) -> None:
    """Servers, then tools with declared hints, effects, findings and verdict; exit code 0 when all are ready."""
    code, out, err = command("check", "--config", place.config(s=place.scripted()))

    assert (FINE, "") == (code, err)
    rows = [re.split(r"  +", line) for line in out.splitlines() if line]
    assert ["server", "state", "protocol", "tools", "last error"] == rows[0]
    assert ["s", "ready", "2026-07-28", "2", "-"] == rows[1]
    assert ["server", "tool", "declared", "effects", "findings", "verdict"] == rows[2]
    assert ["s", "echo", "+R -O", "reads", "-", "allow"] == rows[3]
    assert ["s", "change", "-", "writes, destructive, open-world", "-", "deny (web)"] == rows[4]


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        ((), ("deny", "web")),
        (("--web",), ("deny", "write")),
        (("--web", "--ask-write"), ("ask", "write")),
        (("--web", "--write"), ("allow", "allowed")),
    ],
)
def test_checks_options_set_the_permissions(
    place: Scene, command: Command, options: tuple[str, ...], verdict: tuple[str, str]
) -> None:
    """The verdict is that of the permissions given on the line."""
    _, out, _ = command("check", "--json", *options, "--config", place.config(s=place.scripted()))
    (change,) = (one for one in json.loads(out)["tools"] if one["tool"] == "change")

    assert verdict == (change["verdict"], change["code"])


def test_checks_verdicts_know_the_files_permissions(place: Scene, command: Command) -> None:
    """Those of the file and of each server count, as they will for an agent."""
    config = place.config(deputy={"permissions": {"tool_denylist": ["s__echo"]}}, s=place.scripted())
    _, out, _ = command("check", "--json", "--config", config)

    assert ["tool_denylist", "web"] == [one["code"] for one in json.loads(out)["tools"]]


def test_check_fails_when_a_server_is_not_ready_and_says_why(place: Scene, command: Command) -> None:
    """Exit code 1; the good server's tools are printed all the same."""
    config = place.config(s=place.scripted(), absent={"command": "no-such-server"})
    code, out, _ = command("check", "--config", config)

    assert FAILED == code
    assert "no-such-server" in out
    assert "echo" in out


@pytest.mark.parametrize("line", [("check",), ("check", "--json"), ("call", "s", "echo")], ids=" ".join)
def test_a_required_server_that_does_not_start_is_an_error(
    place: Scene, command: Command, line: tuple[str, ...]
) -> None:
    """Exit code 1 and a line on stderr that names it, as for every error."""
    required = {"command": "no-such-server", "deputy": {"required": True, "restart": {"when": "never"}}}
    name, *names = line
    code, _, err = command(name, "--config", place.config(s=required), *names)

    assert FAILED == code
    assert err.startswith("error: ")
    assert "no-such-server" in err


@pytest.mark.parametrize("line", [("check",), ("check", "--json"), ("call", "crash", "echo")], ids=" ".join)
def test_what_a_server_said_before_it_died_is_shown(place: Scene, command: Command, line: tuple[str, ...]) -> None:
    """ "The token is missing" stands on its stderr; "exit code 1" alone helps nobody."""
    never = {"restart": {"when": "never"}}
    crash = {"command": sys.executable, "args": ["-c", "raise SystemExit('the licence has expired')"], "deputy": never}
    name, *names = line
    code, out, err = command(name, "--config", place.config(crash=crash), *names)

    assert FAILED == code
    assert "the licence has expired" in out + err


def test_check_names_the_refused_tools(place: Scene, command: Command) -> None:
    """A malformed tool is refused with code and reason; the others stay and the exit code is that of the servers."""
    tools = [tool("echo"), {"name": "bad"}, tool(ATTACK)]
    code, out, _ = command("check", "--config", place.config(s=place.scripted(tools=tools)))

    assert FINE == code
    assert re.search(r"^s +bad +\w+ ", out, re.MULTILINE)
    assert not UNSAFE.search(out)


def test_check_of_named_servers_starts_only_those(place: Scene, command: Command) -> None:
    """Exact names; the others are not even judged."""
    a, b = (place.scripted(name) for name in "ab")
    code, out, _ = command("check", "--json", "--config", place.config(a=a, b=b, broken={"url": 5}), "a")

    assert (FINE, {"a"}) == (code, json.loads(out)["servers"].keys())
    assert [] == b.pids()


def test_checks_json_is_one_document(place: Scene, command: Command) -> None:
    """With what a program asks of servers and tools; failures are in it and not between its lines."""
    config = place.config(s=place.scripted(tools=[tool("echo"), {"name": "bad"}]), absent={"command": "no-such-server"})
    code, out, _ = command("check", "--json", "--config", config)
    document = json.loads(out)

    assert FAILED == code
    assert "ready" == document["servers"]["s"]["state"]
    assert {"bad"} == document["servers"]["s"]["refused"].keys()
    assert "no-such-server" in document["servers"]["absent"]["last_error"]
    (echo,) = document["tools"]
    assert ("s__echo", "s", "echo", "allow", True) == (
        *(echo[key] for key in ("name", "server", "tool", "verdict")),
        echo["effects"]["read_only"],
    )


def test_call_prints_the_text_and_nothing_else(place: Scene, command: Command) -> None:
    """So that it can be piped into something."""
    server = place.scripted(calls={"echo": reply("one\ntwo")})
    assert (FINE, "one\ntwo\n", "") == command("call", "--config", place.config(s=server), "s", "echo", '{"x": 1}')
    assert [{"x": 1}] == [entry["arguments"] for entry in server.ledger("ran")]


def test_call_without_arguments_sends_an_empty_object(place: Scene, command: Command) -> None:
    """JSON is optional."""
    server = place.scripted()
    assert FINE == command("call", "--config", place.config(s=server), "s", "echo")[0]
    assert [{}] == [entry["arguments"] for entry in server.ledger("ran")]


def test_calls_json_is_one_document(place: Scene, command: Command) -> None:
    """The text, the structured content, and what happened to them."""
    result = {"content": [{"type": "text", "text": "ä"}], "structuredContent": {"n": 1}, "isError": False}
    server = place.scripted(calls={"echo": reply(result=result)})
    code, out, _ = command("call", "--json", "--config", place.config(s=server), "s", "echo")
    document = json.loads(out)

    assert FINE == code
    assert ("ä", {"n": 1}, False, False, []) == tuple(
        document[key] for key in ("text", "structured_content", "is_error", "truncated", "findings")
    )


def test_a_tool_that_reports_its_own_failure_gives_exit_code_1(place: Scene, command: Command) -> None:
    """Its text is printed as its answer, in JSON with `is_error`."""
    server = place.scripted(
        calls={"echo": reply(result={"content": [{"type": "text", "text": "no"}], "isError": True})}
    )
    config = place.config(s=server)

    assert (FAILED, "no\n") == command("call", "--config", config, "s", "echo")[:2]
    code, out, _ = command("call", "--json", "--config", config, "s", "echo")
    assert (FAILED, True) == (code, json.loads(out)["is_error"])


def test_a_refused_call_gives_exit_code_1_and_sends_nothing(place: Scene, command: Command) -> None:
    """The error is on stderr with its code; granted, the same call goes out."""
    server = place.scripted()
    code, out, err = command("call", "--config", place.config(s=server), "s", "change")

    assert (FAILED, "", 0) == (code, out, server.runs("change"))
    assert "code: web" in err
    granted = command("call", "--web", "--write", "--config", place.config(s=server), "s", "change")
    assert (FINE, 1) == (granted[0], server.runs("change"))


def test_a_refusal_names_the_options_that_would_grant_it(place: Scene, command: Command) -> None:
    """In the words of the command line, which a person at it can type."""
    _, _, err = command("call", "--config", place.config(s=place.scripted()), "s", "change")

    assert "--web" in err
    assert "--write" in err


def test_a_call_that_would_have_to_be_asked_for_is_refused_on_a_pipe(place: Scene, command: Command) -> None:
    """There is nobody to ask: nothing is sent."""
    server = place.scripted()
    options = ("--web", "--ask-write", "--config", place.config(s=server))
    code, out, err = command("call", *options, "s", "change")

    assert (FAILED, "", 0) == (code, out, server.runs("change"))
    assert "code: no_approver" in err


def test_a_call_to_a_server_that_does_not_start_gives_exit_code_1(place: Scene, command: Command) -> None:
    """It is said, within the deadline."""
    config = place.config(s={"command": "no-such-server", "deputy": {"restart": {"when": "never"}}})
    code, out, err = command("call", "--timeout", "5", "--config", config, "s", "echo")

    assert (FAILED, "") == (code, out)
    assert "no-such-server" in err


def test_a_call_that_takes_too_long_gives_exit_code_1(place: Scene, command: Command) -> None:
    """`--timeout` is the call's deadline."""
    server = place.scripted(calls={"echo": silence()})
    code, out, err = command("call", "--timeout", "1", "--config", place.config(s=server), "s", "echo")

    assert (FAILED, "") == (code, out)
    assert "call_timeout" in err


def test_the_version_is_printed(command: Command) -> None:
    """And is that of the package."""
    from deputy_mcp import __version__

    assert (FINE, f"deputy-mcp {__version__}\n", "") == command("--version")


def test_both_ways_of_starting_are_the_same_command(run: Command) -> None:
    """`deputy-mcp` and `python -m deputy_mcp` have the same help, under the same name."""
    script = Path(sys.executable).with_name("deputy-mcp")
    by_module, by_script = run("--help"), run("--help", command=(str(script),))

    assert FINE == by_module[0]
    assert by_module == by_script
    assert by_module[1].startswith(b"usage: deputy-mcp ")


# -- wrong input -----------------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "no command": ((), "COMMAND"),
    "an unknown command": (("chekc",), "chekc"),
    "an unknown option": (("check", "--jsn"), "--jsn"),
    "no server": (("call",), "SERVER"),
    "an unknown server": (("call", "--config", "CONFIG", "nope", "echo"), "known: 's', 'other'"),
    "an unknown server to check": (("check", "--config", "CONFIG", "nope"), "known: 's', 'other'"),
    "a server spelt in another case": (("check", "--config", "CONFIG", "S"), "'s'"),
    "a missing file": (("check", "--config", "/nonexistent/mcp.json"), "/nonexistent/mcp.json"),
    "a folder for a file": (("check", "--config", "/"), "folder"),
    "arguments that are no JSON": (("call", "--config", "CONFIG", "s", "echo", "{x: 1}"), "JSON"),
    "arguments that are no object": (("call", "--config", "CONFIG", "s", "echo", "[1]"), "object"),
    "arguments that nest too deeply": (("call", "--config", "CONFIG", "s", "echo", "[" * 100_000), "JSON"),
    "a timeout that is no number": (("call", "--timeout", "soon", "--config", "CONFIG", "s", "echo"), "soon"),
    "a timeout of nothing": (("call", "--timeout", "0", "--config", "CONFIG", "s", "echo"), "timeout"),
    "a timeout below nothing": (("call", "--timeout", "-1", "--config", "CONFIG", "s", "echo"), "timeout"),
    "a timeout that is not a number at all": (
        ("call", "--timeout", "nan", "--config", "CONFIG", "s", "echo"),
        "timeout",
    ),
    "two ways to write": (("check", "--write", "--ask-write", "--config", "CONFIG"), "not allowed with"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_input_gives_exit_code_2_and_names_it(place: Scene, command: Command, kind: str) -> None:
    """Nothing is printed on stdout, nothing is started, and the message says what was wrong and what there is."""
    arguments, said = WRONG[kind]
    server = place.scripted()
    config = place.config(s=server, other=place.scripted("other"))
    code, out, err = command(*(str(config) if argument == "CONFIG" else argument for argument in arguments))

    assert (USAGE, "") == (code, out)
    assert said in err
    assert "Traceback" not in err
    assert 0 == server.runs("echo")


BAD_CONFIGS = {
    "no JSON": ('{"mcpServers": {"s": }}', "line 1, column 22"),
    "a wrong type": ('{"mcpServers": {"s": {"command": 5}}}', "command"),
    "an unknown key of ours": ('{"mcpServers": {"s": {"command": "x", "deputy": {"tols": []}}}}', "tols"),
    "an unset variable": ('{"mcpServers": {"s": {"command": "${NO_SUCH_VARIABLE_HERE}"}}}', "NO_SUCH_VARIABLE_HERE"),
}


@pytest.mark.parametrize("kind", BAD_CONFIGS)
def test_a_bad_configuration_gives_exit_code_2_and_names_file_and_place(
    place: Scene, command: Command, kind: str
) -> None:
    """With `--json` too: there is no document then."""
    text, said = BAD_CONFIGS[kind]
    file = place.folder / "bad.json"
    file.write_text(text)
    for options in ((), ("--json",)):
        code, out, err = command("check", *options, "--config", file)
        assert (USAGE, "") == (code, out)
        assert "bad.json" in err
        assert said in err


def test_an_unknown_tool_is_refused_with_names_that_look_alike(place: Scene, command: Command) -> None:
    """Exit code 1: only the server could say that it is not there."""
    code, out, err = command("call", "--config", place.config(s=place.scripted()), "s", "ecko")

    assert (FAILED, "") == (code, out)
    assert "near: echo" in err


def test_without_a_configuration_the_places_looked_at_are_named(run: Command) -> None:
    """And a file in the current folder is not picked up by itself."""
    code, out, err = run("check")

    assert (USAGE, b"") == (code, out)
    for where in (b"DEPUTY_MCP_CONFIG", b"deputy-mcp/config.json", b".config/mcptools/config.json"):
        assert where in err


def test_the_environment_may_name_the_configuration(place: Scene, run: Command) -> None:
    """As for the library."""
    config = place.config(s=place.scripted(calls={"echo": reply("found")}))

    assert (FINE, b"found\n", b"") == run("call", "s", "echo", env={"DEPUTY_MCP_CONFIG": str(config)})


@pytest.mark.parametrize("arguments", [("s\udcff", "echo"), ("s", "e\udcff"), ("s", "echo", '{"\udcff')], ids=ascii)
def test_words_that_no_encoding_knows_are_shown_and_are_no_crash(
    place: Scene, command: Command, arguments: tuple[str, ...]
) -> None:
    """The shell hands over any bytes; Python makes lone surrogates of them."""
    code, out, err = command("call", "--config", place.config(s=place.scripted()), *arguments)

    assert code in (FAILED, USAGE)
    assert ("", True) == (out, err.startswith("error: "))


# -- pipes -----------------------------------------------------------------------------------------------------------


def test_on_a_pipe_the_text_is_plain(place: Scene, run: Command) -> None:
    """No colour, no progress, one line a row however long, though the environment asks for colour."""
    tools = [
        tool("echo"),
        tool("x" * 60, annotations={"readOnlyHint": True, "destructiveHint": False}),
        {"name": "bad"},
    ]
    config = place.config(s=place.scripted(tools=tools))
    colourful = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "40"}
    code, out, err = run("check", "--config", config, env=colourful)

    assert (FINE, b"") == (code, err)
    assert not UNSAFE.search(out.decode())
    assert b"x" * 60 in out
    assert 2 + 1 + 3 + 1 + 1 + 3 == len(out.splitlines()), "servers, tools with their legend, refused tools"


def test_warnings_go_to_stderr_and_leave_json_alone(place: Scene, run: Command) -> None:
    """Keys that would grant something elsewhere are said once, as a line and not as a Python warning."""
    entry = place.stdio(place.scripted())
    raw = {"command": entry.command, "args": list(entry.args), "env": dict(entry.env), "alwaysAllow": ["change"]}
    code, out, err = run("check", "--json", "--config", place.config(s=raw))

    assert FINE == code
    assert ["s"] == list(json.loads(out)["servers"])
    assert err.startswith(b"warning: ")
    assert (1, True) == (err.count(b"\n"), b"alwaysAllow" in err)


def test_a_reader_that_has_seen_enough_is_no_crash(place: Scene, start: Process) -> None:
    """`deputy-mcp check | head -1`: no traceback, and no child is left."""
    tools = [tool(f"t{i}", description="x" * 2000) for i in range(200)]
    reading, writing = os.pipe()
    process = start("check", "--json", "--config", place.config(s=place.scripted(tools=tools)), stdout=writing)
    os.close(writing)
    os.read(reading, 10)
    os.close(reading)
    _, err = process.communicate(timeout=30)

    assert b"" == err
    assert process.returncode in (FINE, FAILED)


# -- what a hostile server sends ---------------------------------------------------------------------------------------


def hostile(place: Scene, **script: Any) -> ScriptedServer:
    """Sends what a terminal would obey wherever text may stand."""
    schema = {"type": "object", "properties": {"x": {"type": "string", "description": ATTACK}}}
    tools = [
        tool("echo", description=ATTACK, title=ATTACK, inputSchema=schema),
        tool("send_" + ATTACK),
        tool("odd", annotations={"readOnlyHint": ATTACK, ATTACK: True}, _meta={ATTACK: ATTACK}),
        {"name": ATTACK, "inputSchema": ATTACK},
    ]
    return place.scripted(tools=tools, at_start=write_stderr(ATTACK + "\n"), **script)


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_no_escape_sequence_of_a_server_reaches_the_terminal_by_check(
    place: Scene, command: Command, options: tuple[str, ...]
) -> None:
    """Names, descriptions, schemas, annotations, the server's own name, its stderr."""
    identity = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "instructions": ATTACK}
    server = hostile(place, era="legacy", methods={"initialize": reply(result={**identity, "serverInfo": evil_name()})})
    _, out, err = command("check", *options, "--config", place.config(s=server))

    assert "echo" in out
    assert [] == UNSAFE.findall(out + err)


def evil_name() -> dict[str, str]:
    return {"name": ATTACK, "version": ATTACK, "title": ATTACK}


def test_no_escape_sequence_of_a_server_reaches_the_terminal_when_it_fails_to_start(
    place: Scene, command: Command
) -> None:
    """Its error's text stands in the table of servers."""
    server = hostile(place, era="legacy", methods={"initialize": fail(-32000, ATTACK)})
    config = place.config(s=server)
    for options in ((), ("--json",)):
        code, out, err = command("check", *options, "--config", config)
        assert FAILED == code
        assert [] == UNSAFE.findall(out + err)


ANSWERS = {
    "text": reply(ATTACK),
    "an error result": reply(result={"content": [{"type": "text", "text": ATTACK}], "isError": True}),
    "structured": reply(result={"content": [], "structuredContent": {ATTACK: ATTACK}}),
    "an unknown block": reply(result={"content": [{"type": ATTACK, "x": ATTACK}]}),
    "a resource": reply(result={"content": [{"type": "resource_link", "name": ATTACK, "uri": ATTACK}]}),
    "a lone surrogate": reply(result={"content": [], "structuredContent": {"x": "\ud800"}}),
    "an error": fail(-32000, ATTACK, data=ATTACK),
    "its last words": write_stderr(ATTACK + "\n") + die(),
    "no answer at all": reply(result={"content": ATTACK}),
}


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize("answer", ANSWERS)
def test_no_escape_sequence_of_a_server_reaches_the_terminal_by_call(
    place: Scene, command: Command, answer: str, options: tuple[str, ...]
) -> None:
    """Results, errors and last words; and what is printed can be encoded."""
    server = place.scripted(calls={"echo": ANSWERS[answer]})
    code, out, err = command("call", *options, "--config", place.config(s=server), "s", "echo")

    assert code in (FINE, FAILED)
    assert out + err
    assert [] == UNSAFE.findall(out + err)
    assert (out + err).encode()
    if options and out:
        json.loads(out)


# -- secrets ---------------------------------------------------------------------------------------------------------


def secretive(place: Scene, server: ScriptedServer) -> Path:
    """A configuration whose server gets a secret in its environment and, through a variable, on its command line."""
    entry = place.stdio(server)
    # Python takes any -X option, so this one is only there to be seen.
    args = ["-X", "seen=${OTHER:-other-" + SECRET + "}", *entry.args]
    return place.config(s={"command": entry.command, "args": args, "env": {**entry.env, "TOKEN": SECRET}})


LEAKS = {
    "an error": fail(-32000, f"cannot log in with {SECRET}"),
    "its last words": write_stderr(f"cannot log in with {SECRET}\n") + die(),
}


@pytest.mark.parametrize("leak", LEAKS)
def test_a_secret_that_a_server_repeats_is_not_printed(place: Scene, command: Command, leak: str) -> None:
    """Values of `env` and of variables are masked in every error's text and facts."""
    config = secretive(place, place.scripted(calls={"echo": LEAKS[leak]}))
    code, out, err = command("call", "--config", config, "s", "echo")

    assert FAILED == code
    assert SECRET not in out + err
    assert "cannot log in with ***" in err


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_a_secret_is_not_printed_by_check(place: Scene, command: Command, options: tuple[str, ...]) -> None:
    """Not in the error of a server that does not start, nor in the reason of a refused tool, nor in a server's name."""
    bad = {"name": "bad", "inputSchema": {"type": "object", "$ref": f"#/{SECRET}"}}
    identity = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": SECRET, "version": "1"},
    }
    fine = place.scripted(tools=[tool("echo"), bad], era="legacy", methods={"initialize": reply(result=identity)})
    failing = place.scripted("f", era="legacy", methods={"initialize": fail(-32000, f"no {SECRET}")})
    code, out, err = command("check", *options, "--config", secretive(place, fine))
    assert FINE == code
    assert SECRET not in out + err
    code, out, err = command("check", *options, "--config", secretive(place, failing))
    assert FAILED == code
    assert SECRET not in out + err
    assert "no ***" in out


def test_a_secret_in_a_broken_configuration_is_not_printed(place: Scene, command: Command) -> None:
    """An error names the place and holds no value; that of a header with an impossible value neither."""
    texts = (
        {"command": "no-such-server", "args": [5], "env": {"TOKEN": SECRET}},
        {"url": "https://example.invalid", "headers": {"Authorization": f"Bearer {SECRET}\n"}},
        {"url": f"https://user:{SECRET}@example.invalid:port/"},
    )
    for entry in texts:
        code, out, err = command("check", "--config", place.config(s=entry))
        assert USAGE == code
        assert SECRET not in out + err


# -- Ctrl-C ----------------------------------------------------------------------------------------------------------


def interrupted(process: "subprocess.Popen[bytes]") -> tuple[int, bytes, bytes]:
    """What a terminal does on Ctrl-C: SIGINT to the whole group in the foreground."""
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def wait_for(server: ScriptedServer, seen: Callable[[ScriptedServer], Any]) -> None:
    async def wait() -> None:
        with anyio.fail_after(30):
            await server.wait_for(seen)

    anyio.run(wait)


def test_ctrl_c_during_a_call_leaves_no_child(place: Scene, start: Process) -> None:
    """Exit code 130, one word on stderr, no traceback."""
    server = place.scripted(calls={"echo": hold("never")})
    process = start("call", "--config", place.config(s=server), "s", "echo")
    wait_for(server, lambda s: s.ledger("holding"))

    assert (INTERRUPTED, b"", b"interrupted\n") == interrupted(process)
    assert set() == place.living()


def test_ctrl_c_while_servers_start_leaves_no_child(place: Scene, start: Process) -> None:
    """One never answers, another is ready; both are gone."""
    silent = place.scripted("a", methods={"server/discover": silence(), "initialize": silence()})
    ready = place.scripted("b")
    process = start("check", "--config", place.config(a=silent, b=ready))
    wait_for(silent, lambda s: s.received("server/discover"))
    wait_for(ready, lambda s: s.received("tools/list"))

    assert (INTERRUPTED, b"", b"interrupted\n") == interrupted(process)
    assert set() == place.living()


def test_a_command_that_is_terminated_leaves_no_child(place: Scene, start: Process) -> None:
    """SIGTERM is what a supervisor sends; it ends the servers too."""
    server = place.scripted(calls={"echo": hold("never")})
    process = start("call", "--config", place.config(s=server), "s", "echo")
    wait_for(server, lambda s: s.ledger("holding"))
    process.terminate()
    process.communicate(timeout=30)

    assert set() == anyio.run(gone_soon, place)


async def gone_soon(place: Scene) -> set[int]:
    from workbench import gone

    return await gone(place.living(), within_seconds=3)
