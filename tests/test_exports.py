"""The public names: `__all__`, the reference pages and the frozen list here say the same.

A name that is added goes into all three; a name that is taken away or renamed breaks somebody's program.
"""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

import deputy_mcp
import deputy_mcp.testing

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"

SERVERS = {"CustomServer", "HttpServer", "Limits", "RestartPolicy", "StdioServer"}
CONFIGURATION = {"Config", "load_config"}
CONNECTION = {
    "ConnectionEvent",
    "ElicitationRequest",
    "McpConnection",
    "Page",
    "PinBook",
    "PinDifference",
    "PromptResult",
    "ResourceResult",
    "SamplingRequest",
    "ServerState",
    "ServerStatus",
}
TOOLS = {"McpTool", "ToolResult", "public_name", "tool_metadata"}
PERMISSIONS = {"Allow", "Ask", "CallContext", "Deny", "Effects", "Finding", "Permissions"}
APPROVAL = {"ApprovalRequest", "ApprovalStore", "Approve", "Reject", "Ticket", "console_approver"}
RECORD = {"Journal"}
SURFACES = {"Agent", "AgentStatus", "ToolList", "close_mcp", "host_tool", "tools_mcp"}
ERRORS = {
    "ApprovalDeniedError": "RefusedError",
    "ApprovalExpiredError": "ApprovalDeniedError",
    "ApprovalPendingError": "RefusedError",
    "CallError": "DeputyError",
    "CallTimeoutError": "CallError",
    "ClosedError": "DeputyError",
    "ConfigError": "DeputyError",
    "DeputyError": "Exception",
    "HttpStatusError": "CallError",
    "InvalidArgumentsError": "RefusedError",
    "JournalUnavailableError": "RefusedError",
    "MalformedReplyError": "CallError",
    "NotAllowlistedError": "RefusedError",
    "PermissionDeniedError": "RefusedError",
    "PinMismatchError": "RefusedError",
    "QuarantinedError": "UnavailableError",
    "RefusedError": "DeputyError",
    "RegistrationError": "DeputyError",
    "RemoteError": "CallError",
    "RestartLimitError": "UnavailableError",
    "ResultTooLargeError": "CallError",
    "ServerLostError": "CallError",
    "StaleToolError": "RefusedError",
    "StartError": "UnavailableError",
    "UnavailableError": "DeputyError",
    "WaitTimeoutError": "UnavailableError",
}
"""Each error and the one it is a case of."""
ALSO = {
    "ConfigError": ValueError,
    "RegistrationError": ValueError,
    "PermissionDeniedError": PermissionError,
    "WaitTimeoutError": TimeoutError,
    "CallTimeoutError": TimeoutError,
    "DeputyWarning": UserWarning,
}
"""The built-in class that a program may catch instead."""

FROZEN = (
    SERVERS
    | CONFIGURATION
    | CONNECTION
    | TOOLS
    | PERMISSIONS
    | APPROVAL
    | RECORD
    | SURFACES
    | set(ERRORS)
    | {"DeputyWarning", "__version__"}
)

FIELDS = {
    "ApprovalRequest": "ticket server tool public_name effects findings code reason arguments arguments_text digest "
    "expires_at",
    "Effects": "read_only destructive idempotent open_world",
    "ElicitationRequest": "server tool mode message requested_schema url host",
    "SamplingRequest": "server tool messages system_prompt max_tokens temperature stop_sequences model_preferences "
    "metadata",
    "Finding": "code severity place message",
    "Limits": "call_timeout_seconds startup_timeout_seconds shutdown_timeout_seconds approval_timeout_seconds "
    "idle_timeout_seconds max_timeouts_in_row max_message_bytes max_message_values max_result_bytes on_large_result "
    "spill_directory max_spill_bytes max_concurrent_calls max_tools max_list_pages max_description_bytes "
    "max_stderr_bytes max_server_requests_per_call",
    "McpTool": "name server tool title description input_schema output_schema annotations missing_annotations effects "
    "findings digest generation",
    "Permissions": "web write destructive tool_allowlist tool_denylist can_use_tool taint",
    "RestartPolicy": "when max_restarts window_seconds backoff_initial_seconds backoff_factor backoff_max_seconds "
    "cooldown_seconds",
    "ServerStatus": "name state reason since generation protocol_version server_info pid tools refused restarts "
    "calls_in_flight bytes_in bytes_out stderr_tail last_error exit_code",
    "ToolResult": "text content structured_content is_error truncated spilled_to size_bytes findings tool_digest "
    "server tool generation duration_seconds",
}
"""The members of a value that the contract names; there may be more."""

UNBUILT = [
    (deputy_mcp.Agent, "journal"),
]


def test_the_public_names_are_those_that_were_promised() -> None:
    """`__all__` and the list here are the same; both are changed in one step, with the reference page."""
    assert sorted(FROZEN) == list(deputy_mcp.__all__)


@pytest.mark.parametrize("module", [deputy_mcp, deputy_mcp.testing], ids=lambda module: module.__name__)
def test_all_is_sorted_and_holds_each_name_once(module: object) -> None:
    """A diff of `__all__` shows what changed and nothing else."""
    assert sorted(set(module.__all__)) == list(module.__all__)


@pytest.mark.parametrize("module", [deputy_mcp, deputy_mcp.testing], ids=lambda module: module.__name__)
def test_every_public_name_can_be_imported(module: object) -> None:
    """A name in `__all__` is there."""
    assert [] == [name for name in module.__all__ if not hasattr(module, name)]


def test_a_star_import_gives_the_public_names_and_nothing_else() -> None:
    """What is not in `__all__` is not public."""
    space: dict[str, object] = {}
    exec("from deputy_mcp import *", space)

    assert set(deputy_mcp.__all__) == space.keys() - {"__builtins__"}


@pytest.mark.parametrize("name", sorted(FROZEN - {"__version__"}))
def test_every_public_name_has_a_docstring_of_its_own(name: str) -> None:
    """`help(deputy_mcp.NAME)` says what it is."""
    doc = vars(value).get("__doc__") if inspect.isclass(value := getattr(deputy_mcp, name)) else value.__doc__

    assert (doc or "").strip()


def test_the_errors_form_the_promised_tree() -> None:
    """Each error is a case of the one above it, and of the built-in class that a program may catch."""
    errors = {name: value for name in deputy_mcp.__all__ if is_error(value := getattr(deputy_mcp, name))}

    assert ERRORS == {name: error.__bases__[0].__name__ for name, error in errors.items()}
    assert [] == [name for name, kind in ALSO.items() if not issubclass(getattr(deputy_mcp, name), kind)]


def is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception) and not issubclass(value, Warning)


@pytest.mark.parametrize("name", FIELDS)
def test_a_value_has_the_members_that_were_promised(name: str) -> None:
    """Programs read these by name."""
    members = {field.name for field in attrs.fields(getattr(deputy_mcp, name))}

    assert set() == set(FIELDS[name].split()) - members


@pytest.mark.parametrize("name", FIELDS)
def test_a_value_is_frozen(name: str) -> None:
    """A snapshot that somebody else could change is none."""
    assert object.__setattr__ is not getattr(deputy_mcp, name).__setattr__


@pytest.mark.parametrize(
    ("function", "name"),
    [(function, name) for function, names in UNBUILT for name in names.split()],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_parameter_whose_feature_is_not_built_does_not_exist(function: object, name: str) -> None:
    """It is never accepted and ignored: a program that passes it must not believe itself protected."""
    assert name not in inspect.signature(function).parameters


def test_importing_the_library_starts_nothing_and_warns_of_nothing() -> None:
    """An import reads no configuration, starts no thread and prints nothing."""
    code = "import threading, deputy_mcp; print(threading.active_count())"
    run = subprocess.run((sys.executable, "-W", "error", "-c", code), capture_output=True, text=True, timeout=60)

    assert ("1\n", "") == (run.stdout, run.stderr)


def test_every_public_name_stands_in_the_reference() -> None:
    """`docs/reference/` has each public name, in code font or as a heading; ordinary words do not count."""
    text = "\n".join(page.read_text() for page in sorted(REFERENCE.glob("**/*.md")))
    marked = re.findall(r"^```.*?^```|^#+ .*?$|`[^`\n]+`", text, re.DOTALL | re.MULTILINE)
    words = set(re.findall(r"\w+", "\n".join(marked)))

    assert [] == sorted(FROZEN - words)
