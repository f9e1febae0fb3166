"""What counting a schema promises: it ends, it does not recurse, and what is costly counts as costly."""

import enum
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from deputy_mcp._core.schema_cost import MAX_CHAIN, SchemaCost, check_input_schema
from deputy_mcp._core.schema_patterns import CAP, weigh_pattern
from deputy_mcp._core.schema_references import mend
from deputy_mcp._core.schema_values import (
    Measure,
    NotPlainError,
    TooLargeError,
    measure,
    plain_copy,
)

HERE = {"$ref": "#"}


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Ratio(float):
    pass


def nested(levels: int, keyword: str | None = "not") -> Any:
    """A schema (or, without keyword, a list) of so many containers inside each other."""
    inner: Any = True
    for _ in range(levels):
        inner = [inner] if keyword is None else {keyword: inner}

    return inner


def doubling(definitions: int) -> dict[str, Any]:
    """So many definitions, each of which refers to the next one twice."""
    shelf: dict[str, Any] = {
        f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(definitions)
    }
    shelf[f"d{definitions}"] = {"type": "number"}
    return {"$ref": "#/$defs/d0", "$defs": shelf}


def size(schema: Any, depth: int = 3) -> int:
    return SchemaCost(plain_copy(schema)).load(depth).size


# --- values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, (1, 0, 1)),
        ("four", (1, 4, 1)),
        ([], (1, 0, 1)),
        ({"ab": [1, None, True]}, (5, 2, 3)),
        ([1.5, "é"], (3, 1, 2)),
    ],
)
def test_values_text_and_levels_are_counted(value: Any, expected: tuple[int, int, int]) -> None:
    """The root counts as one value, keys count as text, and a scalar has one level."""
    found = measure(value)

    assert expected == (found.values, found.text, found.depth)
    assert (False, False) == (found.wide_integers, found.odd_types)


@pytest.mark.parametrize("value", [(1,), MappingProxyType({"a": 1}), {Colour.RED: 1}, Colour.RED, Level.HIGH, Ratio(1)])
def test_json_in_other_types_is_counted_and_copied_into_the_exact_ones(value: Any) -> None:
    """Tuples, foreign mappings and enums are JSON in meaning; the copy equals them and is made of plain types."""
    copied = plain_copy(value)

    assert measure(value).odd_types
    assert not measure(copied).odd_types
    assert (list(value) if isinstance(value, tuple) else value) == copied


def test_a_copy_shares_nothing_that_can_change() -> None:
    """What is mended in the copy does not reach the server's own schema."""
    inner: dict[str, Any] = {"required": True}
    original: dict[str, Any] = {"properties": {"a": inner}, "allOf": [inner]}

    copied = plain_copy(original)
    copied["properties"]["a"].clear()

    assert {"properties": {"a": {"required": True}}, "allOf": [{"required": True}]} == original
    assert {"required": True} == copied["allOf"][0]


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**200])
def test_integers_beyond_64_bits_are_noticed(number: int) -> None:
    """The engine is slow with them (69 s for uniqueItems over 10,000), so they must not stay unseen."""
    assert measure([number]).wide_integers
    assert not measure([2**63 - 1, -(2**63)]).wide_integers


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({1}, "type 'set'"),
        ([b"x"], "type 'bytes'"),
        ({1: "x"}, "key of type 'int'"),
        ([math.nan], "nan"),
        ({"a": -math.inf}, "-inf"),
        pytest.param(10**5000, "integer of 16610 bits", id="huge"),
    ],
)
@pytest.mark.parametrize("look", [measure, plain_copy])
def test_what_is_not_json_is_named(look: Any, value: Any, reason: str) -> None:
    """A value that JSON does not have is refused with its kind, never coerced."""
    with pytest.raises(NotPlainError, match=reason):
        look(value)


def test_a_value_100_000_levels_deep_is_refused_without_recursion() -> None:
    """Depth is a limit, not a crash."""
    with pytest.raises(NotPlainError, match="deeper than 500"):
        measure(nested(100_000, None))


def test_a_list_in_itself_and_lists_that_double_end_the_count() -> None:
    """Small in memory, endless to walk: both stop at a limit."""
    cycle: list[Any] = []
    cycle.append(cycle)
    twice: list[Any] = [1]
    for _ in range(60):
        twice = [twice, twice]

    with pytest.raises(NotPlainError, match="deeper than 500"):
        measure(cycle)

    with pytest.raises(TooLargeError, match="more than 1000 values"):
        measure(twice, max_values=1000)

    with pytest.raises(TooLargeError, match="more than 1000 values"):
        measure({"a": twice, "b": dict.fromkeys("abcdefghij", twice)}, max_values=1000)


def test_too_many_members_and_too_much_text_are_refused() -> None:
    """Both limits hold for objects as for lists, and keys are text."""
    with pytest.raises(TooLargeError, match="more than 2 values"):
        measure({"a": 1, "b": 2}, max_values=2)

    with pytest.raises(TooLargeError, match="more than 4 characters"):
        measure({"abc": "de"}, max_text=4)


# --- patterns -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lighter", "heavier"),
    [
        ("abc", "abcdef"),
        ("a{3}", "a{300}"),
        ("(ab{9}){9}", "((ab{9}){9}){9}"),
        ("[a-z]{9}", "[^a-z]{9}"),
        ("a{9}", ".{9}"),
        ("a{9}", r"\W{9}"),
        (r"\W{9}", r"\p{L}{9}"),
        ("[a]{9}", r"[\W]{9}"),
        (r"[\W]{9}", r"[\P{L}]{9}"),
        ("[ab]{9}", "[éà]{9}"),
        ("aaa", "aaé"),
        ("k{9}", "(?i)k{9}"),
        ("a{2,3}", "a{2,300}"),
        ("(a|b){1,9}", "(a|b){9,99}"),
    ],
)
def test_repeats_and_wide_classes_weigh_more(lighter: str, heavier: str) -> None:
    """The weight follows what the engine compiles, so that a size bomb is seen before it is compiled."""
    assert weigh_pattern(lighter).states < weigh_pattern(heavier).states


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("^[a-z]+$", 0),
        (r"\(?=", 0),
        ("^(?!a)(?=b)", 1),
        (r"(a)\1", 1),
        (r"(?<n>a)\k<n>", 1),
        ("(?=a(?<!b(?>c)))", 3),
    ],
)
def test_lookarounds_are_counted_by_nesting(pattern: str, expected: int) -> None:
    """Side by side they add, inside each other they multiply: only nesting adds a power of the text's length."""
    assert expected == weigh_pattern(pattern).lookaround_depth


@pytest.mark.parametrize(
    "pattern", ["", "(", ")", "[", "[^", "\\", "a{", "{3}", "a{9}{9}{9}{9}{9}{9}{9}{9}{9}", "((((" * 999]
)
def test_broken_patterns_are_weighed_too(pattern: str) -> None:
    """Weighing never raises and never passes the cap; what is broken is found when it is compiled."""
    assert 0 <= weigh_pattern(pattern).states <= CAP


# --- the cost of a schema -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [True, False])
def test_a_boolean_schema_costs_one(schema: Any) -> None:
    """There is nothing to compare."""
    assert 1 == size(schema)


def test_a_doubling_reference_counts_with_everything_it_expands_to() -> None:
    """Forty small definitions are a trillion comparisons; the count saturates and takes no time."""
    assert 2**10 <= size(doubling(10)) <= 2**14
    assert CAP == size(doubling(60))


def test_a_definition_that_nobody_refers_to_costs_nothing() -> None:
    """Only what is on the way from the root is checked."""
    assert size({"type": "string"}) + 1 == size({"type": "string", "$defs": {"a": {"enum": list(range(1000))}}})


def test_properties_count_one_by_one_but_pattern_properties_together() -> None:
    """A property has one name, but may match every pattern."""
    part = {"enum": list(range(100))}

    named = size({"properties": {"a": part, "b": part, "c": part}})
    matched = size({"patternProperties": {"a": part, "b": part, "c": part}})

    assert 100 < named < 200
    assert 300 < matched < 400


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": list(range(100))},
        {"const": {"a": list(range(100))}},
        {"required": [str(i) for i in range(100)]},
        {"dependencies": {"a": [str(i) for i in range(100)]}},
        {"maximum": 2**70},
        {"items": [{"enum": list(range(100))}]},
        {"prefixItems": [{"enum": list(range(100))}]},
        {"items": {"enum": list(range(100))}},
        {"additionalProperties": {"enum": list(range(100))}},
        {"not": {"enum": list(range(100))}},
        {"dependentSchemas": {"a": {"enum": list(range(100))}}},
        {"$ref": "#named", "$defs": {"a": {"$anchor": "named", "enum": list(range(100))}}},
        {"$ref": "#/x-parts/1/a~1b%20c", "x-parts": [0, {"a/b c": {"enum": list(range(100))}}]},
        {"$id": "http://x/y", "$ref": "http://x/y#/definitions/a", "definitions": {"a": {"enum": list(range(100))}}},
        {"$ref": "#old", "definitions": {"a": {"$id": "#old", "enum": list(range(100))}}},
        {"$dynamicRef": "#n", "$defs": {"a": {"$dynamicAnchor": "n", "enum": list(range(100))}}},
    ],
)
def test_every_place_a_comparison_can_hide_in_is_counted(schema: dict[str, Any]) -> None:
    """Lists that are compared, and subschemas under each keyword and behind each kind of reference."""
    assert 100 <= size(schema) <= 130
    assert not SchemaCost(plain_copy(schema)).opaque


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"left": HERE, "right": HERE}},
        {"anyOf": [{"additionalProperties": HERE}, {"items": HERE}, {"type": "string"}]},
    ],
)
def test_a_tree_is_linear_in_its_depth(schema: dict[str, Any]) -> None:
    """Recursion as real schemas use it stays cheap: no value meets the schema twice."""
    cost = SchemaCost(schema)

    steps = [cost.load(depth + 1).size - cost.load(depth).size for depth in range(3, 20)]
    assert [steps[0]] * len(steps) == steps


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"allOf": [HERE, HERE]}}},
        {"patternProperties": {"a": HERE, "^a": HERE}},
        {"allOf": [{"items": HERE}, {"items": HERE}]},
    ],
)
def test_a_recursion_that_doubles_grows_with_the_instance(schema: dict[str, Any]) -> None:
    """Each level doubles the work, which no count of the schema alone can show."""
    cost = SchemaCost(schema)

    assert cost.load(3).size < 100
    assert cost.load(20).size > 2**20
    assert CAP == cost.load(60).size
    assert CAP == cost.load(500).size


def test_nested_unevaluated_properties_multiply() -> None:
    """Each of them evaluates its siblings again: twenty inside each other took the engine 10 s."""
    schema: dict[str, Any] = {"properties": {"a": {"type": "number"}}}
    for _ in range(20):
        schema = {"allOf": [schema], "unevaluatedProperties": False}

    assert size(schema) > 3**20


def test_pattern_states_are_counted_where_text_meets_them() -> None:
    """Patterns on values and on keys, with every reference expanded."""
    long = "[ab]{200}"

    assert SchemaCost({"pattern": long}).load(1).states >= 200
    assert SchemaCost({"patternProperties": {long: True}}).load(2).states >= 200
    assert SchemaCost({"items": {"allOf": [{"pattern": long}, {"pattern": long}]}}).load(2).states >= 400
    assert 0 == SchemaCost({"pattern": None}).load(1).states


def test_height_is_the_longest_way_through_references_and_levels() -> None:
    """It bounds the engine's stack."""
    chain = {"$ref": "#/$defs/d0", "$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(99)} | {"d99": {}}}

    assert 101 == SchemaCost(chain).load(1).height
    assert 13 == SchemaCost({"items": HERE}).load(7).height


def test_what_compiles_slowly_is_not_compiled_in_the_loop() -> None:
    """Chains of references are quadratic, and many or large patterns take their time."""
    links = MAX_CHAIN + 1
    chain = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(links)} | {f"d{links}": {}}

    assert SchemaCost({"pattern": "^[a-z]+$"}).compiles_in_loop
    assert not SchemaCost({"$ref": "#/$defs/d0", "$defs": chain}).compiles_in_loop
    assert not SchemaCost({"pattern": r"(\p{L}{50}){50}"}).compiles_in_loop
    assert not SchemaCost({"allOf": [{"pattern": str(i)} for i in range(1000)]}).compiles_in_loop


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1/x"},
        {"properties": {"a": {"$ref": "other.json#/a"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$id": "http://x/a", "type": "string"}}},
        {"allOf": [HERE]},
    ],
)
def test_references_that_cannot_be_followed_have_no_known_cost(schema: dict[str, Any]) -> None:
    """Other documents, documents inside the document, and values that meet the same schema again without end."""
    cost = SchemaCost(schema)

    assert cost.opaque
    assert not cost.compiles_in_loop
    assert CAP == cost.load(1).size


def test_counting_gives_up_when_schema_times_depth_is_too_much() -> None:
    """Counting is bounded too: past its steps the cost is unknown, which is treated as too high."""
    wide = {"items": HERE, "properties": {f"p{i}": {"not": HERE} for i in range(200)}}
    cost = SchemaCost(wide)

    assert cost.load(3).size < CAP
    assert CAP == cost.load(400).size


@pytest.mark.parametrize("keyword", ["not", "items"])
def test_a_schema_of_100_000_levels_is_counted_without_recursion(keyword: str) -> None:
    """Nothing in the count recurses, whatever a caller hands in."""
    assert 100_000 < SchemaCost(nested(100_000, keyword)).chain + 1


@pytest.mark.parametrize(
    "schema",
    [
        {
            "allOf": 1,
            "properties": [],
            "patternProperties": None,
            "prefixItems": {},
            "$defs": [],
            "dependentSchemas": 3,
        },
        {"properties": {"a": 3}, "items": 7, "not": None, "$ref": 7, "pattern": 3, "required": {"a": 1}},
        {"$ref": "#/$defs/a", "$defs": {"a": 3}},
    ],
)
def test_keywords_of_the_wrong_type_do_not_break_the_count(schema: dict[str, Any]) -> None:
    """What the engine will refuse is still counted without an error."""
    assert SchemaCost(schema).load(2).size < 100


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"required": True}, {}),
        ({"required": None}, {}),
        ({"required": ["a", 1]}, {}),
        ({"required": []}, {"required": []}),
        ({"properties": None}, {}),
        ({"properties": {"required": ["a"], "a": {}, "b": True}}, {"properties": {"a": {}, "b": True}}),
        ({"minimum": 0, "exclusiveMinimum": True}, {"minimum": 0, "exclusiveMinimum": 0}),
        ({"maximum": 0, "exclusiveMaximum": False}, {"maximum": 0}),
        ({"exclusiveMaximum": True}, {}),
        ({"exclusiveMaximum": 3}, {"exclusiveMaximum": 3}),
    ],
)
def test_known_slips_are_mended(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    """Servers send these, their tools work, and one such keyword must not make every call unchecked."""
    mend(schema, draft4=False)

    assert expected == schema


def test_draft_4_keeps_its_own_spelling() -> None:
    """Its exclusiveMinimum is a boolean, and its required must not be empty."""
    schema = {"required": [], "minimum": 0, "exclusiveMinimum": True}

    mend(schema, draft4=True)

    assert {"minimum": 0, "exclusiveMinimum": True} == schema


def test_slips_are_mended_in_definitions_nobody_refers_to() -> None:
    """The engine holds the whole document against the meta-schema, used or not."""
    schema = {"$defs": {"a": {"required": True}, "b": {"properties": {"c": {"required": False}}}}}

    SchemaCost(schema)

    assert {"$defs": {"a": {}, "b": {"properties": {"c": {}}}}} == schema


# --- input schemas ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {},
        {"properties": {"a": {}}},
        {"type": ["object", "null"]},
        {"type": "object", "properties": {"value": True, "other": False}},
        {"type": "object", "properties": {"untyped": {"description": "x"}}},
        {"type": "object", "properties": {"child": HERE}},
        {"type": "object", "properties": {"a": {"type": "string", "required": True}}, "required": ["a"]},
        {"type": "object", "properties": {"q": {"$ref": "#/$defs/Q"}}, "$defs": {"Q": {"type": "object"}}},
        {"type": "object", "$defs": {"unused": {"$ref": "#/$defs/nowhere"}}},
        {"type": "object", "properties": {"$ref": {"type": "string"}}},
        {"anyOf": [{"type": "object"}, {"properties": {}}, True]},
        {"$ref": "#/$defs/Q", "$defs": {"Q": {"type": "object"}}},
        {"allOf": [HERE]},
        {"$ref": "http://127.0.0.1/x"},
        {"type": "object", "properties": {"a": {"enum": list(range(30_000))}}},
        MappingProxyType({"type": "object"}),
    ],
)
def test_sloppy_schemas_that_work_stay_usable(schema: Mapping[str, Any]) -> None:
    """Real servers send these and their tools work."""
    assert check_input_schema(schema) is None


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (None, "no input schema"),
        (True, "true, not an object schema"),
        (False, "false, not"),
        ("object", "a string, not"),
        (3, "a number, not"),
        ([], "an array, not"),
        ({"type": "string"}, "its type is 'string'"),
        ({"type": ["string", "null"]}, "its type is"),
        ({"type": None}, "its type is 'None'"),
        ({"anyOf": [{"type": "string"}, {"type": "object"}]}, "branches allow other types"),
        ({"allOf": [{"type": "string"}]}, "branches"),
        ({"oneOf": [3]}, "branches"),
        ({"$ref": "#/$defs/Q", "$defs": {"Q": {"type": "string"}}}, "branches"),
        ({"type": "object", "required": None}, "required is null, not a list of names"),
        ({"type": "object", "required": [1]}, "required is an array"),
        ({"type": "object", "properties": None}, "properties is null, not an object"),
        ({"type": "object", "properties": {"q": {"$ref": "#/$defs/Q"}}}, "refers to '#/\\$defs/Q'"),
        ({"$ref": "#/$defs/Q"}, "refers to"),
        ({"type": "object", "properties": {"q": {"$ref": "#/properties/q/enum/9", "enum": [1]}}}, "refers to"),
        ({"type": "object", "not": {"$ref": "#nowhere"}}, "refers to '#nowhere'"),
        ({"type": "object", "not": {"$ref": 7}}, "refers to '7'"),
        ({"type": "object", "properties": {"q": nested(250)}}, "nested deeper than 200"),
        ({"type": "object", "properties": {"q": nested(100_000)}}, "nested deeper than 200"),
        ({"type": "object", "x": {1}}, "type 'set'"),
        ({"type": "object", "x": b""}, "type 'bytes'"),
        (b"", "a bytes"),
    ],
)
def test_what_no_call_can_use_is_refused_with_its_reason(schema: Any, reason: str) -> None:
    """One tool is refused, and its text says why; nothing raises, so the rest of the listing stays."""
    found = check_input_schema(schema)

    assert found is not None
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(found)


def test_a_measure_can_be_compared() -> None:
    """Values are values."""
    assert Measure(2, 0, 2, False, False) == measure([1])
