"""Bytes become lines: the same lines however the bytes arrive, bounded, and one too large hurts only itself.

The reference splitter has the whole stream before it and keeps everything; the framer may do neither.
"""

import sys
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deputy_mcp._core.framing import FLOOD_FACTOR, HEAD_BYTES, TAIL_BYTES, Flooded, LineFramer, Oversized

BOM = b"\xef\xbb\xbf"
CAP = 40
LARGE = 2 * HEAD_BYTES
SLACK = 2 * HEAD_BYTES
"""What a framer may hold beyond its cap: a head, a tail, and what buffers allocate ahead."""


def oversized(line, cap):
    """A line past the cap: a head that is itself within the cap, a tail, and the exact length."""
    return Oversized(line[: min(HEAD_BYTES, cap)], line[-TAIL_BYTES:], len(line))


def split_all(stream, cap):
    """The reference: what the module promises, with the whole stream in memory."""
    out = []
    *lines, rest = stream.removeprefix(BOM).split(b"\n")
    for line in lines:
        if len(line) > cap * FLOOD_FACTOR:
            return [*out, Flooded]

        if len(line) > cap:
            out.append(oversized(line, cap))
        elif line.strip():
            out.append(line.strip())

    return [*out, Flooded] if len(rest) > cap * FLOOD_FACTOR else out


def feed_all(chunks, cap):
    """What comes out of the framer. How much of a flood was seen depends on the chunks; that it is one does not."""
    framer = LineFramer(cap)
    out = [item for chunk in chunks for item in framer.feed(chunk)]
    return [Flooded if isinstance(item, Flooded) else item for item in out]


def cut(stream, places):
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[a:b] for a, b in pairwise(edges)]


def held_bytes(framer):
    """All that the framer keeps between two reads, in itself and in its parts."""
    parts = [getattr(framer, name) for name in type(framer).__slots__]
    return sum(held_bytes(part) if hasattr(part, "__slots__") else sys.getsizeof(part) for part in parts)


pieces = st.one_of(
    st.sampled_from([b"\n", b"\n", b"\r\n", b"\r", b" ", b"{}", BOM, BOM[:1], BOM[:2], "é—😀".encode(), b"\xff"]),
    st.builds(
        lambda byte, n: byte * n,
        st.sampled_from([b"x", b" "]),
        st.sampled_from([1, CAP - 1, CAP, CAP + 1, 3 * CAP, CAP * FLOOD_FACTOR, CAP * FLOOD_FACTOR + 1]),
    ),
    st.binary(max_size=CAP),
)
streams = st.lists(pieces, max_size=12).map(b"".join)


@settings(deadline=None, max_examples=300)
@given(streams, st.lists(st.integers(0, 10_000), max_size=12))
@example(BOM + b"a\n", [1, 2])
@example(BOM[:2] + b"\nb\n", [1, 2])
@example(BOM + BOM + b"a\n", [])
@example(b"x" * (CAP + 1) + b"\nnext\n", [CAP])
@example(b"x" * (CAP * FLOOD_FACTOR + 1) + b"\nnext\n", [])
@example(b"x" * (CAP * FLOOD_FACTOR + 1) + b"\nnext\n", [CAP * FLOOD_FACTOR + 1])
def test_any_bytes_in_any_chunks_give_the_lines_of_the_reference(stream, places):
    """Where the operating system cuts a stream changes nothing of what comes out."""
    assert split_all(stream, CAP) == feed_all(cut(stream, places), CAP)


@settings(deadline=None, max_examples=60)
@given(streams)
def test_bytes_that_dribble_in_one_by_one_give_the_lines_of_the_reference(stream):
    """The worst way to cut: https://github.com/modelcontextprotocol/typescript-sdk/pull/2038 was seen with it."""
    assert split_all(stream, CAP) == feed_all([bytes([byte]) for byte in stream], CAP)


def test_characters_of_several_bytes_survive_any_cut():
    """F20, https://github.com/modelcontextprotocol/typescript-sdk/pull/2038: no character is decoded in halves."""
    line = '{"text":"é—😀"}'.encode()
    assert [line] == feed_all([bytes([byte]) for byte in line + b"\n"], 1024)


@pytest.mark.parametrize(
    "chunks", [[BOM + b"{}\n"], [BOM[:1], BOM[1:2], BOM[2:] + b"{}\n"], [BOM[:2], BOM[2:], b"{}\n"]]
)
def test_a_byte_order_mark_at_the_beginning_is_dropped(chunks):
    """F21, https://github.com/modelcontextprotocol/kotlin-sdk/issues/956: in one piece or in three."""
    assert [b"{}"] == feed_all(chunks, 1024)


def test_a_byte_order_mark_anywhere_else_is_part_of_its_line():
    """Only the stream's first three bytes can be a mark."""
    assert [b"a", BOM + b"b"] == feed_all([b"a\n", BOM + b"b\n"], 1024)


def test_what_only_begins_like_a_byte_order_mark_is_not_lost():
    """Bytes that were held back come out with their line."""
    assert [BOM[:2] + b"x"] == feed_all([BOM[:1], BOM[1:2], b"x\n"], 1024)
    assert [BOM[:1]] == feed_all([BOM[:1], b"\n"], 1024)


def test_lines_may_end_in_crlf_and_empty_lines_are_left_out():
    """A peer on Windows is as good as any; blank lines are no messages."""
    assert [b"a", b"b"] == feed_all([b"\r\n\n a\r", b"\n  \r\n\nb\r\n\r\n"], 1024)


def test_an_unfinished_line_is_not_given():
    """A line exists once it has ended; what has no end may be half a message."""
    framer = LineFramer(1024)
    assert [] == framer.feed(b'{"a":')
    assert [] == framer.feed(b"")
    assert [b'{"a":1}'] == framer.feed(b"1}\n")


@pytest.mark.parametrize("cap", [1024, HEAD_BYTES - 1, HEAD_BYTES, HEAD_BYTES + 1, LARGE])
@pytest.mark.parametrize("step", [1000, HEAD_BYTES, 10 * LARGE])
def test_the_cap_is_exact_and_the_next_line_is_whole(cap, step):
    """F22, https://github.com/QwenLM/qwen-code/issues/9298: one byte under the cap, the cap, and one byte over."""
    for size in (cap - 1, cap):
        line = b"x" * size
        stream = line + b"\nnext\n"
        assert [line, b"next"] == feed_all(cut(stream, range(0, len(stream), step)), cap)

    line = b"x" * (cap + 1)
    stream = line + b"\nnext\n"
    assert [oversized(line, cap), b"next"] == feed_all(cut(stream, range(0, len(stream), step)), cap)


@pytest.mark.parametrize("step", [1, 700, HEAD_BYTES - 1, HEAD_BYTES, HEAD_BYTES + 1, LARGE, LARGE + 100, 10 * LARGE])
@pytest.mark.parametrize("size", [LARGE + 1, LARGE + TAIL_BYTES - 1, LARGE + TAIL_BYTES + 1, 3 * LARGE])
def test_of_an_oversized_line_the_head_the_tail_and_the_length_are_right(size, step):
    """The head is its first 64 KiB, the tail its last 512 bytes, the length exact, however it arrived."""
    if step == 1 and size != LARGE + 1:
        step = 3

    pattern = b"".join(b"%07d," % i for i in range(size // 8 + 1))
    line = pattern[:size]
    stream = line + b"\n" + b"next\n"
    chunks = [stream[at : at + step] for at in range(0, len(stream), step)]
    assert [oversized(line, LARGE), b"next"] == feed_all(chunks, LARGE)


def test_a_valid_line_and_an_oversized_one_may_come_in_one_write():
    """F23, https://github.com/openai/codex/pull/31805: the earlier valid line is delivered all the same."""
    first, large, last = feed_all([b"{}\n" + b"A" * 5000 + b'","id":7}\n{"id":8}\n'], 1024)
    assert (b"{}", b'{"id":8}') == (first, last)
    assert 5000 + len(b'","id":7}') == large.seen_bytes
    assert large.tail.endswith(b'","id":7}')


def test_an_overflowing_line_is_known_before_it_ends():
    """A reader can tell a slow large line from a small one."""
    framer = LineFramer(LARGE)
    framer.feed(b"x" * LARGE)
    assert not framer.overflowing
    framer.feed(b"x")
    assert framer.overflowing
    framer.feed(b"\n")
    assert not framer.overflowing


def test_a_line_past_a_small_cap_is_overflowing_too():
    """The head that is kept is no second, larger cap."""
    framer = LineFramer(1024)
    framer.feed(b"x" * 1025)
    assert framer.overflowing


@pytest.mark.parametrize("cap", [1024, LARGE])
def test_a_line_that_does_not_end_is_a_flood_and_the_end_of_reading(cap):
    """F23, https://github.com/openai/codex/pull/31805: once eight times the cap was drained, nothing more is read."""
    framer = LineFramer(cap)
    assert [] == framer.feed(b"x" * cap * FLOOD_FACTOR)
    assert not framer.flooded
    (flood,) = framer.feed(b"x")
    assert framer.flooded
    assert Flooded(b"x" * min(HEAD_BYTES, cap), cap * FLOOD_FACTOR + 1) == flood
    assert [] == framer.feed(b"\n{}\n")
    assert [] == framer.feed(b"x" * 10)


def test_lines_before_a_flood_are_delivered():
    """The flood comes last, after all that was whole."""
    first, flood = LineFramer(1024).feed(b"{}\n" + b"x" * (1024 * FLOOD_FACTOR + 1))
    assert b"{}" == first
    assert isinstance(flood, Flooded)


@pytest.mark.parametrize("cap", [1024, LARGE])
def test_memory_stays_bounded_while_a_line_is_drained(cap):
    """A peer that never ends its line costs us one cap and a head and a tail, not what it sends."""
    framer = LineFramer(cap)
    chunk = b"x" * 4096
    most = 0
    for _ in range(cap * FLOOD_FACTOR // len(chunk)):
        framer.feed(chunk)
        # A growing buffer is allocated an eighth ahead.
        most = max(most, held_bytes(framer))

    assert most <= cap * 9 // 8 + SLACK


def test_memory_is_given_back_after_a_large_line():
    """A buffer that once held a large message does not keep its size for the rest of the session."""
    framer = LineFramer(LARGE)
    framer.feed(b"x" * LARGE)
    assert held_bytes(framer) >= LARGE
    framer.feed(b"\n")
    assert held_bytes(framer) < 4096


def test_a_line_of_single_bytes_is_kept_as_one_buffer():
    """A million pieces cost what one costs: a list of them would hold thirty bytes and more for each."""
    framer = LineFramer(LARGE)
    for _ in range(50_000):
        framer.feed(b"x")

    assert held_bytes(framer) < 50_000 * 2
    assert [b"x" * 50_000] == framer.feed(b"\n")
