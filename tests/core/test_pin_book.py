"""Pin files as text, definitions of prompts and resources, what pins leave out, repeated replies."""

import hashlib
import json

import pytest
from attrs import evolve

from deputy_mcp._core.definitions import vet_definitions
from deputy_mcp._core.errors import ConfigError
from deputy_mcp._core.messages import Failure, Reply, read_message
from deputy_mcp._core.pin_book import ServerPins, decode_pins, encode_pins, pins_digest
from deputy_mcp._core.pinning import NotCanonicalError, Pinned, definition_digest, leave_out, tool_digest
from deputy_mcp._core.repeated import RepeatedReplies

TOOL = {"name": "read", "description": "reads \u202e\ud800", "inputSchema": {"type": "object"}}
PROMPT = {"name": "greet", "description": "greets"}
PINS = {
    "a": ServerPins(
        tools={"read": Pinned(digest=tool_digest(TOOL), raw=TOOL, accepted=frozenset({"b_code", "a_code"}))},
        prompts={"greet": Pinned(digest=definition_digest(PROMPT), raw=PROMPT)},
        instructions="be nice",
    ),
    "b": ServerPins(),
}


def as_document(text):
    return json.loads(text)


def test_a_pin_file_gives_back_what_was_put_in():
    """Encoded and decoded, nothing is lost: accepted findings, lone surrogates and empty servers included."""
    found = decode_pins(encode_pins(PINS))

    assert set(PINS) == set(found)
    for name, pins in PINS.items():
        assert dict(pins.tools) == dict(found[name].tools)
        assert dict(pins.prompts) == dict(found[name].prompts)
        assert (pins.instructions, {}) == (found[name].instructions, dict(found[name].resources))


def test_a_pin_file_is_ascii_and_the_same_in_any_order():
    """A review sees what hides, and a diff shows changes alone."""
    text = encode_pins(PINS)

    assert text.isascii()
    assert text == encode_pins(dict(reversed(PINS.items())))


BROKEN = [
    ("", "no JSON"),
    ("[" * 100_000, "no JSON"),
    ("[]", "deputy_mcp_pins"),
    ('{"deputy_mcp_pins": 2, "servers": {}}', "deputy_mcp_pins"),
    ('{"deputy_mcp_pins": 1}', "servers is no object"),
    ('{"deputy_mcp_pins": 1, "servers": {"a": 1}}', "servers/a is no object"),
    ('{"deputy_mcp_pins": 1, "servers": {"a": {"tool": {}}}}', "no kind of pin"),
    ('{"deputy_mcp_pins": 1, "servers": {"a": {"instructions": 1}}}', "instructions is no text"),
    ('{"deputy_mcp_pins": 1, "servers": {"a": {"tools": []}}}', "tools is no object"),
    ('{"deputy_mcp_pins": 1, "servers": {"a": {"tools": {"t": 1}}}}', "tools/t is no object"),
    ('{"deputy_mcp_pins": 1, "servers": {"a": {"tools": {"t": {"digest": "x"}}}}}', "definition is no object"),
    ('{"deputy_mcp_pins": 1, "servers": {"a": {"tools": {"t": {"digest": "x", "definition": {}}}}}}', "edited by hand"),
    ('{"deputy_mcp_pins": 1, "servers": {"a": {"prompts": {"t": {"digest": "x", "definition": {}}}}}}', "by hand"),
    ('{"deputy_mcp_pins": 1, "servers": {"a": {"tools": {"t": {"definition": {"x": NaN}}}}}}', "no canonical form"),
    (
        '{"deputy_mcp_pins": 1, "servers": {"a": {"tools": {"t": {"definition": {}, "accepted": [1]}}}}}',
        "finding codes",
    ),
    ('{"deputy_mcp_pins": 1, "servers": {"a": {"tools": {"t": {"definition": {}, "accepted": 1}}}}}', "finding codes"),
]


@pytest.mark.parametrize(("text", "says"), BROKEN)
def test_what_is_no_pin_file_is_refused_and_says_where(text, says):
    """It is never read as an empty one."""
    with pytest.raises(ConfigError, match=says):
        decode_pins(text)


def test_a_definition_edited_in_the_file_is_found():
    """The digest is that of the definition, or the file is refused."""
    document = as_document(encode_pins(PINS))
    document["servers"]["a"]["tools"]["read"]["definition"]["description"] = "sends"

    with pytest.raises(ConfigError, match="servers/a/tools/read"):
        decode_pins(json.dumps(document))


VALUE = {"a": {"b": [1, {"c": 2}], "x/y": 3, "m~n": 4}, "d": 5}


@pytest.mark.parametrize(
    ("pointer", "expected"),
    [
        ("/d", {"a": VALUE["a"]}),
        ("/a/b", {"a": {"x/y": 3, "m~n": 4}, "d": 5}),
        ("/a/b/0", {"a": {"b": [{"c": 2}], "x/y": 3, "m~n": 4}, "d": 5}),
        ("/a/b/1/c", {"a": {"b": [1, {}], "x/y": 3, "m~n": 4}, "d": 5}),
        ("/a/x~1y", {"a": {"b": [1, {"c": 2}], "m~n": 4}, "d": 5}),
        ("/a/m~0n", {"a": {"b": [1, {"c": 2}], "x/y": 3}, "d": 5}),
        ("/a/nothing/there", VALUE),
        ("/d/deeper", VALUE),
        ("/d/deeper/still", VALUE),
    ],
)
def test_what_a_pointer_names_is_left_out_and_nothing_else(pointer, expected):
    """RFC 6901; the value itself stays as it was."""
    before = json.dumps(VALUE)

    assert expected == leave_out(VALUE, [pointer])
    assert before == json.dumps(VALUE)


def test_a_tools_digest_leaves_out_what_it_is_told():
    """A clock in a default does not change the digest; anything else does."""
    early, late = ({"name": "t", "inputSchema": {"properties": {"now": {"default": at}}}} for at in (1, 2))
    ignored = ["/inputSchema/properties/now/default"]

    assert tool_digest(early) != tool_digest(late)
    assert tool_digest(early, ignored) == tool_digest(late, ignored)
    assert tool_digest(early, ignored) != tool_digest(late | {"title": "x"}, ignored)


def test_a_resources_size_and_date_are_no_part_of_its_definition():
    """They are facts about content, which changes by nature."""
    one = {"uri": "memo://a", "size": 1, "annotations": {"lastModified": "2026", "priority": 1}}
    other = {"uri": "memo://a", "size": 2, "annotations": {"lastModified": "2027", "priority": 1}}

    assert definition_digest(one) == definition_digest(other)
    assert definition_digest(one) != definition_digest(other | {"annotations": {"priority": 2}})


# -- prompts and resources -------------------------------------------------------------------------------------------


def vet(entries, pins=None, allowed=("greet", "bye")):
    return vet_definitions(entries, "name", allowed, pins)


def test_only_allowed_definitions_are_pinned():
    """What nobody may call is nobody's business; what is no definition is passed over."""
    vetting = vet([PROMPT, {"name": "other"}, 1, {"name": 2}, {}])

    assert {"greet"} == set(vetting.pins)
    assert {} == vetting.refused


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([PROMPT | {"description": "greets!"}], "pin_changed"),
        ([{"name": "greet"}], "pin_changed"),
        ([], "pin_gone"),
        ([PROMPT | {"description": float("nan")}], "not_canonical"),
        ([PROMPT, PROMPT | {"title": "x"}], "duplicate_name"),
    ],
)
def test_a_definition_that_is_not_as_pinned_is_refused(entries, code):
    """Changed, gone, twice, or without a canonical form."""
    assert code == vet(entries, vet([PROMPT]).pins).refused["greet"].code


def test_a_definition_that_appears_after_pinning_is_unknown():
    """That nothing was said of it was pinned, too; one that stays unlisted is fine."""
    refused = vet([PROMPT, {"name": "bye"}], vet([PROMPT]).pins).refused

    assert {"bye": "pin_unknown"} == {name: refusal.code for name, refusal in refused.items()}


def test_a_first_listing_does_not_pin_what_it_cannot():
    """Two different definitions of one name pin neither."""
    vetting = vet([PROMPT, PROMPT | {"title": "x"}, {"name": "bye"}])

    assert ({"bye"}, {"greet"}) == (set(vetting.pins), set(vetting.refused))


def test_the_same_definition_twice_is_one():
    """A listing may repeat itself."""
    assert {} == vet([PROMPT, dict(PROMPT)], vet([PROMPT]).pins).refused


# -- replies that repeat ---------------------------------------------------------------------------------------------


def reply(wire_id, value="x"):
    return json.dumps({"jsonrpc": "2.0", "id": wire_id, "result": {"value": value}}).encode()


def test_the_same_bytes_of_a_listing_give_the_same_object():
    """Who sees the identical result knows that nothing changed, without looking into it."""
    replies = RepeatedReplies(1000, 10_000, hashed=False)
    first, again, other = (replies.read(reply("tools-0-0", value))[0] for value in ("x", "x", "y"))

    assert first.result is again.result
    assert {"value": "y"} == other.result
    assert replies.read(reply("tools-0-0", "y"))[0].result is other.result


@pytest.mark.parametrize("line", [reply(1), b'{"jsonrpc":"2.0","id":"a","error":{"code":1,"message":""}}', b"junk"])
def test_other_messages_are_read_anew(line):
    """Only a reply to a listing is kept: its id is a string."""
    replies = RepeatedReplies(1000, 10_000, hashed=False)

    assert read_message(line, 1000) == replies.read(line)
    assert replies.read(line)[0] is not replies.read(line)[0]


def test_what_is_kept_is_bounded():
    """A server that sends many of them costs the room and no more; one that does not fit is not kept."""
    replies = RepeatedReplies(1000, 500, hashed=False)
    for size in range(200):
        replies.read(reply("tools-0-0", "x" * size))

    assert replies._kept_bytes <= 500
    assert replies._kept_bytes == sum(replies._known)
    large = reply("tools-0-0", "x" * 1000)
    assert replies.read(large)[0].result is not replies.read(large)[0].result


def test_replies_are_hashed_where_a_journal_wants_it():
    """SHA-256 over the bytes as they came, of results and errors."""
    replies = RepeatedReplies(1000, 500, hashed=True)
    result = replies.read(b'{"jsonrpc":"2.0","id":1,"result":{}}')[0]
    failure = replies.read(b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}')[0]

    assert isinstance(result, Reply)
    assert isinstance(failure, Failure)
    assert hashlib.sha256(b'{"jsonrpc":"2.0","id":1,"result":{}}').hexdigest() == result.sha256
    assert hashlib.sha256(b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}').hexdigest() == failure.sha256
    assert RepeatedReplies(1000, 500, hashed=False).read(b'{"jsonrpc":"2.0","id":1,"result":{}}')[0].sha256 is None


def test_a_value_without_canonical_form_has_no_definition_digest():
    """NaN is no JSON."""
    with pytest.raises(NotCanonicalError):
        definition_digest({"x": float("inf")})


def test_the_digest_of_a_whole_server_covers_all_that_is_pinned():
    """A tool, a prompt, a resource, the instructions: each changes it; the order of listing does not."""
    one, two = (Pinned(digest=tool_digest({"name": name}), raw={"name": name}) for name in ("a", "b"))
    some = ServerPins(tools={"a": one, "b": two})
    others = [ServerPins(), ServerPins(tools={"a": one}), evolve(some, instructions="x")]
    others += [evolve(some, prompts={"a": one}), evolve(some, resources={"a": one})]
    assert 6 == len({pins_digest(pins) for pins in (some, *others)})
    assert pins_digest(some) == pins_digest(ServerPins(tools={"b": two, "a": one}))


def test_pins_are_values():
    """Changed by evolving."""
    assert "x" == evolve(PINS["b"], instructions="x").instructions
