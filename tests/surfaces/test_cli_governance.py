"""The commands that belong to governance: pins, approvals, audit."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from deputy_mcp import ApprovalPendingError, ApprovalStore, Journal, McpConnection, Permissions
from deputy_mcp.cli import main
from deputy_mcp.testing import ScriptedServer, reply, tool

WRITE = tool("write", annotations=None)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def configured(folder: Path, *tools: Any, name: str = "server", new_servers: str = "pin") -> str:
    """A configuration with one server that offers these tools, and a pin file."""
    entry = ScriptedServer(folder, name=name, tools=tools).stdio()
    path = folder / "config.json"
    servers = {"s": {"command": entry.command, "args": list(entry.args)}}
    pins = {"path": "pins.json", "new_servers": new_servers}
    path.write_text(json.dumps({"mcpServers": servers, "deputy": {"pins": pins}}))
    return str(path)


def talking(folder: Path, instructions: str) -> str:
    """A configuration with one server that has instructions, a prompt and a resource."""
    greeting = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
        "serverInfo": {"name": "s", "version": "1"},
        "instructions": instructions,
    }
    methods = {
        "initialize": reply(result=greeting),
        "prompts/list": reply(result={"prompts": [{"name": "p"}]}),
        "resources/list": reply(result={"resources": [{"uri": "r://r", "name": "r"}]}),
    }
    entry = ScriptedServer(folder, tools=(WRITE,), era="legacy", methods=methods).stdio()
    path = folder / "config.json"
    allowed = {"prompts": ["p"], "resources": ["r://r"]}
    servers = {"s": {"command": entry.command, "args": list(entry.args), "deputy": allowed}}
    path.write_text(json.dumps({"mcpServers": servers, "deputy": {"pins": "pins.json"}}))
    return str(path)


# -- pins ------------------------------------------------------------------------------------------------------------


def test_looking_at_pins_pins_nothing(command, tmp_path):
    """`diff` and `verify` say that a server is new, with exit code 1, and write no file."""
    config = configured(tmp_path, WRITE)
    for action in ("diff", "verify"):
        code, out, _ = command("pins", action, "--config", config)
        assert (1, True) == (code, "s: not pinned yet" in out)

    assert not (tmp_path / "pins.json").exists()
    assert (0, True) == (command("pins", "show", "--config", config)[0], True)


def test_a_change_is_shown_accepted_and_then_none(command, tmp_path):
    """All of it, old and new, however long; accepted by the digest that was shown, and by no other."""
    command("check", "--config", configured(tmp_path, WRITE))
    config = configured(tmp_path, WRITE | {"description": "now mails it" + "!" * 3_000}, tool("new"))
    code, out, _ = command("pins", "diff", "--config", config)
    assert 1 == code
    assert '-  "description": "the tool write"' in out
    assert '+  "description": "now mails it' + "!" * 3_000 in out
    assert "s  new  pin_unknown" in out
    assert '+  "description": "the tool new"' in out

    facts = json.loads(command("pins", "diff", "--config", config, "--json")[1])
    digests = {one["name"]: one["digest"] for one in facts["differences"]}
    code, _, err = command("pins", "accept", "s", "write", "--digest", "0" * 12, "--config", config)
    assert (1, True) == (code, "changed since you looked" in err)
    for name, digest in digests.items():
        assert 0 == command("pins", "accept", "s", name, "--digest", digest[:8], "--config", config)[0]

    assert (0, "unchanged: s\n") == command("pins", "verify", "--config", config)[:2]
    shown = json.loads(command("pins", "show", "--config", config, "--json")[1])
    assert digests == {name: pin["digest"] for name, pin in shown["s"]["pins"].items()}


def test_that_a_tool_is_gone_is_accepted_as_such(command, tmp_path):
    """`--gone`, and only when it is."""
    command("check", "--config", configured(tmp_path, WRITE, tool("old")))
    config = configured(tmp_path, WRITE)
    code, _, err = command("pins", "accept", "s", "write", "--gone", "--config", config)
    assert (1, True) == (code, "does not differ" in err)
    assert 0 == command("pins", "accept", "s", "old", "--gone", "--config", config)[0]
    assert 0 == command("pins", "verify", "--config", config)[0]


def test_a_finding_is_accepted_with_the_digest_it_is_on(command, tmp_path):
    """For an unchanged tool too; without its digest not."""
    config = configured(tmp_path, tool("send_mail"))
    command("check", "--config", config)
    digest = json.loads(command("pins", "show", "--config", config, "--json")[1])["s"]["pins"]["send_mail"]["digest"]
    finding = ("--finding", "name_contradicts_read_only", "--config", config)
    assert 1 == command("pins", "accept", "s", "send_mail", "--digest", "f" * 8, *finding)[0]
    assert 0 == command("pins", "accept", "s", "send_mail", "--digest", digest[:12], *finding)[0]
    code, out, _ = command("check", "--config", config)
    assert (0, True) == (code, "allow" in out)


def test_a_new_server_is_accepted_as_it_was_seen(command, tmp_path):
    """`new_servers="refuse"`: diff shows all that it offers, and the command it prints adds just that, and no other."""
    config = configured(tmp_path, WRITE, tool("other"), new_servers="refuse")
    code, out, err = command("call", "s", "write", "--config", config)
    assert (1, True) == (code, "deputy-mcp pins diff s" in err and "deputy-mcp pins accept s --digest" in err)
    code, out, _ = command("pins", "diff", "--config", config)
    assert (1, True) == (code, "s: not pinned yet; its first use is refused" in out)
    assert '+  "description": "the tool other"' in out
    (line,) = [line.strip() for line in out.splitlines() if "pins accept" in line]
    configured(tmp_path, WRITE | {"description": "another"}, tool("other"), new_servers="refuse")
    code, _, err = command(*shlex.split(line)[1:])
    assert (1, True, False) == (code, "changed since you looked" in err, (tmp_path / "pins.json").exists())
    configured(tmp_path, WRITE, tool("other"), new_servers="refuse")
    assert 0 == command(*shlex.split(line)[1:])[0]
    assert (0, "unchanged: s\n") == command("pins", "verify", "--config", config)[:2]
    assert 2 == command(*shlex.split(line)[1:])[0], "it is no new server any more"


def test_the_printed_command_works_when_it_is_pasted(command, tmp_path):
    """With the files that were named, and names that a shell would take apart."""
    folder = tmp_path / "a b"
    folder.mkdir()
    odd = tool("-it's; rm *")
    command("check", "--config", configured(folder, WRITE))
    config = configured(folder, WRITE | {"title": "T"}, odd)
    pins = ("--config", config, "--pins", str(folder / "pins.json"))
    lines = [line.strip() for line in command("pins", "diff", *pins)[1].splitlines() if "pins accept" in line]
    assert 2 == len(lines)
    for line in lines:
        assert 0 == command(*shlex.split(line)[1:])[0]

    assert 0 == command("pins", "verify", *pins)[0]


def test_a_required_server_that_is_down_hides_no_other(command, tmp_path):
    """What can be compared is; the other is named with its reason, and makes the exit code 1."""
    command("check", "--config", configured(tmp_path, WRITE))
    path = Path(configured(tmp_path, WRITE))
    written = json.loads(path.read_text())
    written["mcpServers"]["down"] = {"command": str(tmp_path / "nothing"), "deputy": {"required": True}}
    path.write_text(json.dumps(written))
    code, out, _ = command("pins", "verify", "--config", str(path))
    assert (1, True, True) == (code, "down: could not be compared: " in out, "unchanged: s" in out)


def test_instructions_prompts_and_resources_are_shown_and_accepted(command, tmp_path):
    """Each under its name, with a digest; findings are of tools alone."""
    command("check", "--config", talking(tmp_path, "be nice"))
    config = talking(tmp_path, "be evil")
    _, out, _ = command("pins", "show", "--config", config)
    assert all(name in out for name in ("#instructions", "#prompts/p", "#resources/r://r"))
    _, out, _ = command("pins", "diff", "--config", config)
    assert '-  "instructions": "be nice"' in out
    (line,) = [line.strip() for line in out.splitlines() if "pins accept" in line]
    code, _, err = command(*shlex.split(line)[1:], "--finding", "name_shared")
    assert (2, True) == (code, "nothing else has findings" in err)
    assert 0 == command(*shlex.split(line)[1:])[0]
    assert 0 == command("pins", "verify", "--config", config)[0]


def test_a_finding_that_is_not_there_is_refused_with_those_that_are(command, tmp_path):
    """A mistyped code would be taken for accepted; also on a definition that is new, and only then changed."""
    command("check", "--config", configured(tmp_path, tool("send_mail")))
    config = configured(tmp_path, tool("send_mail", title="T"))
    (one,) = json.loads(command("pins", "diff", "--config", config, "--json")[1])["differences"]
    accept = ("pins", "accept", "s", "send_mail", "--digest", one["digest"], "--config", config)
    code, _, err = command(*accept, "--finding", "name_contradicts_readonly")
    assert (2, True) == (code, "(it has: name_contradicts_read_only)" in err)
    assert 1 == command("pins", "verify", "--config", config)[0], "nothing was accepted"
    assert 0 == command(*accept, "--finding", "name_contradicts_read_only")[0]
    assert "allow" in command("check", "--config", config)[1]


def test_a_finding_from_comparing_servers_can_be_accepted(command, tmp_path):
    """It is there only when the others are."""
    servers = {}
    for server, name in (("a", "read_file"), ("b", "read_fi1e")):
        entry = ScriptedServer(tmp_path, name=server, tools=(tool(name),)).stdio()
        servers[server] = {"command": entry.command, "args": list(entry.args)}

    path = tmp_path / "config.json"
    path.write_text(json.dumps({"mcpServers": servers, "deputy": {"pins": "pins.json"}}))
    command("check", "--config", str(path))
    shown = json.loads(command("pins", "show", "--config", str(path), "--json")[1])
    digest = shown["a"]["pins"]["read_file"]["digest"]
    accept = ("pins", "accept", "a", "read_file", "--digest", digest, "--config", str(path), "--finding")
    assert 0 == command(*accept, "name_imitated")[0]
    assert 2 == command(*accept, "shadowing")[0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("pins", "accept", "s", "write", "--digest", "12"), "8 hex digits"),
        (("pins", "accept", "s", "write", "--digest", "1" * 8), "accept s --digest"),
        (("pins", "accept", "s", "--digest", "1" * 8, "write"), "accept s --digest"),
        (("pins", "accept", "s", "--gone"), "cannot be gone"),
        (("pins", "accept", "nobody", "x", "--digest", "1" * 8, "--finding", "x"), "known: s"),
        (("pins", "accept", "s", "write", "--gone", "--finding", "x"), "goes with the digest"),
        (("pins", "show", "nobody"), "nobody"),
        (("pins", "diff", "nobody"), "nobody"),
    ],
)
def test_wrong_input_to_pins_is_named(command, tmp_path, arguments, says):
    """Exit code 2, and what to write instead."""
    config = configured(tmp_path, WRITE)
    code, _, err = command(*arguments, "--config", config)
    assert (2, True) == (code, says in err)


def test_without_a_pin_file_it_says_how_to_have_one(command, tmp_path):
    """Nothing is guessed."""
    path = tmp_path / "c.json"
    path.write_text('{"mcpServers": {}}')
    code, _, err = command("pins", "verify", "--config", str(path))
    assert (2, True) == (code, "--pins FILE" in err)


# -- approvals -------------------------------------------------------------------------------------------------------


@pytest.fixture
def waiting(tmp_path: Path) -> ApprovalStore:
    """A store with one ticket whose arguments hold an escape sequence."""
    store = ApprovalStore(tmp_path / "approvals.db")

    async def ask() -> None:
        server = ScriptedServer(tmp_path, tools=(WRITE,)).stdio()
        permissions = Permissions(web="ask", write="ask")
        async with McpConnection({"s": server}, permissions=permissions, approver=store) as connection:
            with pytest.raises(ApprovalPendingError):
                await connection.call_tool("s", "write", {"text": "a\x1b[2Jb"})

    anyio.run(ask)
    return store


def test_a_ticket_is_listed_shown_and_decided(command, waiting):
    """Safe on a terminal; a second yes changes nothing, a yes to what was rejected is refused and says so."""
    (ticket,) = waiting.list()
    at = ("--store", str(waiting.path))
    assert ticket.ticket in command("approvals", "list", *at)[1]
    _, out, _ = command("approvals", "show", ticket.ticket, *at)
    assert ("\x1b" not in out, "\\u001b[2J" in out) == (True, True)
    assert 0 == command("approvals", "approve", ticket.ticket, *at)[0]
    assert "approved" == waiting.get(ticket.ticket).state
    assert 0 == command("approvals", "approve", ticket.ticket, *at)[0]
    assert 0 == command("approvals", "reject", ticket.ticket, "--reason", "no", *at)[0]
    code, _, err = command("approvals", "approve", ticket.ticket, *at)
    assert (1, True) == (code, "was rejected: no" in err)
    assert "nothing waits" in command("approvals", "list", *at)[1]
    (facts,) = json.loads(command("approvals", "list", "--all", "--json", *at)[1])
    assert ("rejected", "no", {"text": "a\x1b[2Jb"}) == (facts["state"], facts["note"], facts["arguments"])


def test_an_unknown_ticket_and_an_unusable_store_are_named(command, tmp_path):
    """1 for a refusal, 2 for a file that cannot be used."""
    ApprovalStore(tmp_path / "new.db").list()
    assert 1 == command("approvals", "show", "x", "--store", str(tmp_path / "new.db"))[0]
    (tmp_path / "x.db").write_text("no database" * 100)
    assert 2 == command("approvals", "list", "--store", str(tmp_path / "x.db"))[0]


@pytest.mark.parametrize("words", [("list",), ("show", "x"), ("approve", "x"), ("reject", "x")])
def test_a_mistyped_store_is_named_and_not_made(command, tmp_path, words):
    """Nothing waits in a file that nobody asks in: exit code 2, and no file."""
    path = tmp_path / "typo.db"
    code, _, err = command("approvals", *words, "--store", str(path))
    assert (2, True, False) == (code, "there is no approval store" in err, path.exists())


# -- audit -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "audit.jsonl"
    written = Journal(path, max_bytes=2_000)
    written.open()
    for number in range(20):
        written.append("call", call=number, server="s\x1b[2J", tool="t")
        written.flush()

    written.close()
    return path


def test_a_journal_is_verified_over_its_rotated_files(command, journal):
    """Clean, with the head to note."""
    assert len(list(journal.parent.glob("audit.jsonl.*"))) > 1
    code, out, _ = command("audit", "verify", str(journal))
    assert (0, True) == (code, out.startswith("intact: "))
    head = json.loads(command("audit", "verify", str(journal), "--json")[1])["head"]
    assert 0 == command("audit", "verify", str(journal), "--head", head)[0]
    code, out, _ = command("audit", "verify", str(journal), "--head", "0" * 63 + "1")
    assert (1, True) == (code, "head_missing" in out)


def test_an_edited_line_is_named(command, journal):
    """The first one, by its number."""
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], lines[1].replace(b'"t"', b'"u"'), *lines[2:]]))
    code, out, _ = command("audit", "verify", str(journal))
    assert (1, True) == (code, "line " in out)


def test_a_journal_with_a_key_needs_it(command, tmp_path):
    """Without the key, or with another, it is not verified."""
    path, key = tmp_path / "keyed.jsonl", tmp_path / "key"
    key.write_text("a long key\n")
    written = Journal(path, key="a long key")
    written.open()
    written.close()
    assert 0 == command("audit", "verify", str(path), "--key-file", str(key))[0]
    assert 1 == command("audit", "verify", str(path))[0]
    key.write_text("another key")
    assert 1 == command("audit", "verify", str(path), "--key-file", str(key))[0]


def test_the_end_of_a_journal_is_shown(command, journal):
    """A table, safe on a terminal; or JSON; what is no line of ours is said to be none."""
    with journal.open("ab") as file:
        file.write(b"junk\n[1]\n")

    code, out, _ = command("audit", "show", str(journal), "--last", "4")
    assert (0, 5, False) == (code, len(out.splitlines()), "\x1b" in out)
    assert "no line of ours" in out
    assert 3 == len(json.loads(command("audit", "show", str(journal), "--last", "3", "--json")[1]))


@pytest.mark.parametrize(
    "arguments", [("show", "nothing.jsonl"), ("verify", "nothing.jsonl"), ("show", sys.executable, "--last", "0")]
)
def test_wrong_input_to_audit_is_named(command, arguments):
    """Exit code 2."""
    assert 2 == command("audit", *arguments)[0]
