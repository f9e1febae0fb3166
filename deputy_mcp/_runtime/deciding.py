"""Step 3 of a call: what is judged, the effective permissions, the host's callbacks, and the error of a Deny."""

import functools
import inspect
import json
from collections.abc import Iterable
from typing import Any

from attrs import field, frozen

from deputy_mcp._core.annotations import Effects, Finding
from deputy_mcp._core.catalog import ToolFacts
from deputy_mcp._core.errors import PermissionDeniedError
from deputy_mcp._core.permissions import Allow, Ask, Deny, Judged, Permissions, both_permissions, tighten


@frozen(kw_only=True)
class CallContext:
    """What `can_use_tool` is told beside the tool and the arguments."""

    server: str
    tool: str
    public_name: str
    effects: Effects
    decision: Allow | Ask
    """What the permissions decided; the callback can only tighten it."""


@frozen(kw_only=True)
class Target:
    """What a call is judged by: a tool's facts, or a capability's."""

    name: str
    """The public name."""
    effects: Effects
    findings: tuple[Finding, ...]
    digest: str | None
    facts: ToolFacts | None = field(default=None, repr=False)
    compared: tuple[Finding, ...] = field(default=(), repr=False)
    """Those of the findings that come from a comparison with other servers."""


def effective_permissions(given: Iterable[Permissions | None], narrowing: Permissions | None) -> Permissions:
    """`&` over the shares given (`Permissions()`, the floor, where none was), less what was taken away."""
    effective = functools.reduce(both_permissions, given, None) or Permissions()
    return effective if narrowing is None else effective & narrowing


async def decide_with_callbacks(
    permissions: Permissions, judged: Judged, shown: Any, arguments_json: bytes, *, server: str, tool: str
) -> Allow | Ask | Deny:
    """`decide`, then every `can_use_tool`, each with a copy of the arguments and only able to tighten."""
    decision = permissions.decide(judged)
    for callback in permissions.callbacks:
        if isinstance(decision, Deny):
            break

        context = CallContext(
            server=server, tool=tool, public_name=judged.name, effects=judged.effects, decision=decision
        )
        answer: object
        try:
            answer = callback(shown, json.loads(arguments_json), context)
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception as error:  # noqa: BLE001 # a crashing callback denies
            answer = Deny(f"needs the agreement of can_use_tool, which failed with {type(error).__name__}")

        decision = tighten(decision, answer)

    return decision


def denied_error(decision: Deny, *, name: str, server: str | None, tool: str) -> PermissionDeniedError:
    """The error of a Deny. Its text names what would have to be granted."""
    return PermissionDeniedError(
        f"{name} is not permitted: {decision.reason.removeprefix(name + ' ')}",
        decision=decision,
        server=server,
        tool=tool,
    )
