"""A listing is judged entry by entry, and every tool gets a name that every provider takes.

Expected names and digests are computed here from the contract's words, not by the module.
"""

import hashlib
import json
import re

import pytest
from attrs import evolve
from attrs.exceptions import FrozenInstanceError
from hypothesis import given, settings
from hypothesis import strategies as st

from deputy_mcp._core.annotations import CAUTIOUS, Effects, Finding
from deputy_mcp._core.catalog import (
    LONGEST_PUBLIC_NAME,
    Pinned,
    Refusal,
    accepted_as_notes,
    listing_texts,
    public_name,
    vet_listing,
)
from deputy_mcp._core.pinning import tool_digest

PROVIDER = re.compile(r"[a-zA-Z0-9_-]{1,64}")
OBJECT = {"type": "object"}
GOOD = {"name": "good", "description": "Does good.", "inputSchema": OBJECT}


def tool(name="t", **members):
    return {"name": name, "inputSchema": OBJECT, **members}


def vet(*entries, **options):
    return vet_listing(
        "srv",
        entries,
        **{
            "allowlist": None,
            "pins": None,
            "host_annotations": {},
            "trusted": True,
            "max_description_bytes": 16 * 1024,
            **options,
        },
    )


def codes(vetting):
    return {name: refusal.code for name, refusal in vetting.refused.items()}


def ending(server, name):
    return "_" + hashlib.sha256(f"{server}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()[:8]


# --- Public names -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "name"),
    [
        ("files", "read"),
        ("a-b", "c_d-e"),
        ("s", "0"),
        ("s", "-x-"),
        ("s1", "get_a_b"),
        ("s", "t" * 61),
        ("a" * 30, "b" * 32),
    ],
)
def test_plain_names_are_joined_by_two_underscores(server, name):
    """A person can read where the tool comes from; 64 characters still fit."""
    assert f"{server}__{name}" == public_name(server, name)


F54 = ["a/b", "a.b", "a b", "n" * 90, "ファイル", "", "__proto__"]


@pytest.mark.parametrize(
    ("server", "name", "begin"),
    [
        ("srv", "a/b", "srv__a_b"),
        ("srv", "a.b", "srv__a_b"),
        ("srv", "a b", "srv__a_b"),
        ("srv", "n" * 90, "srv__" + "n" * 50),
        ("srv", "ファイル", "srv___"),
        ("srv", "", "srv__"),
        ("srv", "__proto__", "srv____proto__"),
        ("srv", "_x", "srv___x"),
        ("srv", "x_", "srv__x_"),
        ("srv", "a__b", "srv__a__b"),
        ("a__b", "c", "a__b__c"),
        ("_a", "c", "_a__c"),
        ("my server", "c", "my_server__c"),
        ("s" * 90, "c", "s" * 55),
        ("s", "t" * 62, "s__" + "t" * 52),
        ("", "", "__"),
        ("srv", "x\n", "srv__x_"),
        ("srv", "a\ud800b", "srv__a_b"),
        ("srv", "٣", "srv___"),
    ],
)
def test_other_names_are_cleaned_cut_and_told_apart_by_a_hash(server, name, begin):
    """F54, https://github.com/cognizant-ai-lab/neuro-san-studio/issues/600: one odd name made every request a 400."""
    assert begin + ending(server, name) == public_name(server, name)
    assert PROVIDER.fullmatch(public_name(server, name))


names = st.one_of(
    st.text(alphabet="ab_-", max_size=6),
    st.text(alphabet="ab_-./ é", max_size=8),
    st.text(st.characters(exclude_characters="\0", exclude_categories=()), max_size=90),
    st.sampled_from(F54),
)
pairs = st.tuples(names, names)


@settings(deadline=None, max_examples=300)
@given(pairs)
def test_every_provider_takes_every_name(pair):
    """One to 64 characters of letters, digits, `_` and `-`, the same each time."""
    name = public_name(*pair)
    assert PROVIDER.fullmatch(name)
    assert LONGEST_PUBLIC_NAME >= len(name)
    assert name == public_name(*pair)


@settings(deadline=None, max_examples=300)
@given(st.lists(pairs, unique=True, max_size=30))
def test_distinct_pairs_have_distinct_names(those):
    """Cleaning alike or being cut alike is no collision: the hash is over the whole pair."""
    assert len(those) == len({public_name(*pair) for pair in those})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b__c"), ("a__b", "c")),
        (("a_", "b"), ("a", "_b")),
        (("a", "b c"), ("a", "b_c")),
        (("a", "b.c"), ("a", "b/c")),
    ],
)
def test_where_the_server_ends_cannot_be_blurred(one, other):
    """No tool can name itself into another server's room."""
    assert public_name(*one) != public_name(*other)


# --- Good tools -------------------------------------------------------------------------------------------------------


def test_a_good_tool_is_read_with_all_that_is_known_of_it():
    """Clean for a model, raw for validation, hints as declared and as we read them."""
    raw = {
        "name": "read",
        "title": "Read\u200b",
        "description": "Reads.\x1b[2J",
        "inputSchema": {"type": "object", "properties": {"a": {"description": "x\u202e"}}},
        "outputSchema": {"type": "object", "properties": {"b": True}},
        "annotations": {"readOnlyHint": True, "openWorldHint": False, "vendor": 1},
        "_meta": {"x": 1},
    }
    vetting = vet(raw)
    (facts,) = vetting.tools.values()
    assert ("srv", "read", "srv__read") == (facts.server, facts.tool, facts.name)
    assert ("Read\\u200b", "Reads.\\u001b[2J") == (facts.title, facts.description)
    assert {"type": "object", "properties": {"a": {"description": "x\\u202e"}}} == facts.input_schema
    assert {"type": "object", "properties": {"b": {}}} == facts.output_schema
    assert raw["annotations"] == facts.annotations
    assert ("destructiveHint", "idempotentHint") == facts.missing_annotations
    assert Effects(read_only=True, destructive=False, idempotent=False, open_world=False) == facts.effects
    assert {"invisible_character", "escape_sequence", "bidirectional_control"} == {one.code for one in facts.findings}
    assert tool_digest(raw) == facts.digest
    assert raw is facts.raw
    assert {"read": Pinned(digest=facts.digest, raw=raw)} == vetting.pins
    assert ({}, ()) == (vetting.refused, vetting.missing)


def test_a_bare_tool_gets_the_cautious_reading():
    """A name and a schema are enough; what nobody said is the worst."""
    facts = vet(tool()).tools["t"]
    assert (None, "", None, {}) == (facts.title, facts.description, facts.output_schema, facts.annotations)
    assert CAUTIOUS == facts.effects
    assert {"type": "object", "properties": {}} == facts.input_schema


def test_tools_keep_the_listings_order():
    """A model sees them as the server sorted them."""
    assert ["c", "a", "b"] == list(vet(tool("c"), tool("a"), tool("b")).tools)


def test_the_hosts_word_and_trust_reach_the_reading():
    """Per wire name; an untrusted server's hints count for nothing."""
    claims = tool("a", annotations={"readOnlyHint": True})
    assert not vet(claims, trusted=False).tools["a"].effects.read_only
    hosts = {"a": {"readOnlyHint": True}, "b": {"readOnlyHint": True}}
    vetting = vet(claims, tool("c"), trusted=False, host_annotations=hosts)
    assert [True, False] == [facts.effects.read_only for facts in vetting.tools.values()]


@pytest.mark.parametrize("annotations", [None, [], "readOnlyHint", 5])
def test_annotations_that_are_no_object_count_as_none(annotations):
    """Odd is no; the tool stays."""
    facts = vet(tool(annotations=annotations)).tools["t"]
    assert {} == facts.annotations
    assert CAUTIOUS == facts.effects


@pytest.mark.parametrize("output", [[], "x", 5, True])
def test_an_output_schema_that_is_no_object_is_ignored_with_a_finding(output):
    """F53, https://github.com/anthropics/claude-code/issues/77106: a bad output schema loses no tool."""
    facts = vet(tool(outputSchema=output)).tools["t"]
    assert facts.output_schema is None
    assert [("output_schema_ignored", "/outputSchema")] == [(found.code, found.place) for found in facts.findings]


def test_no_output_schema_is_no_finding():
    """Null is how some serialisers spell nothing."""
    assert () == vet(tool(outputSchema=None)).tools["t"].findings


@pytest.mark.parametrize("character", ["x", "é", "😀"])
def test_a_long_description_is_cut_with_a_mark_and_pinned_whole(character):
    """F57, https://github.com/anthropics/claude-code/issues/41593: between characters; the digest covers all."""
    long = character * 10_000
    raw = tool(description=long, title=long)
    facts = vet(raw, max_description_bytes=1000).tools["t"]
    for text in (facts.description, facts.title):
        assert len(text.encode()) <= 1000
        assert text.endswith(f"… [cut: {len(long.encode())} bytes in all]")
    assert tool_digest(raw) == facts.digest
    assert facts.digest != vet(tool(description=long + "!", title=long)).tools["t"].digest
    assert long == vet(raw, max_description_bytes=len(long.encode())).tools["t"].description


def test_everything_is_frozen():
    """A handle that was given cannot be changed behind the gate's back."""
    vetting = vet(GOOD)
    with pytest.raises(TypeError):
        vetting.tools["x"] = None
    with pytest.raises(FrozenInstanceError):
        vetting.tools["good"].digest = "x"
    assert "b" == evolve(vetting.tools["good"], digest="b").digest
    assert "Does good" not in repr(vetting.pins["good"])


# --- Bad entries ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", [None, 5, "t", [], {}, {"name": None}, {"name": 5}, {"name": ""}, {"name": ["t"]}])
def test_an_entry_without_a_name_is_refused_under_its_number(entry):
    """F50, https://github.com/anthropics/claude-code/issues/88049: a literal null among the tools loses no other."""
    vetting = vet(GOOD, entry, tool("b"))
    assert ["good", "b"] == list(vetting.tools)
    assert {"#1": "malformed_tool"} == codes(vetting)
    assert ["good", "b"] == list(vetting.pins)


F50 = [
    (None, "no input schema"),
    ("missing", "no input schema"),
    ({"type": "string"}, "'string'"),
    ({"anyOf": [{"type": "object"}, {"type": "string"}]}, "other types"),
    ({"type": "object", "required": None}, "required is null"),
    ({"type": "object", "required": "a"}, "required is a string"),
    ({"type": "object", "properties": None}, "properties is null"),
    ({"type": "object", "properties": []}, "properties is an array"),
    ([], "an array"),
    ("object", "a string"),
    (True, "true"),
    ({"type": "object", "properties": {"q": {"$ref": "#/$defs/Gone"}}}, "#/$defs/Gone"),
    ({"$ref": "#/$defs/Gone"}, "#/$defs/Gone"),
]


@pytest.mark.parametrize(
    ("schema", "says"), F50, ids=lambda item: json.dumps(item) if not isinstance(item, str) else None
)
def test_a_tool_whose_input_schema_cannot_be_used_is_refused_alone_with_the_reason(schema, says):
    """F50 and F52: name, place and reason are said; the good tool beside it is usable."""
    bad = {"name": "bad"} if schema == "missing" else {"name": "bad", "inputSchema": schema}
    vetting = vet(bad, GOOD)
    assert {"bad": "malformed_schema"} == codes(vetting)
    assert says in vetting.refused["bad"].reason
    assert ["good"] == list(vetting.tools) == list(vetting.pins)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": ["object", "null"]},
        {"type": "object", "properties": {"p": {}}},
        {"type": "object", "properties": {"value": True}},
        {"type": "object", "properties": {"value": None}},
        {"type": "object", "properties": {"p": {"required": True}}},
        {"type": "object", "properties": {"q": {"$ref": "#/$defs/Q"}}, "$defs": {"Q": {"type": "object"}}},
        {"type": "object", "properties": {"q": {"$ref": "#"}}},
        {"type": "object", "properties": {"q": {"$ref": "https://example.org/schema.json"}}},
        {"anyOf": [{"type": "object"}, {"type": "object", "properties": {}}]},
        {},
    ],
    ids=json.dumps,
)
def test_what_real_servers_send_stays_usable(schema):
    """F51, https://github.com/grll/mcpadapt/issues/78, and F52, https://github.com/github/copilot-cli/issues/1876.

    Local and recursive references are fine; a remote one is met, unfetched, when arguments are checked.
    """
    raw = {"name": "t", "inputSchema": schema}
    facts = vet(raw).tools["t"]
    assert tool_digest(raw) == facts.digest
    assert schema == facts.raw["inputSchema"]


@pytest.mark.parametrize("key", ["title", "description"])
@pytest.mark.parametrize("value", [5, ["x"], {"a": 1}, True])
def test_a_text_that_is_no_text_refuses_the_tool(key, value):
    """Nothing is coerced; null is nothing."""
    vetting = vet(tool(**{key: value}), GOOD)
    assert {"t": Refusal(code="malformed_tool", reason=f"its {key} is no text")} == vetting.refused
    assert ["t"] == list(vet(tool(**{key: None})).tools)


@pytest.mark.parametrize(
    "name", ["a\u200bb", "a\x1b[2J", "a\nb", "a\tb", "a\r\nb", "\u202eb", "\ud800", "a\0", "\U000e0041"]
)
def test_a_name_that_hides_something_refuses_the_tool(name):
    """F65: such a name reads as another tool's; the reason shows it."""
    vetting = vet(tool(name), GOOD)
    assert {name: "unclean_name"} == codes(vetting)
    assert vetting.refused[name].reason.isprintable()
    assert ["good"] == list(vetting.tools) == list(vetting.pins)


@pytest.mark.parametrize("name", F54[:5] + F54[6:])
def test_an_odd_name_that_hides_nothing_is_taken(name):
    """F54: exposed under a name that providers take, routed and pinned by the wire's."""
    facts = vet(tool(name)).tools[name]
    assert (name, public_name("srv", name)) == (facts.tool, facts.name)


@pytest.mark.parametrize("key", ["inputSchema", "outputSchema"])
def test_a_schema_that_cleaning_would_change_refuses_the_tool(key):
    """api.md section 4: `unclean_schema`, with the place; the tool is pinned all the same."""
    schema = {"type": "object", "properties": {"p": {"enum": ["a\u200bb"]}}}
    vetting = vet(tool(**{key: schema}), GOOD)
    assert {"t": "unclean_schema"} == codes(vetting)
    assert "/properties/p/enum" in vetting.refused["t"].reason
    assert ["t", "good"] == list(vetting.pins)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_tool_without_a_canonical_form_is_refused_alone(number):
    """api.md section 6: `not_canonical`; it cannot be pinned, so it cannot be used."""
    vetting = vet(tool(_meta={"x": [number]}), GOOD)
    assert {"t": "not_canonical"} == codes(vetting)
    assert ["good"] == list(vetting.tools) == list(vetting.pins)


@pytest.mark.parametrize("depth", [150, 600, 900])
@pytest.mark.parametrize("key", ["inputSchema", "outputSchema", "_meta", "annotations"])
@pytest.mark.parametrize(
    "wrap", [lambda x: [x], lambda x: {"allOf": x}, lambda x: {"items": [x]}], ids=["[]", "{}", "{[]}"]
)
def test_a_tool_nested_as_deeply_as_a_message_may_be_loses_no_other(depth, key, wrap):
    """The listing survives: that tool is taken or refused with a reason, its sibling stays."""
    deep = []
    for _ in range(depth):
        deep = wrap(deep)
    vetting = vet(tool(**{key: {"type": "object", "x": deep}}), GOOD)
    assert "good" in vetting.tools
    assert {"t", "good"} == {*vetting.tools, *vetting.refused}


def test_a_check_of_the_transport_refuses_a_tool_alone():
    """`entry_check` looks at whole entries, after their shape and before their digest."""
    refusal = Refusal(code="odd_header", reason="x")
    vetting = vet(
        GOOD, tool("a"), tool("b", inputSchema=None), entry_check=lambda e: refusal if e["name"] != "good" else None
    )
    assert {"a": "odd_header", "b": "malformed_schema"} == codes(vetting)
    assert ["good"] == list(vetting.tools) == list(vetting.pins)


def test_a_check_that_is_led_too_deep_refuses_that_tool_alone():
    """A walk over a nested entry may overflow; the listing survives that too."""

    def walk(entry):
        return walk(entry) if entry["name"] == "t" else None

    vetting = vet(tool("t"), GOOD, entry_check=walk)
    assert {"t": "malformed_tool"} == codes(vetting)
    assert ["good"] == list(vetting.tools) == list(vetting.pins)


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(exclude_categories=()), max_size=5)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)
MEMBERS = ["name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta"]
ENTRIES = st.one_of(
    JSON,
    st.dictionaries(st.sampled_from(MEMBERS), JSON),
    st.builds(
        lambda name, rest, schema: {"name": name, "inputSchema": {**OBJECT, **schema}, **rest},
        st.sampled_from("abc"),
        st.dictionaries(st.sampled_from(MEMBERS[1:]), JSON, max_size=2),
        st.dictionaries(
            st.sampled_from(["properties", "required", "$defs", "enum", "default", "$ref"]), JSON, max_size=3
        ),
    ),
)


@settings(deadline=None, max_examples=300)
@given(st.lists(ENTRIES, max_size=6))
def test_any_listing_is_judged_and_the_good_tool_survives(entries):
    """No entry raises, none is both offered and refused, and nothing is lost without a word."""
    vetting = vet(GOOD, *entries)
    assert "good" in vetting.tools
    assert set() == {*vetting.tools} & {*vetting.refused}
    named = {e["name"] for e in entries if isinstance(e, dict) and isinstance(e.get("name"), str) and e["name"]}
    assert named <= {*vetting.tools, *vetting.refused}
    assert {*vetting.tools} <= {*vetting.pins}


# --- Duplicates -------------------------------------------------------------------------------------------------------


def test_the_same_tool_twice_is_one_tool():
    """Pages that overlap are common; key order and number spelling are no difference."""
    first = tool(title="x", _meta={"n": 1})
    vetting = vet(first, {"_meta": {"n": 1.0}, **tool(), "title": "x"}, GOOD)
    assert ["t", "good"] == list(vetting.tools)
    assert {} == vetting.refused


BAD_TWINS = [
    (tool(description="other"), "duplicate_name"),
    (tool(inputSchema=None), "malformed_schema"),
    (tool(title=5), "malformed_tool"),
    (tool(_meta={"x": float("nan")}), "not_canonical"),
]


@pytest.mark.parametrize(("twin", "code"), BAD_TWINS)
@pytest.mark.parametrize("order", ["after", "before", "between"])
def test_two_different_tools_of_one_name_are_refused_both(twin, code, order):
    """F55, https://github.com/openai/openai-agents-python/issues/3019: a pin could not choose between them."""
    good = tool()
    entries = {"after": [good, twin], "before": [twin, good], "between": [good, twin, good]}[order]
    vetting = vet(*entries, GOOD)
    assert {"t": code} == codes(vetting)
    assert ["good"] == list(vetting.tools) == list(vetting.pins)


# --- Allowlist --------------------------------------------------------------------------------------------------------


def test_only_what_the_allowlist_names_is_taken():
    """Exact names; the others are neither offered nor refused. Pins hold everything that was there."""
    vetting = vet(tool("a"), tool("ab"), tool("A"), allowlist=("a",))
    assert ["a"] == list(vetting.tools)
    assert ({}, ()) == (vetting.refused, vetting.missing)
    assert ["a", "ab", "A"] == list(vetting.pins)


def test_an_empty_allowlist_takes_nothing():
    """Empty is nothing, not everything."""
    vetting = vet(GOOD, allowlist=())
    assert ({}, {}, ()) == (vetting.tools, vetting.refused, vetting.missing)


def test_allowlisted_names_that_are_not_offered_are_missing():
    """At a first vetting this quarantines the server. A refused tool is there, and so is not missing."""
    vetting = vet(tool("a"), tool("bad", inputSchema=None), allowlist=("a", "b", "bad", "search_*"))
    assert ("b", "search_*") == vetting.missing
    assert {"bad": "malformed_schema"} == codes(vetting)


# --- Pins -------------------------------------------------------------------------------------------------------------


def test_the_first_listing_is_pinned_and_later_ones_are_held_to_it():
    """Equal again in other spelling: same; the pins stay those of the first."""
    first = vet(tool(_meta={"n": 1}), GOOD)
    later = vet({"_meta": {"n": 1.0}, **tool()}, GOOD, pins=first.pins)
    assert ["t", "good"] == list(later.tools)
    assert first.pins == later.pins


def test_a_changed_a_vanished_and_an_unknown_tool_are_refused_alone():
    """F56, https://github.com/aaif-goose/goose/issues/10433: each with its code; the sibling goes on."""
    first = vet(tool("alpha"), tool("gamma", description="old"), GOOD)
    later = vet(tool("beta"), tool("gamma", description="new"), GOOD, pins=first.pins)
    assert ["good"] == list(later.tools)
    assert {"alpha": "pin_gone", "beta": "pin_unknown", "gamma": "pin_changed"} == codes(later)
    assert '/description: "old" → "new"' == later.refused["gamma"].difference
    assert ("", "") == (later.refused["alpha"].difference, later.refused["beta"].difference)
    assert first.pins == later.pins


def test_a_renamed_tool_is_a_new_one_and_an_old_one_gone():
    """F64 (6): the same body under another name was never approved."""
    later = vet(tool("b"), pins=vet(tool("a")).pins)
    assert {"a": "pin_gone", "b": "pin_unknown"} == codes(later)


def test_a_server_cannot_widen_what_is_allowed_by_listing_more():
    """F66, https://github.com/netclaw-dev/netclaw/issues/490: `search` allowed, `search_and_delete` added later."""
    first = vet(tool("search"), allowlist=None)
    later = vet(tool("search"), tool("search_and_delete"), pins=first.pins)
    assert ["search"] == list(later.tools)
    assert {"search_and_delete": "pin_unknown"} == codes(later)


def test_a_tool_that_was_refused_at_first_is_unknown_when_mended():
    """It could not be pinned, so nobody has seen what it is now."""
    first = vet(tool("t", inputSchema=None))
    assert {"t": "pin_unknown"} == codes(vet(tool("t"), pins=first.pins))


def test_a_pinned_tool_that_became_malformed_has_that_reason_alone():
    """It is there, so it is not gone."""
    first = vet(tool("t"), tool("u"))
    later = vet(tool("t", inputSchema=None), tool("u"), tool("u", title="x"), pins=first.pins)
    assert {"t": "malformed_schema", "u": "duplicate_name"} == codes(later)


def test_a_gone_tool_that_was_never_allowed_is_no_news():
    """What is not on the allowlist is not looked at; what is on it and gone is refused, and not missing."""
    first = vet(tool("a"), tool("b"))
    later = vet(pins=first.pins, allowlist=("a",))
    assert {"a": "pin_gone"} == codes(later)
    assert () == later.missing


def test_with_empty_pins_everything_is_unknown():
    """No pins at all is not the same as no pins yet."""
    assert {"good": "pin_unknown"} == codes(vet(GOOD, pins={}))


def test_an_empty_listing_is_a_listing():
    """It offers nothing, pins nothing, and everything allowlisted is missing."""
    assert ("a",) == vet(allowlist=("a",)).missing
    assert {"t": "pin_gone"} == codes(vet(pins=vet(tool()).pins))


# --- Judging again ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [True, 1.5, "1", 2, [1], None])
def test_a_listing_judged_again_finds_every_other_value(value):
    """What Python calls equal may be another definition: `1` and `true` are told apart again too."""
    before = vet(tool(inputSchema=OBJECT | {"minProperties": 1}))
    again = vet(tool(inputSchema=OBJECT | {"minProperties": value}), pins=before.pins, known=before)

    assert {"t"} == set(again.refused)


def test_a_listing_judged_again_reads_no_tool_that_is_the_same():
    """The very same facts, whatever order the tools come in; what is refused stays refused."""
    odd = {"name": "odd", "inputSchema": {"type": "array"}}
    before = vet(tool("a"), tool("b"), odd)
    again = vet(dict(odd), dict(tool("b")), dict(tool("a")), pins=before.pins, known=before)

    assert all(before.tools[name] is again.tools[name] for name in ("a", "b"))
    assert before.refused["odd"] is again.refused["odd"]


def test_a_tool_nested_too_deeply_for_any_text_is_refused_each_time():
    """It has no text by which it could be known again."""
    deep: dict[str, object] = {"type": "object"}
    for _ in range(100_000):
        deep = {"type": "object", "properties": {"a": deep}}

    before = vet(tool(inputSchema=deep), tool("good"))
    again = vet(tool(inputSchema=deep), tool("good"), pins=before.pins, known=before)

    assert ({"t"}, {"good"}) == (set(again.refused), set(again.tools))


def test_pins_that_were_read_again_and_say_the_same_read_no_tool_again():
    """A pin file that somebody wrote to is other objects; a tool is read again where what is accepted of it differs."""
    before = vet(tool("send_mail"), tool("b"))
    same = {name: evolve(pin) for name, pin in before.pins.items()}
    accepted = same | {"send_mail": evolve(same["send_mail"], accepted=frozenset({"name_imitated", "x"}))}

    unchanged, again = (vet(tool("send_mail"), tool("b"), pins=pins, known=before) for pins in (same, accepted))
    assert all(before.tools[name] is unchanged.tools[name] for name in same)
    assert before.tools["b"] is again.tools["b"]
    assert frozenset({"name_imitated", "x"}) == again.tools["send_mail"].accepted


def test_a_finding_that_a_person_accepted_is_a_note():
    """It asks no more, and stays visible; another one asks."""
    flags = [Finding(code, severity="flag", place="/name", message="m") for code in ("one", "other")]

    assert ["note", "flag"] == [one.severity for one in accepted_as_notes(flags, {"one"})]


def test_an_entry_is_known_again_by_its_object_or_by_its_text():
    """By the object only where it is asked for; by a text that tells apart what is equal in Python alone."""
    entries = [tool("a"), tool("b", extra=1), tool("b", extra=True), tool("b", extra=1.0), tool("b", extra=[{}])]
    texts = listing_texts(entries)
    known = vet(*entries)

    assert len(entries) == len(set(texts))
    assert texts == listing_texts([json.loads(json.dumps(one)) for one in entries])
    entries[0]["description"] = "changed in place"
    assert texts[0] != listing_texts(entries)[0]
    assert texts[0] == listing_texts(entries, known)[0]
