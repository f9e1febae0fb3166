"""The journal on a real disk: shared writes, failed ones, recovery, rotation, locks.

Faults are real: a size limit of the process stands for a full disk (the kernel writes a part, then refuses), a
descriptor is put in another's place, files are moved under the writer. System calls are counted by the kernel.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from workbench import commit, within

from deputy_mcp import ConfigError
from deputy_mcp._core.audit_chain import CHAIN_START, Verdict, verify_lines
from deputy_mcp._core.errors import JournalUnavailableError
from deputy_mcp._runtime.journal import BUFFERED_BYTES, KEPT_BYTES, Journal
from deputy_mcp._runtime.journal_file import read_lines, rotated_files

pytestmark = pytest.mark.anyio

SECRET = "hunter2-correct-horse"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@contextlib.contextmanager
def opened(journal: Journal) -> Iterator[Journal]:
    journal.open()
    try:
        yield journal
    finally:
        journal.close()


def files_of(path: Path) -> list[Path]:
    return [*rotated_files(path), path]


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Every whole line, those of full files too."""
    raw = [line for file in files_of(path) for line in read_lines(file) if line.endswith(b"\n")]
    return [json.loads(line) for line in raw]


def events_of(path: Path) -> list[str]:
    return [line["event"] for line in lines_of(path)]


def verdict_of(path: Path, **options: Any) -> Verdict:
    return verify_lines((line for file in files_of(path) for line in read_lines(file)), **options)


def last(path: Path, event: str) -> dict[str, Any]:
    return [line for line in lines_of(path) if line["event"] == event][-1]


@contextlib.contextmanager
def limit(kind: int, most: int) -> Iterator[None]:
    """A limit of this process, for a while."""
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


def full_disk(path: Path, room: int = 0) -> Any:
    """No file may grow past the journal's size now and `room` bytes."""
    return limit(resource.RLIMIT_FSIZE, path.stat().st_size + room)


def descriptors(path: Path) -> list[int]:
    """Those of this process on a file."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}") == str(path):
                found.append(int(name))

    return found


@contextlib.contextmanager
def replaced(descriptor: int, by: str) -> Iterator[None]:
    """Another file in the place of an open one."""
    kept, other = os.dup(descriptor), os.open(by, os.O_RDWR)
    os.dup2(other, descriptor)
    os.close(other)
    try:
        yield
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)


def writes() -> int:
    """The write system calls of this process so far, as the kernel counts them."""
    return int(Path("/proc/self/io").read_text().partition("syscw: ")[2].split()[0])


# -- the value -------------------------------------------------------------------------------------------------------


def test_making_a_journal_starts_nothing(path: Path) -> None:
    """No file, no lock; its repr says where it stands and shows no key."""
    journal = Journal(path, key=SECRET)

    assert [] == list(path.parent.iterdir())
    assert f"<Journal {str(path)!r}: closed>" == repr(journal)
    assert CHAIN_START == journal.head
    journal.close()


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"path": 5}, "path"),
        ({"path": ""}, "path"),
        ({"path": b"x"}, "path"),
        ({"path": "a\0b"}, "path"),
        ({"record_arguments": 1}, "record_arguments"),
        ({"record_arguments": True, "redact": "x"}, "redact"),
        ({"redact": dict}, "redact"),
        ({"key": ""}, "key"),
        ({"key": b""}, "key"),
        ({"key": 5}, "key"),
        ({"fsync": "yes"}, "fsync"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"max_bytes": 1.5}, "max_bytes"),
        ({"max_bytes": True}, "max_bytes"),
    ],
)
def test_a_wrong_value_is_a_configuration_error_that_names_it(arguments: dict[str, Any], key: str) -> None:
    """At once, where the host can mend it."""
    with pytest.raises(ConfigError) as caught:
        Journal(arguments.pop("path", "audit.jsonl"), **arguments)

    assert key == caught.value.key


# -- opening ---------------------------------------------------------------------------------------------------------


def test_a_new_journal_is_private_and_begins_its_chain(path: Path) -> None:
    """Mode 0600 whatever the umask; the first line says how the chain is made, the last that it was closed."""
    before = os.umask(0)
    try:
        with opened(Journal(path)) as journal:
            assert journal.head == lines_of(path)[-1]["hash"]
            assert f"<Journal {str(path)!r}: open, 2 lines>" == repr(journal)
    finally:
        os.umask(before)

    begin, start, end = lines_of(path)
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert (1, "sha256", CHAIN_START) == (begin["version"], begin["chain"], begin["prev"])
    assert ("open", os.getpid(), "close") == (start["event"], start["pid"], end["event"])
    assert "closed" not in start
    assert (True, 3, True) == (verdict_of(path).intact, verdict_of(path).seq, verdict_of(path).closed)


@pytest.mark.parametrize("key", [None, b"bytes", "text"])
def test_a_journal_goes_on_where_it_ended(path: Path, key: Any) -> None:
    """One chain over any number of lives, by the same value or another; each says how the one before ended."""
    journal = Journal(path, key=key)
    for _ in range(2):
        with opened(journal):
            journal.append("result", tool="a")

    with opened(Journal(path, key=key)) as other:
        other.append("result", tool="b")

    assert ["begin", *["open", "result", "close"] * 3] == events_of(path)
    assert [None, True, True] == [line.get("closed") for line in lines_of(path) if line["event"] == "open"]
    assert verdict_of(path, key=key.encode() if isinstance(key, str) else key).intact


def test_a_life_that_was_not_closed_is_told(path: Path) -> None:
    """The next `open` says so."""
    with opened(Journal(path)):
        pass

    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with opened(Journal(path)):
        assert last(path, "open")["closed"] is False


def test_one_file_has_one_writer(path: Path, tmp_path: Path) -> None:
    """Another journal on it, by whatever name, and the same one twice: refused, naming file and mend."""
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    journal = Journal(path)
    with opened(journal):
        for other in (Journal(path), Journal(link), journal):
            with pytest.raises(ConfigError, match=r"audit\.jsonl.* give each a .* of its own") as caught:
                other.open()

            assert "link" in str(caught.value) or str(path) == caught.value.path

    with opened(Journal(link)):
        assert 1 == events_of(path).count("begin")


def test_a_torn_last_line_is_cut_off_and_told_wherever_it_was_torn(path: Path) -> None:
    """A crash in the middle of a write: the chain goes on, and the piece is kept in the line that tells of it."""
    with opened(Journal(path)) as journal:
        journal.append("result", tool="a tool")

    whole = path.read_bytes()
    *before, torn = whole.splitlines(keepends=True)
    for length in (1, 2, 7, 40, len(torn) - 2, len(torn) - 1):
        path.write_bytes(b"".join(before) + torn[:length])
        with opened(Journal(path)):
            told = last(path, "recovered")
            assert (length, torn[:length].decode()) == (told["torn_bytes"], told["torn"])
            assert hashlib.sha256(torn[:length]).hexdigest() == told["torn_sha256"]
            assert ["recovered", "open"] == events_of(path)[-2:]
            assert path.read_bytes().startswith(b"".join(before) + b'{"seq":4,')

        assert verdict_of(path).intact


@pytest.mark.parametrize("piece", [b"{", b'{"seq":1,"time', b"\0" * 4096])
def test_a_first_line_that_was_torn_is_begun_again(path: Path, piece: bytes) -> None:
    """A crash in the very first write, or zeros where the power went."""
    path.write_bytes(piece)
    with opened(Journal(path)):
        assert ["begin", "recovered", "open"] == events_of(path)

    assert verdict_of(path).intact


def test_a_torn_line_is_masked_before_it_stands_in_another(path: Path) -> None:
    """It may be from before the secret was known."""
    path.write_bytes(b'{"seq":1,"reason":"' + SECRET.encode())
    journal = Journal(path)
    journal.add_secrets([SECRET])
    with opened(journal):
        assert SECRET.encode() not in path.read_bytes()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"notes of mine", "it is no journal"),
        (b'{"a": 1}\n', "line 1 is no line of a journal"),
        (b"\n", "line 1 is no line of a journal"),
        (b"x" * 300_000, "line 1 is no line of a journal"),
    ],
    ids=["a text", "other lines", "a blank line", "one long line"],
)
def test_a_file_that_is_no_journal_is_refused_and_left_alone(path: Path, content: bytes, why: str) -> None:
    """A wrong path must not cost somebody's file; and the lock is free again."""
    path.write_bytes(content)
    for _ in range(2):
        with pytest.raises(ConfigError, match=why) as caught:
            Journal(path).open()

    assert (content, str(path), "journal") == (path.read_bytes(), caught.value.path, caught.value.key)


def test_a_journal_that_was_tampered_with_is_never_continued(path: Path) -> None:
    """The error names the line; the file stays as it was found."""
    with opened(Journal(path)) as journal:
        journal.append("result", tool="send")

    damaged = path.read_bytes().replace(b"send", b"read")
    path.write_bytes(damaged)
    with pytest.raises(ConfigError, match=r"line 3 was edited.* it is not continued.* name another file"):
        Journal(path).open()

    assert damaged == path.read_bytes()


@pytest.mark.parametrize(
    ("first", "then", "why"),
    [(None, b"key", "without one"), (b"key", None, "give the key"), (b"key", b"other", "another key")],
)
def test_a_journal_is_continued_only_with_the_key_it_was_begun_with(
    path: Path, first: Any, then: Any, why: str
) -> None:
    """Two kinds of chain in one file could not be checked."""
    with opened(Journal(path, key=first)):
        pass

    with pytest.raises(ConfigError, match=why):
        Journal(path, key=then).open()


def test_what_is_no_regular_file_or_has_no_folder_is_refused(tmp_path: Path) -> None:
    """A folder, a named pipe (which is not waited for), a device, a folder that is not there."""
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "pipe", Path("/dev/full")):
        with pytest.raises(ConfigError, match="no regular file"):
            Journal(place).open()

    with pytest.raises(ConfigError, match=r"there is no folder '.*nowhere'; make it"):
        Journal(tmp_path / "nowhere" / "audit.jsonl").open()

    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be opened: Not a directory"):
        Journal(tmp_path / "file" / "audit.jsonl").open()


def test_a_journal_whose_first_line_cannot_be_written_does_not_open(path: Path) -> None:
    """A full disk at the start is found at the start; nothing stays locked."""
    with limit(resource.RLIMIT_FSIZE, 20):
        with pytest.raises(JournalUnavailableError, match="File too large"):
            Journal(path).open()

    assert b"" == path.read_bytes()
    with opened(Journal(path)):
        assert ["begin", "open"] == events_of(path)


# -- writing ---------------------------------------------------------------------------------------------------------


async def test_all_who_commit_in_one_turn_share_one_write(path: Path) -> None:
    """A thousand lines, one system call; each caller gets the number of a line that stands in the file already."""
    seqs: list[tuple[int, int]] = []

    async def one(number: int) -> None:
        seq = await commit(journal, "call", call=number)
        seqs.append((number, seq))

    with opened(Journal(path)) as journal:
        before = writes()
        async with anyio.create_task_group() as tasks:
            for number in range(1_000):
                tasks.start_soon(one, number)

        assert 1 == writes() - before
        there = {line["seq"]: line["call"] for line in lines_of(path)[2:]}

    assert sorted(seqs) == sorted((call, seq) for seq, call in there.items())
    assert verdict_of(path).intact


async def test_a_committed_line_stands_in_the_file_when_its_caller_goes_on(path: Path) -> None:
    """With what was appended before it, in order."""
    with opened(Journal(path)) as journal:
        journal.append("decision", call=1, decision="allow")
        seq = await commit(journal, "call", call=1, server="s", tool="t")

        assert ["begin", "open", "decision", "call"] == events_of(path)
        assert seq == lines_of(path)[-1]["seq"]


async def test_what_is_appended_in_one_turn_is_written_at_its_end_in_one_write(path: Path) -> None:
    """Nobody has to wait for it, and nobody has to come by."""
    with opened(Journal(path)) as journal:
        await anyio.lowlevel.checkpoint()
        before = writes()
        for number in range(100):
            journal.append("result", call=number)

        assert 0 == writes() - before
        await anyio.lowlevel.checkpoint()
        assert 1 == writes() - before
        assert 100 == events_of(path).count("result")


def test_without_an_event_loop_lines_wait_for_flush_or_close(path: Path) -> None:
    """A program may write from where no loop runs."""
    with opened(Journal(path)) as journal:
        journal.append("result", call=1)
        assert "result" not in events_of(path)
        journal.flush()
        assert "result" == events_of(path)[-1]
        journal.flush()
        journal.append("result", call=2)

    assert ["result", "result", "close"] == events_of(path)[-3:]


def test_a_second_loop_writes_what_the_first_one_left(path: Path) -> None:
    """A loop that ended before the end of its turn is not waited for."""

    async def append_and_wait() -> None:
        journal.append("result", call=2)
        await anyio.lowlevel.checkpoint()

    with opened(Journal(path)) as journal:
        loop = asyncio.new_event_loop()
        loop.call_soon(lambda: (journal.append("result", call=1), loop.stop()))
        loop.run_forever()
        loop.close()
        assert ["begin", "open"] == events_of(path)

        anyio.run(append_and_wait)
        assert [1, 2] == [line["call"] for line in lines_of(path)[2:]]


def test_on_trio_lines_are_written_all_the_same(path: Path) -> None:
    """What runs on trio through the SDK keeps running there."""

    async def main() -> None:
        journal.append("decision", call=1)
        with anyio.fail_after(5):
            while "decision" not in events_of(path):
                await anyio.lowlevel.checkpoint()

        assert [int] * 10 == [type(outcome) for outcome in await commit_all(journal)]
        assert 10 == events_of(path).count("call")

    with opened(Journal(path)) as journal:
        anyio.run(main, backend="trio")


async def test_a_turn_with_very_much_to_say_is_written_in_parts(path: Path) -> None:
    """The buffer is bounded, whatever happens in one turn."""
    with opened(Journal(path)) as journal:
        for number in range(5_000):
            journal.append("result", call=number, reason="x" * 1_000)
            assert journal._pending_bytes <= BUFFERED_BYTES

    assert 5_000 == events_of(path).count("result")


def test_secrets_are_masked_and_arguments_recorded_only_where_asked_for(path: Path) -> None:
    """The key counts as a secret too."""
    journal = Journal(path, record_arguments=True, redact=lambda a: {**a, "size": len(a["text"])}, key="the key itself")
    journal.add_secrets([SECRET], servers=["notes"])
    with opened(journal):
        journal.append("call", server="notes", arguments=json.dumps({"text": f"{SECRET} the key itself"}).encode())

    assert {"text": "*** ***", "size": 36} == last(path, "call")["arguments"]
    assert SECRET.encode() not in path.read_bytes()


# -- when it cannot be written ---------------------------------------------------------------------------------------


async def commit_all(journal: Journal, count: int = 10) -> list[BaseException | int]:
    """So many commits in one turn, and what became of each."""
    outcomes: list[BaseException | int] = []

    async def one(number: int) -> None:
        try:
            outcomes.append(await commit(journal, "call", call=number, server="s", tool="t"))
        except JournalUnavailableError as error:
            outcomes.append(error)

    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(one, number)

    return outcomes


@pytest.mark.parametrize("room", [0, 1, 100, 2_000])
@within(10)
async def test_a_full_disk_refuses_every_call_of_the_batch_and_leaves_no_part_of_it(path: Path, room: int) -> None:
    """Whole lines that were written before the disk was full are taken back with the half one."""
    with opened(Journal(path)) as journal:
        before = path.read_bytes()
        with full_disk(path, room):
            outcomes = await commit_all(journal)
            assert journal.broken
            assert f"<Journal {str(path)!r}: broken>" == repr(journal)

        assert before == path.read_bytes()
        assert [JournalUnavailableError] * 10 == [type(outcome) for outcome in outcomes]
        error = outcomes[0]
        assert isinstance(error, JournalUnavailableError)
        assert ("s", "t", "journal_unavailable", "not_sent") == (error.server, error.tool, error.code, error.outcome)
        assert "File too large" in str(error)

        assert isinstance((await commit_all(journal, 1))[0], int)
        assert not journal.broken

    assert ["begin", "open", "gap", "call", "close"] == events_of(path)
    gap = last(path, "gap")
    assert (10, 0, 0, "File too large") == (gap["refused_calls"], gap["lost"], gap["kept"], gap["reason"])
    assert verdict_of(path).intact


@within(10)
async def test_what_happened_during_an_outage_is_written_after_it(path: Path) -> None:
    """Outcomes are kept in order behind the gap; what was refused never appears."""
    with opened(Journal(path)) as journal:
        with full_disk(path, 50):
            for number in range(5):
                journal.append("result", call=number)
                await commit_all(journal, 2)

        journal.append("result", call=5)
        await anyio.lowlevel.checkpoint()

        assert ["begin", "open", "gap", *["result"] * 6] == events_of(path)
        assert list(range(6)) == [line["call"] for line in lines_of(path)[3:]]
        assert (10, 0, 6) == tuple(last(path, "gap")[name] for name in ("refused_calls", "lost", "kept"))


@within(20)
async def test_what_is_kept_during_an_outage_is_bounded_and_the_rest_is_counted(path: Path) -> None:
    """A disk that stays full for a week does not fill the memory."""
    with opened(Journal(path)) as journal:
        with full_disk(path):
            for number in range(3_000):
                journal.append("result", call=number, reason="x" * 1_000)
                if number % 100 == 0:
                    await anyio.lowlevel.checkpoint()

            assert journal._pending_bytes <= KEPT_BYTES

        journal.flush()
        gap, results = last(path, "gap"), events_of(path).count("result")
        assert 3_000 == gap["lost"] + results
        assert gap["kept"] == results > 800

    assert verdict_of(path).intact


@pytest.mark.parametrize("by", ["/dev/full", "/dev/null"])
@within(10)
async def test_a_disk_that_fails_otherwise_refuses_just_the_same(path: Path, by: str) -> None:
    """No room at all; and a write that the disk took and lost is seen at the next one, by the file's size."""
    with opened(Journal(path)) as journal:
        (descriptor,) = descriptors(path)
        with replaced(descriptor, by):
            first = await commit_all(journal, 1)
            second = await commit_all(journal, 1)

        assert by == "/dev/null" or isinstance(first[0], JournalUnavailableError)
        assert isinstance(second[0], JournalUnavailableError)
        assert ["begin", "open"] == events_of(path)


@within(10)
async def test_a_descriptor_that_was_closed_refuses(path: Path) -> None:
    """Somebody closed what was not his; the error says what the system said."""
    with opened(Journal(path)) as journal:
        (descriptor,) = descriptors(path)
        os.close(descriptor)
        (outcome,) = await commit_all(journal, 1)

        assert "Bad file descriptor" in str(outcome)


def remove(path: Path) -> None:
    path.unlink()


def move(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def replace(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.write_bytes(path.with_name("elsewhere").read_bytes())


def write_to(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 10)


@pytest.mark.parametrize("meddle", [remove, move, replace, write_to, cut])
@within(10)
async def test_a_file_that_somebody_meddles_with_is_not_written_to(path: Path, meddle: Any) -> None:
    """Calls are refused rather than written down where nobody will look."""
    with opened(Journal(path)) as journal:
        meddle(path)
        there = path.read_bytes() if path.exists() else None
        (outcome,) = await commit_all(journal, 1)

        assert isinstance(outcome, JournalUnavailableError)
        assert any(mend in str(outcome) for mend in ("put it back", "put the journal back", "check its chain"))
        assert there == (path.read_bytes() if path.exists() else None)


@within(10)
async def test_a_file_that_was_moved_and_put_back_is_gone_on_with(path: Path) -> None:
    """The mend that the error names is one."""
    with opened(Journal(path)) as journal:
        away = path.rename(path.with_name("elsewhere"))
        await commit_all(journal, 1)
        away.rename(path)

        assert isinstance((await commit_all(journal, 1))[0], int)

    assert ["begin", "open", "gap", "call", "close"] == events_of(path)


async def test_what_is_not_open_refuses_commits_and_drops_the_rest_with_a_word(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Before it is opened and after it was closed; a result that comes late fails nobody."""
    journal = Journal(path)
    with opened(journal):
        pass

    for one in (journal, Journal(path)):
        with pytest.raises(JournalUnavailableError, match="it is not open"):
            await commit(one, "call")

        with pytest.raises(JournalUnavailableError, match="it is not open"):
            one.flush()

        caplog.clear()
        for _ in range(3):
            one.append("result")

        assert ["journal_lost"] == [
            r.getMessage().split("'")[1] for r in caplog.records if "journal_lost" in r.getMessage()
        ]

    assert "close" == events_of(path)[-1]


async def test_an_outage_is_logged_once_and_so_is_its_end(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An operator sees both; a thousand refusals are not a thousand lines."""
    with caplog.at_level("INFO", "deputy_mcp"):
        with opened(Journal(path)) as journal:
            with full_disk(path):
                for _ in range(5):
                    await commit_all(journal, 3)

            journal.flush()

    said = [record.getMessage() for record in caplog.records]
    assert 1 == sum("journal_unavailable" in line for line in said)
    assert 1 == sum("journal_recovered" in line and "refused_calls=15" in line for line in said)


def test_closing_on_a_full_disk_lets_go_and_says_what_was_lost(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The end of a connection is not held up by its journal."""
    journal = Journal(path)
    journal.open()
    with full_disk(path):
        journal.append("result")
        journal.close()

    assert any("journal_lost" in r.getMessage() and "lines=2" in r.getMessage() for r in caplog.records)
    assert "open" == events_of(path)[-1]
    with opened(journal):
        assert last(path, "open")["closed"] is False


# -- cancellation ----------------------------------------------------------------------------------------------------


async def test_a_caller_who_leaves_before_the_write_takes_his_line_along(path: Path) -> None:
    """The others of his turn are written."""
    with opened(Journal(path)) as journal:
        leaves, stays = journal.announce("call", call=1), journal.announce("call", call=2)
        journal.withdraw(leaves)
        seq = journal.secure(stays)
        with pytest.raises(JournalUnavailableError):
            journal.secure(leaves)

        assert [(seq, 2)] == [(line["seq"], line["call"]) for line in lines_of(path)[2:]]

    assert ["begin", "open", "call", "close"] == events_of(path)


@within(10)
async def test_a_caller_who_leaves_after_the_write_is_withdrawn_by_a_line_of_its_own(path: Path) -> None:
    """What stands there cannot be taken out of the chain; that it was not done is said."""
    with opened(Journal(path)) as journal:
        async with anyio.create_task_group() as tasks:
            scope = anyio.CancelScope()

            async def leave() -> None:
                with scope:
                    await commit(journal, "call", call=1)
                    raise AssertionError("it went on")

            async def flush_and_cancel() -> None:
                journal.flush()
                scope.cancel()

            tasks.start_soon(leave)
            tasks.start_soon(flush_and_cancel)

    assert ["call", "withdrawn", "close"] == events_of(path)[2:]
    assert last(path, "call")["seq"] == last(path, "withdrawn")["intent"]


@within(10)
async def test_a_caller_who_waits_when_the_journal_is_closed_is_refused(path: Path) -> None:
    """His line is not written: nobody would write how it ended."""
    journal = Journal(path)
    journal.open()
    async with anyio.create_task_group() as tasks:

        async def refused() -> None:
            with pytest.raises(JournalUnavailableError, match="it was closed"):
                await commit(journal, "call")

        async def close() -> None:
            journal.close()

        tasks.start_soon(refused)
        tasks.start_soon(close)

    assert ["begin", "open", "close"] == events_of(path)


# -- rotation --------------------------------------------------------------------------------------------------------


def test_a_full_file_is_renamed_and_the_chain_goes_on_in_the_next(path: Path) -> None:
    """Every file within its bound, private, and one chain over all; each names the one before and carries its head."""
    with opened(Journal(path, max_bytes=4_096)) as journal:
        for number in range(200):
            journal.append("result", call=number)
            journal.flush()

    files = files_of(path)
    assert len(files) > 10
    assert [f"audit.jsonl.{number:06d}" for number in range(1, len(files))] == [file.name for file in files[:-1]]
    assert {0o600} == {stat.S_IMODE(file.stat().st_mode) for file in files}
    assert all(file.stat().st_size <= 4_096 for file in files)
    assert verdict_of(path).intact
    assert list(range(200)) == [line["call"] for line in lines_of(path) if line["event"] == "result"]
    for before, after in pairwise(files):
        begin, end = json.loads(next(read_lines(after))), json.loads(list(read_lines(before))[-1])
        assert (before.name, end["hash"], end["seq"] + 1) == (begin["continues"], begin["prev"], begin["seq"])


def test_a_batch_larger_than_a_file_has_a_file_of_its_own(path: Path) -> None:
    """It is one write, and is not torn apart."""
    with opened(Journal(path, max_bytes=1)) as journal:
        for _ in range(20):
            journal.append("result", reason="x" * 1_000)

        journal.flush()

    assert ["begin", "open", "begin", *["result"] * 20, "begin", "close"] == events_of(path)
    assert verdict_of(path).intact


def test_numbers_go_on_when_full_files_were_archived(path: Path) -> None:
    """A name is not used twice, or an archive would be overwritten; the rest still says what it follows."""
    with opened(Journal(path, max_bytes=1)) as journal:
        for _ in range(3):
            journal.append("result")
            journal.flush()

    last_number = rotated_files(path)[-1].name
    for file in rotated_files(path):
        file.unlink()

    with opened(Journal(path, max_bytes=1)) as journal:
        assert rotated_files(path)[0].name > last_number

    assert verdict_of(path).intact
    assert verdict_of(path).first_seq > 1


def rotated_once(path: Path) -> None:
    with opened(Journal(path)) as journal:
        journal.append("result", call=1)

    path.rename(f"{path}.000001")


@pytest.mark.parametrize("left", [None, b"", b'{"seq":5,"ti'], ids=["no file", "an empty file", "a torn begin"])
def test_a_rotation_that_a_crash_interrupted_is_finished_by_the_next_writer(path: Path, left: bytes | None) -> None:
    """Between renaming and creating, after creating, in the middle of the first line."""
    rotated_once(path)
    if left is not None:
        path.write_bytes(left)

    with opened(Journal(path, max_bytes=100_000)) as journal:
        journal.append("result", call=2)

    assert verdict_of(path).intact
    assert [1, 2] == [line["call"] for line in lines_of(path) if line["event"] == "result"]
    assert ("audit.jsonl.000001", 5) == tuple(json.loads(next(read_lines(path)))[name] for name in ("continues", "seq"))
    assert bool(left) is ("recovered" in events_of(path))


def test_a_full_file_that_lost_its_last_line_with_the_power_is_gone_on_from(path: Path) -> None:
    """Its torn piece is cut off, so that the files together are a chain."""
    rotated_once(path)
    full = rotated_files(path)[0]
    full.write_bytes(full.read_bytes()[:-5])
    with opened(Journal(path)):
        assert "recovered" in events_of(path)

    assert verdict_of(path).intact


def test_a_full_file_that_was_tampered_with_is_not_gone_on_from(path: Path) -> None:
    """The error names that file."""
    rotated_once(path)
    full = rotated_files(path)[0]
    full.write_bytes(full.read_bytes().replace(b'"call":1', b'"call":2'))
    with pytest.raises(ConfigError, match=r"audit\.jsonl\.000001.*line 3 was edited"):
        Journal(path).open()


@within(10)
async def test_a_rotation_that_fails_refuses_and_is_made_later(path: Path) -> None:
    """For want of a descriptor there can be no new file, and the old one is full."""
    with opened(Journal(path, max_bytes=1)) as journal:
        with limit(resource.RLIMIT_NOFILE, 3):
            for _ in range(2):
                (outcome,) = await commit_all(journal, 1)
                assert "Too many open files" in str(outcome)

        assert ["begin", "open"] == events_of(path)
        assert isinstance((await commit_all(journal, 1))[0], int)

    assert ["begin", "open", "begin", "gap", "call", "begin", "close"] == events_of(path)
    assert verdict_of(path).intact


def test_other_files_beside_it_are_not_taken_for_its_own(path: Path) -> None:
    """Only its name, a dot and a number."""
    names = ["audit.jsonl.bak", "audit.jsonl.1", "audit.jsonl.000001.gz", "xaudit.jsonl.000001", "audit.jsonl.000002"]
    for name in names:
        (path.parent / name).write_text("x")

    assert [path.parent / "audit.jsonl.000002"] == rotated_files(path)


# -- the disk itself -------------------------------------------------------------------------------------------------


def threads() -> int:
    return sum(thread.name == "deputy-mcp-journal" for thread in threading.enumerate())


@within(20)
async def test_with_fsync_a_thread_follows_the_writes_and_ends_with_the_journal(path: Path) -> None:
    """Over rotations, too; no descriptor and no thread is left."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        with opened(Journal(path, fsync=True, max_bytes=4_096)) as journal:
            assert 1 == threads()
            for _ in range(50):
                await commit_all(journal, 5)

        assert 0 == threads()

    assert before == len(os.listdir("/proc/self/fd"))
    assert 500 == events_of(path).count("call")
    assert verdict_of(path).intact


@within(20)
async def test_a_disk_that_cannot_keep_what_was_written_refuses_until_it_can(path: Path) -> None:
    """Nobody waited for it, so the next call is refused; only what reached the disk ends the outage."""
    with opened(Journal(path, fsync=True)) as journal:
        file = journal._file
        assert file is not None
        assert file._syncer is not None
        (own,) = file._syncer._fds
        reading, writing = os.pipe()
        kept = os.dup(own)
        os.dup2(writing, own)  # a pipe cannot be synced
        journal.append("result")
        journal.flush()
        with anyio.fail_after(10):
            while file._syncer._failure is None:
                await anyio.lowlevel.checkpoint()

        (outcome,) = await commit_all(journal, 1)
        assert "Invalid argument" in str(outcome)
        os.dup2(kept, own)
        assert isinstance((await commit_all(journal, 1))[0], int)
        for descriptor in (reading, writing, kept):
            os.close(descriptor)

    assert ["begin", "open", "result", "gap", "call", "close"] == events_of(path)
    assert verdict_of(path).intact


def test_without_flock_all_is_imported_and_only_a_journal_is_refused(path: Path) -> None:
    """As on Windows: `fcntl` is not there. What we depend on is imported before, for there it has its own ways."""
    program = (
        "import sys, mcp; sys.modules['fcntl'] = None\n"
        "import deputy_mcp\n"
        "try: deputy_mcp.Journal(sys.argv[1]).open()\n"
        "except deputy_mcp.ConfigError as error: print(error)"
    )
    run = subprocess.run((sys.executable, "-c", program, str(path)), capture_output=True, text=True, timeout=60)

    assert "needs flock" in run.stdout, run.stderr
    assert not path.exists()
