"""Untrusted text becomes text that is safe to show, and nothing else about it changes.

What is unsafe is taken from the Unicode database here, not from the module's own table.
"""

import json
import re
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deputy_mcp._core.sanitizing import (
    CUT_MARK,
    SHORTEST_SECRET,
    UncleanSchemaError,
    clean_line,
    clean_schema,
    clean_text,
    cut_text,
    known_secrets,
    mask_secrets,
)

any_text = st.text(st.characters(exclude_categories=()), max_size=60)
nasty_text = st.text(
    st.sampled_from("ab\t\n\r\0\x1b\x7f\x9b\u200b\u200d\u202e\u2066\ufeff\ud800\udc00\U000e0041é😀\\u"), max_size=30
)
texts = st.one_of(any_text, nasty_text)

# --- Text -------------------------------------------------------------------------------------------------------------

BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def is_dangerous(character):
    """By the Unicode database: controls but tab and newline, surrogates, line breaks, bidi controls, tags."""
    return (
        (unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") and character not in "\t\n")
        or unicodedata.bidirectional(character) in BIDI
        or character in "\u061c\u200e\u200f"
        or 0xE0000 <= ord(character) <= 0xE0FFF
    )


@settings(deadline=None, max_examples=300)
@given(texts)
@example("\r\r\n")
@example("\r\n\r\n\r")
@example("\\u001b")
def test_clean_text_is_safe_and_stays_as_it_is(text):
    """No control, escape, bidi override or surrogate is left; cleaning again changes nothing; it always encodes."""
    clean = clean_text(text)
    assert not any(map(is_dangerous, clean))
    assert clean == clean_text(clean)
    clean.encode("utf-8")


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=("C", "Zl", "Zp"), max_codepoint=0xDFFFF), max_size=80))
def test_text_of_letters_marks_numbers_and_symbols_is_kept(text):
    """Whatever the script: cleaning is no transliteration, and no normalisation either."""
    assert text == clean_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        "tab\tand\nnewline\n",
        "é—ß Ελληνικά кириллица עברית العربية हिन्दी ไทย 中文 日本語 한국어 ქართული",
        "👩‍👩‍👧 👨🏽‍🚀 ❤️ 🏳️‍🌈 1️⃣ 🇩🇪",
        "क्‍ष میخواهم",
        "e\u0301 a\u00a0b \u3000",
        "葛\ufe00",
        "\ufffd",
        '\\u001b "quoted" <tag> & %s {x}',
    ],
)
def test_ordinary_text_is_kept(text):
    """F65, https://github.com/coproduct-opensource/nucleus/issues/1332: joiners of emoji and letters stay."""
    assert text == clean_text(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$12,000\0–$18,000", "$12,000\\u0000–$18,000"),
        ("\x1b[2J\x1b]0;x\x07", "\\u001b[2J\\u001b]0;x\\u0007"),
        ("\x9b31m", "\\u009b31m"),
        ("a\x08b\x7f", "a\\u0008b\\u007f"),
        ("a\r\nb", "a\nb"),
        ("a\rb", "a\\u000db"),
        ("a\x85b\u2028c\u2029", "a\\u0085b\\u2028c\\u2029"),
        ("\ud800x\udfff", "\\ud800x\\udfff"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u2066\u2069\u200e\u200f\u061c", "\\u2066\\u2069\\u200e\\u200f\\u061c"),
        ("a\u200bb\ufeffc\u2060d\u00ade", "a\\u200bb\\ufeffc\\u2060d\\u00ade"),
        ("\U000e0041\U000e007f", "\\U000e0041\\U000e007f"),
        ("葛\U000e0100", "葛\\U000e0100"),
    ],
)
def test_what_moves_hides_or_breaks_is_shown(text, expected):
    """F24, https://github.com/aebrer/dreb/issues/352, and F65: nothing is dropped in silence."""
    assert expected == clean_text(text)


@pytest.mark.parametrize(("first", "last"), [(0x206A, 0x206F), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A)])
def test_format_characters_that_show_nothing_are_shown(first, last):
    """Unicode's other default-ignorable format characters hide writing as well as a zero-width space does."""
    hidden = "".join(map(chr, range(first, last + 1)))
    assert {"Cf"} == set(map(unicodedata.category, hidden))
    assert "".join(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}" for code in map(ord, hidden)) == clean_text(
        hidden
    )


@settings(deadline=None)
@given(texts, st.integers(8, 200))
def test_a_clean_line_is_one_bounded_line(text, most):
    """For messages and logs: no line break, nothing unsafe, at most so many characters."""
    line = clean_line(text, most)
    assert len(line) <= most
    assert not set("\n\r\t") & set(line)
    assert not any(map(is_dangerous, line))


def test_a_line_that_was_cut_says_so():
    """An ellipsis takes the last place; a text that fits has none."""
    assert "a" * 10 == clean_line("a" * 10, 10)
    assert "a" * 9 + "…" == clean_line("a" * 11, 10)
    assert "a\\nb c" == clean_line("a\r\nb\tc")
    assert 200 == len(clean_line("x" * 500))


# --- Cutting ----------------------------------------------------------------------------------------------------------

encodable = st.text(st.characters(exclude_categories=("Cs",)), max_size=120)


@settings(deadline=None, max_examples=300)
@given(encodable, st.integers(0, 200))
def test_a_cut_text_never_passes_its_bound_and_is_cut_between_characters(text, max_bytes):
    """F57, https://github.com/anthropics/claude-code/issues/41593: in UTF-8, with the mark counted in."""
    short = cut_text(text, max_bytes)
    size = len(text.encode())
    assert len(short.encode()) <= max_bytes
    if size <= max_bytes:
        assert text == short
        return

    mark = CUT_MARK.format(seen=size)
    if len(mark.encode()) <= max_bytes:
        assert short.endswith(mark)
        short = short.removesuffix(mark)
        max_bytes -= len(mark.encode())

    assert text.startswith(short)
    # Nothing more would have fitted: the next character is the one that passes the bound.
    assert len(text[: len(short) + 1].encode()) > max_bytes


@pytest.mark.parametrize("character", ["a", "é", "—", "😀"])
def test_the_bound_is_exact_for_characters_of_any_width(character):
    """A text of exactly the bound is whole, one byte less and it is cut."""
    text = character * 100
    size = len(text.encode())
    assert text == cut_text(text, size)
    short = cut_text(text, size - 1)
    assert short.endswith(f"… [cut: {size} bytes in all]")
    assert len(short.encode()) <= size - 1


# --- Secrets ----------------------------------------------------------------------------------------------------------


def test_secrets_are_the_values_long_enough_longest_first():
    """Short values stand in ordinary words; masking them would garble every text."""
    assert ("abcdefghij", "12345678") == known_secrets(("12345678", "1234567", "", "abcdefghij", "12345678"))
    assert () == known_secrets(())


def test_a_secret_is_masked_wherever_it_stands():
    """Every occurrence, and a secret inside a longer one leaves no rest."""
    secrets = known_secrets(("hunter2hunter2", "Bearer hunter2hunter2", "short"))
    assert "short: ***, *** and ***" == mask_secrets(
        "short: Bearer hunter2hunter2, hunter2hunter2 and hunter2hunter2", secrets
    )
    assert "nothing here" == mask_secrets("nothing here", secrets)


@settings(deadline=None)
@given(
    st.lists(st.text(alphabet="abc", min_size=4, max_size=14), max_size=5),
    st.lists(st.one_of(st.integers(0, 4), st.text(alphabet="xyz ", max_size=5)), max_size=8),
)
def test_no_secret_survives_masking(values, parts):
    """Whatever surrounds it; and text that holds none stays as it is."""
    secrets = known_secrets(tuple(values))
    text = "|".join(part if isinstance(part, str) else "".join(values[part : part + 1]) for part in parts)
    masked = mask_secrets(text, secrets)
    assert not any(secret in masked for secret in secrets)
    if not any(secret in text for secret in secrets):
        assert text == masked


def test_the_shortest_secret_is_eight_characters():
    """api.md, section 8."""
    assert 8 == SHORTEST_SECRET


# --- Schemas ----------------------------------------------------------------------------------------------------------

HIDDEN = "a\u200bb"
SHOWN = "a\\u200bb"


def test_the_texts_of_a_schema_are_cleaned_at_any_depth():
    """F65: titles, descriptions and unknown keywords of every subschema; a model reads them all."""
    said = {"title": HIDDEN, "description": HIDDEN, "$comment": HIDDEN, "x-note": [HIDDEN, {"y": HIDDEN}]}
    clean = {"title": SHOWN, "description": SHOWN, "$comment": SHOWN, "x-note": [SHOWN, {"y": SHOWN}]}

    def nested(texts):
        return {
            "type": "object",
            **texts,
            "properties": {"p": {**texts, "items": [texts, {"anyOf": [texts]}]}},
            "$defs": {"d": texts},
            "patternProperties": {"^x": texts},
            "additionalProperties": texts,
        }

    assert nested(clean) == clean_schema(nested(said))


def test_a_clean_schema_is_kept_as_it_is():
    """Numbers, booleans, null and order stay; the original is not changed."""
    schema = {
        "type": "object",
        "required": ["a"],
        "properties": {
            "a": {"type": ["string", "null"], "minLength": 1, "default": None, "enum": ["x", 1, None, {"a": 1}]}
        },
        "additionalProperties": False,
        "examples": [{"a": "x", "b": 1.5, "c": True}],
    }
    before = json.dumps(schema)
    assert schema == clean_schema(schema)
    assert before == json.dumps(clean_schema(schema)) == json.dumps(schema)


def test_texts_are_cleaned_in_a_copy():
    """Validation and pins use the original."""
    schema = {"type": "object", "properties": {"a": {"description": HIDDEN}}}
    clean_schema(schema)
    assert HIDDEN == schema["properties"]["a"]["description"]


@pytest.mark.parametrize(
    "keyword_and_value",
    [
        {"enum": [1, HIDDEN]},
        {"enum": [{"k": HIDDEN}]},
        {"enum": [{HIDDEN: 1}]},
        {"enum": [[HIDDEN]]},
        {"const": HIDDEN},
        {"const": {"k": [HIDDEN]}},
        {"default": HIDDEN},
        {"default": {HIDDEN: 1}},
        {"pattern": HIDDEN},
        {"required": [HIDDEN]},
        {"$ref": "#/$defs/" + HIDDEN},
        {"$id": HIDDEN},
        {"$anchor": HIDDEN},
        {"$dynamicRef": "#" + HIDDEN},
        {"properties": {HIDDEN: {}}},
        {"patternProperties": {HIDDEN: {}}},
        {"$defs": {HIDDEN: {}}},
        {"definitions": {HIDDEN: {}}},
        {"dependentSchemas": {HIDDEN: {}}},
        {"dependentRequired": {HIDDEN: ["a"]}},
        {"dependentRequired": {"a": [HIDDEN]}},
        {"dependencies": {"a": [HIDDEN]}},
        {HIDDEN: 1},
        {"x": {HIDDEN: 1}},
        {"default": "a\r\nb"},
        {"enum": ["\x1b[2J"]},
        {"const": "\ud800"},
        {"pattern": "\u202e"},
    ],
    ids=ascii,
)
@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: {"properties": {"p": {"items": s}}}], ids=["root", "deep"])
def test_a_schema_whose_names_or_values_would_change_is_refused(keyword_and_value, wrap):
    """api.md section 4: a caller must send those exactly, so a model that reads them cleaned could not."""
    with pytest.raises(UncleanSchemaError) as caught:
        clean_schema({"type": "object", **wrap(keyword_and_value)})
    assert not any(map(is_dangerous, str(caught.value)))


def test_a_refused_schema_names_the_place():
    """A person finds the value without searching."""
    with pytest.raises(UncleanSchemaError, match=re.escape("/properties/color/enum")):
        clean_schema({"properties": {"color": {"enum": [HIDDEN]}}})
    with pytest.raises(UncleanSchemaError, match=re.escape(f"{SHOWN!r} at /properties/o/properties")):
        clean_schema({"properties": {"o": {"properties": {HIDDEN: {}}}}})
    with pytest.raises(UncleanSchemaError, match=re.escape(f"{SHOWN!r} at /")):
        clean_schema({HIDDEN: 1})


@pytest.mark.parametrize(
    "name", ["default", "enum", "const", "pattern", "required", "properties", "$ref", "description"]
)
@pytest.mark.parametrize("shelf", ["properties", "$defs", "definitions", "patternProperties", "dependentSchemas"])
def test_a_property_named_like_a_keyword_is_a_property(shelf, name):
    """Its value is a schema: its texts are cleaned, and they refuse nothing."""
    schema = {shelf: {name: {"type": "string", "description": HIDDEN}}}
    assert {shelf: {name: {"type": "string", "description": SHOWN}}} == clean_schema(schema)


def test_a_property_named_properties_holds_a_schema_and_no_names():
    """Two of the same word, one inside the other, mean two things."""
    schema = {"properties": {"properties": {"type": "object", "properties": {"default": {"title": HIDDEN}}}}}
    expected = {"properties": {"properties": {"type": "object", "properties": {"default": {"title": SHOWN}}}}}
    assert expected == clean_schema(schema)


def test_boolean_and_null_subschemas_become_objects():
    """F51, https://github.com/grll/mcpadapt/issues/78: providers refuse `true` where they want a schema."""
    schema = {"properties": {"any": True, "none": False, "null": None, "some": {}}, "$defs": {"d": True}}
    expected = {"properties": {"any": {}, "none": {"not": {}}, "null": {}, "some": {}}, "$defs": {"d": {}}}
    assert expected == clean_schema(schema)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"items": True}, {"items": {}}),
        ({"anyOf": [True, False]}, {"anyOf": [{}, {"not": {}}]}),
        ({"prefixItems": [True], "items": False}, {"prefixItems": [{}], "items": {"not": {}}}),
        ({"not": True}, {"not": {}}),
    ],
)
def test_boolean_subschemas_become_objects_wherever_a_schema_stands(schema, expected):
    """F51 again: not among properties only."""
    assert {"properties": {"p": expected}} == clean_schema({"properties": {"p": schema}})


@pytest.mark.parametrize("keyword", ["additionalProperties", "unevaluatedProperties", "additionalItems"])
@pytest.mark.parametrize("value", [True, False])
def test_switches_that_every_provider_knows_stay_booleans(keyword, value):
    """Strict providers demand `additionalProperties: false` as it is spelled."""
    assert {"type": "array", keyword: value} == clean_schema({"type": "array", keyword: value})


@pytest.mark.parametrize("kind", ["object", ["object", "null"], ["null", "object"]])
def test_an_object_schema_gets_its_properties(kind):
    """F51: OpenAI refuses an object schema without them."""
    assert {"type": kind, "properties": {}} == clean_schema({"type": kind})
    assert {"type": kind, "properties": {"a": {}}} == clean_schema({"type": kind, "properties": {"a": {}}})


@pytest.mark.parametrize("schema", [{"type": "array"}, {"type": ["string", "null"]}, {"$ref": "#/$defs/a"}])
def test_another_schema_gets_no_properties(schema):
    """An output schema may be anything."""
    assert schema == clean_schema(schema)


def test_properties_that_are_no_object_are_only_cleaned():
    """Odd is not fatal here: what a schema must be is judged before."""
    assert {"properties": [SHOWN]} == clean_schema({"properties": [HIDDEN]})
