"""The error tree of api.md section 10, row by row, and what each error tells a caller and a person.

The table here is written by hand from api.md and shares nothing with the classes' own attributes.
"""

import copy
import inspect
import pickle

import pytest

from deputy_mcp._core import errors
from deputy_mcp._core.errors import (
    REFUSING_STATUSES,
    ApprovalDeniedError,
    ApprovalExpiredError,
    ApprovalPendingError,
    CallError,
    CallTimeoutError,
    ClosedError,
    ConfigError,
    DeputyError,
    DeputyWarning,
    HttpStatusError,
    InvalidArgumentsError,
    JournalUnavailableError,
    MalformedReplyError,
    NotAllowlistedError,
    PermissionDeniedError,
    PinMismatchError,
    QuarantinedError,
    RefusedError,
    RegistrationError,
    RemoteError,
    RestartLimitError,
    ResultTooLargeError,
    ServerLostError,
    StaleToolError,
    StartError,
    UnavailableError,
    WaitTimeoutError,
)
from deputy_mcp._core.permissions import Deny

DENIED = Deny("it would need write", code="write")

# class: (bases, code, outcome, the least that must be given)
TREE = {
    DeputyError: ((Exception,), "error", "not_sent", {}),
    ConfigError: ((DeputyError, ValueError), "config", "not_sent", {}),
    RegistrationError: ((DeputyError, ValueError), "name_taken", "not_sent", {}),
    RefusedError: ((DeputyError,), "refused", "not_sent", {}),
    NotAllowlistedError: ((RefusedError,), "unknown_tool", "not_sent", {"code": "unknown_tool"}),
    PermissionDeniedError: ((RefusedError, PermissionError), "write", "not_sent", {"decision": DENIED}),
    PinMismatchError: ((RefusedError,), "pin_gone", "not_sent", {"code": "pin_gone"}),
    StaleToolError: ((RefusedError,), "stale_tool", "not_sent", {}),
    InvalidArgumentsError: ((RefusedError,), "invalid_arguments", "not_sent", {}),
    ApprovalDeniedError: ((RefusedError,), "rejected", "not_sent", {}),
    ApprovalPendingError: ((RefusedError,), "approval_pending", "not_sent", {"ticket": "t"}),
    JournalUnavailableError: ((RefusedError,), "journal_unavailable", "not_sent", {}),
    ApprovalExpiredError: ((ApprovalDeniedError,), "approval_expired", "not_sent", {}),
    UnavailableError: ((DeputyError,), "unavailable", "not_sent", {}),
    StartError: ((UnavailableError,), "start_failed", "not_sent", {}),
    QuarantinedError: ((UnavailableError,), "quarantined", "not_sent", {}),
    RestartLimitError: ((UnavailableError,), "restart_limit", "not_sent", {}),
    WaitTimeoutError: ((UnavailableError, TimeoutError), "wait_timeout", "not_sent", {}),
    CallError: ((DeputyError,), "call_failed", "unknown", {}),
    CallTimeoutError: ((CallError, TimeoutError), "call_timeout", "unknown", {}),
    ServerLostError: ((CallError,), "server_lost", "unknown", {}),
    HttpStatusError: ((CallError,), "http_status", "unknown", {"status": 500}),
    ResultTooLargeError: ((CallError,), "result_too_large", "unknown", {"limit_bytes": 10, "seen_bytes": 11}),
    MalformedReplyError: ((CallError,), "malformed_reply", "unknown", {}),
    RemoteError: ((CallError,), "remote_error", "unknown", {"rpc_code": -32000, "message": "disk full"}),
    ClosedError: ((DeputyError,), "closed", "not_sent", {}),
}

every_error = pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)


def made(kind, **facts):
    return kind("the text", **{**TREE[kind][3], **facts})


@every_error
def test_an_error_has_the_parents_the_code_and_the_outcome_of_the_contract(kind):
    """Whose fault it is, and whether anything was sent, can be told from the class alone."""
    bases, code, outcome, _ = TREE[kind]
    assert bases == kind.__bases__
    error = made(kind)
    assert (code, outcome) == (error.code, error.outcome)


def test_the_table_names_every_error_of_the_module():
    """No error is raised that the contract does not draw."""
    classes = {
        item
        for _, item in inspect.getmembers(errors, inspect.isclass)
        if issubclass(item, BaseException) and not issubclass(item, Warning) and item.__module__ == errors.__name__
    }
    assert set(TREE) == classes


@every_error
def test_an_error_says_its_text_and_nothing_else_by_itself(kind):
    """`str` is the text as given, also where a builtin parent would say it in its own way."""
    error = made(kind)
    assert "the text" == str(error)
    assert ("the text",) == error.args


@every_error
@pytest.mark.parametrize("again", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy], ids=["pickled", "copied"])
def test_an_error_survives_pickling_and_copying_with_all_it_knows(kind, again):
    """An error crosses a process boundary whole: worker pools and test runners send them so."""
    error = made(kind)
    twin = again(error)
    assert kind is type(twin)
    assert str(error) == str(twin)
    assert vars(error) == vars(twin)


@pytest.mark.parametrize("kind", [kind for kind in TREE if kind is not ConfigError], ids=lambda kind: kind.__name__)
def test_an_error_knows_its_server_and_tool(kind):
    """`server` and `tool` are attributes and facts of every error that concerns them."""
    error = made(kind, server="files", tool="read")
    assert ("files", "read") == (error.server, error.tool)
    assert {"server": "files", "tool": "read"}.items() <= error.facts().items()
    assert (None, None) == (made(kind).server, made(kind).tool)


OWN_FACTS = [
    (ConfigError, {"path": "/etc/mcp.json", "key": "limits"}),
    (UnavailableError, {"state": "READY", "reason": "because"}),
    (WaitTimeoutError, {"state": "STARTING", "reason": "slow"}),
    (ServerLostError, {"exit_code": -9, "stderr_tail": "Killed"}),
    (HttpStatusError, {"status": 503, "retry_after_seconds": 2.5, "excerpt": "try later"}),
    (ResultTooLargeError, {"limit_bytes": 100, "seen_bytes": 4711}),
    (PinMismatchError, {"difference": '/description: "a" → "b"'}),
]


@pytest.mark.parametrize(("kind", "facts"), OWN_FACTS, ids=lambda item: getattr(item, "__name__", ""))
def test_diagnostics_holds_the_text_and_every_fact(kind, facts):
    """What an error knows is an attribute, a fact, and a line of its diagnostics."""
    error = made(kind, server="files", **facts)
    assert facts == {name: getattr(error, name) for name in facts}
    known = {**facts, "server": "files", "code": TREE[kind][1], "outcome": error.outcome}
    assert known == error.facts()
    lines = error.diagnostics().splitlines()
    assert "the text" == lines[0]
    assert {f"  {name}: {value}" for name, value in known.items()} == set(lines[1:])


@every_error
def test_what_is_not_known_is_left_out_of_the_facts(kind):
    """Facts are plain JSON values and hold no nulls and no empty texts."""
    facts = made(kind).facts()
    assert all(isinstance(value, str | int | float) and value != "" for value in facts.values())
    assert {"code", "outcome"} <= facts.keys()


def test_a_fact_of_several_lines_is_indented_below_its_name():
    """A stderr tail stays readable, and cannot pass for a fact of ours."""
    error = ServerLostError("lost", stderr_tail="Traceback\n  outcome: not_sent")
    assert "  stderr_tail:\n    Traceback\n      outcome: not_sent" in error.diagnostics()


def test_names_that_look_alike_are_listed():
    """A wrong name comes back with the near ones, as a tuple, and in the diagnostics."""
    error = NotAllowlistedError("no such tool", near=["read_file", "read_files"], code="unknown_tool")
    assert ("read_file", "read_files") == error.near
    assert "near: read_file, read_files" in error.diagnostics()


def test_a_denial_carries_its_decision():
    """The caller gets the `Deny` itself, and its code is the error's."""
    error = made(PermissionDeniedError)
    assert DENIED is error.decision
    with pytest.raises(PermissionError):
        raise error


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 408, 409, 422, 429, 500, 502, 503])
def test_only_the_statuses_that_precede_running_are_refusals(status):
    """401, 403, 404 and 429 say no before anything runs; after any other status the call may have run."""
    expected = "refused" if status in (401, 403, 404, 429) else "unknown"
    assert expected == made(HttpStatusError, status=status).outcome
    assert {401, 403, 404, 429} == REFUSING_STATUSES


@pytest.mark.parametrize(
    ("rpc_code", "outcome"),
    [
        (-32601, "refused"),
        (-32602, "refused"),
        (-32600, "unknown"),
        (-32603, "unknown"),
        (0, "unknown"),
        (1, "unknown"),
    ],
)
def test_only_unknown_methods_and_bad_parameters_are_refusals(rpc_code, outcome):
    """JSON-RPC −32601 and −32602 are found before anything runs; the rest may come from the middle of it."""
    error = RemoteError("t", rpc_code=rpc_code, message="disk full", details={"a": [1]}, server="files", tool="read")
    assert outcome == error.outcome
    assert (rpc_code, "disk full", {"a": [1]}) == (error.rpc_code, error.message, error.details)
    assert f"rpc_code: {rpc_code}" in error.diagnostics()


@pytest.mark.parametrize("kind", [DeputyError, CallError, ServerLostError])
def test_a_cause_may_name_its_own_code_and_outcome(kind):
    """Codes are finer than classes: a connection dropped is not a process lost, and either may be known not to run."""
    error = kind("t", code="connection_dropped", outcome="not_sent")
    assert ("connection_dropped", "not_sent") == (error.code, error.outcome)


def test_our_warning_is_a_user_warning():
    """It is shown by default and can be filtered by its own class."""
    assert (UserWarning,) == DeputyWarning.__bases__
