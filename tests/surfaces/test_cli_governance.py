"""The commands that belong to governance: pins, approvals, audit."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from deputy_mcp import ApprovalPendingError, ApprovalStore, Journal, McpConnection, Permissions
from deputy_mcp.cli import main
from deputy_mcp.testing import ScriptedServer, tool

WRITE = tool("write", annotations=None)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def configured(folder: Path, *tools: Any, name: str = "server") -> str:
    """A configuration with one server that offers these tools, and a pin file."""
    entry = ScriptedServer(folder, name=name, tools=tools).stdio()
    path = folder / "config.json"
    servers = {"s": {"command": entry.command, "args": list(entry.args)}}
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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("pins", "accept", "s", "write", "--digest", "12"), "8 hex digits"),
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
    """Safe on a terminal; a decision is made once."""
    (ticket,) = waiting.list()
    at = ("--store", str(waiting.path))
    assert ticket.ticket in command("approvals", "list", *at)[1]
    _, out, _ = command("approvals", "show", ticket.ticket, *at)
    assert ("\x1b" not in out, "\\u001b[2J" in out) == (True, True)
    assert 0 == command("approvals", "approve", ticket.ticket, *at)[0]
    assert "approved" == waiting.get(ticket.ticket).state
    assert 1 == command("approvals", "approve", ticket.ticket, *at)[0]
    assert 0 == command("approvals", "reject", ticket.ticket, "--reason", "no", *at)[0]
    assert "nothing waits" in command("approvals", "list", *at)[1]
    (facts,) = json.loads(command("approvals", "list", "--all", "--json", *at)[1])
    assert ("rejected", "no", {"text": "a\x1b[2Jb"}) == (facts["state"], facts["note"], facts["arguments"])


def test_an_unknown_ticket_and_an_unusable_store_are_named(command, tmp_path):
    """1 for a refusal, 2 for a file that cannot be used."""
    assert 1 == command("approvals", "show", "x", "--store", str(tmp_path / "new.db"))[0]
    assert 2 == command("approvals", "list", "--store", str(tmp_path / "missing" / "x.db"))[0]


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
