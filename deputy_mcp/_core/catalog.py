"""From a raw listing to the tools an agent may hold, and the names it holds them by.

The rules:
- a listing survives a bad entry: that tool is refused with its reason, the others stay;
- only what the allowlist names is taken; what was never pinned is unknown and refused, however harmless it looks
  (a server must not widen what is allowed by listing more);
- a name that two definitions claim is refused for both: nothing could choose between them;
- a public name is computed from (server, tool) alone and is routed by table, never by cutting it.
"""

import hashlib
import marshal
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from attrs import evolve, field, frozen

from deputy_mcp._core.annotations import Effects, Finding, read_annotations
from deputy_mcp._core.frozen import FrozenMapping
from deputy_mcp._core.pinning import (
    NotCanonicalError,
    Pinned,
    PinVerdict,
    changed_members,
    compare_pin,
    describe_difference,
    tool_digest,
)
from deputy_mcp._core.sanitizing import UncleanSchemaError, clean_line, clean_schema, clean_text, cut_text
from deputy_mcp._core.scanning import scan_tool
from deputy_mcp._core.schema_cost import check_input_schema

LONGEST_PUBLIC_NAME = 64
"""Providers take names of `^[a-zA-Z0-9_-]{1,64}$`."""

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_ODD = re.compile(r"[^A-Za-z0-9_-]+")


def public_name(server: str, tool: str) -> str:
    """The name under which a model sees a tool. Pure, so that it can be computed before any server was started.

    `server__tool` where both are plain and it fits; otherwise cleaned, cut, and ended by eight hex digits of SHA-256
    over the pair, so that no two pairs share a name by being cleaned alike.
    """
    name = f"{server}__{tool}"
    if _is_plain(server) and _is_plain(tool) and len(name) <= LONGEST_PUBLIC_NAME:
        return name

    pair = f"{server}\0{tool}".encode("utf-8", "surrogatepass")
    ending = "_" + hashlib.sha256(pair).hexdigest()[:8]
    return _ODD.sub("_", name)[: LONGEST_PUBLIC_NAME - len(ending)] + ending


def _is_plain(part: str) -> bool:
    whole = _PLAIN.fullmatch(part) is not None
    return whole and "__" not in part and not part.startswith("_") and not part.endswith("_")


@frozen(kw_only=True)
class Refusal:
    """Why one tool of a listing is not offered."""

    code: str
    reason: str
    """Reaches whoever calls it, a model too."""
    difference: str = ""
    """For a changed pin, and for people: holds the server's text, clean."""
    raw: Mapping[str, Any] | None = field(default=None, repr=False)
    """What the server offers instead, for a person who may accept it."""


@frozen(kw_only=True)
class ToolFacts:
    """One vetted tool: what the server said of it, and how we read it."""

    server: str
    tool: str
    """The name on the wire."""
    name: str
    """The public name."""
    title: str | None
    description: str
    input_schema: Mapping[str, Any]
    """Clean: what a model may see. Validation uses `raw`."""
    output_schema: Mapping[str, Any] | None
    annotations: Mapping[str, Any]
    """As declared."""
    missing_annotations: tuple[str, ...]
    effects: Effects
    findings: tuple[Finding, ...]
    digest: str
    accepted: frozenset[str]
    """Codes of findings that a person accepted; those are notes now."""
    raw: Mapping[str, Any] = field(repr=False)
    """The tool as it came over the wire."""


@frozen(kw_only=True)
class Vetting:
    """The outcome of vetting one listing."""

    tools: Mapping[str, ToolFacts]
    """By wire name, in the listing's order."""
    refused: Mapping[str, Refusal]
    """By wire name; `#3` for the fourth entry when it has no usable name."""
    pins: Mapping[str, Pinned]
    """The pins to hold from now on: those given, or every well-formed tool of a first listing."""
    missing: tuple[str, ...] = ()
    """Allowlisted names that the listing does not offer at all. At a first vetting this quarantines the server."""
    entries: "Entries" = field(factory=lambda: Entries(), repr=False)
    """What it was made of: what is the same again is not measured again."""


EntryCheck = Callable[[Mapping[str, Any]], Refusal | None]


@frozen(kw_only=True)
class Entries:
    """The entries of a listing, and what each was found to be."""

    raw: Sequence[object] = ()
    texts: Sequence[bytes] = ()
    """By which an entry is known again; see `listing_texts`."""
    outcomes: Mapping[bytes, str | Refusal] = field(factory=dict)
    """By text: the digest, or why it is not well-formed."""
    entry_check: EntryCheck | None = None
    """That it was asked, too."""


_NOTHING = Vetting(tools={}, refused={}, pins={})


def vet_listing(
    server: str,
    entries: Sequence[object],
    *,
    allowlist: Collection[str] | None,
    pins: Mapping[str, Pinned] | None,
    host_annotations: Mapping[str, Mapping[str, bool]],
    trusted: bool,
    max_description_bytes: int,
    ignored: Mapping[str, Sequence[str]] = FrozenMapping(),
    known: Vetting | None = None,
    entry_check: EntryCheck | None = None,
    texts: Sequence[bytes] = (),
) -> Vetting:
    """Judge one complete listing. `pins` None: this is the server's first, and it is pinned.

    `ignored`: per tool, the JSON pointers that its pin leaves out. `known`: an earlier vetting by the same rules; a
    tool that is still the same is not read again. `texts`: their `listing_texts`, where that was asked before.
    """
    known = known or _NOTHING
    texts = texts or listing_texts(entries)
    before = known.entries.outcomes if known.entries.entry_check is entry_check else {}
    outcomes: dict[bytes, str | Refusal] = {}
    well_formed, refused = _well_formed(entries, texts, ignored, entry_check, before, outcomes)
    # The pin's digest is over the whole definition: what is left out is the host's to change his mind about.
    pinned: Mapping[str, Pinned] = (
        pins
        if pins is not None
        else FrozenMapping(
            {
                name: Pinned(digest=tool_digest(raw) if name in ignored else digest, raw=raw)
                for name, (raw, digest) in well_formed.items()
            }
        )
    )
    allowed = well_formed.keys() if allowlist is None else frozenset(allowlist)
    tools: dict[str, ToolFacts] = {}
    for name, (raw, digest) in well_formed.items():
        if name not in allowed:
            continue

        pin = pinned.get(name)
        facts = known.tools.get(name)
        if facts is not None and facts.digest == digest and known.pins.get(name) is pin:
            tools[name] = facts
            continue

        accepted = pin.accepted if pin is not None else frozenset()
        judged: ToolFacts | Refusal | None = _check_pin(name, raw, digest, pin, ignored.get(name, ()))
        if judged is None and facts is not None and (facts.digest, facts.accepted) == (digest, accepted):
            judged = facts

        judged = judged or _read_tool(
            server,
            raw,
            digest,
            accepted=accepted,
            host=host_annotations.get(name, {}),
            trusted=trusted,
            max_description_bytes=max_description_bytes,
        )
        if isinstance(judged, Refusal):
            refused[name] = judged
        else:
            tools[name] = judged

    for name in pinned:
        if name not in well_formed and name not in refused and (allowlist is None or name in allowed):
            refused[name] = _GONE

    offered = {*well_formed, *refused}
    return Vetting(
        tools=FrozenMapping(tools),
        refused=FrozenMapping(refused),
        pins=pinned,
        missing=tuple(name for name in allowlist or () if name not in offered),
        entries=Entries(raw=entries, texts=texts, outcomes=outcomes, entry_check=entry_check),
    )


_GONE = Refusal(code="pin_gone", reason="the server no longer offers it")


def listing_texts(entries: Sequence[object], known: Vetting | None = None) -> list[bytes]:
    """By what each entry is known again, which differs wherever anything does; empty for one that is known by nothing.

    `known`: an earlier vetting whose objects nobody changes; the identical ones are looked for first.
    """
    before = (known or _NOTHING).entries
    by_object = {id(raw): text for raw, text in zip(before.raw, before.texts, strict=True)}
    return [by_object.get(id(raw)) or _text_hash(raw) for raw in entries]


def _well_formed(
    entries: Sequence[object],
    texts: Sequence[bytes],
    ignored: Mapping[str, Sequence[str]],
    entry_check: EntryCheck | None,
    before: Mapping[bytes, str | Refusal],
    outcomes: dict[bytes, str | Refusal],
) -> tuple[dict[str, tuple[Mapping[str, Any], str]], dict[str, Refusal]]:
    good: dict[str, tuple[Mapping[str, Any], str]] = {}
    refused: dict[str, Refusal] = {}
    for i, (raw, key) in enumerate(zip(entries, texts, strict=True)):
        name = raw.get("name") if isinstance(raw, dict) else None
        if not isinstance(raw, dict) or not isinstance(name, str) or not name:
            refused[f"#{i}"] = Refusal(code="malformed_tool", reason="the entry is no object with a name")
            continue

        outcome = before.get(key) if key else None
        if outcome is None:
            outcome = _digest_or_refusal(raw, ignored.get(name, ()))

            if entry_check is not None and isinstance(outcome, str):
                outcome = _check_entry(raw, entry_check) or outcome

        if key:
            outcomes[key] = outcome

        if isinstance(outcome, Refusal):
            good.pop(name, None)
            refused[name] = outcome
        elif name in good and good[name][1] != outcome:
            del good[name]
            refused[name] = Refusal(code="duplicate_name", reason="the listing holds two different tools of this name")
        elif name not in refused:
            good[name] = (raw, outcome)

    return good, refused


def _text_hash(entry: Any) -> bytes:
    # Not by `==`, to which 1, 1.0 and True are one. This tells them apart, at a third of the cost of JSON.
    try:
        return hashlib.sha256(marshal.dumps(entry, WITHOUT_REFERENCES)).digest()
    except ValueError:
        return b""


WITHOUT_REFERENCES = 2
"""The version of the encoding that depends on the value alone, and not on which of its parts are one object."""


def _digest_or_refusal(raw: Mapping[str, Any], ignored: Sequence[str]) -> str | Refusal:
    try:
        return _check_shape(raw) or tool_digest(raw, ignored)
    except NotCanonicalError as error:
        return Refusal(code="not_canonical", reason=str(error))
    except RecursionError:
        return _TOO_DEEP


_TOO_DEEP = Refusal(code="malformed_tool", reason="it is nested too deeply")


def _check_entry(raw: Mapping[str, Any], entry_check: EntryCheck) -> Refusal | None:
    try:
        return entry_check(raw)
    except RecursionError:
        return _TOO_DEEP


def _check_shape(raw: Mapping[str, Any]) -> Refusal | None:
    name = raw["name"]
    if clean_text(name) != name or "\n" in name or "\t" in name:
        return Refusal(code="unclean_name", reason=f"its name holds characters that hide: {clean_line(name)}")

    for key in ("title", "description"):
        if raw.get(key) is not None and not isinstance(raw[key], str):
            return Refusal(code="malformed_tool", reason=f"its {key} is no text")

    problem = check_input_schema(raw.get("inputSchema"))
    if problem is not None:
        return Refusal(code="malformed_schema", reason=f"its inputSchema cannot be used: {problem}")

    return None


def _check_pin(
    name: str, raw: Mapping[str, Any], digest: str, pinned: Pinned | None, ignored: Sequence[str]
) -> Refusal | None:
    before = None if pinned is None else tool_digest(pinned.raw, ignored) if ignored else pinned.digest
    verdict = compare_pin(before, digest)
    if verdict is PinVerdict.SAME:
        return None

    if pinned is None:
        return Refusal(code="pin_unknown", reason="it was not there when the server was pinned", raw=raw)

    return Refusal(
        code="pin_changed",
        reason=f"its definition is not the one that was pinned; changed: {changed_members(pinned.raw, raw)}",
        difference=describe_difference(pinned.raw, raw),
        raw=raw,
    )


def _read_tool(
    server: str,
    raw: Mapping[str, Any],
    digest: str,
    *,
    accepted: frozenset[str],
    host: Mapping[str, bool],
    trusted: bool,
    max_description_bytes: int,
) -> ToolFacts | Refusal:
    tool = raw["name"]
    declared = raw.get("annotations")
    said = raw.get("description") or ""
    reading = read_annotations(declared, host=host, trusted=trusted, name=tool, description=said)
    output = raw.get("outputSchema")
    findings = (*reading.findings, *scan_tool(raw))
    if output is not None and not isinstance(output, dict):
        findings = (
            *findings,
            Finding("output_schema_ignored", severity="warn", place="/outputSchema", message="it is no object"),
        )
        output = None

    try:
        input_schema = clean_schema(raw["inputSchema"])
        output_schema = None if output is None else clean_schema(output)
    except (UncleanSchemaError, RecursionError) as error:
        return Refusal(code="unclean_schema", reason=f"cleaning would change what callers must send: {error}")

    return ToolFacts(
        server=server,
        tool=tool,
        name=public_name(server, tool),
        title=None if raw.get("title") is None else cut_text(clean_text(raw["title"]), max_description_bytes),
        description=cut_text(clean_text(said), max_description_bytes),
        input_schema=input_schema,
        output_schema=output_schema,
        annotations=declared if isinstance(declared, dict) else {},
        missing_annotations=reading.missing,
        effects=reading.effects,
        findings=accepted_as_notes(findings, accepted),
        digest=digest,
        accepted=accepted,
        raw=raw,
    )


def accepted_as_notes(findings: Iterable[Finding], accepted: Collection[str]) -> tuple[Finding, ...]:
    """What a person accepted asks no more, and stays visible."""
    if not accepted:
        return tuple(findings)

    return tuple(evolve(one, severity="note") if one.code in accepted else one for one in findings)
