"""Listings that differ a little from the one before: read by what is known of them, and never read otherwise."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deputy_mcp._core.messages import Reply, read_message
from deputy_mcp._core.repeated import MOST_APART, MOST_MISSES, RepeatedReplies
from deputy_mcp._core.repeated_entries import MOST_FRESH, split_reply

DIALECT = {"resultType": "complete", "ttlMs": 0}


def entry(name, **more):
    return {"name": name, "description": f"does {name}", "inputSchema": {"type": "object"}} | more


def line_of(entries, *, wire_id="tools-0-0", member="tools", before=None, after=DIALECT, **spelling):
    result = (before or {}) | {member: entries} | after
    return json.dumps({"jsonrpc": "2.0", "id": wire_id, "result": result}, **spelling).encode()


def taken_apart(line):
    (reply,) = read_message(line, 100_000)
    split = split_reply(line, reply)
    assert split is None or (split.reply is reply and split.fits(line))
    return split


def spelled(messages):
    """What tells 1, 1.0 and true apart, and the order of members."""
    return [(m.id, json.dumps(m.result), m.size_bytes) if isinstance(m, Reply) else m for m in messages]


TOOLS = [entry(name) for name in "abcd"]


@pytest.mark.parametrize("spelling", [{}, {"separators": (",", ":")}, {"ensure_ascii": False}])
@pytest.mark.parametrize("member", ["tools", "prompts"])
def test_what_is_known_is_the_identical_object(member, spelling):
    """Moved, gone, new or changed: only the others are read, and each stands where it stands."""
    first = taken_apart(line_of(TOOLS, member=member, **spelling))
    a, _, c, d = first.reply.result[member]
    new = entry("é🙂", value=1.5)
    line = line_of([d, new, TOOLS[0], TOOLS[0], TOOLS[2]], member=member, **spelling)
    found = first.read(line)

    assert spelled(read_message(line, 1000)) == spelled([found.reply])
    assert [id(d), id(a), id(a), id(c)] == [id(one) for one in found.reply.result[member] if one != new]
    again = found.read(line_of([new], member=member, **spelling))
    assert again.reply.result[member][0] is found.reply.result[member][1]


def test_a_value_of_another_type_is_another_text():
    """1, 1.0 and true are equal in Python, and no two of them are one definition."""
    first = taken_apart(line_of([entry("a", value=1), entry("b")]))
    for value in (1.0, True):
        (read, _) = first.read(line_of([entry("a", value=value), entry("b")])).reply.result["tools"]
        assert type(value) is type(read["value"])


@pytest.mark.parametrize(
    "line",
    [
        line_of(TOOLS, after={"resultType": "complete", "ttlMs": 1}),
        line_of(TOOLS, wire_id="tools-1-0"),
        line_of(TOOLS)[:-1],
        b"",
    ],
)
def test_a_line_that_differs_elsewhere_does_not_fit(line):
    """What stands around the entries is the same, or a parser reads the whole."""
    assert not taken_apart(line_of(TOOLS)).fits(line)


A, B, _, D = (json.dumps(tool).encode() for tool in TOOLS)
HEAD, TAIL = line_of([]).split(b"[]")


@pytest.mark.parametrize(
    "entries",
    [
        A + b", ",
        b", " + A,
        A + b", , " + B,
        A + B,
        A + b" " + B,
        A + b", 1",
        A + b", " + B[:-1],
        A + b", {]",
        A + b"\xff",
        A + b'], "x": [' + B,
        A + b', {"s": "\\ud800"}',
        b", ".join(json.dumps(entry(f"new {number}")).encode() for number in range(MOST_FRESH + 1)),
    ],
)
def test_a_list_of_something_else_is_left_to_the_parser(entries):
    """No JSON, another list, what must be repaired, and what is hardly known."""
    split = taken_apart(line_of(TOOLS))
    line = HEAD + b"[" + entries + b"]" + TAIL

    assert split.fits(line)
    assert split.read(line) is None


def test_an_unusual_gap_is_a_gap():
    """White space around a comma is nothing."""
    split = taken_apart(line_of(TOOLS))
    read = split.read(HEAD + b"[" + A + b"\t,\r\n" + D + b", " + B + b"]" + TAIL)

    assert [TOOLS[0], TOOLS[3], TOOLS[1]] == read.reply.result["tools"]
    assert [] == split.read(HEAD + b"[]" + TAIL).reply.result["tools"]


def test_entries_that_begin_alike_are_told_apart():
    """By all of their text; of many that begin alike some are read anew, which is only dearer."""
    alike = [{"description": "x" * 100, "name": str(number)} for number in range(8)]
    line = line_of(list(reversed(alike)))

    assert list(reversed(alike)) == taken_apart(line_of(alike)).read(line).reply.result["tools"]


@pytest.mark.parametrize(
    "line",
    [
        line_of([]),
        line_of([1, 2]),
        line_of({}),
        b"[" + line_of(TOOLS) + b"]",
        b'{"jsonrpc":"2.0","id":"x","result":{}}',
        line_of([entry("\ud800")]),
        line_of(TOOLS, before={"_meta": json.loads("[" * 300 + "]" * 300)}),
        line_of(TOOLS, before={"one": TOOLS, "two": {"tools": []}, "three": {"tools": [1]}, "four": {"tools": [2]}}),
        HEAD + b"[" + A + b'], "tools": []' + TAIL,
    ],
)
def test_what_is_oddly_written_is_not_taken_apart(line):
    """Nothing to take apart, or more than one place where the list may stand."""
    (reply,) = read_message(line, 1000)
    assert split_reply(line, reply) is None


def test_a_list_of_the_same_name_elsewhere_is_not_taken_for_it():
    """A server must not show one list to the pins and another to the model."""
    decoy = {"_meta": {"tools": [entry("a", value=True), entry("b")]}}
    real = [entry("a", value=1), entry("b")]
    split = taken_apart(line_of(real, before=decoy))

    assert not split.fits(line_of(real, before={"_meta": {"tools": [entry("c")]}}))
    read = split.read(line_of([entry("b"), entry("a", value=1)], before=decoy))
    assert 1 == read.reply.result["tools"][1]["value"]
    assert read.reply.result["tools"][1]["value"] is not True

    # Of two in one object the last counts.
    twice = taken_apart(HEAD + b"[" + A + b'], "tools": [' + B + b"]" + TAIL)
    assert (HEAD + b"[" + A + b'], "tools": [', [TOOLS[1]]) == (twice.head, twice.reply.result["tools"])


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("tools"), inner, max_size=3)
    ),
    max_leaves=6,
)
entries = st.lists(st.dictionaries(st.sampled_from(["name", "tools", "é"]), values, max_size=3), max_size=5)
spellings = st.sampled_from([{}, {"separators": (",", ":")}, {"ensure_ascii": False}, {"indent": 1}])
frames = st.dictionaries(st.sampled_from(["_meta", "tools ", "nextCursor"]), values, max_size=2)


@settings(deadline=None, max_examples=400)
@given(st.lists(st.tuples(entries, spellings, frames, st.booleans()), min_size=2, max_size=6), st.data())
def test_a_listing_is_never_read_otherwise_than_by_the_parser(listings, drawn):
    """Whatever came before: the same messages as if each were read alone; and what is cut or spoilt is no listing."""
    replies = RepeatedReplies(100_000, 1_000_000, hashed=False)
    known = []
    for own, spelling, frame, spoilt in listings:
        known += own
        mixed = own + drawn.draw(st.lists(st.sampled_from(known), max_size=4) if known else st.just([]))
        line = line_of(mixed, before=frame, **spelling)
        if spoilt:
            at = drawn.draw(st.integers(0, len(line)))
            line = line[:at] + drawn.draw(st.sampled_from([b"", b",", b"}", b'"', b"\xff", b"[", b"{}"])) + line[at:]

        assert spelled(read_message(line, 100_000)) == spelled(replies.read(line))


def read_all(replies, listings):
    return [replies.read(line)[0] for line in listings]


def test_a_listing_is_taken_apart_when_it_changes_and_not_for_ever():
    """Most never do; and of some that do nothing can be used again."""
    replies = RepeatedReplies(100_000, 1_000_000, hashed=True)
    first, second, third = read_all(replies, [line_of([*TOOLS, entry(name)]) for name in ("x", "y", "z")])
    assert first.result["tools"][0] is not second.result["tools"][0]
    assert second.result["tools"][0] is third.result["tools"][0]

    changing = [line_of([*TOOLS, entry(str(i))], after={"ttlMs": i}) for i in range(2 * MOST_MISSES)]
    read_all(replies, changing)
    assert replies._misses == MOST_MISSES
    one, other = read_all(replies, [changing[0], line_of([*TOOLS, entry("new")], after={"ttlMs": 0})])
    assert one.result["tools"][0] is not other.result["tools"][0]


def test_pages_are_told_apart_by_their_ids():
    """Also where the id stands behind the entries."""
    replies = RepeatedReplies(100_000, 1_000_000, hashed=False)

    def page(number, tools):
        listed = json.dumps({"jsonrpc": "2.0", "result": {"tools": tools}, "id": f"tools-0-{number}"})
        return listed.encode()

    for text in "xyz":
        both = [page(number, [entry("a"), entry(f"{text} on {number}")]) for number in (0, 1)]
        assert [read_message(line, 1000)[0] for line in both] == read_all(replies, both)

    assert 2 == len(replies._splits)


def test_what_is_kept_apart_is_bounded():
    """By bytes, and by how many there are."""
    replies = RepeatedReplies(100_000, 2_000, hashed=False)
    for number in range(30):
        wire_id = f"tools-{number // 3}-0"
        read_all(replies, [line_of([*TOOLS, entry(f"x{number}")], wire_id=wire_id)])
        assert 2_000 >= sum(one.reply.size_bytes for one in replies._splits.values())

    roomy = RepeatedReplies(100_000, 10_000_000, hashed=False)
    read_all(roomy, [line_of(TOOLS, wire_id=f"tools-{number}-0") for number in range(2 * MOST_APART)])
    assert MOST_APART >= len(roomy._listed) >= len(roomy._splits)


def test_what_is_forbidden_to_a_message_is_forbidden_to_its_parts():
    """The bound on values holds for the whole line."""
    replies = RepeatedReplies(60, 1_000_000, hashed=False)
    read_all(replies, [line_of([*TOOLS, entry(name)]) for name in "xy"])
    line = line_of([*TOOLS, entry("z", values=list(range(100)))])

    assert read_message(line, 60) == replies.read(line)
