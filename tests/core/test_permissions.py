"""Effects become decisions: the whole table against an oracle, and the algebra of `&`."""

import itertools
from functools import reduce

import pytest
from attrs import evolve, frozen
from attrs.exceptions import FrozenInstanceError
from hypothesis import given, settings
from hypothesis import strategies as st

from deputy_mcp._core.annotations import CAUTIOUS, HINTS, Effects, Finding, read_annotations
from deputy_mcp._core.errors import ConfigError, PermissionDeniedError
from deputy_mcp._core.permissions import Allow, Ask, Decision, Deny, Permissions, tighten, unmatched_entries


@frozen(kw_only=True)
class Tool:
    """As little of a handle as `decide` looks at."""

    name: str = "files__read"
    effects: Effects = CAUTIOUS
    findings: tuple[Finding, ...] = ()


READER = Effects(read_only=True, destructive=False, idempotent=True, open_world=False)
FLAG = Finding("name_contradicts_read_only", severity="flag", place="/name", message="m")
WARN = Finding("annotation_type", severity="warn", place="/annotations", message="m")
NOTE = Finding("odd_title", severity="note", place="/title", message="m")

STRICTNESS = {Allow: 0, Ask: 1, Deny: 2}


def strictness(decision):
    return STRICTNESS[type(decision)]


def verdict(permissions, tool):
    decision = permissions.decide(tool)
    return type(decision), decision.code


# --- The table --------------------------------------------------------------------------------------------------------

MISSING = object()
HINT_VALUES = (True, False, MISSING, "true")
SETTINGS = (False, "ask", True)
PRESETS = (
    (Permissions(), (False, False, None)),
    (Permissions.readonly(), (False, False, None)),
    (Permissions.readonly(web=True), (True, False, None)),
    (Permissions.readonly(web="ask"), ("ask", False, None)),
    (Permissions.plan(), (True, False, None)),
    (Permissions.standard(), (False, "ask", None)),
    (Permissions.full(), (True, True, True)),
)


def oracle(hints, web, write, destructive):
    """The contract's section 5 in plain steps: the verdict's class and code for a tool of a trusted server."""
    says = [value if value in (True, False) else None for value in hints]
    claims_reading = says[0] is True
    contradiction = claims_reading and says[1] is True
    reads_only = claims_reading and not contradiction
    destroys = says[1] if says[1] is not None else not claims_reading
    reaches_out = says[3] is not False
    if destructive is None:
        destructive = write

    needed = [
        ("web", web if reaches_out else True),
        ("write", True if reads_only else write),
        ("destructive", destructive if destroys else True),
    ]
    for setting, kind in ((False, Deny), ("ask", Ask)):
        for code, given_setting in needed:
            if given_setting is setting or given_setting == setting == "ask":
                return kind, code

    return Allow, "allowed"


ALL_TOOLS = tuple(
    (hints, read_annotations(declared, host={}, trusted=True, name="thing"))
    for hints in itertools.product(HINT_VALUES, repeat=4)
    for declared in [{hint: value for hint, value in zip(HINTS, hints, strict=True) if value is not MISSING}]
)


def check_table(permissions, web, write, destructive):
    for hints, reading in ALL_TOOLS:
        tool = Tool(effects=reading.effects, findings=reading.findings)
        assert oracle(hints, web, write, destructive) == verdict(permissions, tool), (hints, permissions)


def test_the_table_has_every_combination_of_the_four_hints():
    """True, false, missing and wrong type, four times over."""
    expected = 4**4

    assert expected == len(ALL_TOOLS)


@pytest.mark.parametrize("web", SETTINGS)
def test_every_hint_combination_meets_every_setting_as_the_contract_says(web):
    """256 tools against web x write x destructive, verdict and code each."""
    for write, destructive in itertools.product(SETTINGS, (*SETTINGS, None)):
        check_table(Permissions(web=web, write=write, destructive=destructive), web, write, destructive)


def test_every_hint_combination_meets_every_preset_as_the_contract_says():
    """256 tools against readonly, plan, standard, full and the default."""
    for permissions, (web, write, destructive) in PRESETS:
        check_table(permissions, web, write, destructive)


@pytest.mark.parametrize(
    ("declared", "permissions", "expected"),
    [
        (None, Permissions(), (Deny, "web")),
        (None, Permissions(web=True), (Deny, "write")),
        (None, Permissions(web=True, write=True), (Allow, "allowed")),
        (None, Permissions(web=True, write=True, destructive=False), (Deny, "destructive")),
        (None, Permissions(web=True, write=True, destructive="ask"), (Ask, "destructive")),
        (None, Permissions(web="ask", write="ask"), (Ask, "web")),
        (None, Permissions(web="ask", write=False), (Deny, "write")),
        (None, Permissions.standard(), (Deny, "web")),
        (None, Permissions.full(), (Allow, "allowed")),
        ({"readOnlyHint": True}, Permissions(), (Deny, "web")),
        ({"readOnlyHint": True}, Permissions.plan(), (Allow, "allowed")),
        ({"readOnlyHint": "true"}, Permissions.plan(), (Deny, "write")),
        ({"readOnlyHint": True, "openWorldHint": False}, Permissions(), (Allow, "allowed")),
        ({"readOnlyHint": True, "openWorldHint": "false"}, Permissions(), (Deny, "web")),
        ({"openWorldHint": False}, Permissions.standard(), (Ask, "write")),
        ({"openWorldHint": False, "destructiveHint": False}, Permissions(write=True), (Allow, "allowed")),
        ({"openWorldHint": False}, Permissions(write=True, destructive=False), (Deny, "destructive")),
        ({"readOnlyHint": True, "destructiveHint": True}, Permissions.plan(), (Deny, "write")),
        ({"readOnlyHint": True, "destructiveHint": True}, Permissions.full(), (Allow, "allowed")),
    ],
)  # fmt: skip
def test_these_tools_get_these_verdicts(declared, permissions, expected):
    """Rows written by hand, so that the oracle is held to something too."""
    reading = read_annotations(declared, host={}, trusted=True, name="thing")

    assert expected == verdict(permissions, Tool(effects=reading.effects, findings=reading.findings))


# --- Lists, findings, reasons -----------------------------------------------------------------------------------------


def test_an_empty_allowlist_denies_everything():
    """An empty list allows nothing; only None means any tool."""
    assert (Deny, "tool_allowlist") == verdict(evolve(Permissions.full(), tool_allowlist=()), Tool(effects=READER))
    assert (Allow, "allowed") == verdict(evolve(Permissions.full(), tool_allowlist=None), Tool(effects=READER))


@pytest.mark.parametrize("near", ["files__Read", "files__rea", "files__read ", "files__*", "read"])
def test_the_lists_match_public_names_exactly(near):
    """No patterns, no case folding, no wire names: what is close is not it."""
    tool = Tool(effects=READER)

    assert (Deny, "tool_allowlist") == verdict(Permissions(tool_allowlist=[near]), tool)
    assert (Allow, "allowed") == verdict(Permissions(tool_denylist=[near]), tool)
    assert (Allow, "allowed") == verdict(Permissions(tool_allowlist=[near, tool.name]), tool)


def test_the_denylist_wins_over_the_allowlist_and_over_every_grant():
    """A tool on both is denied, with the denylist's code."""
    permissions = evolve(Permissions.full(), tool_allowlist=["files__read"], tool_denylist=["files__read"])

    assert (Deny, "tool_denylist") == verdict(permissions, Tool(effects=READER))


def test_an_allowlist_grants_no_effect():
    """To be named is not to be allowed: the effects are judged all the same."""
    assert (Deny, "web") == verdict(Permissions(tool_allowlist=["files__read"]), Tool())


def test_a_flag_turns_allow_into_ask_and_the_reason_names_the_finding():
    """Also under full(): what a person has not accepted asks."""
    decision = Permissions.full().decide(Tool(findings=(NOTE, FLAG, WARN)))

    assert (
        Ask("files__read would be allowed but has the finding name_contradicts_read_only", code="finding") == decision
    )


def test_a_note_or_a_warning_asks_for_nothing():
    """Only severity flag does."""
    assert (Allow, "allowed") == verdict(Permissions.full(), Tool(findings=(NOTE, WARN)))


def test_a_flag_changes_neither_a_deny_nor_the_code_of_an_ask():
    """It tightens Allow only."""
    assert (Deny, "web") == verdict(Permissions(), Tool(findings=(FLAG,)))
    assert (Ask, "web") == verdict(Permissions(web="ask", write=True), Tool(findings=(FLAG,)))


@pytest.mark.parametrize(
    ("permissions", "effects", "reason"),
    [
        (Permissions(web=True), CAUTIOUS, 'files__read needs write=True or write="ask"'),
        (Permissions(write=True), CAUTIOUS, 'files__read needs web=True or web="ask"'),
        (Permissions(), CAUTIOUS, 'files__read needs web=True or web="ask", and write=True or write="ask"'),
        (
            Permissions(web=True, write=True, destructive=False),
            CAUTIOUS,
            'files__read needs destructive=True or destructive="ask"',
        ),
        (
            Permissions(web=True, destructive=False),
            CAUTIOUS,
            'files__read needs write=True or write="ask", and destructive=True or destructive="ask"',
        ),
        (Permissions(tool_allowlist=()), READER, "files__read needs an entry in tool_allowlist"),
        (Permissions(tool_denylist=["files__read"]), READER, "files__read is on tool_denylist; it must be taken off"),
    ],
)
def test_a_denial_names_all_that_would_have_to_be_granted(permissions, effects, reason):
    """Not less, or a person grants one and is refused for the next; not more: destructive may follow write."""
    decision = permissions.decide(Tool(effects=effects, findings=(FLAG,)))

    assert reason == decision.reason
    assert isinstance(decision, Deny)


@pytest.mark.parametrize(
    ("permissions", "reason"),
    [
        (Permissions(web="ask", write=True), "files__read is open-world, and web is set to ask"),
        (Permissions(web=True, write="ask"), "files__read is not read-only, and write is set to ask"),
        (
            Permissions(web=True, write=True, destructive="ask"),
            "files__read may be destructive, and destructive is set to ask",
        ),
    ],
)
def test_an_ask_says_what_asked(permissions, reason):
    """The person who decides reads why."""
    assert reason == permissions.decide(Tool()).reason


def test_a_denial_can_be_raised_as_the_error_that_carries_it():
    """The error's code is the decision's."""
    decision = Permissions().decide(Tool())

    assert decision.code == PermissionDeniedError(decision.reason, decision=decision).code


def test_decide_does_not_ask_the_callback():
    """It is pure; the gate runs callbacks afterwards."""
    asked = []

    decision = Permissions(can_use_tool=lambda *call: asked.append(call)).decide(Tool(effects=READER))

    assert Allow("files__read is allowed") == decision
    assert not asked


# --- Construction -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "key", "words"),
    [
        ({"web": 1}, "web", 'web must be False, "ask" or True, not int'),
        ({"web": 0}, "web", 'web must be False, "ask" or True, not int'),
        ({"web": None}, "web", 'web must be False, "ask" or True, not NoneType'),
        ({"write": "yes"}, "write", 'write must be False, "ask" or True, not another string'),
        ({"write": "Ask"}, "write", 'write must be False, "ask" or True, not another string'),
        ({"destructive": "true"}, "destructive", 'destructive must be False, "ask" or True'),
        ({"destructive": 1}, "destructive", 'destructive must be False, "ask" or True, not int'),
        ({"tool_allowlist": "x"}, "tool_allowlist", 'write ["name"]'),
        ({"tool_denylist": "x"}, "tool_denylist", 'write ["name"]'),
        ({"tool_denylist": None}, "tool_denylist", "must be a list of strings, not NoneType"),
        ({"tool_allowlist": {"x": True}}, "tool_allowlist", "must be a list of strings, not dict"),
        ({"tool_allowlist": ["x", 1]}, "tool_allowlist[1]", "must be a string, not int"),
        ({"can_use_tool": True}, "can_use_tool", "must be a callable (tool, arguments, context), not bool"),
        ({"can_use_tool": (print, "x")}, "can_use_tool", "must be a callable"),
    ],
)
def test_a_value_of_the_wrong_type_is_a_configuration_error(fields, key, words):
    """The error names key and mend; `1` is no flag and a bare string no list."""
    with pytest.raises(ConfigError) as caught:
        Permissions(**fields)

    assert key == caught.value.key
    assert words in str(caught.value)


def test_an_unknown_field_is_refused():
    """A parameter whose feature does not exist is never accepted and ignored."""
    with pytest.raises(TypeError):
        Permissions(autoApprove=True)


def test_permissions_are_keyword_only():
    """Three positional booleans would be read in the wrong order sooner or later."""
    with pytest.raises(TypeError):
        Permissions(True)


def test_permissions_are_frozen_and_keep_copies_of_their_lists():
    """A list that the host changes later widens nothing."""
    names = ["a"]
    permissions = Permissions(tool_allowlist=names)
    names.append("b")

    assert frozenset({"a"}) == permissions.tool_allowlist
    with pytest.raises(FrozenInstanceError):
        permissions.web = True


def test_equal_permissions_are_equal_and_hash_alike():
    """The order of a list and a repeated entry mean nothing."""
    one = Permissions(write="ask", tool_denylist=["a", "b", "a"])
    other = Permissions(write="ask", tool_denylist=("b", "a"))

    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize(
    ("permissions", "expected"),
    [
        (Permissions(), "<Permissions web=False, write=False, destructive=False>"),
        (Permissions.standard(), "<Permissions web=False, write=ask, destructive=ask>"),
        (
            Permissions(tool_allowlist=["a", "b"], tool_denylist=["c"], can_use_tool=print),
            "<Permissions web=False, write=False, destructive=False, allowlist of 2, denylist of 1, can_use_tool of 1>",
        ),
        (Permissions(tool_allowlist=()), "<Permissions web=False, write=False, destructive=False, allowlist of 0>"),
    ],
)
def test_the_repr_is_a_status_line(permissions, expected):
    """What holds, with `destructive` resolved."""
    assert expected == repr(permissions)


def test_list_entries_that_match_no_tool_are_named():
    """Each is worth a warning: it denies or protects what nobody meant."""
    permissions = Permissions(tool_allowlist=["a", "typo"], tool_denylist=["b", "other"])

    expected = ("other", "typo")

    assert expected == unmatched_entries(permissions, iter(["a", "b", "c"]))
    assert not unmatched_entries(Permissions(), ["a"])


# --- Combining --------------------------------------------------------------------------------------------------------

settings_ = st.sampled_from(SETTINGS)
names_ = st.frozensets(st.sampled_from(["a", "b", "c"]))
permissions_ = st.builds(
    Permissions,
    web=settings_,
    write=settings_,
    destructive=settings_ | st.none(),
    tool_allowlist=st.none() | names_,
    tool_denylist=names_,
    can_use_tool=st.sampled_from([None, print, repr]),
)
tools_ = st.builds(
    Tool,
    name=st.sampled_from(["a", "b", "c", "d"]),
    effects=st.builds(
        Effects, read_only=st.booleans(), destructive=st.booleans(), idempotent=st.booleans(), open_world=st.booleans()
    ),
    findings=st.sampled_from([(), (FLAG,), (WARN,), (NOTE, FLAG)]),
)


@settings(deadline=None)  # the machine may be busy; speed is not the promise here
@given(one=permissions_, other=permissions_, tool=tools_)
def test_a_combination_decides_as_the_stricter_of_both(one, other, tool):
    """It never allows what one denies or asks for, and it denies nothing that both allow."""
    expected = max(strictness(one.decide(tool)), strictness(other.decide(tool)))

    assert expected == strictness((one & other).decide(tool))


@settings(deadline=None)  # the machine may be busy; speed is not the promise here
@given(one=permissions_, other=permissions_, third=permissions_, tool=tools_)
def test_combining_is_commutative_associative_and_idempotent(one, other, third, tool):
    """The order in which server, connection and agent speak decides nothing, nor does saying it twice."""
    assert verdict(one & other, tool) == verdict(other & one, tool)
    assert verdict((one & other) & third, tool) == verdict(one & (other & third), tool)
    assert verdict(one, tool) == verdict(one & one, tool)
    assert one.callbacks == (one & one).callbacks
    assert set((one & other).callbacks) == set((other & one).callbacks)


@settings(deadline=None)  # the machine may be busy; speed is not the promise here
@given(wide=permissions_, steps=st.lists(permissions_, max_size=4), tool=tools_)
def test_narrowing_never_allows_what_the_wider_one_denied(wide, steps, tool):
    """However often it is narrowed, and by whatever."""
    narrow = reduce(lambda so_far, step: so_far & step, steps, wide)

    assert strictness(narrow.decide(tool)) >= strictness(wide.decide(tool))


def test_full_changes_nothing_when_it_is_combined():
    """It is the neutral element: a host that grants everything adds no judgement."""
    one = Permissions(web="ask", write=True, destructive=False, tool_allowlist=["a"], tool_denylist=["b"])

    assert one == one & Permissions.full()
    assert one == Permissions.full() & one


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"web": "ask"}, {"web": True}, {"web": "ask", "destructive": False}),
        ({"web": False}, {"web": "ask"}, {"web": False, "destructive": False}),
        ({"write": True}, {"write": "ask"}, {"write": "ask", "destructive": "ask"}),
        ({"write": "ask"}, {"write": True, "destructive": False}, {"write": "ask", "destructive": False}),
        ({"write": True}, {"write": False, "destructive": True}, {"write": False, "destructive": True}),
        ({"tool_allowlist": ["a", "b"]}, {"tool_allowlist": ["b", "c"]}, {"tool_allowlist": ["b"]}),
        ({"tool_allowlist": ["a"]}, {"tool_allowlist": ["b"]}, {"tool_allowlist": []}),
        ({"tool_allowlist": ["a"]}, {}, {"tool_allowlist": ["a"]}),
        ({"tool_denylist": ["a"]}, {"tool_denylist": ["b"]}, {"tool_denylist": ["a", "b"]}),
        ({"can_use_tool": print}, {"can_use_tool": repr}, {"can_use_tool": (print, repr)}),
        ({}, {"can_use_tool": repr}, {"can_use_tool": repr}),
    ],
)
def test_combining_takes_the_stricter_of_each_field(one, other, expected):
    """ "ask" beats True, False beats both; allowlists intersect, denylists unite; both callbacks stay."""
    assert Permissions(**{"destructive": False, **expected}) == Permissions(**one) & Permissions(**other)


class AgreesWithAll:
    """A callback that calls itself equal to every other."""

    def __call__(self, tool, arguments, context):
        return True

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1


def test_a_callback_that_calls_itself_equal_to_the_other_does_not_replace_it():
    """Callbacks are told apart by identity, else one could make another vanish."""
    mine, theirs = AgreesWithAll(), AgreesWithAll()

    combined = (Permissions(can_use_tool=mine) & Permissions(can_use_tool=theirs)).callbacks

    assert [id(mine), id(theirs)] == [id(one) for one in combined]


def test_permissions_combine_with_nothing_else():
    """A mapping or None is no permissions; fail at once."""
    for other in (None, {}, True):
        with pytest.raises(TypeError):
            Permissions() & other


# --- A callback's answer ----------------------------------------------------------------------------------------------

DECISIONS = (Allow("r", code="allowed"), Ask("r", code="write"), Deny("r", code="web"))


@pytest.mark.parametrize("answer", [None, True])
def test_no_objection_leaves_the_decision(answer):
    """None and True agree with whatever was decided."""
    for decision in DECISIONS:
        assert decision is tighten(decision, answer)


@pytest.mark.parametrize("answer", [1, 0, "", "yes", "allow", [], {"allow": True}, Allow, Decision("r"), object()])
def test_an_answer_of_another_kind_denies(answer):
    """A callback that forgot a verdict has not agreed; the reason does not hold the answer."""
    for decision in DECISIONS[:2]:
        tightened = tighten(decision, answer)

        assert (Deny, "callback") == (type(tightened), tightened.code)
        assert f"not {type(answer).__name__}" in tightened.reason


def test_a_callback_that_says_no_denies():
    """False is a Deny with the callback's code."""
    for decision in DECISIONS[:2]:
        assert Deny("needs the agreement of can_use_tool, which said no", code="callback") == tighten(decision, False)


@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.parametrize("answer", [Allow(), Ask("by callback"), Deny("by callback"), False, "odd"])
def test_a_callback_only_tightens(decision, answer):
    """A stricter answer replaces the decision; an equal or looser one leaves it with its own reason."""
    rank = STRICTNESS.get(type(answer), 2)

    tightened = tighten(decision, answer)

    assert max(strictness(decision), rank) == strictness(tightened)
    if rank <= strictness(decision):
        assert decision is tightened


def test_a_callbacks_own_reason_and_code_are_kept():
    """The host may say why in its own words."""
    assert Deny("not on Sundays", code="callback") == tighten(DECISIONS[0], Deny("not on Sundays"))
    assert Ask("twice a day", code="quota") == tighten(DECISIONS[0], Ask("twice a day", code="quota"))
