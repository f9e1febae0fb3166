"""Hints become effects: every combination of host and server, and the names that disagree."""

import itertools

import pytest
from attrs.exceptions import FrozenInstanceError
from hypothesis import given, settings
from hypothesis import strategies as st

from deputy_mcp._core.annotations import (
    CAUTIOUS,
    HINTS,
    NOUN_LIKE_VERBS,
    READING_VERBS,
    WRITING_VERBS,
    Effects,
    Finding,
    Reading,
    check_host_annotations,
    read_annotations,
)
from deputy_mcp._core.errors import ConfigError

MISSING = object()
SERVER_VALUES = (True, False, MISSING, "true")
"""What a server may say of one hint; the last is of the wrong type."""
HOST_VALUES = (True, False, MISSING)


def declare(values):
    """The annotations that say `values` of the four hints, in order."""
    return {hint: value for hint, value in zip(HINTS, values, strict=True) if value is not MISSING}


def read(declared, *, host=None, trusted=True, name="thing", description=""):
    return read_annotations(declared, host=host or {}, trusted=trusted, name=name, description=description)


def odd(place, message):
    return Finding("annotation_type", severity="warn", place=place, message=message)


CONTRADICTION = Finding(
    "annotation_contradiction",
    severity="warn",
    place="/annotations",
    message="readOnlyHint and destructiveHint are both true; read as destructive and not read-only",
)


def effects(*, read_only, destructive, idempotent=False, open_world=True):
    return Effects(read_only=read_only, destructive=destructive, idempotent=idempotent, open_world=open_world)


def expected_effects(server, host, trusted):
    """The contract's section 5 once more, hint by hint, without a look at the module."""

    def word(index):
        if host[index] is not MISSING:
            return host[index]

        if index == 1 and host[0] is True:
            return None  # the host's readOnlyHint silences the server's destructiveHint

        return server[index] if trusted and server[index] in (True, False) else None

    read_only, destructive, idempotent, open_world = (word(index) for index in range(4))
    if read_only is True and destructive is True:
        return (False, True, idempotent is True, open_world is not False)

    return (
        read_only is True,
        (read_only is not True) if destructive is None else destructive,
        idempotent is True,
        open_world is not False,
    )


@pytest.mark.parametrize("trusted", [True, False])
def test_every_combination_of_host_and_server_is_read_as_the_contract_says(trusted):
    """Host first, hint by hint, then the trusted server, then the defaults; both true is the cautious contradiction."""
    for server in itertools.product(SERVER_VALUES, repeat=4):
        for host in itertools.product(HOST_VALUES, repeat=4):
            if host[0] is True and host[1] is True:
                continue  # refused when it is configured

            reading = read(declare(server), host=declare(host), trusted=trusted)

            found = reading.effects
            seen = (found.read_only, found.destructive, found.idempotent, found.open_world)
            assert expected_effects(server, host, trusted) == seen, (server, host)
            missing = [
                hint
                for hint, theirs, ours in zip(HINTS, server, host, strict=True)
                if ours is MISSING and theirs in (MISSING, "true")
            ]
            assert missing == list(reading.missing), (server, host)
            wrong = [f"/annotations/{hint}" for hint, theirs in zip(HINTS, server, strict=True) if theirs == "true"]
            places = [finding.place for finding in reading.findings if finding.code == "annotation_type"]
            assert wrong == places, (server, host)


def test_a_tool_without_annotations_is_read_as_the_worst():
    """Not read-only, destructive, not idempotent, open-world; all four hints are missing and nothing is odd."""
    worst = effects(read_only=False, destructive=True, idempotent=False, open_world=True)
    expected = Reading(worst, findings=(), missing=HINTS)

    assert expected == read(None)
    assert expected == read({})
    assert worst == CAUTIOUS


@pytest.mark.parametrize("declared", ["readOnlyHint", ["readOnlyHint"], 1, True])
def test_annotations_that_are_no_object_count_as_absent_and_are_a_finding(declared):
    """They grant nothing, and the person who looks is told."""
    finding = odd("/annotations", "annotations are no object; they count as absent")

    assert Reading(CAUTIOUS, findings=(finding,), missing=HINTS) == read(declared)


@pytest.mark.parametrize("value", ["true", "True", 1, 0, 1.0, None, [True], {"value": True}])
def test_a_hint_that_is_no_boolean_counts_as_missing_and_is_a_finding(value):
    """Only a JSON boolean counts: a string, a number and null do not."""
    expected = Reading(
        effects(read_only=False, destructive=True, open_world=False),
        findings=(odd("/annotations/readOnlyHint", "readOnlyHint is neither true nor false; it counts as missing"),),
        missing=("readOnlyHint", "destructiveHint", "idempotentHint"),
    )

    assert expected == read({"readOnlyHint": value, "openWorldHint": False})


def test_the_snake_case_spelling_of_a_hint_counts_for_nothing():
    """The wire's spelling is camelCase; the SDK's attribute names are not hints."""
    assert Reading(CAUTIOUS, missing=HINTS) == read({"read_only_hint": True})


def test_a_read_only_tool_that_says_nothing_of_destruction_is_not_destructive():
    """The default of `destructiveHint` is meant for tools that write."""
    assert effects(read_only=True, destructive=False) == read({"readOnlyHint": True}).effects


def test_a_tool_both_read_only_and_destructive_is_read_as_destructive_with_a_finding():
    """A contradiction is read the cautious way; the finding says so and does not ask by itself."""
    expected = Reading(
        effects(read_only=False, destructive=True, open_world=False),
        findings=(CONTRADICTION,),
        missing=("idempotentHint",),
    )

    assert expected == read({"readOnlyHint": True, "destructiveHint": True, "openWorldHint": False})


REST = ("idempotentHint", "openWorldHint")


@pytest.mark.parametrize(
    ("server", "host", "expected"),
    [
        # The host's word cannot be outweighed, and the disagreement is on record.
        (
            {"readOnlyHint": True},
            {"destructiveHint": True},
            (effects(read_only=False, destructive=True), CONTRADICTION),
        ),
        # The host has looked at the tool: the server's destructive hint is silenced.
        ({"destructiveHint": True}, {"readOnlyHint": True}, (effects(read_only=True, destructive=False),)),
        # Only the hint that the host named is replaced, so nothing contradicts.
        (
            {"readOnlyHint": True, "destructiveHint": False},
            {"readOnlyHint": False},
            (effects(read_only=False, destructive=False),),
        ),
        (
            {"readOnlyHint": True, "destructiveHint": True},
            {"readOnlyHint": False},
            (effects(read_only=False, destructive=True),),
        ),
        (
            {"readOnlyHint": True, "destructiveHint": True},
            {"destructiveHint": False},
            (effects(read_only=True, destructive=False),),
        ),
    ],
)
def test_the_hosts_word_comes_before_the_servers_hint_by_hint(server, host, expected):
    """What the host says holds; what it leaves open is the server's."""
    found, *findings = expected

    assert Reading(found, findings=tuple(findings), missing=REST) == read(server, host=host)


def test_an_untrusted_servers_hints_count_for_nothing_but_are_not_missing():
    """Neither its claim nor its contradiction is read; `missing` is about what was declared."""
    declared = {"readOnlyHint": True, "destructiveHint": True}

    assert Reading(CAUTIOUS, missing=REST) == read(declared, trusted=False, name="delete_all")


# --- Names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        ("delete_all", "delete"),
        ("send-email", "send"),
        ("SEND_SMS", "send"),
        ("twilioSendSms", "send"),
        ("DeleteDbCluster", "delete"),
        ("HTTPDelete", "delete"),
        ("createV2Record", "create"),
        ("slack_post_message", "post"),
        ("git_commit", "commit"),
        ("post_update", "update"),
        ("update_and_get_record", "update"),
    ],
)
def test_a_name_that_begins_with_a_writing_verb_beside_read_only_is_a_flag(name, verb):
    """The claim stands, and a person is asked; the message holds our word, not the server's text."""
    reading = read({"readOnlyHint": True}, name=name)

    expected = Finding(
        "name_contradicts_read_only",
        severity="flag",
        place="/name",
        message=f'the name says "{verb}" beside readOnlyHint: true',
    )
    assert (expected,) == reading.findings
    assert reading.effects.read_only is True


@pytest.mark.parametrize(
    "name",
    [
        "get_update",
        "listPrivateNetworkAddRequests",
        "check_delete_permission",
        "post_search",
        "record-set-list",
        "stories-get-history",
        "deployment_status",
        "additive_noise",
        "sender_reputation",
        "",
        "送信",
    ],
)
def test_a_name_that_reads_or_says_nothing_raises_no_flag(name):
    """A reading verb comes first, or no whole word is a writing verb."""
    assert not read({"readOnlyHint": True}, name=name).findings


@pytest.mark.parametrize(
    ("declared", "host", "trusted"),
    [
        ({"readOnlyHint": True}, {"readOnlyHint": True}, True),
        ({"readOnlyHint": True}, {"readOnlyHint": False}, True),
        ({"readOnlyHint": True}, {}, False),
        ({"readOnlyHint": False}, {}, True),
        (None, {}, True),
    ],
)
def test_a_name_is_no_finding_where_the_servers_read_only_claim_does_not_count(declared, host, trusted):
    """The host's own word silences it, and where nothing was claimed nothing disagrees."""
    assert not read(declared, host=host, trusted=trusted, name="delete_all").findings


@pytest.mark.parametrize(
    ("description", "verb"),
    [
        ("Sends an e-mail.", "send"),
        ("delete the record", "delete"),
        ("Publishes a page", "publish"),
        ("[beta] Create a new list", "create"),
        ("Notion | Create a page", "create"),
        ("🎯 Purpose:\n  1. Creates a ticket", "create"),
        ("**Tool** to permanently delete branches", "delete"),
        ("Use this tool to send text messages", "send"),
        ("A tool that removes users.", "remove"),
        ("This tool lets you update records", "update"),
        ("Set the volume", "set"),
        ("Posts a message", "post"),
        ("Write to a file", "write"),
    ],
)
def test_a_description_that_begins_with_a_writing_verb_beside_read_only_is_a_flag(description, verb):
    """The claim stands, and a person is asked; the message holds our word, not the server's text."""
    expected = Finding(
        "description_contradicts_read_only",
        severity="flag",
        place="/description",
        message=f'the description begins with "{verb}" beside readOnlyHint: true',
    )
    reading = read({"readOnlyHint": True}, description=description)
    assert ((expected,), True) == (reading.findings, reading.effects.read_only)


@pytest.mark.parametrize(
    "description",
    [
        "",
        "Send",
        "送信します",
        "Gets a message. Use send_mail to send it.",
        "The set of labels",
        "The update that was sent last",
        "Updates of a workspace",
        "Commit history with authors",
        "Set of tools",
        "Post details",
        "send_mail lists what was sent",
        "Lists posts that users created",
        "Use this to find what to delete",
        "Additive noise",
        "This is how to write one",
        " " * 400 + "Send a mail",
    ],
)
def test_a_description_that_reads_or_says_nothing_raises_no_flag(description):
    """Only the first verb counts: further on, readers speak of what others do."""
    assert () == read({"readOnlyHint": True}, description=description).findings


def test_a_description_is_no_finding_where_the_servers_read_only_claim_does_not_count():
    """As with names."""
    for declared, host in (({"readOnlyHint": True}, {"readOnlyHint": True}), ({"readOnlyHint": False}, {}), (None, {})):
        assert () == read(declared, host=host, description="Deletes all").findings


def test_no_word_is_both_a_reading_and_a_writing_verb():
    """The order of the lists decides nothing."""
    assert frozenset() == READING_VERBS & WRITING_VERBS
    assert frozenset() == READING_VERBS & NOUN_LIKE_VERBS
    assert frozenset() == WRITING_VERBS & NOUN_LIKE_VERBS


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(HINTS) | st.text(max_size=5), inner),
    max_leaves=8,
)


@settings(deadline=None)  # the machine may be busy; speed is not the promise here
@given(declared=JSON, trusted=st.booleans(), name=st.text(max_size=30))
def test_whatever_a_server_sends_is_read_and_no_read_only_tool_is_destructive(declared, trusted, name):
    """Reading never raises; read-only holds only on a true `readOnlyHint` without a true `destructiveHint`."""
    reading = read(declared, trusted=trusted, name=name)

    claims = declared if isinstance(declared, dict) and trusted else {}
    expected = claims.get("readOnlyHint") is True and claims.get("destructiveHint") is not True
    assert expected == reading.effects.read_only
    assert not (reading.effects.read_only and reading.effects.destructive)


# --- The host's word --------------------------------------------------------------------------------------------------


def test_the_hosts_annotations_become_a_read_only_copy():
    """What the host later does to its own mapping changes nothing."""
    expected = {"search": {"readOnlyHint": True}, "resources/read": {"openWorldHint": False}}
    mine = {tool: dict(hints) for tool, hints in expected.items()}

    checked = check_host_annotations(mine)
    mine["search"]["readOnlyHint"] = False

    assert expected == {tool: dict(hints) for tool, hints in checked.items()}


def test_a_host_may_say_that_a_tool_writes_and_destroys():
    """Only both true contradict each other; every other pair of the two is a word that can be held to."""
    for read_only, destructive in [(False, True), (True, False), (False, False)]:
        hints = {"readOnlyHint": read_only, "destructiveHint": destructive}
        assert hints == dict(check_host_annotations({"t": hints})["t"])


@pytest.mark.parametrize(
    ("value", "key", "words"),
    [
        (["search"], "annotations", "annotations must be an object"),
        ({"search": True}, "annotations.search", "annotations.search must be an object"),
        ({"search": {"readOnlyHint": "true"}}, "annotations.search.readOnlyHint", "must be true or false, not str"),
        ({"search": {"readOnlyHint": 1}}, "annotations.search.readOnlyHint", "must be true or false, not int"),
        ({"search": {"readOnlyHint": None}}, "annotations.search.readOnlyHint", "must be true or false"),
        ({"search": {"readonlyHint": True}}, "annotations.search", "did you mean readOnlyHint?"),
        ({"search": {"read_only": True}}, "annotations.search", "did you mean readOnlyHint?"),
        ({"search": {"destructive-hint": True}}, "annotations.search", "did you mean destructiveHint?"),
        ({"search": {"colour": True}}, "annotations.search", f"known: {', '.join(HINTS)}"),
        ({"search": {"readOnlyHint": True, "destructiveHint": True}}, "annotations.search", "cannot both be true"),
    ],
)
def test_a_host_hint_that_cannot_be_held_to_is_a_configuration_error(value, key, words):
    """The error names the key and the mend; nothing is coerced or ignored."""
    with pytest.raises(ConfigError) as caught:
        check_host_annotations(value)

    assert key == caught.value.key
    assert words in str(caught.value)


def test_a_hint_unlike_any_known_one_gets_no_suggestion():
    """A wrong suggestion is worse than none."""
    with pytest.raises(ConfigError) as caught:
        check_host_annotations({"search": {"colour": True}})

    assert "did you mean" not in str(caught.value)


def test_readings_and_findings_are_frozen():
    """What was judged stays as it was judged."""
    reading = read(None)

    with pytest.raises(FrozenInstanceError):
        reading.effects = CAUTIOUS

    with pytest.raises(FrozenInstanceError):
        reading.effects.read_only = True
