"""Server-sent events, against a reference that follows the WHATWG standard (section 9.2) with the whole stream at hand.

A block without data dispatches nothing by the standard; the framer gives it too, with empty data, because a relay must
pass its id and retry fields on.
"""

import re
import sys
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deputy_mcp._core.events import Event, EventFramer
from deputy_mcp._core.framing import HEAD_BYTES, TAIL_BYTES, Oversized

BOM = b"\xef\xbb\xbf"
ENDS = [b"\n", b"\r\n", b"\r"]
CAP = 60
LARGE = 2 * HEAD_BYTES


def interpret(lines):
    """One block by the standard: what each field does, and the event's type and data in the end."""
    name, data = b"", []
    for line in lines:
        if line.startswith(b":"):
            continue

        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"event":
            name = value
        elif field == b"data":
            data.append(value)

    return Event(b"\n".join(lines), name.decode("utf-8", "replace") or "message", b"\n".join(data))


def parse_all(stream, cap):
    """The events of a whole stream. An event that has not ended is dropped, as the standard says."""
    out, block = [], []
    for line in re.split(rb"\r\n|\n|\r", stream.removeprefix(BOM))[:-1]:
        if line:
            block.append(line)
            continue

        raw = b"\n".join(block)
        if raw:
            # Sizes are counted with LF line ends, the last one included.
            large = len(raw) + 1 > cap
            out.append((Oversized, len(raw) + 1, (raw + b"\n")[-TAIL_BYTES:].rstrip()) if large else interpret(block))

        block = []

    return out


def feed_all(chunks, cap):
    framer = EventFramer(cap)
    out = [item for chunk in chunks for item in framer.feed(chunk)]
    return [item if isinstance(item, Event) else (Oversized, item.seen_bytes, item.tail) for item in out]


def cut(stream, places):
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[a:b] for a, b in pairwise(edges)]


def held_bytes(framer):
    """All that the framer keeps between two reads, in itself and in its parts."""
    parts = [getattr(framer, name) for name in type(framer).__slots__]
    return sum(held_bytes(part) if hasattr(part, "__slots__") else sys.getsizeof(part) for part in parts)


LINES = [
    *(b"", b"", b"data: {}", b"data:{}", b"data:  two", b"data", b"data:", b"event: ping", b"event:", b"event"),
    *(b": a comment", b":", b"id: 7", b"retry: 10", b"unknown: x", b" data: x", b"data : x", b"dataa: x", BOM),
    *(BOM + b"data: x", "data: é—😀".encode(), b"data: \xff", b"event: \xff", b"data: x:y", b"DATA: x"),
]
lines = st.one_of(
    st.sampled_from(LINES),
    st.sampled_from([b"x", b"data: "]).flatmap(
        lambda begin: st.sampled_from([CAP - 8, CAP - 7, CAP - 6, CAP - 2, CAP - 1, CAP, 3 * CAP]).map(
            lambda n: begin + b"y" * n
        )
    ),
    st.binary(max_size=12),
)
streams = st.lists(st.tuples(lines, st.sampled_from(ENDS)), max_size=14).map(
    lambda pairs: b"".join(line + end for line, end in pairs)
)


@settings(deadline=None, max_examples=400)
@given(st.sampled_from([b"", b"", BOM]), streams, st.lists(st.integers(0, 10_000), max_size=12))
@example(b"", b"data: a\r\n\r\ndata: b\r\n\r\n", [8, 9, 10, 11])
@example(b"", b"data: a\r\rdata: b\r\r", [8, 9])
@example(b"", b"data: a\n\n\n\ndata: b\n\n", [9, 10])
@example(b"", b"data: a\n\r\n", [8, 9])
@example(BOM, b"data: a\n\n", [1, 2])
@example(b"", b"event:\ndata: a\n\n", [])
@example(b"", b"\n" + b"data: " + b"x" * (CAP - 7) + b"\n\n", [])
def test_any_bytes_in_any_chunks_give_the_events_of_the_standard(begin, stream, places):
    """LF, CRLF and CR, comments, unknown fields, broken UTF-8, a mark at the beginning: wherever the cuts fall."""
    stream = begin + stream
    assert parse_all(stream, CAP) == feed_all(cut(stream, places), CAP)


@settings(deadline=None, max_examples=100)
@given(st.sampled_from([b"", BOM]), streams)
def test_bytes_that_dribble_in_one_by_one_give_the_events_of_the_standard(begin, stream):
    """Every boundary at once, those inside a CRLF and inside a byte-order mark included."""
    stream = begin + stream
    assert parse_all(stream, CAP) == feed_all([bytes([byte]) for byte in stream], CAP)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("step", [1, 2, 3, 1000])
def test_an_event_comes_out_whole_with_any_line_end(end, step):
    """Name, data and the raw text are the same for LF, CRLF and CR, in any pieces."""
    stream = end.join([b": hello", b"id: 3", b"event: message", b"data: {", b"data:  }", b"", b""])
    expected = Event(b": hello\nid: 3\nevent: message\ndata: {\ndata:  }", "message", b"{\n }")
    assert [expected] == feed_all([stream[at : at + step] for at in range(0, len(stream), step)], 1024)


@pytest.mark.parametrize("end", ENDS)
def test_an_event_is_given_at_once_when_its_blank_line_has_ended(end):
    """A reply must not wait for the next event; with CR line ends the blank line ends with its CR."""
    assert [Event(b"data: 1", "message", b"1")] == list(EventFramer(1024).feed(b"data: 1" + end + end))


def test_a_line_feed_after_a_carriage_return_belongs_to_it_across_chunks():
    """CR, then LF in the next read, is one line end and not a blank line."""
    framer = EventFramer(1024)
    assert [] == list(framer.feed(b"data: 1\r"))
    assert [] == list(framer.feed(b"\n"))
    assert [] == list(framer.feed(b"data: 2\r"))
    assert [Event(b"data: 1\ndata: 2", "message", b"1\n2")] == list(framer.feed(b"\n\r\n"))


def test_several_lines_of_data_are_joined_by_line_feeds():
    """One leading space is taken off each, a field without colon is an empty line."""
    (event,) = EventFramer(1024).feed(b"data: a\ndata\ndata:  b\ndata:c\n\n")
    assert b"a\n\n b\nc" == event.data


@pytest.mark.parametrize(
    ("block", "name"),
    [
        (b"data: 1", "message"),
        (b"event: endpoint\ndata: 1", "endpoint"),
        (b"event:endpoint\ndata: 1", "endpoint"),
        (b"event: a\nevent: b\ndata: 1", "b"),
        (b"event: \xff\ndata: 1", "\ufffd"),
        (b"event:\ndata: 1", "message"),
        (b"event: a\nevent\ndata: 1", "message"),
        (b":event: a\ndata: 1", "message"),
        (b"EVENT: a\ndata: 1", "message"),
    ],
)
def test_an_event_has_the_last_name_it_was_given_or_is_a_message(block, name):
    """By the standard an empty type is `message`, whether it was never set or set to nothing."""
    assert [Event(block, name, b"1")] == list(EventFramer(1024).feed(block + b"\n\n"))


@pytest.mark.parametrize("stream", [b"\n", b"\n\n\n\n", b"\r\n\r\n\r\n", b"\r\r\r\r", b"", BOM, BOM + b"\n\n"])
def test_blank_lines_alone_are_no_events(stream):
    """Keep-alives of empty lines come to nothing."""
    assert [] == list(EventFramer(1024).feed(stream + b"x"))


def test_a_comment_alone_has_no_data():
    """Keep-alive comments come out raw, with nothing in them for us."""
    assert [Event(b": ping", "message", b"")] == list(EventFramer(1024).feed(b": ping\n\n"))


@pytest.mark.parametrize("places", [[], [1], [2], [1, 2], [3], [1, 2, 3]])
def test_a_byte_order_mark_at_the_beginning_is_dropped(places):
    """Whole or in pieces; kept, it would be part of the first field's name, and the first event lost."""
    assert [Event(b"data: 1", "message", b"1")] == feed_all(cut(BOM + b"data: 1\n\n", places), 1024)


def test_a_second_byte_order_mark_is_part_of_its_field():
    """Only one mark, and only at the beginning."""
    blocks = BOM + b"\n\n" + BOM + b"data: 1\n\n"
    assert [Event(BOM + b"data: 1", "message", b"")] == list(EventFramer(1024).feed(blocks))


def test_what_only_begins_like_a_byte_order_mark_is_not_lost():
    """Bytes that were held back come out with their event."""
    expected = Event(BOM[:2] + b"x: 1", "message", b"")
    assert [expected] == feed_all([BOM[:1], BOM[1:2], b"x: 1\n\n"], 1024)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("step", [1, 7, 10_000])
@pytest.mark.parametrize("before", [b"", b"\n", b": ping\n\n\n"])
def test_the_cap_is_exact_and_the_next_event_is_whole(end, step, before):
    """One byte under the cap, the cap, and one byte over: sizes count LF line ends and no blank lines."""
    for size in (1023, 1024, 1025):
        line = b"data: " + b"x" * (size - 7)
        stream = before + line + end + end + b"data: next" + end + end + b": end\n"
        chunks = [stream[at : at + step] for at in range(0, len(stream), step)]
        *_, event, following = feed_all(chunks, 1024)
        expected = Event(line, "message", line[6:]) if size <= 1024 else (Oversized, 1025, b"x" * (TAIL_BYTES - 1))
        assert expected == event
        assert Event(b"data: next", "message", b"next") == following


@pytest.mark.parametrize("step", [700, HEAD_BYTES - 1, HEAD_BYTES, HEAD_BYTES + 1, LARGE, LARGE + 100, 10 * LARGE])
@pytest.mark.parametrize("size", [LARGE + 1, LARGE + TAIL_BYTES + 1, 3 * LARGE])
@pytest.mark.parametrize("cap", [1024, LARGE])
def test_of_an_oversized_event_the_head_the_tail_and_the_length_are_right(cap, size, step):
    """The head is the data in its first 64 KiB, so that the id it answers can be found, however it arrived."""
    begin = b'event: message\ndata: {"jsonrpc":"2.0","id":7,"result":"'
    raw = begin + b"".join(b"%07d," % i for i in range(size // 8 + 1))[: size - len(begin) - 2] + b"}\n"
    stream = raw + b"\ndata: next\n\n"
    framer = EventFramer(cap)
    event, following = [item for at in range(0, len(stream), step) for item in framer.feed(stream[at : at + step])]
    assert size == len(raw) == event.seen_bytes
    assert raw[: min(HEAD_BYTES, cap)].partition(b"data: ")[2] == event.head
    assert raw[-TAIL_BYTES:].rstrip() == event.tail
    assert Event(b"data: next", "message", b"next") == following


def test_an_oversized_event_without_data_gives_what_it_begins_with():
    """There is no id to find; the head still says what it was."""
    (event,) = EventFramer(1024).feed(b": " + b"x" * 2000 + b"\n\n")
    assert Oversized(b": " + b"x" * 1022, b"x" * (TAIL_BYTES - 1), 2003) == event


def test_an_unfinished_event_tells_how_large_it_is():
    """A reader can hang up at its limit: `seen_bytes`, `overflowing`."""
    framer = EventFramer(LARGE)
    assert (False, 0) == (framer.overflowing, framer.seen_bytes)
    list(framer.feed(b"data: " + b"x" * (LARGE - 6)))
    assert (False, LARGE) == (framer.overflowing, framer.seen_bytes)
    list(framer.feed(b"xyz"))
    assert (True, LARGE + 3) == (framer.overflowing, framer.seen_bytes)
    list(framer.feed(b"\n\n"))
    assert (False, 0) == (framer.overflowing, framer.seen_bytes)


@pytest.mark.parametrize("cap", [1024, LARGE])
def test_memory_stays_bounded_while_an_event_is_drained(cap):
    """At most one cap, a head and a tail, whatever the server sends."""
    framer = EventFramer(cap)
    most = 0
    for _ in range(200):
        list(framer.feed(b"data: " + b"x" * 4000 + b"\n"))
        most = max(most, held_bytes(framer))

    assert most <= cap * 9 // 8 + LARGE
    list(framer.feed(b"\n"))
    assert held_bytes(framer) < 4096
