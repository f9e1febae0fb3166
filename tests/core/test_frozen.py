"""Read-only mappings, and the checks of plain types that turn every wrong value into one kind of error."""

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputy_mcp._core.errors import ConfigError
from deputy_mcp._core.frozen import (
    FrozenMapping,
    check_count,
    check_flag,
    check_mapping,
    check_number,
    check_text,
    check_texts,
    wrong_type,
)

SECRET = "hunter2-hunter2"


@given(st.dictionaries(st.text(), st.integers()))
def test_a_frozen_mapping_is_the_mapping_it_was_made_from(items):
    """Same keys in the same order, same values, equal to the dictionary."""
    frozen = FrozenMapping(items)
    assert items == frozen
    assert list(items) == list(frozen)
    assert len(items) == len(frozen)
    assert frozen == FrozenMapping(items.items())
    assert all(items[key] == frozen[key] for key in items)


def test_a_frozen_mapping_is_a_copy():
    """Changing what it was made from changes nothing."""
    items = {"a": 1}
    frozen = FrozenMapping(items)
    items["b"] = 2
    assert {"a": 1} == frozen
    assert {} == FrozenMapping()


def test_a_frozen_mapping_cannot_be_changed():
    """There is no way in: no item assignment, no deletion, no new attribute."""
    frozen = FrozenMapping({"a": 1})
    with pytest.raises(TypeError):
        frozen["a"] = 2
    with pytest.raises(TypeError):
        del frozen["a"]
    with pytest.raises(AttributeError):
        frozen.other = 1
    with pytest.raises(KeyError):
        frozen["b"]


def test_the_repr_of_a_frozen_mapping_shows_keys_only():
    """Values of `env` and `headers` are secrets, and a repr ends up in logs."""
    assert "{'TOKEN': …, 'OTHER': …}" == repr(FrozenMapping({"TOKEN": SECRET, "OTHER": SECRET}))
    assert "{}" == repr(FrozenMapping())


GOOD = [
    (check_text, ("a",), {}, "a"),
    (check_text, ("",), {"empty": True}, ""),
    (check_texts, (["a", ""],), {}, ("a", "")),
    (check_texts, (("a",),), {}, ("a",)),
    (check_texts, ((c for c in "ab"),), {}, ("a", "b")),
    (check_texts, ((),), {}, ()),
    (check_flag, (True,), {}, True),
    (check_flag, (False,), {}, False),
    (check_number, (0,), {}, 0),
    (check_number, (0.5,), {"above_zero": True}, 0.5),
    (check_number, (10**12,), {}, 10**12),
    (check_count, (0,), {}, 0),
    (check_count, (5,), {"least": 5}, 5),
    (check_count, (10**30,), {}, 10**30),
    (check_mapping, ({"a": None},), {}, {"a": None}),
    (check_mapping, ({},), {}, {}),
]


@pytest.mark.parametrize(("check", "args", "options", "expected"), GOOD)
def test_a_right_value_comes_back_as_it_is(check, args, options, expected):
    """Nothing is coerced on the way, except a list of strings, which becomes a tuple."""
    checked = check("limits.x", *args, **options)
    assert expected == checked
    assert type(expected) is type(checked)


BAD = [
    (check_text, None, {}, "a string, not NoneType"),
    (check_text, 5, {}, "a string, not int"),
    (check_text, SECRET.encode(), {}, "a string, not bytes"),
    (check_text, "", {}, "must not be empty"),
    (check_text, SECRET + "\0", {}, "NUL"),
    (check_text, "\0", {"empty": True}, "NUL"),
    (check_texts, SECRET, {}, "a list of strings, not str"),
    (check_texts, SECRET.encode(), {}, "a list of strings, not bytes"),
    (check_texts, {SECRET: 1}, {}, "a list of strings, not dict"),
    (check_texts, None, {}, "a list of strings, not NoneType"),
    (check_texts, 5, {}, "a list of strings, not int"),
    (check_texts, ["a", 5], {}, "limits.x[1] must be a string, not int"),
    (check_texts, [SECRET + "\0"], {}, "limits.x[0] holds a NUL"),
    (check_flag, 1, {}, "true or false, not int"),
    (check_flag, "true", {}, "true or false, not str"),
    (check_flag, None, {}, "true or false, not NoneType"),
    (check_number, True, {}, "a number, not bool"),
    (check_number, "60", {}, "a number, not str"),
    (check_number, None, {}, "a number, not NoneType"),
    (check_number, -1, {}, "zero or more"),
    (check_number, float("nan"), {}, "finite"),
    (check_number, float("inf"), {}, "finite"),
    (check_number, float("-inf"), {}, "finite"),
    (check_number, 10**400, {}, "finite"),
    (check_number, 0, {"above_zero": True}, "above zero"),
    (check_number, -0.0, {"above_zero": True}, "above zero"),
    (check_count, True, {}, "a whole number, not bool"),
    (check_count, 5.0, {}, "a whole number, not float"),
    (check_count, "5", {}, "a whole number, not str"),
    (check_count, -1, {}, "0 or more"),
    (check_count, 4, {"least": 5}, "5 or more"),
    (check_mapping, [("a", 1)], {}, "an object of names and values, not list"),
    (check_mapping, SECRET, {}, "an object of names and values, not str"),
    (check_mapping, None, {}, "an object of names and values, not NoneType"),
    (check_mapping, {5: SECRET}, {}, "a name in limits.x must be a string, not int"),
    (check_mapping, {"": SECRET}, {}, "a name in limits.x must not be empty"),
    (check_mapping, {SECRET + "\0": 1}, {}, "a name in limits.x holds a NUL"),
]


@pytest.mark.parametrize(("check", "value", "options", "says"), BAD)
def test_a_wrong_value_is_a_config_error_that_names_the_key_and_not_the_value(check, value, options, says):
    """The text says what is wanted and which type came; the value itself may be a secret."""
    with pytest.raises(ConfigError, match=re.escape(says)) as caught:
        check("limits.x", value, **options)
    assert "limits.x" in str(caught.value)
    assert "limits.x" in caught.value.key
    assert SECRET not in caught.value.diagnostics()


def test_a_mapping_that_is_no_dictionary_is_taken():
    """What counts is the abstract mapping: our own values pass their own checks."""
    frozen = FrozenMapping({"a": 1})
    assert isinstance(frozen, Mapping)
    assert frozen is check_mapping("x", frozen)


def test_the_wrong_type_error_knows_its_key():
    """A caller can point at the key without reading the text."""
    with pytest.raises(ConfigError) as caught:
        wrong_type("auth", object(), "an httpx2.Auth")
    assert "auth" == caught.value.key
    assert "auth must be an httpx2.Auth, not object" == str(caught.value)
