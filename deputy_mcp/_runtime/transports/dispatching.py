"""What our dispatchers do alike, whatever carries their messages: how those are written, and what common ones mean.

It keeps no books; a dispatcher does.
"""

import json
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from typing import Any

from mcp.shared.dispatcher import OnNotifyIntercept, run_notify_intercept

from deputy_mcp._core.messages import MessageId, Notification, more_values_than, plain_id
from deputy_mcp._runtime.transports.answering import Answering
from deputy_mcp._runtime.transports.link import Hooks, LinkError

MESSAGES_PER_TURN = 64
FLOOD_PAUSE_SECONDS = 0.001
"""A flood must not starve the other servers: after so many messages in a row that answer nothing its reader waits so
long, which leaves it some 30,000 a second and the loop most of its time."""

GREETINGS = frozenset({"initialize", "server/discover"})
MOST_GREETING_VALUES = 10_000

CHANGES = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}

_encoder = json.JSONEncoder(separators=(",", ":"))
"""One for all: `json.dumps` with separators would make a new one for each value."""


def to_json(value: Any) -> bytes:
    """A value of ours as it goes on the wire."""
    return (encode_basestring_ascii(value) if isinstance(value, str) else _encoder.encode(value)).encode()


def encode_request(
    method: str, params: Mapping[str, Any] | None, params_json: bytes | None, wire_id: MessageId
) -> bytes:
    """A request, without an end of line; `params_json`: its params where they are encoded already."""
    if params_json is None and params:
        params_json = to_json(params)

    shown_id = str(wire_id).encode() if isinstance(wire_id, int) else to_json(wire_id)
    head = b'{"jsonrpc":"2.0","id":%b,"method":"%b"' % (shown_id, method.encode())
    return head + b"}" if params_json is None else head + b',"params":' + params_json + b"}"


def encode_message(message: Mapping[str, Any]) -> bytes:
    """A notification, or a reply of ours, without an end of line."""
    return to_json({"jsonrpc": "2.0", **message})


def check_greeting(method: str, result: dict[str, Any]) -> None:
    """Raise where a greeting holds more than it can need: the SDK would list every wrong value of it."""
    if method in GREETINGS and more_values_than(result, MOST_GREETING_VALUES):
        raise LinkError("malformed", f"its greeting holds more than {MOST_GREETING_VALUES} JSON values")


def take_notification(
    message: Notification, *, intercept: OnNotifyIntercept | None, answering: Answering, hooks: Hooks
) -> None:
    """Collapse it; what belongs to a `listen` stream goes to the session. Progress is the dispatcher's."""
    run_notify_intercept(intercept, message.method, message.params)
    if message.method == "notifications/cancelled":
        answering.withdraw(plain_id((message.params or {}).get("requestId")))
    elif kind := CHANGES.get(message.method):
        hooks.on_change(kind)  # type: ignore[arg-type] # the table's values are the literal's
