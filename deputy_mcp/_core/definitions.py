"""Allowed prompts and resources compared with their pins.

They are called by a name that the host wrote down, so a listing cannot add one; what it can do is say something else
of one than it said when it was pinned. Whoever was not listed then has nothing said of him, and that is pinned too:
one that appears later is unknown.
"""

from collections.abc import Collection, Mapping, Sequence

from attrs import frozen

from deputy_mcp._core.catalog import Refusal
from deputy_mcp._core.frozen import FrozenMapping
from deputy_mcp._core.pinning import (
    NotCanonicalError,
    Pinned,
    changed_members,
    definition_digest,
    describe_difference,
)


@frozen(kw_only=True)
class DefinitionVetting:
    """The outcome for one kind."""

    pins: Mapping[str, Pinned]
    """Those given, or what a first listing says of the allowed ones."""
    refused: Mapping[str, Refusal]
    """By name or URI."""


def vet_definitions(
    entries: Sequence[object], key: str, allowed: Collection[str], pins: Mapping[str, Pinned] | None
) -> DefinitionVetting:
    """Judge the listed definitions of what is allowed; `key` names them. `pins` None: they are pinned now."""
    found: dict[str, Pinned] = {}
    refused: dict[str, Refusal] = {}
    for raw in entries:
        name = raw.get(key) if isinstance(raw, dict) else None
        if not isinstance(raw, dict) or not isinstance(name, str) or name not in allowed:
            continue

        try:
            pinned = Pinned(digest=definition_digest(raw), raw=raw)
        except NotCanonicalError as error:
            refused[name] = Refusal(code="not_canonical", reason=str(error))
            continue

        if name in found and found[name].digest != pinned.digest:
            refused[name] = Refusal(code="duplicate_name", reason="the listing holds two different ones of this name")

        found[name] = pinned

    if pins is None:
        first = {name: pinned for name, pinned in found.items() if name not in refused}
        return DefinitionVetting(pins=FrozenMapping(first), refused=FrozenMapping(refused))

    for name in allowed:
        refusal = _compare(pins.get(name), found.get(name))
        if refusal is not None:
            refused.setdefault(name, refusal)

    return DefinitionVetting(pins=pins, refused=FrozenMapping(refused))


def _compare(pinned: Pinned | None, now: Pinned | None) -> Refusal | None:
    if pinned is None:
        why = "it was not listed when the server was pinned"
        return None if now is None else Refusal(code="pin_unknown", reason=why, raw=now.raw)

    if now is None:
        return Refusal(code="pin_gone", reason="the server no longer lists it")

    if pinned.digest == now.digest:
        return None

    return Refusal(
        code="pin_changed",
        reason=f"its definition is not the one that was pinned; changed: {changed_members(pinned.raw, now.raw)}",
        difference=describe_difference(pinned.raw, now.raw),
        raw=now.raw,
    )
