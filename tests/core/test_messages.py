"""One line becomes messages: whatever the bytes are, never an exception, and an id that is named is never lost.

The references parse the whole message with the standard library; the module must say the same from a few bytes.
"""

import hashlib
import json
import time

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from deputy_mcp._core.framing import HEAD_BYTES, Oversized
from deputy_mcp._core.messages import (
    Failure,
    Invalid,
    Noise,
    Notification,
    Reply,
    Request,
    TooLarge,
    hopeless_framing,
    plain_id,
    read_message,
    read_oversized,
    sniff_id,
    too_many_values,
)

MANY = 1_000_000
DEEP = 100_000
KINDS = (Failure, Invalid, Noise, Notification, Reply, Request, TooLarge)


def read_one(line, max_values=MANY):
    (message,) = read_message(line if isinstance(line, bytes) else json.dumps(line).encode(), max_values)
    return message


def sniff(line):
    return sniff_id(line[:HEAD_BYTES], line[-512:])


# --- Generated messages -----------------------------------------------------------------------------------------------

tricky_texts = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ['"id":9', '{"id":9}', '"id":9}', '\\"id\\":9}', '","id":9}', "id", "\\", '"', '\\\\"', "[,{", "}]"]
    ),
    st.text(alphabet='",[]{}\\:i d9', max_size=12),
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(-(10**20), 10**20), tricky_texts)
keys = st.one_of(st.sampled_from(["id", "id", "result", "jsonrpc"]), tricky_texts)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=12,
)
ids = st.one_of(st.integers(-(10**17), 10**17), st.text(alphabet="abz09-_", min_size=1, max_size=30))
layouts = st.sampled_from([{"separators": (",", ":")}, {}, {"indent": 1}, {"separators": (" ,\t", " :\n")}])


def encoded(value, layout):
    return json.dumps(value, ensure_ascii=False, **layout).encode("utf-8", "surrogatepass")


def count_values(value):
    """The reference: every JSON value, keys not counted."""
    if isinstance(value, dict):
        return 1 + sum(map(count_values, value.values()))

    return 1 + sum(map(count_values, value)) if isinstance(value, list) else 1


# --- Any bytes --------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=200), st.sampled_from([1, 10, MANY]))
@example(b"", MANY)
@example(b"\xef\xbb\xbf{}", MANY)
@example(b"[]", MANY)
@example(b"\xff\xfe", MANY)
@example(b"1e999", MANY)
def test_any_bytes_give_messages_and_never_an_exception(line, max_values):
    """A reader that a peer can make raise is a session that a peer can end."""
    messages = read_message(line, max_values)
    assert messages
    assert all(isinstance(message, KINDS) for message in messages)


@settings(deadline=None, max_examples=300)
@given(st.dictionaries(st.sampled_from(["id", "result", "error", "method", "params", "code", "x"]), values), st.data())
def test_a_message_with_a_flaw_in_it_gives_messages_and_never_an_exception(value, data):
    """Almost a message: cut off, doubled, or with a byte changed."""
    line = encoded(value, {})
    at = data.draw(st.integers(0, len(line)))
    for flawed in (line, line[:at], line[at:], line[:at] + b"\xff" + line[at:], line + line):
        messages = read_message(flawed, MANY)
        assert messages
        assert all(isinstance(message, KINDS) for message in messages)


@settings(deadline=None)
@given(st.dictionaries(tricky_texts, values, max_size=4), ids, layouts)
def test_a_reply_comes_out_with_its_result_as_it_was_sent(result, message_id, layout):
    """Nothing is coerced or dropped on the way; its size is the line's."""
    line = encoded({"jsonrpc": "2.0", "id": message_id, "result": result}, layout)
    assume(not too_many_values(line, MANY))
    reply = read_one(line)
    assert Reply(plain_id(message_id), json.loads(line)["result"], reply.repaired, len(line)) == reply


# --- Kinds of messages ------------------------------------------------------------------------------------------------

RPC = {"jsonrpc": "2.0"}
TABLE = [
    # replies
    ({**RPC, "id": 2, "result": {"a": 1}}, Reply(2, {"a": 1})),
    ({"id": 2, "result": {}}, Reply(2, {})),
    ({"id": "2", "result": {}}, Reply(2, {})),
    ({"id": "a-2", "result": {}}, Reply("a-2", {})),
    ({"id": 2, "result": {}, "error": None}, Reply(2, {})),
    ({"id": 2, "result": {}, "method": None}, Reply(2, {})),
    # replies that are none
    ({**RPC, "id": 2}, Invalid(2, "neither result nor error")),
    ({"id": 2, "error": None}, Invalid(2, "neither result nor error")),
    ({"id": 2, "result": None}, Invalid(2, "its result is null, not an object")),
    ({"id": 2, "result": []}, Invalid(2, "its result is list, not an object")),
    ({"id": 2, "result": "x"}, Invalid(2, "its result is str, not an object")),
    ({"id": 2, "result": True}, Invalid(2, "its result is bool, not an object")),
    ({"id": 2, "method": 5}, Invalid(2, "neither result nor error")),
    # errors
    ({"id": 2, "error": {"code": -32601, "message": "m", "data": [1]}}, Failure(2, -32601, "m", [1])),
    ({"id": "2", "error": {"code": -32601, "message": "m"}}, Failure(2, -32601, "m")),
    ({"id": 2, "error": {"code": 1}}, Failure(2, 1, "")),
    ({"id": 2, "error": {"code": 1, "message": 5}}, Failure(2, 1, "")),
    ({"id": 2, "result": {}, "error": {"code": 1, "message": "m"}}, Failure(2, 1, "m")),
    ({"id": None, "error": {"code": -32700, "message": "m"}}, Failure(None, -32700, "m")),
    # errors that are none
    ({"id": 2, "error": {"message": "m"}}, Invalid(2, "its error has no integer code")),
    ({"id": 2, "error": {"code": "E1", "message": "m"}}, Invalid(2, "its error has no integer code")),
    ({"id": 2, "error": {"code": True}}, Invalid(2, "its error has no integer code")),
    ({"id": 2, "error": "broken"}, Invalid(2, "its error has no integer code")),
    ({"id": 2, "error": False}, Invalid(2, "its error has no integer code")),
    ({"id": 2, "error": []}, Invalid(2, "its error has no integer code")),
    ({"error": {"code": 1, "message": "m"}}, Noise("an error without id")),
    ({"error": {"message": "m"}}, Noise("an error that is none")),
    ({"id": None, "error": "broken"}, Noise("an error that is none")),
    # requests keep their id as it was spelled
    ({"id": 2, "method": "ping"}, Request(2, "ping", None)),
    ({"id": "2", "method": "ping", "params": {"a": 1}}, Request("2", "ping", {"a": 1})),
    ({"id": 2, "method": "ping", "params": [1]}, Request(2, "ping", None)),
    ({"id": 2, "method": "ping", "result": {}}, Reply(2, {})),
    ({"id": None, "method": "ping"}, Noise("a request whose id is neither string nor integer")),
    ({"id": True, "method": "ping"}, Noise("a request whose id is neither string nor integer")),
    ({"id": 1.5, "method": "ping"}, Noise("a request whose id is neither string nor integer")),
    ({"id": [1], "method": "ping"}, Noise("a request whose id is neither string nor integer")),
    # notifications
    ({"method": "notifications/x"}, Notification("notifications/x", None)),
    ({"method": "notifications/x", "params": {"a": 1}}, Notification("notifications/x", {"a": 1})),
    ({"method": "notifications/x", "params": "a"}, Notification("notifications/x", None)),
    # noise
    ({}, Noise("an object without id, method and error")),
    ({"result": {}}, Noise("an object without id, method and error")),
    ({"id": None, "result": {}}, Noise("an object without id, method and error")),
    ({"id": True, "result": {}}, Noise("an object without id, method and error")),
    ({"id": 1.5, "result": {}}, Noise("an object without id, method and error")),
    ({"id": {"id": 3}, "result": {}}, Noise("an object without id, method and error")),
    ("a string", Noise("JSON, but no object")),
    (5, Noise("JSON, but no object")),
    (None, Noise("JSON, but no object")),
    ([], Noise("an empty batch")),
    ([[]], Noise("JSON, but no object")),
]


def sizeless(message):
    return Reply(message.id, message.result, message.repaired) if isinstance(message, Reply) else message


@pytest.mark.parametrize(("value", "expected"), TABLE, ids=lambda item: json.dumps(item) if item == {} else None)
def test_a_message_is_read_as_what_it_is(value, expected):
    """F26, https://github.com/microsoft/agent-framework/issues/1744: an id without an answer fails at once."""
    assert expected == sizeless(read_one(value))


def test_the_members_of_a_batch_are_messages_each():
    """F26 in an array: one bad member hides none of the others, and the order is kept."""
    rows = [(value, expected) for value, expected in TABLE if isinstance(value, dict)]
    messages = read_message(json.dumps([value for value, _ in rows]).encode(), MANY)
    assert [expected for _, expected in rows] == [sizeless(message) for message in messages]


@pytest.mark.parametrize(
    "line",
    [
        b"Azure DevOps MCP Server version : 1.2",
        b"[09/15/25 00:30:17] INFO     Starting",
        "┌──────┐".encode(),
        b"\xff\xfe",
        b"nul",
        b"",
        b"{'id': 3}",
        b'{"method":"x",}',
    ],
)
def test_a_line_that_is_no_message_is_noise(line):
    """F18, https://github.com/microsoft/azure-devops-mcp/issues/147: banners are skipped, and end nothing."""
    assert Noise("no valid JSON") == read_one(line)


# --- Ids --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (0, 0),
        (7, 7),
        (-7, -7),
        (10**30, 10**30),
        ("7", 7),
        ("0", 0),
        ("007", 7),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, "9" * 19),
        ("9" * 5000, "9" * 5000),
        ("-7", "-7"),
        ("+7", "+7"),
        (" 7", " 7"),
        ("7\n", "7\n"),
        ("1_0", "1_0"),
        ("7.0", "7.0"),
        ("", ""),
        ("a", "a"),
        ("٧", "٧"),
        ("²", "²"),
        (True, None),
        (False, None),
        (1.5, None),
        (float("nan"), None),
        (None, None),
        ([1], None),
        ({"id": 1}, None),
    ],
)
def test_an_id_is_correlated_by_what_it_spells(wire, expected):
    """F25, https://github.com/modelcontextprotocol/python-sdk/pull/1720: a string of digits is the integer we sent."""
    plain = plain_id(wire)
    assert expected == plain
    assert type(expected) is type(plain)


@given(st.integers(0, 10**18 - 1))
def test_every_id_of_ours_is_recognised_in_an_echo_as_a_string(message_id):
    """Whatever integer we count up to."""
    assert message_id == plain_id(message_id) == plain_id(str(message_id))


# --- Repair -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b'{"id":2,"result":{"a":"it\x92s"}}', "it\ufffds"),
        (b'{"id":2,"result":{"a":"\xed\xa0\x80"}}', "\ufffd\ufffd\ufffd"),
        (b'{"id":2,"result":{"a":"\xe2\x82"}}', "\ufffd"),
        (b'{"id":2,"result":{"a":"\\ud800"}}', "\ud800"),
        (b'{"id":2,"result":{"a":"\\udc00 \\ud83d"}}', "\udc00 \ud83d"),
    ],
)
def test_broken_text_is_repaired_and_marked(line, text):
    """F19, https://github.com/modelcontextprotocol/python-sdk/pull/2456, and F24: a bad byte loses no reply."""
    assert Reply(2, {"a": text}, repaired=True, size_bytes=len(line)) == read_one(line)


def test_repaired_marks_every_reply_of_a_batch():
    """Which member was broken is not known; none passes as clean."""
    replies = read_message(b'[{"id":1,"result":{"a":"\xff"}},{"id":2,"result":{}}]', MANY)
    assert [True, True] == [reply.repaired for reply in replies]


@pytest.mark.parametrize(
    "result", ['{"a":"é—😀"}', '{"a":"\\ud83d\\ude00"}', '{"a":"\\u0000"}', '{"a":"\ufffd"}', '{"a":"\U0010ffff"}']
)
def test_text_that_was_whole_is_not_marked(result):
    """A surrogate pair, a NUL and even U+FFFD are valid JSON as they came."""
    assert not read_one(f'{{"id":2,"result":{result}}}'.encode()).repaired


@pytest.mark.parametrize("depth", [10, 150, 250, 400])
def test_a_nested_reply_that_needed_no_repair_is_not_marked(depth):
    """Nesting is no broken text: the finding would send people after an encoding error that is none."""
    line = b'{"id":2,"result":{"a":' + b"[" * depth + b"]" * depth + b"}}"
    reply = read_one(line)
    assert 2 == reply.id
    assert not reply.repaired


def test_numbers_beyond_json_are_kept_and_end_nothing():
    """NaN and the infinities are what some servers send; who must not have them (pins) refuses them there."""
    result = read_one(b'{"id":2,"result":{"a":NaN,"b":-Infinity,"c":1e999,"d":12345678901234567890123}}').result
    assert ["nan", "-inf", "inf", "12345678901234567890123"] == [str(value) for value in result.values()]


# --- Unreadable, and still somebody's ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (b'{"id":7,"result":', b"}"),
        (b'{"jsonrpc":"2.0","id":7,"result":', b"}"),
        (b' { "jsonrpc" : "2.0" , "id" : "7" , "result" : ', b" } "),
        (b'{"result":', b',"id":7}'),
        (b'{"jsonrpc":"2.0","result":', b',"id":7}'),
        (b'{"result":', b',"id":7,"jsonrpc":"2.0"}'),
        (b'{"result":', b' , "id" : "7" , "jsonrpc" : "2.0" } '),
        (b'{"x":{"id":1},"id":7,"result":', b"}"),
    ],
)
@pytest.mark.parametrize(
    ("middle", "reason"),
    [
        (b"[" * DEEP + b"]" * DEEP, "nested too deeply"),
        (b'{"id":' * DEEP + b"1" + b"}" * DEEP, "nested too deeply"),
        (b"[1,,2]", "no valid JSON"),
        (b"nope", "no valid JSON"),
        (b"1" * 5000, "no valid JSON"),
    ],
)
def test_what_cannot_be_parsed_fails_the_call_it_names(begin, middle, end, reason):
    """F24, https://github.com/aebrer/dreb/issues/352: 100,000 levels or broken JSON, with the id first or last."""
    assert Invalid(7, reason) == read_one(begin + middle + end)


def test_what_cannot_be_parsed_and_names_no_id_is_noise():
    """An id inside the result is not its own."""
    assert Noise("nested too deeply") == read_one(b'{"result":' + b'{"id":' * DEEP + b"1" + b"}" * DEEP + b"}")
    assert Noise("no valid JSON") == read_one(b'{"result":{"id":9,}}')


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","result":{"x":1,"id":9}',
        b'{"result":{"content":[{"id":9}',
        b'{"result":{"a":[{"b":{"id":"9","jsonrpc":"2.0"}',
    ],
)
def test_the_nested_id_at_the_end_of_a_line_that_was_cut_off_is_nobodys(line):
    """The last brace of half a message closes something inside it; its id would fail another call."""
    assert Noise("no valid JSON") == read_one(line)


@settings(deadline=None, max_examples=400)
@given(st.dictionaries(tricky_texts.filter(lambda key: key != "id"), values, max_size=4), ids, layouts, st.data())
def test_a_sniffed_id_is_the_top_levels_or_none(rest, message_id, layout, data):
    """Never one that stands inside the result or inside a string, wherever the line is cut for its head."""
    names = data.draw(st.permutations([*rest, "id"]))
    value = {name: message_id if name == "id" else rest[name] for name in names}
    line = encoded(value, layout)
    expected = plain_id(message_id)
    assert sniff(line) in (expected, None)
    at = data.draw(st.integers(0, len(line)))
    assert sniff_id(line[:at], b"") in (expected, None)
    if names[0] == "id" and len(names) > 1:
        assert expected == sniff(line)
        assert expected == sniff_id(line[:-1], b"")

    if names[-1] == "id":
        assert expected == sniff(line)
        assert expected == sniff_id(b"", line[-512:])


@settings(deadline=None, max_examples=300)
@given(st.dictionaries(tricky_texts.filter(lambda key: key != "id"), values, max_size=4), layouts, st.data())
def test_no_id_is_sniffed_where_there_is_none(rest, layout, data):
    """Neither from the whole message, nor from a batch of them, nor from a head."""
    line = encoded(rest, layout)
    assert sniff(line) is None
    assert sniff_id(line[: data.draw(st.integers(0, len(line)))], b"") is None
    assert sniff(encoded([rest, {"id": 9}], layout)) is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"result":{"id":9},"id":7,"x":1}', 7),
        (b'{"a":"\\"id\\":9","id":7,"x":1}', 7),
        (b'{"a":"}{","id":7,"x":1}', 7),
        (b'{"a":[[],{}],"id":"abc","x":1}', "abc"),
        (b'{"a":1,"id":-7,"x":1}', -7),
        (b'{"x":"id","id":7,"y":1}', 7),
        (b'{"id":7}', 7),
        (b'{"id":1.5,"x":1}', None),
        (b'{"x":1,"id":1.5}', None),
        (b'{"id":true,"x":1}', None),
        (b'{"id":null,"x":1}', None),
        (b'{"id":{"id":9},"x":1}', None),
        (b'{"id":[9],"x":1}', None),
        (b'{"id":"","x":1}', None),
        (b'{"id":"a\\"b","x":1}', None),
        (b'{"id":"' + b"a" * 201 + b'","x":1}', None),
        (b'{"id":' + b"9" * 19 + b',"x":1}', None),
        (b'{"a\\"id":9}', None),
        (b'{"a":"id","b":9}', None),
        (b'[{"id":9}]', None),
        (b'["id",9]', None),
        (b'"id":9', None),
        (b"", None),
        (b'{"a":1,"id":7', None),
        (b'{"a":1,"id":', None),
        (b'{"a":"\xff","id":"\xff","x":1}', "\ufffd"),
    ],
)
def test_an_id_is_sniffed_in_any_place_of_the_top_level(line, expected):
    """First, last or in the middle; a number that may go on behind the cut is none."""
    assert expected == sniff(line)


def test_an_id_is_looked_for_in_the_first_64_kib_and_in_the_tail():
    """The whole line is never scanned; what lies between is not found, and its call meets its own deadline."""
    filler = b'"' + b"x" * HEAD_BYTES + b'"'
    assert sniff_id(b'{"a":' + filler + b',"id":7,"b":' + filler + b"}", b"x" * 500 + b"}") is None
    assert 7 == sniff_id(b'{"a":1,"b":[],"id":7,"c":' + filler, b"")
    assert 7 == sniff_id(b'{"a":' + filler, b'xxx","id":7}')


@pytest.mark.parametrize("head_bytes", [20, 1024, HEAD_BYTES])
def test_an_oversized_line_with_its_id_last_is_found_by_its_tail(head_bytes):
    """However little of its beginning was kept: a small cap keeps a small head."""
    line = b'{"jsonrpc":"2.0","result":{"a":"' + b"x" * 2 * HEAD_BYTES + b'"},"id":7}'
    oversized = Oversized(line[:head_bytes], line[-512:], len(line))
    assert TooLarge(7, "more than 1024 bytes", len(line)) == read_oversized(oversized, 1024)


def test_an_oversized_line_fails_the_call_it_answers():
    """F22, https://github.com/QwenLM/qwen-code/issues/9298: a typed error with limit and size, for that call alone."""
    line = Oversized(b'{"jsonrpc":"2.0","id":7,"result":{"a":"xxx', b'xxx"}}', 4711)
    assert TooLarge(7, "more than 1000 bytes", 4711) == read_oversized(line, 1000)
    assert TooLarge(None, "more than 10 bytes", 12) == read_oversized(Oversized(b"x" * 12, b"x" * 12, 12), 10)


# --- Too many values --------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=400)
@given(values, layouts)
@example([{}, {}, []], {})
@example([",[{", ",,,"], {})
@example({"a": [], "b": {}}, {"separators": (" , ", " : ")})
@example("[,[,", {})
def test_the_count_of_values_is_exact(value, layout):
    """Commas and brackets in strings are no values, and an empty container is one."""
    line = encoded(value, layout)
    count = count_values(json.loads(line))
    assert [True, False, False] == [too_many_values(line, limit) for limit in (count - 1, count, count + 1)]


def test_a_message_of_too_many_values_fails_the_call_it_answers():
    """Parsing holds the event loop, so it is not tried."""
    line = b'{"id":7,"result":{"a":[' + b"0," * 100 + b"0]}}"
    assert TooLarge(7, "more than 104 JSON values", len(line)) == read_one(line, 104)
    assert isinstance(read_one(line, 105), Reply)
    assert TooLarge(None, "more than 3 JSON values", 9) == read_one(b"[1,2,3,4]", 3)


@pytest.mark.parametrize(
    ("objects", "members", "too_large"), [(1, 400_001, True), (1, 400_000, False), (500, 900, False)]
)
def test_an_object_of_too_many_members_fails_the_call_it_answers(objects, members, too_large):
    """Half a million names for one object take as long to read as millions of values, however few values there are."""
    one = b"{" + b",".join(b'"%d" : 0' % i for i in range(members)) + b"}"
    line = b'{"id":7,"result":{"{:{:":[' + b",".join([one] * objects) + b"]}}"
    # Their own names count too: `id`, `result` and the one that looks like many.
    line = line if members != 400_000 else line.replace(b'"0" : 0,"1" : 0,"2" : 0,', b"")

    (message,) = read_message(line, 10_000_000)

    assert isinstance(message, TooLarge if too_large else Reply)
    assert 7 == message.id


def spent_seconds(call):
    begin = time.process_time()
    call()
    return time.process_time() - begin


def test_a_string_that_does_not_end_is_counted_in_linear_time():
    """Twenty thousand escaped quotes without an end: looked at once each, not once for every quote before."""
    line = b'["' + b'\\",' * 20_000
    assert spent_seconds(lambda: too_many_values(line, 10_000)) < 0.5


def test_the_head_of_an_ordinary_oversized_reply_is_scanned_in_linear_time():
    """A result that holds JSON as text is full of escaped quotes, and its head is cut inside that string."""
    line = b'{"jsonrpc":"2.0","result":{"content":[{"type":"text","text":"' + b'{\\"name\\":\\"value\\"},' * 5_000
    assert spent_seconds(lambda: sniff_id(line[:HEAD_BYTES], b"x" * 512)) < 0.5


def test_an_id_is_not_taken_from_a_string_that_does_not_end():
    """Inside a string cut off at the head's end nothing is a member."""
    assert sniff_id(b'{"a":"x,\\"id\\":9,\\"b\\":{\\"id\\":9, ', b"") is None
    assert sniff_id(b'{"a":"\\\\\\"id\\":9,', b"") is None


# --- Hopeless framing -------------------------------------------------------------------------------------------------

LENGTH_PREFIXED = (
    "length-prefixed messages (as in the Language Server Protocol); MCP's stdio wants one JSON object a line"
)
UTF_16 = "UTF-16; MCP's stdio wants UTF-8"
PRETTY = "pretty-printed JSON over several lines; MCP's stdio wants one JSON object a line"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"Content-Length: 119", LENGTH_PREFIXED),
        (b"content-length:5", LENGTH_PREFIXED),
        (b'"jsonrpc": "2.0",', PRETTY),
        (b'"jsonrpc":"2.0"', PRETTY),
        (b'{\0"\0', UTF_16),
        (b'\0{\0"', UTF_16),
        (b"{", None),
        (b"[{", None),
        (b"Content-Type: x", None),
        (b'  "id": 1,', None),
        (b"}", None),
        (b"{{", None),
        (b"", None),
    ],
)
def test_framing_by_which_nothing_can_ever_arrive_is_named(line, expected):
    """The first such line says why the server will never be heard; ordinary noise says nothing."""
    assert expected == hopeless_framing(line)
    assert expected == read_one(line).framing


def test_an_answer_alone_in_a_batch_is_hashed_as_one_alone_on_its_line():
    """One of several has no bytes of its own."""
    reply = b'{"jsonrpc":"2.0","id":1,"result":{}}'
    for line in (reply, b"[" + reply + b"]"):
        (message,) = read_message(line, 1_000, hashed=True)
        assert isinstance(message, Reply)
        assert hashlib.sha256(line).hexdigest() == message.sha256

    assert [None, None] == [m.sha256 for m in read_message(b"[" + reply + b"," + reply + b"]", 1_000, hashed=True)]  # type: ignore[union-attr] # both are replies
