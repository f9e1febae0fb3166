"""The kinds of call: a tool, a resource, a prompt. Each says how it is found, judged and put on the wire; the order
is the gate's.
"""

import contextlib
import json
from typing import Any

from pydantic_core import from_json

from deputy_mcp._core.annotations import Effects, read_annotations
from deputy_mcp._core.catalog import Refusal, ToolFacts
from deputy_mcp._core.config import Server
from deputy_mcp._core.errors import (
    InvalidArgumentsError,
    NotAllowlistedError,
    PinMismatchError,
    RefusedError,
    StaleToolError,
)
from deputy_mcp._core.sanitizing import clean_line, clean_text, mask_secrets
from deputy_mcp._runtime.deciding import Target
from deputy_mcp._runtime.gate import Call
from deputy_mcp._runtime.handles import McpTool, make_handle, near_names
from deputy_mcp._runtime.listing import Named, named
from deputy_mcp._runtime.relisting import LostWhileVerifyingError, UnreachedError
from deputy_mcp._runtime.schemas import SchemaChecker, Verdict
from deputy_mcp._runtime.server import ServerTask
from deputy_mcp._runtime.session import header_parameters

PIN_CODES = frozenset({"pin_changed", "pin_gone", "pin_unknown", "pin_unverified"})


def stale_handle(handle: McpTool) -> StaleToolError:
    """The error of a handle from an earlier load."""
    return StaleToolError(
        f"this handle on {handle.name} is from before server {handle.server!r} was loaded again; "
        "take the new one and register it with replace=True",
        server=handle.server,
        tool=handle.tool,
    )


def refused_error(task: ServerTask, name: str, refusal: Refusal) -> RefusedError:
    """The error of what the listing refuses."""
    shown = f"{task.name}/{clean_line(name, 80)}"
    if refusal.code not in PIN_CODES:
        # Why a definition cannot be used may quote it, and a model reads this.
        return RefusedError(
            f"{shown} is refused: its definition cannot be used ({refusal.code}); "
            f"status()[{task.name!r}].refused says why",
            server=task.name,
            tool=name,
            code=refusal.code,
        )

    return PinMismatchError(
        f"{shown} is refused: {mask_secrets(refusal.reason, task.secrets)}",
        # Beside the text, which a model may read: a changed description must not reach it through our refusal.
        difference=mask_secrets(refusal.difference, task.secrets),
        server=task.name,
        tool=name,
        code=refusal.code,
    )


class ToolCall(Call):
    """A `tools/call`."""

    method = "tools/call"

    @property
    def facts(self) -> ToolFacts:
        """The tool as it was when the call was sent."""
        assert self._target is not None
        assert self._target.facts is not None
        return self._target.facts

    _target: Target | None = None
    _valid: tuple[bytes, str] | None = None
    """The arguments, and the digest of the definition whose input schema they fit."""
    _kind = "tools"

    def _found(self) -> Target | None:
        task, handle = self.task, self._handle
        target = task.targets.get(self.tool) if type(self.tool) is str else None
        if target is None or (handle is not None and (handle.load != task.load or handle.digest != target.digest)):
            return None

        self._target = target
        return target

    async def _route(self) -> Target:
        task, tool = self.task, self.tool
        if task.spec.tools is not None and tool not in task.spec.tools:
            raise NotAllowlistedError(
                f"server {task.name!r} allows no tool {clean_line(str(tool), 80)!r}",
                near=near_names(str(tool), task.spec.tools),
                server=task.name,
                tool=tool,
                code="not_allowlisted",
            )

        if task.listing.vetting is None:
            await task.wait_ready()

        if self._is_refused_by_pin() and not task.listing.holds("tools"):
            # It may have been put right, or accepted by a person, and nobody else may be there to find that out.
            with contextlib.suppress(LostWhileVerifyingError, UnreachedError):
                await task.listing.verify(await task.wait_ready(), "tools")

        return self._look_up()

    def _is_refused_by_pin(self) -> bool:
        vetting = self.task.listing.vetting
        refusal = vetting.refused.get(self.tool) if vetting is not None else None
        return refusal is not None and refusal.code in PIN_CODES

    def _look_up(self) -> Target:
        task, tool = self.task, self.tool
        assert task.listing.vetting is not None
        # Also after every wait: the server may have been loaded again meanwhile.
        if self._handle is not None and self._handle.load != task.load:
            raise stale_handle(self._handle)

        facts = task.listing.vetting.tools.get(tool)
        if facts is None:
            raise self._not_there()

        if tool in task.collisions:
            raise RefusedError(
                f"{facts.name} is the public name of two tools; rename one of the servers",
                server=task.name,
                tool=tool,
                code="name_collision",
            )

        if self._handle is not None and self._handle.digest != facts.digest:
            raise PinMismatchError(
                f"{facts.name} is not the tool this handle was made for",
                server=task.name,
                tool=tool,
                code="pin_changed",
            )

        self._target = task.targets[tool] = Target(
            name=facts.name,
            effects=facts.effects,
            findings=(*facts.findings, *task.compared.get(tool, ())),
            digest=facts.digest,
            facts=facts,
        )
        return self._target

    def _not_there(self) -> RefusedError:
        task, tool = self.task, self.tool
        assert task.listing.vetting is not None
        refusal = task.listing.vetting.refused.get(tool)
        if refusal is None:
            return NotAllowlistedError(
                f"server {task.name!r} offers no tool {clean_line(str(tool), 80)!r}",
                near=near_names(str(tool), task.listing.vetting.tools),
                server=task.name,
                tool=tool,
                code="unknown_tool",
            )

        return refused_error(task, tool, refusal)

    def _checked(self, target: Target) -> bytes | None:
        encoded = self._given()
        if self._valid is not None and self._valid == (encoded, target.digest):
            return encoded

        # What was encoded, not what was given: a tuple or a subclass may check differently than its bytes.
        verdict = self._checker(target).check_now(_decoded(encoded), json_bytes=len(encoded))
        return None if verdict is None else self._judge_arguments(verdict, target, encoded)

    async def _check_slowly(self, target: Target) -> bytes:
        encoded = self._given()
        return self._judge_arguments(await self._checker(target).check(_decoded(encoded)), target, encoded)

    def _checker(self, target: Target) -> SchemaChecker:
        if target.checker is None:
            assert target.facts is not None
            target.checker = self._gate.checker(target.facts, "inputSchema")

        return target.checker

    def _judge_arguments(self, verdict: Verdict, target: Target, encoded: bytes) -> bytes:
        if verdict.status != "valid":
            problems = clean_text("; ".join(verdict.problems))
            unchecked = verdict.status == "unchecked"
            what = "could not be checked against" if unchecked else "break"
            raise InvalidArgumentsError(
                f"the arguments of {target.name} {what} its input schema: {problems}",
                server=self.task.name,
                tool=self.tool,
                code="schema_unchecked" if unchecked else None,
            )

        self._valid = (encoded, target.digest or "")
        return encoded

    def _found_again(self, target: Target) -> Target:
        now = self._found() or self._look_up()
        if now.digest != target.digest:
            raise PinMismatchError(
                f"{now.name} changed while the call waited", server=self.task.name, tool=self.tool, code="pin_changed"
            )

        return now

    def _params(self) -> dict[str, Any]:
        return {"name": self.tool}

    def _headers(self, target: Target, arguments_json: bytes) -> dict[str, str]:
        assert target.facts is not None
        mapping = self._gate.header_map(target.facts)
        return header_parameters(mapping, json.loads(arguments_json)) if mapping else {}

    def _shown(self, target: Target) -> Any:
        if self._handle is not None:
            return self._handle

        assert target.facts is not None
        task = self.task
        return make_handle(
            target.facts, findings=target.findings, generation=task.generation, load=task.load, caller=self._caller
        )


def _decoded(encoded: bytes) -> Any:
    """What we encoded ourselves. The fast reader refuses lone surrogates and deep nesting, which arguments may hold."""
    try:
        return from_json(encoded)
    except ValueError:
        return json.loads(encoded)


def capability_effects(spec: Server, method: str) -> Effects:
    """How a resource or a prompt is judged: read-only and open-world, unless the host says otherwise."""
    declared = {"readOnlyHint": True, "openWorldHint": True}
    return read_annotations(declared, host=spec.annotations.get(method, {}), trusted=True).effects


class CapabilityCall(Call):
    """Reading a resource or getting a prompt: over a fixed allowlist, judged as read-only and open-world.

    The host's `annotations` may say otherwise, under the call's own method name.
    """

    @property
    def _allowlist(self) -> tuple[str, ...]:
        raise NotImplementedError

    async def _route(self) -> Target:
        if self.tool not in self._allowlist:
            raise NotAllowlistedError(
                f"server {self.task.name!r} allows no {self._noun} {clean_line(str(self.tool), 120)!r}; "
                f"name it in the server's {self._noun}s",
                near=near_names(str(self.tool), self._allowlist),
                server=self.task.name,
                tool=self.tool,
                code="not_allowlisted",
            )

        name = self._handle.name if self._handle is not None else self.method
        return Target(name=name, effects=capability_effects(self.task.spec, self.method), findings=(), digest=None)

    _noun = ""

    def _found_again(self, target: Target) -> Target:
        refusal = self.task.listing.refused.get(named(self._kind, self.tool))
        if refusal is not None:
            raise refused_error(self.task, self.tool, refusal)

        return target

    _kind: Named

    def _wire_arguments(self, arguments_json: bytes) -> bytes | None:
        return None


class ResourceCall(CapabilityCall):
    """A `resources/read`; `tool` is the URI."""

    def _checked(self, target: Target) -> bytes | None:
        encoded = self._given()
        if json.loads(encoded) != {"uri": self.tool}:
            # An approver edited it. Another URI is another call, to be made and judged as one.
            raise InvalidArgumentsError(
                f"reading {clean_line(self.tool, 120)!r} was approved with other arguments; call again with those",
                server=self.task.name,
                tool=self.tool,
            )

        return encoded

    method = "resources/read"
    _noun = "resource"
    _kind = "resources"

    @property
    def _allowlist(self) -> tuple[str, ...]:
        return self.task.spec.resources

    def _params(self) -> dict[str, Any]:
        return {"uri": self.tool}


class PromptCall(CapabilityCall):
    """A `prompts/get`; `tool` is the prompt's name."""

    method = "prompts/get"
    _noun = "prompt"
    _kind = "prompts"

    @property
    def _allowlist(self) -> tuple[str, ...]:
        return self.task.spec.prompts

    def _checked(self, target: Target) -> bytes | None:
        encoded = self._given()
        if not all(isinstance(value, str) for value in json.loads(encoded).values()):
            raise InvalidArgumentsError(
                f"the arguments of prompt {clean_line(self.tool, 80)!r} must all be strings",
                server=self.task.name,
                tool=self.tool,
            )

        return encoded

    def _params(self) -> dict[str, Any]:
        return {"name": self.tool}

    def _wire_arguments(self, arguments_json: bytes) -> bytes | None:
        # A server that knows no arguments of it may refuse an empty object.
        return None if arguments_json == b"{}" else arguments_json
