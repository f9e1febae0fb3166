"""Effects become Allow, Ask or Deny, with a reason code.

Not a gate: nothing is called, asked or sent here, and callbacks are only kept (the gate runs them and hands their
answers to `tighten`). The rules, in the order they are tried:

- A tool on the denylist is denied; so is one that a given allowlist does not name. An empty allowlist denies all.
- Each effect meets its setting: `web` for open-world tools, `write` for tools that are not read-only, `destructive`
  for destructive ones. The strictest wins; at equal strictness the first in that order gives the code.
- A finding of severity `flag` turns Allow into Ask. It never lifts a Deny. So does `taint`, for what may write.
- Combining and narrowing only ever tighten: `a & b` allows what both allow, and nothing else.

A reason names what would have to be granted. It never holds arguments or a server's text, because a model reads it
and a person decides by it.
"""

import functools
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal, Protocol

from attrs import field, frozen

from deputy_mcp._core.annotations import Effects, Finding
from deputy_mcp._core.errors import ConfigError
from deputy_mcp._core.frozen import check_flag, check_texts, wrong_type

Setting = bool | Literal["ask"]
"""False: no. `"ask"`: a person decides each call. True: yes."""


@frozen(kw_only=True)
class Decision:
    """Base of `Allow`, `Ask` and `Deny`; never made by itself.

    A callback may return one with a reason alone: `Deny("not on Sundays")`.
    """

    reason: str = field(kw_only=False)
    """For people: what was decided and, for a Deny, what would have to be granted."""
    code: str = field(default="callback")
    """`allowed`, `tool_denylist`, `tool_allowlist`, `web`, `write`, `destructive`, `finding`, `tainted`,
    `callback`."""


@frozen(kw_only=True)
class Allow(Decision):
    """The call may go out."""

    reason: str = field(default="allowed", kw_only=False)
    code: str = field(default="allowed")


@frozen(kw_only=True)
class Ask(Decision):
    """The call may go out once a person has approved it."""

    reason: str = field(default="can_use_tool asks for approval", kw_only=False)


@frozen(kw_only=True)
class Deny(Decision):
    """The call is refused and nobody is asked."""

    reason: str = field(default="needs the agreement of can_use_tool, which said no", kw_only=False)


CanUseTool = Callable[[Any, Any, Any], object | Awaitable[object]]
"""`(tool, arguments, context)`, sync or async; what its answer means says `tighten`."""


class Judged(Protocol):
    """What `decide` looks at; every handle is one."""

    @property
    def name(self) -> str:
        """The public name, which the lists match exactly."""

    @property
    def effects(self) -> Effects:
        """What the tool may do."""

    @property
    def findings(self) -> Iterable[Finding]:
        """What is odd about it, without what a person has accepted."""


def _check_setting(key: str, value: object) -> None:
    # isinstance, not `in`: 1 equals True, and a number in a configuration is a mistake.
    if not isinstance(value, bool | str):
        wrong_type(key, value, 'False, "ask" or True')

    if isinstance(value, str) and value != "ask":
        raise ConfigError(f'{key} must be False, "ask" or True, not another string', key=key)


def _names(key: str, value: object) -> frozenset[str]:
    if isinstance(value, str):
        raise ConfigError(f'{key} must be a list of tool names, not one string; write ["name"]', key=key)

    return frozenset(check_texts(key, value))


def _allowlist(value: Iterable[str] | None) -> frozenset[str] | None:
    return None if value is None else _names("tool_allowlist", value)


def _denylist(value: Iterable[str]) -> frozenset[str]:
    return _names("tool_denylist", value)


@frozen(kw_only=True, repr=False)
class Permissions:
    """What an agent may do. The default is the floor: only tools that are positively read-only and not open-world."""

    web: Setting = field(default=False)
    """For open-world tools."""
    write: Setting = field(default=False)
    """For tools that are not read-only."""
    destructive: Setting | None = field(default=None)
    """For destructive tools. None: as `write`."""
    tool_allowlist: frozenset[str] | None = field(default=None, converter=_allowlist)
    """Public names, exact. None: any; empty: none."""
    tool_denylist: frozenset[str] = field(default=(), converter=_denylist)
    """Public names, exact. It wins over the allowlist."""
    can_use_tool: CanUseTool | tuple[CanUseTool, ...] | None = field(default=None)
    """Asked by the gate after `decide`, and only able to tighten; a tuple after `&`, all of which are asked."""
    taint: bool = field(default=False)
    """Whether text from the open world was read: then Allow becomes Ask for tools that are not read-only."""

    def __attrs_post_init__(self) -> None:
        _check_setting("web", self.web)
        _check_setting("write", self.write)
        check_flag("taint", self.taint)
        if self.destructive is not None:
            _check_setting("destructive", self.destructive)

        if not all(callable(callback) for callback in self.callbacks):
            wrong_type("can_use_tool", self.can_use_tool, "a callable (tool, arguments, context)")

    @classmethod
    def readonly(cls, web: Setting = False) -> "Permissions":  # noqa: FBT002 - the contract's signature
        """Tools that only read; those that reach the web as `web` says."""
        return cls(web=web)

    @classmethod
    def plan(cls) -> "Permissions":
        """Tools that only read, the web included."""
        return cls(web=True)

    @classmethod
    def standard(cls) -> "Permissions":
        """Tools that only read; a person is asked before a write. No web."""
        return cls(write="ask")

    @classmethod
    def full(cls) -> "Permissions":
        """Everything, for a host that wants no judgement. A finding of severity `flag` still asks."""
        return cls(web=True, write=True, destructive=True)

    @property
    def callbacks(self) -> tuple[CanUseTool, ...]:
        """Every `can_use_tool` that the gate must run, in order."""
        if self.can_use_tool is None:
            return ()

        return self.can_use_tool if isinstance(self.can_use_tool, tuple) else (self.can_use_tool,)

    def decide(self, tool: Judged) -> Allow | Ask | Deny:
        """`Allow`, `Ask` or `Deny` for `tool`. Pure; `can_use_tool` is not asked here."""
        name, effects = tool.name, tool.effects
        if name in self.tool_denylist:
            return Deny(f"{name} is on tool_denylist; it must be taken off", code="tool_denylist")

        if self.tool_allowlist is not None and name not in self.tool_allowlist:
            return Deny(f"{name} needs an entry in tool_allowlist", code="tool_allowlist")

        concerned: list[tuple[str, Setting]] = []
        if effects.open_world:
            concerned.append(("web", self.web))

        if not effects.read_only:
            concerned.append(("write", self.write))

        if effects.destructive:
            concerned.append(("destructive", self._resolved_destructive))

        # All that is lacking, not only the first: else a person grants one and is refused for the next.
        lacking = [key for key, setting in concerned if setting is False]
        if lacking:
            code = lacking[0]
            if self.destructive is None and "write" in lacking and effects.destructive:
                lacking.remove("destructive")  # follows write; granting that is enough

            needs = ", and ".join(f'{key}=True or {key}="ask"' for key in lacking)
            return Deny(f"{name} needs {needs}", code=code)

        asking = [key for key, setting in concerned if setting == "ask"]
        if asking:
            return Ask(f"{name} {_WHY[asking[0]]}, and {asking[0]} is set to ask", code=asking[0])

        flags = sorted({finding.code for finding in tool.findings if finding.severity == "flag"})
        if flags:
            return Ask(f"{name} would be allowed but has the finding {', '.join(flags)}", code="finding")

        if self.taint and not effects.read_only:
            return Ask(f"{name} is not read-only, and text from the open world was read before", code="tainted")

        return _allow(name)

    def __and__(self, other: object) -> "Permissions":
        """What both allow: per setting the stricter, allowlists intersected, denylists united, both callbacks."""
        if not isinstance(other, Permissions):
            return NotImplemented

        callbacks = list(self.callbacks)
        # By identity: an object that calls itself equal to everything would make the other's callback vanish.
        callbacks += [mine for mine in other.callbacks if not any(mine is one for one in callbacks)]
        return Permissions(
            web=_stricter(self.web, other.web),
            write=_stricter(self.write, other.write),
            # Resolved first: None is not a strictness, it means something else on each side.
            destructive=_stricter(self._resolved_destructive, other._resolved_destructive),
            tool_allowlist=_intersection(self.tool_allowlist, other.tool_allowlist),
            tool_denylist=self.tool_denylist | other.tool_denylist,
            can_use_tool=tuple(callbacks) if len(callbacks) > 1 else next(iter(callbacks), None),
            taint=self.taint or other.taint,
        )

    @property
    def _resolved_destructive(self) -> Setting:
        return self.write if self.destructive is None else self.destructive

    def __repr__(self) -> str:
        parts = [f"web={self.web}", f"write={self.write}", f"destructive={self._resolved_destructive}"]
        if self.tool_allowlist is not None:
            parts.append(f"allowlist of {len(self.tool_allowlist)}")

        if self.tool_denylist:
            parts.append(f"denylist of {len(self.tool_denylist)}")

        if self.taint:
            parts.append("tainted")

        if self.callbacks:
            parts.append(f"can_use_tool of {len(self.callbacks)}")

        return f"<Permissions {', '.join(parts)}>"


@functools.lru_cache(maxsize=4096)
def _allow(name: str) -> Allow:
    return Allow(f"{name} is allowed")


_WHY = {"web": "is open-world", "write": "is not read-only", "destructive": "may be destructive"}


def _stricter(one: Setting, other: Setting) -> Setting:
    if one is False or other is False:
        return False

    return "ask" if "ask" in (one, other) else True


def _intersection(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    if one is None or other is None:
        return other if one is None else one

    return one & other


def _strictness(decision: Decision) -> int:
    # What is none of ours counts as the strictest.
    return 0 if isinstance(decision, Allow) else 1 if isinstance(decision, Ask) else 2


def both_permissions(one: Permissions | None, other: Permissions | None) -> Permissions | None:
    """`&` of two of which each may say nothing (None); None when both do."""
    if one is None or other is None:
        return one if other is None else other

    return one & other


def tighten(decision: Allow | Ask | Deny, answer: object) -> Allow | Ask | Deny:
    """`decision` after a callback gave `answer`: never looser than before.

    None and True object to nothing, False denies, `Allow`, `Ask` and `Deny` count where they are stricter. Anything
    else denies: a callback that forgot to return a verdict, or to await one, has not agreed.
    """
    if answer is None or answer is True:
        return decision

    if answer is False:
        verdict: Allow | Ask | Deny = Deny()
    elif isinstance(answer, Allow | Ask | Deny):
        verdict = answer
    else:
        verdict = Deny(
            f"needs a valid answer of can_use_tool: None, True, False, Allow, Ask or Deny, not {type(answer).__name__}",
            code="callback",
        )

    return verdict if _strictness(verdict) > _strictness(decision) else decision


def unmatched_entries(permissions: Permissions, names: Iterable[str]) -> tuple[str, ...]:
    """The entries of both lists that are none of `names` (public names), sorted; each deserves a warning.

    A misspelt entry of the denylist protects nothing, and of the allowlist denies what somebody meant to grant.
    """
    entries = permissions.tool_denylist | (permissions.tool_allowlist or frozenset())
    return tuple(sorted(entries.difference(names)))
