"""Step 3 of a call: what is judged, the effective permissions, the host's callbacks, and the error of a Deny."""

import functools
import inspect
import json
from collections.abc import Iterable
from typing import Any

from attrs import define, field, frozen

from deputy_mcp._core.annotations import Effects, Finding
from deputy_mcp._core.catalog import ToolFacts
from deputy_mcp._core.errors import PermissionDeniedError
from deputy_mcp._core.permissions import Allow, Ask, Deny, Judged, Permissions, both_permissions, tighten
from deputy_mcp._runtime.schemas import SchemaChecker


@frozen(kw_only=True)
class CallContext:
    """What `can_use_tool` is told beside the tool and the arguments."""

    server: str
    tool: str
    public_name: str
    effects: Effects
    decision: Allow | Ask
    """What the permissions decided; the callback can only tighten it."""


@define(kw_only=True, eq=False)
class Target:
    """What calls are judged by: a tool's facts, or a capability's."""

    # Mutable state: the permissions asked last, and what they said; its compiled input schema.
    name: str
    """The public name."""
    effects: Effects
    findings: tuple[Finding, ...]
    digest: str | None
    facts: ToolFacts | None = field(default=None, repr=False)
    checker: SchemaChecker | None = field(default=None, init=False, repr=False)
    _asked: Permissions | None = field(default=None, init=False, repr=False)
    _said: Allow | Ask | Deny | None = field(default=None, init=False, repr=False)

    def decided_by(self, permissions: Permissions) -> Allow | Ask | Deny:
        """`permissions.decide`, asked once for as long as they are the same object."""
        if self._said is None or self._asked is not permissions:
            self._asked, self._said = permissions, permissions.decide(self)

        return self._said


def effective_permissions(given: Iterable[Permissions | None], narrowing: Permissions | None) -> Permissions:
    """`&` over the shares given (`Permissions()`, the floor, where none was), less what was taken away."""
    effective = functools.reduce(both_permissions, given, None) or Permissions()
    return effective if narrowing is None else effective & narrowing


async def ask_callbacks(
    decision: Allow | Ask | Deny,
    permissions: Permissions,
    judged: Judged,
    shown: Any,
    arguments_json: bytes,
    *,
    server: str,
    tool: str,
) -> Allow | Ask | Deny:
    """What every `can_use_tool` makes of a decision, each with a copy of the arguments and only able to tighten."""
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
