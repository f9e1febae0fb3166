"""Lines of the journal: what stands in them, what never does, and how the chain shows what was done to them.

The chain is also computed here by hand, as the reference describes it, and not only by the module's own words.
"""

import hashlib
import hmac
import json
import random
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deputy_mcp._core.audit import (
    EVENTS,
    MAX_CODE,
    MAX_LINE_BYTES,
    MAX_NAME,
    MAX_TEXT,
    MOST_CODES,
    RecordEncoder,
    RecordFields,
    decode_line,
    iso_time,
)
from deputy_mcp._core.audit_chain import CHAIN_START, Verdict, chain_lines, is_hash, verify_lines
from deputy_mcp._core.redaction import (
    MAX_ARGUMENT_DEPTH,
    MAX_ARGUMENT_TEXT,
    MAX_ARGUMENTS_BYTES,
    MOST_ARGUMENT_VALUES,
    is_secret_name,
    masked_text,
)

NOON = 1_800_000_000.5
SECRET = "hunter2-correct-horse"
KEY = b"a key of our own"


def record(event: Any = "result", encoder: RecordEncoder | None = None, **fields: Any) -> dict[str, Any]:
    """What a reader gets back of one encoded record."""
    body = (encoder or RecordEncoder()).encode(event, NOON, fields)
    value = json.loads("{" + body + "}")
    assert isinstance(value, dict)
    return value


def journal(count: int = 6, *, key: bytes | None = None, last: str = "close") -> list[bytes]:
    """The lines of a small journal: begin, some results, the last."""
    encoder = RecordEncoder()
    kind = "hmac-sha256" if key else "sha256"
    bodies = [encoder.encode("begin", NOON, {"version": 1, "chain": kind})]
    bodies += [encoder.encode("result", NOON + i, {"call": i, "tool": f"tool {i}"}) for i in range(2, count)]
    bodies.append(encoder.encode(last, NOON + count, {}))  # type: ignore[arg-type] # a name of an event
    data, _ = chain_lines(bodies, 0, CHAIN_START, key)
    return data.splitlines(keepends=True)


def hash_of(line: bytes) -> str:
    return str(json.loads(line)["hash"])


# --- Records ----------------------------------------------------------------------------------------------------------


def test_a_record_holds_its_fields_in_one_order_and_leaves_out_what_is_not_known():
    """Whatever order they were given in; None is no value."""
    given_fields = {"outcome": "unknown", "server": "notes", "duration_seconds": 0.123456789, "call": 7, "ticket": None}
    given_fields["is_error"] = False
    there = record(**given_fields)

    assert ["time", "event", "call", "server", "duration_seconds", "outcome", "is_error"] == list(there)
    assert there["is_error"] is False
    assert 0.123457 == there["duration_seconds"]
    assert list(there) == list(record(**dict(reversed(given_fields.items()))))


def test_the_order_is_the_one_in_which_the_fields_are_declared():
    """The reference can be read off the type."""
    order = [
        name for name in RecordFields.__annotations__ if name in ("server", "tool", "code", "reason", "generation")
    ]

    assert ["server", "tool", "code", "generation", "reason"] == order
    assert ["time", "event", *order] == list(record(code="c", reason="r", generation=1, tool="t", server="s"))


@pytest.mark.parametrize("seconds", [0.0, 1.0, NOON, 253_402_300_799.0])
def test_a_time_is_utc_to_the_microsecond_and_always_of_one_length(seconds):
    """So that a line is found by its fixed beginning."""
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", iso_time(seconds))
    assert 27 == len(iso_time(seconds))
    assert "2027-01-15T08:00:00.500000Z" == iso_time(NOON)


@pytest.mark.parametrize("event", sorted(EVENTS))
def test_every_event_can_be_written_and_is_found_in_the_line(event):
    """Its name stands behind the time."""
    assert event == record(event)["event"]


def test_an_event_or_a_field_that_there_is_not_is_the_callers_mistake():
    """Neither is written under another name, nor passed over."""
    with pytest.raises(ValueError, match="there is no event 'results'"):
        record("results")

    with pytest.raises(ValueError, match="no field servers, tols"):
        record(servers="a", tool="b", tols="c")

    with pytest.raises(ValueError, match="JSON compliant"):
        record(reply_bytes=float("nan"))


def test_a_name_that_is_no_text_is_shown_as_one():
    """A call by a name that is no text was refused, and the refusal has its line."""
    assert "['a']" == record("refusal", tool=["a"])["tool"]


def test_arguments_are_hashed_and_measured_and_otherwise_left_out():
    """The bytes as sent; what the caller computed already is not computed again."""
    there = record("call", arguments=b'{"a":1}')

    assert hashlib.sha256(b'{"a":1}').hexdigest() == there["arguments_sha256"]
    assert 7 == there["arguments_bytes"]
    assert "arguments" not in there
    assert "known" == record("call", arguments=b"{}", arguments_sha256="known")["arguments_sha256"]
    assert {"time", "event"} == set(record("call", arguments=None))


def test_codes_are_shown_as_they_are_and_a_hosts_own_word_is_treated_as_text():
    """A code is not masked even where it equals a secret's value; what is no code is masked and cut."""
    encoder = RecordEncoder()
    encoder.add_secrets(["approval_expired", SECRET])
    for _ in range(2):
        assert "approval_expired" == record("refusal", encoder, error_code="approval_expired")["error_code"]

    assert "no ***!" == record("refusal", encoder, code=f"no {SECRET}!")["code"]
    assert MAX_CODE + 1 == len(record("refusal", encoder, code="x" * 1_000)["code"])


def test_the_codes_of_findings_are_a_list_of_bounded_length():
    """However many findings there are."""
    there = record(findings=("a_b", "not a code", *["c"] * 100))["findings"]

    assert ["a_b", "not a code", "c"] == there[:3]
    assert MOST_CODES == len(there)


def test_caches_are_bounded():
    """A server with endless names makes nothing grow for ever."""
    encoder = RecordEncoder()
    for i in range(5_000):
        record("listing", encoder, tool=f"tool {i}", code=f"c{i}")

    assert all(len(cache) <= 2_048 for cache in (encoder._names, encoder._codes, encoder._orders))


# --- Secrets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["server", "tool", "public_name", "reason", "protocol_version"])
def test_a_secret_is_masked_wherever_a_value_came_from_outside(field):
    """Also when it is the whole value, and when the name was shown before the secret was known."""
    encoder = RecordEncoder()
    assert SECRET in record("refusal", encoder, **{field: f"x {SECRET} y"})[field]

    encoder.add_secrets([SECRET, "short"])
    encoder.add_secrets(["another secret"])
    assert "x *** y" == record("refusal", encoder, **{field: f"x {SECRET} y"})[field]
    assert "*** and *** short" == record("refusal", encoder, **{field: f"{SECRET} and another secret short"})[field]


def test_a_configured_servers_name_is_shown_even_where_a_secret_has_the_same_value():
    """`POSTGRES_USER=postgres` must not hide which server was called."""
    encoder = RecordEncoder()
    encoder.add_secrets(["postgres"], servers=["postgres"])

    assert "postgres" == record("call", encoder, server="postgres")["server"]
    assert "*** query" == record("call", encoder, tool="postgres query")["tool"]


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 3), st.integers(0, 60), st.text("ab", max_size=40), st.integers(0, 40))
@example(before=3, gap=0, tail="", most=0)
def test_no_piece_of_a_secret_is_left_by_cutting(before, gap, tail, most):
    """Masking what came before moves the rest to the front; the window's end may hold the beginning of a secret."""
    secret = "S3CR3T-" + "0123456789" * 4
    text = secret * before + "." * gap + secret + tail
    shown = masked_text(text, (secret,), most)

    assert "S3C" not in shown
    assert len(shown) <= max(most, len(text.replace(secret, "***"))) + 1


def test_texts_and_names_are_cut_with_a_mark():
    """A hostile name or reason does not fill the journal."""
    there = record("refusal", tool="t" * 10_000, reason="r" * 10_000)

    assert "t" * MAX_NAME + "…" == there["tool"]
    assert "r" * MAX_TEXT + "…" == there["reason"]


@settings(deadline=None, max_examples=200)
@given(st.text(st.characters(exclude_categories=()), max_size=80))
@example("\x7f\x00\x1b[31m\ud800\u2028\r\n")
def test_a_line_is_plain_ascii_on_one_line_whatever_the_text(text):
    """Safe on a terminal, and read back as it was."""
    body = RecordEncoder(record_arguments=True).encode(
        "refusal", NOON, {"tool": text, "reason": text, "code": text, "arguments": json.dumps({text: text}).encode()}
    )

    assert body.isascii()
    assert body.isprintable()
    assert text == json.loads("{" + body + "}")["reason"]


def test_the_longest_line_is_below_the_bound():
    """Every part at its limit, in the characters whose escapes are longest."""
    wide = "\U0001f600" * 10_000
    fields = dict.fromkeys(("server", "tool", "public_name", "protocol_version", "continues", "reason", "torn"), wide)
    fields |= dict.fromkeys(("method", "decision", "code", "error_code", "outcome", "state"), wide)
    arguments = json.dumps({"a": ["x" * MAX_ARGUMENT_TEXT] * 15}).encode()
    body = RecordEncoder(record_arguments=True).encode(
        "call", NOON, {**fields, "findings": [wide] * 1_000, "arguments": arguments}
    )

    assert "arguments" in json.loads("{" + body + "}")
    assert len(body) + 200 < MAX_LINE_BYTES


# --- Arguments --------------------------------------------------------------------------------------------------------


def recorded(arguments: Any, redact: Any = None) -> dict[str, Any]:
    encoder = RecordEncoder(record_arguments=True, redact=redact)
    encoder.add_secrets([SECRET])
    return record("call", encoder, arguments=json.dumps(arguments).encode())


def test_recorded_arguments_are_masked_by_value_and_by_name():
    """At every depth, in keys too; what is named like a secret is hidden whole, whatever it is."""
    arguments = {
        "text": f"say {SECRET}",
        "deep": [{"api_key": {"a": 1}, SECRET: None, "n": 1, "f": 0.5, "ok": True}],
        "Authorization": "Bearer x",
    }
    assert {
        "text": "say ***",
        "deep": [{"api_key": "***", "***": None, "n": 1, "f": 0.5, "ok": True}],
        "Authorization": "***",
    } == recorded(arguments)["arguments"]


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("password", True),
        ("dbPassword", True),
        ("DB_PASSWORD", True),
        ("API-Key", True),
        ("apiKey", True),
        ("APIKey", True),
        ("x-api-token", True),
        ("privateKey", True),
        ("credentials", True),
        ("max_tokens", False),
        ("author", False),
        ("key", False),
        ("primary_key", False),
        ("keyboard", False),
        ("", False),
        ("passwords_are_bad" * 100, False),
    ],
)
def test_a_name_is_like_a_secrets_by_whole_words(name, secret):
    """However they are joined; a word that only contains one is none."""
    assert secret is is_secret_name(name)


def test_the_hosts_redact_has_the_first_word_and_ours_the_last():
    """What it gives is masked all the same; what it got is a copy."""
    seen = []

    def redact(arguments):
        seen.append(arguments)
        return {"kept": arguments["a"], "new": f"{SECRET}!", "token": 1, "when": object(), "pair": (1, 2)}

    there = recorded({"a": 1, "b": 2}, redact)["arguments"]
    assert [{"a": 1, "b": 2}] == seen
    assert {"kept": 1, "new": "***!", "token": "***", "when": "<object>", "pair": [1, 2]} == there


def crash(_):
    raise ZeroDivisionError(SECRET)


@pytest.mark.parametrize("redact", [crash, lambda _: None, lambda _: "text", lambda a: [a]])
def test_a_redact_that_fails_hides_everything(redact):
    """An error, or an answer that is no object; the hash and the size stay."""
    there = recorded({"a": 1}, redact)

    assert "redact_failed" == there["arguments_left_out"]
    assert "arguments" not in there
    assert 8 == there["arguments_bytes"]


def test_arguments_that_are_no_json_are_left_out():
    """They cannot come from the gate; whoever hands them in, the line is written."""
    assert "redact_failed" == record("call", RecordEncoder(record_arguments=True), arguments=b"{")["arguments_left_out"]


def test_recorded_arguments_are_bounded_in_depth_values_and_bytes():
    """Deep, wide and long ones; numbers that JSON or a reader cannot take."""
    deep: Any = 1
    for _ in range(100):
        deep = [deep]

    text = json.dumps(recorded({"deep": deep})["arguments"])
    assert MAX_ARGUMENT_DEPTH == text.count("[")
    assert "…" in json.loads(text.replace("[", "").replace("]", ""))["deep"]

    wide = recorded({"wide": [1] * MOST_ARGUMENT_VALUES * 2})["arguments"]["wide"]
    assert MOST_ARGUMENT_VALUES - 2 == wide.count(1)
    assert "…" == wide[-1]

    many = recorded({f"k{i}": 1 for i in range(MOST_ARGUMENT_VALUES)} | {"last": 1})
    assert "too_large" == many["arguments_left_out"]
    few = RecordEncoder(record_arguments=True, redact=lambda _: {i: {} for i in range(MOST_ARGUMENT_VALUES * 2)})
    assert "too_large" == record("call", few, arguments=b"{}")["arguments_left_out"]

    long = recorded({"long": "x" * 100_000})["arguments"]["long"]
    assert MAX_ARGUMENT_TEXT + 1 == len(long)
    assert (
        "too_large"
        == recorded({"a": ["x" * MAX_ARGUMENT_TEXT] * (MAX_ARGUMENTS_BYTES // MAX_ARGUMENT_TEXT)})["arguments_left_out"]
    )

    odd = recorded({}, lambda _: {"big": 10**400, "inf": float("inf"), "fine": 10**300})["arguments"]
    assert {"big": "<number>", "inf": "<number>", "fine": 10**300} == odd


# --- The chain --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, KEY])
def test_a_line_carries_its_own_hash_and_the_one_of_the_line_before(key):
    """As the reference says, computed by hand: over the line's bytes up to the member `hash`."""
    before = CHAIN_START
    for number, line in enumerate(journal(key=key), 1):
        covered, _, rest = line.partition(b',"hash":"')
        by_hand = hmac.new(key, covered, "sha256") if key else hashlib.sha256(covered)
        there = json.loads(line)

        assert (number, before, by_hand.hexdigest()) == (there["seq"], there["prev"], there["hash"])
        assert ["prev", "hash"] == list(there)[-2:]
        assert f'{by_hand.hexdigest()}"}}\n'.encode() == rest
        before = there["hash"]


@pytest.mark.parametrize("key", [None, KEY])
def test_an_untouched_journal_is_intact(key):
    """And the verdict says where it ends and how."""
    lines = journal(key=key)
    verdict = verify_lines(lines, key=key)

    assert verdict.intact
    assert (6, 6, 1, CHAIN_START, hash_of(lines[-1]), True) == (
        verdict.lines,
        verdict.seq,
        verdict.first_seq,
        verdict.after,
        verdict.head,
        verdict.closed,
    )
    assert not verify_lines(lines[:-1], key=key).closed


def test_no_lines_are_intact_unless_something_was_expected():
    """An empty file is a journal that was not begun; with a noted head it is one that was cut off."""
    assert verify_lines([]).intact
    assert "head_missing" == verify_lines([], head="0" * 63 + "1").code
    assert verify_lines([], head=CHAIN_START).intact


def edited(line: bytes) -> bytes:
    return line.replace(b"tool", b"fool", 1)


def rehashed(line: bytes) -> bytes:
    """Edited, with a hash that fits the line again."""
    covered = edited(line).partition(b',"hash":"')[0]
    return b'%b,"hash":"%b"}\n' % (covered, hashlib.sha256(covered).hexdigest().encode())


def changed(change: Any) -> list[bytes]:
    lines = journal()
    change(lines)
    return lines


DAMAGE: dict[str, tuple[Any, str, int, int]] = {
    "a value edited": (lambda n: n.__setitem__(2, edited(n[2])), "edited", 3, 2),
    "the last line edited": (lambda n: n.__setitem__(5, n[5].replace(b"close", b"cloze")), "edited", 6, 5),
    "the hash edited": (lambda n: n.__setitem__(2, n[2].replace(hash_of(n[2]).encode(), b"f" * 64)), "edited", 3, 2),
    "the number edited": (lambda n: n.__setitem__(2, n[2].replace(b'"seq":3', b'"seq":4')), "edited", 3, 2),
    "edited and hashed again": (lambda n: n.__setitem__(2, rehashed(n[2])), "edited", 3, 2),
    "the first line hashed again": (
        lambda n: n.__setitem__(0, rehashed(n[0].replace(b'"version":1', b'"version":1,"tool":"x"'))),
        "edited",
        1,
        0,
    ),
    "one removed": (lambda n: n.pop(2), "removed", 3, 2),
    "two removed": (lambda n: (n.pop(2), n.pop(2)), "removed", 3, 2),
    "the first removed": (lambda n: n.pop(0), "removed", 1, 0),
    "two swapped": (lambda n: n.insert(2, n.pop(3)), "reordered", 3, 2),
    "one moved to the end": (lambda n: n.append(n.pop(2)), "reordered", 3, 2),
    "one moved to the front": (lambda n: n.insert(1, n.pop(4)), "reordered", 2, 1),
    "one repeated": (lambda n: n.insert(3, n[2]), "reordered", 4, 3),
    "one put in": (lambda n: n.insert(3, b'{"seq":4}\n'), "malformed", 4, 3),
    "a blank line": (lambda n: n.insert(3, b"\n"), "malformed", 4, 3),
    "another line break": (lambda n: n.__setitem__(2, n[2].replace(b"\n", b"\r\n")), "malformed", 3, 2),
    "a line without an end": (lambda n: n.__setitem__(2, n[2][:-1]), "malformed", 3, 2),
    "white space": (lambda n: n.__setitem__(2, n[2].replace(b'"event":', b'"event": ')), "malformed", 3, 2),
    "a line too long": (lambda n: n.insert(2, b"x" * (MAX_LINE_BYTES + 1)), "malformed", 3, 2),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_the_first_line_that_was_touched_is_named(kind):
    """Edited, removed, moved, put in: by its number, and what stands before it is told to be intact."""
    change, code, line, intact = DAMAGE[kind]
    verdict = verify_lines(changed(change))

    assert (code, line, intact) == (verdict.code, verdict.bad_line, verdict.lines)
    assert not verdict.intact
    assert str(line) in verdict.message
    heads = [CHAIN_START, *map(hash_of, journal())]
    assert heads[intact] == verdict.head


def test_what_is_gone_is_told_by_its_numbers():
    """One or several."""
    assert "line with number 3 is gone" in verify_lines(changed(lambda n: n.pop(2))).message
    assert "lines with numbers 3 to 4 are gone" in verify_lines(changed(DAMAGE["two removed"][0])).message


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 5), st.integers(0, 10_000), st.integers(0, 255))
def test_no_byte_of_a_line_can_be_changed_unseen(line, place, value):
    """Each byte of each line; the first bad line is that one, or the one before for its copied hash."""
    lines = journal()
    place %= len(lines[line]) - 1
    if lines[line][place] == value or value == 10:
        return

    before = lines[line]
    lines[line] = before[:place] + bytes([value]) + before[place + 1 :]
    verdict = verify_lines(lines)
    assert not verdict.intact
    assert line + 1 == (verdict.bad_line or 1)


def test_a_tail_cut_off_is_seen_only_with_the_head():
    """Nothing in the rest tells; the noted hash does."""
    lines = journal()
    head = hash_of(lines[-1])

    assert verify_lines(lines[:4]).intact
    assert "head_missing" == verify_lines(lines[:4], head=head).code
    assert verify_lines(lines, head=head).intact
    assert verify_lines(lines, head=hash_of(lines[3])).intact, "a journal may have grown since"


def test_a_chain_computed_anew_is_seen_with_the_head_or_the_key():
    """Somebody edits a line and makes all later ones fit."""
    encoder = RecordEncoder()
    begin = encoder.encode("begin", NOON, {"version": 1, "chain": "sha256"})
    forged = chain_lines([begin, encoder.encode("result", NOON, {"tool": "other"})], 0, CHAIN_START, None)[0]
    lines = forged.splitlines(keepends=True)

    assert verify_lines(lines).intact
    assert "head_missing" == verify_lines(lines, head=hash_of(journal()[-1])).code
    verdict = verify_lines(lines, key=KEY)
    assert ("edited", 1) == (verdict.code, verdict.bad_line)
    assert "another key or without one" in verdict.message


def test_a_chain_made_with_a_key_asks_for_it():
    """Without it nothing can be said; with another one nothing fits."""
    lines = journal(key=KEY)

    assert "key_needed" == verify_lines(lines).code
    assert verify_lines(lines).bad_line is None
    assert ("edited", 1) == (verify_lines(lines, key=b"other").code, verify_lines(lines, key=b"other").bad_line)


def test_a_last_line_without_an_end_is_no_damage():
    """A crash in the middle of a write, or a write under way: told, and everything before it holds."""
    lines = journal()
    verdict = verify_lines([*lines[:3], lines[3][:40]])

    assert verdict.intact
    assert (3, 40, False) == (verdict.lines, verdict.torn_bytes, verdict.closed)
    assert verify_lines([b"x"]).torn_bytes == 1


def test_a_second_file_goes_on_with_the_first_ones_hash_and_numbers():
    """Together they are one chain, and the second alone says what it follows."""
    encoder = RecordEncoder()
    first = journal(last="result")
    head = hash_of(first[-1])
    begin = encoder.encode("begin", NOON, {"version": 1, "chain": "sha256", "continues": "audit.jsonl.000001"})
    second = chain_lines([begin, encoder.encode("close", NOON, {})], 6, head, None)[0].splitlines(keepends=True)

    assert verify_lines(first + second).intact
    assert 8 == verify_lines(first + second).lines
    alone = verify_lines(second)
    assert (True, 7, head, "audit.jsonl.000001", 2, 8) == (
        alone.intact,
        alone.first_seq,
        alone.after,
        alone.continues,
        alone.lines,
        alone.seq,
    )
    assert ("removed", 6) == (verify_lines(first[:-1] + second).code, verify_lines(first[:-1] + second).bad_line)


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"version": 2, "chain": "sha256"}, "malformed"), ({"chain": "sha256"}, "malformed"), ({"version": 1}, "intact")],
)
def test_a_version_that_is_not_known_is_not_guessed_at(fields, code):
    """A later release may mean something else by the same members."""
    body = RecordEncoder().encode("begin", NOON, dict(fields))

    assert code == verify_lines([chain_lines([body], 0, CHAIN_START, None)[0]]).code


def test_a_begin_that_is_no_json_is_judged_by_its_hash_alone():
    """Somebody who can compute hashes wrote it; nothing crashes."""
    body = f'"time":"{iso_time(NOON)}","event":"begin","version":1,]'
    assert "removed" == verify_lines([chain_lines([body], 0, CHAIN_START, None)[0]]).code


@settings(deadline=None, max_examples=300)
@given(st.lists(st.one_of(st.binary(max_size=200), st.sampled_from(journal())), max_size=8))
def test_whatever_the_bytes_a_verdict_comes_out(lines):
    """Never an exception, and never intact with a line that is none."""
    verdict = verify_lines([line + b"\n" if not line.endswith(b"\n") else line for line in lines])

    assert isinstance(verdict, Verdict)
    if verdict.intact:
        assert len(lines) == verdict.lines


def test_checking_takes_linear_time_whatever_the_lines():
    """Nothing in a line is searched for; a line of nested brackets is never parsed."""
    deep = b"[" * (MAX_LINE_BYTES - 1) + b"\n"
    ends = b',"prev":"' * 20_000 + b"\n"

    assert ["malformed"] * 2 == [verify_lines([line] * 3).code for line in (deep, ends)]


@pytest.mark.parametrize(
    "line", [b"", b"x", b"[1]", b"1", b'"a"', b"\xff", b"[" * 100_000, b"9" * 10_000, b"1" * (MAX_LINE_BYTES + 1)]
)
def test_what_is_no_record_is_none(line):
    """Odd, deep, long or broken: None, never an exception."""
    assert decode_line(line) is None


def test_a_record_is_read_back():
    """With everything in it."""
    lines = journal()
    assert {"seq": 2, "tool": "tool 2"}.items() <= (decode_line(lines[1]) or {}).items()


@pytest.mark.parametrize(
    ("text", "fine"),
    [("0" * 64, True), ("f" * 63, False), ("F" * 64, False), ("f" * 65, False), ("f" * 64 + "\n", False)],
)
def test_a_head_is_sixty_four_lower_case_hexadecimal_digits(text, fine):
    """Nothing else can be one."""
    assert fine is is_hash(text)


def test_shuffled_lines_are_never_intact():
    """Whatever the order, unless it is the right one."""
    lines = journal()
    dice = random.Random(0)
    for _ in range(200):
        order = dice.sample(range(6), 6)
        assert verify_lines([lines[i] for i in order]).intact is (order == list(range(6)))


def test_what_is_remembered_of_names_is_bounded_by_their_length():
    """A caller, or a model behind it, may ask for tools by names of megabytes; they are cut, and never kept."""
    encoder = RecordEncoder()
    before = sum(map(len, encoder._judgements))
    for number in range(20):
        long = f"{number}" + "x" * 100_000
        assert (
            len(encoder.encode("refusal", NOON, {"judged": ("s", long, None, "tools/call", None, None, None)})) < 1_000
        )

    assert before == sum(map(len, encoder._judgements))


def test_a_secret_that_is_learned_later_is_masked_in_names_that_were_shown_before():
    """What was made of them is forgotten with it."""
    encoder = RecordEncoder()
    fields = {"judged": ("s", "the-token-itself", None, "tools/call", None, None, None)}
    assert "the-token-itself" in encoder.encode("refusal", NOON, dict(fields))
    encoder.add_secrets(["the-token-itself"])
    assert "the-token-itself" not in encoder.encode("refusal", NOON, dict(fields))
