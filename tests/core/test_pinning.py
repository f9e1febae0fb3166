"""What a tool was and whether it still is: canonical JSON against RFC 8785's own package, and every change seen.

`rfc8785` is the oracle inside its domain: integers up to 2**53, no lone surrogates. Beyond it the contract adds two
rules, which have tables of their own: integers keep their digits, lone surrogates their code point.
"""

import copy
import hashlib
import json
import math

import pytest
import rfc8785
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from deputy_mcp._core.pinning import (
    MOST_DIFFERENCES,
    NotCanonicalError,
    PinVerdict,
    canonical_json,
    changed_members,
    compare_pin,
    describe_difference,
    tool_digest,
)

SAFE = 2**53 - 1
NAN, INF = float("nan"), float("inf")

fractions = st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: abs(x) <= SAFE or not x.is_integer())
texts = st.one_of(
    st.text(max_size=8), st.text(alphabet='a\u00e9\ud7ff\ue000\uffff\U00010000\U0010ffff\n\x7f\0"\\', max_size=4)
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(-SAFE, SAFE), fractions, texts)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=15,
)
wild_texts = st.text(st.characters(exclude_categories=()), max_size=5)
wild_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), wild_texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(wild_texts, inner, max_size=4)),
    max_leaves=15,
)


def same_json(a, b):
    """Whether two JSON values are the same: numbers by value, booleans are no numbers."""
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return a is b

    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_json(a[key], b[key]) for key in a)

    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same_json, a, b))

    numbers = isinstance(a, int | float) and isinstance(b, int | float)
    return a == b if numbers or type(a) is type(b) else False


# --- Canonical JSON ---------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=400)
@given(values)
@example({"\ue000": 1, "\U00010000": 2})
@example([-0.0, 0.0, 1e-7, 5e-324, 1.5, 2.0, 123456.789e-10])
@example({"é": "\x7f\x1f\u2028\\/"})
def test_inside_its_domain_the_encoding_is_rfc_8785(value):
    """Anybody can compute a digest again with the standard in hand."""
    assert rfc8785.dumps(value) == canonical_json(value)


@settings(deadline=None, max_examples=300)
@given(wild_values, wild_values)
def test_two_values_have_one_encoding_exactly_when_they_are_the_same(a, b):
    """Over all of JSON: big integers, lone surrogates, fractions of any size. No two share an encoding."""
    assert same_json(a, b) == (canonical_json(a) == canonical_json(b))
    assert canonical_json(a) == canonical_json(copy.deepcopy(a))


@settings(deadline=None)
@given(st.dictionaries(wild_texts, wild_values, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(value, random):
    """F64, https://github.com/DobermanCore/Doberman-Core/issues/246: a map has no order."""
    items = list(value.items())
    random.shuffle(items)
    assert canonical_json(value) == canonical_json(dict(items))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, b"1"),
        (-0.0, b"0"),
        (1e3, b"1000"),
        (0.1, b"0.1"),
        (1e-7, b"1e-7"),
        (2**53, b"9007199254740992"),
        (2**53 + 1, b"9007199254740993"),
        (10**30, b"1" + b"0" * 30),
        (-(10**30), b"-1" + b"0" * 30),
        (1e20, b"1" + b"0" * 20),
        (float(2**60), b"1152921504606846976"),
        (True, b"true"),
        (None, b"null"),
        ([], b"[]"),
        ((1, 2.0), b"[1,2]"),
        ("\ud800", b'"\xed\xa0\x80"'),
        ({"\udfff": 1}, b'{"\xed\xbf\xbf":1}'),
        ({"b": 1, "a": {"d": 1.0, "c": "é\n"}}, '{"a":{"c":"é\\n","d":1},"b":1}'.encode()),
    ],
    ids=ascii,
)
def test_a_value_is_spelled_the_canonical_way(value, expected):
    """`1` and `1.0` are one number; beyond the standard, integers keep their digits and surrogates their code point."""
    assert expected == canonical_json(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1e-7, "b": 2**60}, b'{"a":1e-7,"b":1152921504606846976}'),
        ([1e-7, "\ud800"], b'[1e-7,"\xed\xa0\x80"]'),
        ({"\ue000": 2**60, "\U00010000": 1}, '{"\U00010000":1,"\ue000":1152921504606846976}'.encode()),
        ({"\ue000": "\udfff", "\U00010000": 1}, '{"\U00010000":1,"\ue000":"'.encode() + b'\xed\xbf\xbf"}'),
    ],
    ids=ascii,
)
def test_what_lies_beyond_the_standard_changes_nothing_beside_it(value, expected):
    """A big integer or a lone surrogate does not make fractions and keys be spelled and sorted another way."""
    assert expected == canonical_json(value)


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: {"a": [{"b": x}]}])
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_what_is_no_json_number_has_no_canonical_form(value, wrap):
    """api.md section 6: a tool with NaN or Infinity is refused (`not_canonical`), not pinned by accident."""
    with pytest.raises(NotCanonicalError):
        canonical_json(wrap(value))
    with pytest.raises(NotCanonicalError):
        tool_digest({"name": "t", "inputSchema": {"properties": {"a": {"default": wrap(value)}}}})


def nested(core, depth, wrap):
    for _ in range(depth):
        core = wrap(core)
    return core


@pytest.mark.parametrize("depth", [100, 300, 600, 900, 5_000])
@pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: {"a": x}], ids=["lists", "objects"])
@pytest.mark.parametrize("key", ["_meta", "inputSchema"])
def test_a_value_nested_as_deeply_as_a_message_may_be_has_a_digest_or_is_refused(depth, wrap, key):
    """The parser takes some 900 levels; they must not take the whole listing down with a `RecursionError`."""
    tool = {"name": "t", key: nested("before", depth, wrap)}
    other = {"name": "t", key: nested("now", depth, wrap)}
    try:
        first, second = tool_digest(tool), tool_digest(other)
    except NotCanonicalError:
        first, second = "refused", None

    assert first != second
    assert depth > 300 or second is not None
    assert describe_difference(tool, other)


@pytest.mark.parametrize("depth", [300, 900, 950, 5_000])
@pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: {"a": x}], ids=["lists", "objects"])
def test_a_difference_never_raises_however_deep_it_lies(depth, wrap):
    """It is read after a pin has failed already; an exception there would hide the refusal."""
    assert describe_difference({"a": nested(1, depth, wrap)}, {"a": nested(2, depth, wrap)})


# --- Digests ----------------------------------------------------------------------------------------------------------

TOOL = {
    "name": "search",
    "title": "Search",
    "description": "Searches.",
    "inputSchema": {
        "type": "object",
        "required": ["query", "limit"],
        "properties": {
            "query": {"type": ["string", "null"], "enum": ["a", "b", None]},
            "limit": {"type": "integer", "default": 10},
        },
    },
    "outputSchema": {"type": "object", "required": ["rows", "more"]},
    "annotations": {"readOnlyHint": True},
    "icons": [{"src": "https://example.org/i.png", "sizes": ["16x16", "32x32"]}],
    "_meta": {"x": {"required": ["b", "a"]}},
}


def places(value, path=()):
    """Every place in a value, the inner ones too."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def changed(value, path, change):
    value = copy.deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    change(inner, path[-1])
    return value


def test_a_digest_is_sha_256_of_the_canonical_json_of_the_whole_tool():
    """Where there is no set to sort, anybody can compute it with a standard tool."""
    tool = {"name": "t", "inputSchema": {"type": "object"}, "unknown": [1.0, "é"]}
    expected = hashlib.sha256('{"inputSchema":{"type":"object"},"name":"t","unknown":[1,"é"]}'.encode()).hexdigest()
    assert expected == tool_digest(tool)


@pytest.mark.parametrize("path", list(places(TOOL)), ids=lambda path: "/".join(map(str, path)))
def test_every_member_that_changes_or_disappears_changes_the_digest(path):
    """F64: whatever a model may read tomorrow must not change unseen today, unknown members included."""
    digest = tool_digest(TOOL)

    def remove(inner, key):
        del inner[key]

    def replace(inner, key):
        inner[key] = "another"

    def add_beside(inner, key):
        if isinstance(inner, dict):
            inner["added"] = None
        else:
            inner.append("added")

    for change in (remove, replace, add_beside):
        assert digest != tool_digest(changed(TOOL, path, change))


@pytest.mark.parametrize("character", ["\u200b", " ", "\u0301", "\ud800", "\0"])
def test_one_more_character_in_a_description_changes_the_digest(character):
    """F64 (2): one zero-width character is a change; texts are not normalised."""
    assert tool_digest(TOOL) != tool_digest({**TOOL, "description": TOOL["description"] + character})


@settings(deadline=None, max_examples=300)
@given(
    st.dictionaries(st.sampled_from(["name", "title", "_meta", "annotations", "inputSchema", "x"]), values, max_size=5),
    st.data(),
)
def test_any_change_of_any_tool_changes_the_digest(tool, data):
    """A member replaced, removed or added anywhere, unless the value is the same JSON."""
    reachable = list(places(tool))
    assume(reachable)
    path = data.draw(st.sampled_from(reachable))
    new = data.draw(values)
    other = changed(tool, path, lambda inner, key: inner.__setitem__(key, new))
    assert same_json(tool, other) == (tool_digest(tool) == tool_digest(other))
    assert tool_digest(tool) != tool_digest(changed(tool, path, lambda inner, key: inner.__delitem__(key)))


def test_key_order_white_space_and_the_spelling_of_numbers_do_not_matter():
    """F64 (1): the same tool out of another serialiser."""
    again = json.loads(json.dumps(TOOL, indent=3, sort_keys=True).replace("10", "1.0e1"))
    assert list(TOOL) != list(again)
    assert tool_digest(TOOL) == tool_digest(again)


def schema_digest(schema, key="inputSchema"):
    return tool_digest({"name": "t", key: schema})


WRAPS = [
    lambda s: s,
    lambda s: {"properties": {"p": s}},
    lambda s: {"properties": {"required": s}},
    lambda s: {"properties": {"default": s}},
    lambda s: {"$defs": {"enum": s}},
    lambda s: {"definitions": {"const": s}},
    lambda s: {"patternProperties": {"type": s}},
    lambda s: {"dependentSchemas": {"examples": s}},
    lambda s: {"items": {"anyOf": [{}, s]}},
    lambda s: {"additionalProperties": s, "not": {}},
]


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("side", ["inputSchema", "outputSchema"])
@pytest.mark.parametrize(
    ("keyword", "members"),
    [
        ("required", ["a", "b", "é"]),
        ("type", ["object", "null", "string"]),
        ("enum", ["b", 1, 1.5, None, True, {"k": [2, 1]}, ["z", "a"]]),
    ],
)
def test_the_order_of_what_a_schema_reads_as_a_set_does_not_matter(keyword, members, side, wrap):
    """Real servers emit them in changing order; a property's name is no keyword, and its value is a schema."""
    assert schema_digest(wrap({keyword: members}), side) == schema_digest(wrap({keyword: members[::-1]}), side)
    assert schema_digest(wrap({keyword: members}), side) != schema_digest(wrap({keyword: members[1:]}), side)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda m: {"properties": {"p": {"default": {"required": m}}}},
        lambda m: {"default": m},
        lambda m: {"const": {"enum": m}},
        lambda m: {"const": {"properties": {"enum": m}}},
        lambda m: {"examples": [{"type": m}]},
        lambda m: {"examples": m},
        lambda m: {"enum": [{"required": m}]},
        lambda m: {"enum": [m]},
        lambda m: {"prefixItems": [{"title": text} for text in m]},
        lambda m: {"x-order": m},
        lambda m: {"default": {"properties": {"p": {"required": m}}}},
    ],
)
def test_the_order_of_data_and_of_lists_that_are_no_sets_matters(wrap):
    """Inside `default`, `const`, `examples` and an enum's members a list is what a model reads."""
    assert schema_digest(wrap(["a", "b"])) != schema_digest(wrap(["b", "a"]))


@pytest.mark.parametrize("key", ["_meta", "annotations", "icons", "execution", "name"])
def test_outside_the_schemas_the_order_of_lists_matters(key):
    """`required` is a keyword in a schema and nowhere else."""
    first, second = ({**TOOL, key: {"required": members}} for members in (["a", "b"], ["b", "a"]))
    assert tool_digest(first) != tool_digest(second)


@pytest.mark.parametrize(
    "schema", [{"required": "a"}, {"type": "object"}, {"enum": {"a": 1}}, {"properties": ["a"]}, True]
)
def test_an_odd_schema_has_a_digest_too(schema):
    """Pins judge nothing; they only must not miss a change."""
    assert schema_digest(schema) == schema_digest(copy.deepcopy(schema))
    assert schema_digest(schema) != schema_digest({})


def test_a_digest_leaves_the_tool_as_it_was():
    """Sorting happens in a copy: validation and calls use the original."""
    before = json.dumps(TOOL)
    tool_digest(TOOL)
    assert before == json.dumps(TOOL)


@pytest.mark.parametrize(
    ("pinned", "current", "expected"),
    [("a", "a", PinVerdict.SAME), ("a", "b", PinVerdict.CHANGED), (None, "a", PinVerdict.UNKNOWN)],
)
def test_the_verdict_over_two_digests(pinned, current, expected):
    """What was never pinned is unknown, however harmless it looks."""
    assert expected is compare_pin(pinned, current)


# --- Differences ------------------------------------------------------------------------------------------------------


def test_a_difference_names_each_place_with_what_was_and_what_is():
    """F64: a field-level difference, as a person reads it."""
    now = copy.deepcopy(TOOL)
    now["description"] = "Searches.\u200b"
    now["annotations"] = {"readOnlyHint": False}
    now["inputSchema"]["properties"]["extra"] = {"type": "string"}
    del now["title"]
    now["icons"][0]["sizes"][1] = "64x64"
    now["outputSchema"] = None
    assert [
        "/annotations/readOnlyHint: true → false",
        '/description: "Searches." → "Searches.\\u200b"',
        '/icons/0/sizes/1: "32x32" → "64x64"',
        '/inputSchema/properties/extra: added, {"type": "string"}',
        '/outputSchema: {"type": "object", "required": ["rows", "more"]} → null',
        '/title: removed, was "Search"',
    ] == describe_difference(TOOL, now).splitlines()


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        ({"title": "a"}, {"title": "b"}, "title"),
        ({"title": "a"}, {}, "title"),
        ({}, {"description": "x", "annotations": {}}, "annotations, description"),
        ({"title": 1, "x": 1}, {"title": 1.0, "x": 2, "obey me": 3}, "members we do not know"),
        ({"_meta": {}, "y": 1}, {"_meta": {"obey": 1}}, "_meta, members we do not know"),
        ({"title": math.nan}, {"title": math.nan}, "title"),
        ({"title": "a"}, {"title": "a"}, ""),
    ],
)
def test_which_members_changed_is_said_in_words_of_ours_alone(before, now, says):
    """A model may read it: a member's name that MCP does not know is the server's text."""
    assert says == changed_members(before, now)


def test_what_is_the_same_is_no_difference():
    """Key order and the spelling of numbers are none; a list of another length is shown as a whole."""
    assert "" == describe_difference(TOOL, dict(reversed(TOOL.items())))
    assert "" == describe_difference({"a": [1, {"b": 2}]}, {"a": [1.0, {"b": 2.0}]})
    assert "/a: [1, 2] → [1]" == describe_difference({"a": [1, 2]}, {"a": [1]})
    assert "/a: true → 1" == describe_difference({"a": True}, {"a": 1})


@pytest.mark.parametrize("at", [0, 500, 5_000, 9_999])
def test_a_change_deep_inside_a_long_text_is_visible(at):
    """F57's description of 10,000 characters, changed in one place: that place must be seen, not its beginning."""
    before = "lorem ipsum " * 834
    now = before[:at] + "EVIL" + before[at:]
    assert "EVIL" in describe_difference({"description": before}, {"description": now})


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(wild_texts, wild_values, max_size=6), st.dictionaries(wild_texts, wild_values, max_size=6))
def test_a_difference_is_there_exactly_when_there_is_one_and_is_safe_to_show(before, now):
    """Whatever a server sends: no control characters, no surrogates, no line of its own making."""
    text = describe_difference(before, now)
    assert same_json(before, now) == (text == "")
    text.encode()
    assert text.replace("\n", "").isprintable() or not any(
        ord(c) < 32 or 127 <= ord(c) < 160 for c in text.replace("\n", "")
    )
    assert all(line.startswith(("/", "…")) for line in text.splitlines())


def test_a_difference_is_bounded():
    """Many changes are counted, long values and long names are cut."""
    before = {f"{i:04d}" + "n" * 500: "x" * 10_000 for i in range(500)}
    lines = describe_difference(before, dict.fromkeys(before, "y" * 10_000)).splitlines()
    assert MOST_DIFFERENCES + 1 == len(lines)
    assert f"… and {500 - MOST_DIFFERENCES} more" == lines[-1]
    assert max(map(len, lines)) < 500


def test_the_place_of_a_difference_is_bounded_too():
    """Names may nest as deeply as a message; a line is still a line."""
    before, now = "x", "y"
    for _ in range(150):
        before, now = {"n" * 60: before}, {"n" * 60: now}
    assert len(describe_difference(before, now)) < 1_000


def test_two_digests_differ_where_the_oracle_sees_two_numbers():
    """Neighbouring numbers at the edges of the floating-point range stay apart."""
    for number in (0.1, 1e-300, 5e-324, 1e300, float(SAFE)):
        neighbour = math.nextafter(number, INF)
        assert canonical_json(number) != canonical_json(neighbour)
