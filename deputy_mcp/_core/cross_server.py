"""What only shows when the tools of several servers are laid side by side: names that are equal, alike, or borrowed.

One server's text says nothing of it, so the scanner of texts cannot find it. The rules:
- the same name on two servers is usual (a note: a model may take one for the other);
- a name that reads like another server's and is not it poses as it (a flag, on both: nothing says which came first);
- on request (`shadowing`), a text that names another server's tool is a flag: it could steer how that one is used.
"""

import functools
import re
from collections.abc import Iterable, Mapping

from deputy_mcp._core.annotations import Finding
from deputy_mcp._core.catalog import ToolFacts
from deputy_mcp._core.scanning.folding import fold

SHORTEST_BORROWED = 4
"""Characters of a tool's name below which naming it is no sign of anything."""

USUAL_NAME = 128
"""Names up to this length are remembered: at each listing all servers' are compared."""

_SEPARATORS = re.compile(r"[^a-z0-9]+")
_TWINS = str.maketrans({"0": "o", "1": "l", "i": "l", "5": "s"})
_IDENTIFIER = re.compile(r"\w[\w-]*")

Pair = tuple[str, str]
"""A server and the wire name of a tool."""


def compare_servers(servers: Mapping[str, Iterable[ToolFacts]], *, shadowing: bool) -> dict[Pair, tuple[Finding, ...]]:
    """The findings on tools that come from what other servers offer; pairs without one are left out."""
    tools = [facts for offered in servers.values() for facts in offered]
    found: dict[Pair, list[Finding]] = {}
    by_skeleton: dict[str, list[ToolFacts]] = {}
    for facts in tools:
        by_skeleton.setdefault(_skeleton(facts.tool), []).append(facts)

    for alike in by_skeleton.values():
        if any(facts.server != alike[0].server for facts in alike):
            for facts, finding in _compare_names(alike):
                found.setdefault((facts.server, facts.tool), []).append(finding)

    if shadowing:
        for pair, finding in _borrowed(tools):
            found.setdefault(pair, []).append(finding)

    return {pair: tuple(findings) for pair, findings in found.items()}


def _skeleton(name: str) -> str:
    """What a reader takes a name for: look-alikes as one letter, no case, no separators."""
    return _usual_skeleton(name) if len(name) <= USUAL_NAME else _read_skeleton(name)


@functools.lru_cache(maxsize=8192)
def _usual_skeleton(name: str) -> str:
    return _read_skeleton(name)


def _read_skeleton(name: str) -> str:
    return _SEPARATORS.sub("", fold(name).lower()).translate(_TWINS).replace("rn", "m").replace("vv", "w")


def _compare_names(alike: Iterable[ToolFacts]) -> Iterable[tuple[ToolFacts, Finding]]:
    """The finding on each of several tools that read alike, of at least two servers; of those the first is named."""
    words = [(facts, _words(facts.tool)) for facts in alike]
    spelled: dict[str, set[str]] = {}
    for facts, spelling in words:
        spelled.setdefault(facts.server, set()).add(spelling)

    # Not each with each: a server may offer thousands of names that read alike.
    servers = sorted(spelled.items())
    for facts, spelling in words:
        others = [(server, spellings) for server, spellings in servers if server != facts.server]
        imitated = next((server for server, spellings in others if spellings != {spelling}), None)
        if imitated is not None:
            message = f"its name reads like a tool of server {imitated!r} and is not the same"
            yield facts, Finding("name_imitated", severity="flag", place="/name", message=message)
        else:
            message = f"server {others[0][0]!r} has a tool of this name"
            yield facts, Finding("name_shared", severity="note", place="/name", message=message)


def _words(name: str) -> str:
    """A name without what differs by style alone: `readFile`, `read-file` and `read_file` are one."""
    return re.sub(r"[_\-./\s]+", "", name).lower()


def _borrowed(tools: list[ToolFacts]) -> Iterable[tuple[Pair, Finding]]:
    owners: dict[str, set[str]] = {}
    for facts in tools:
        for name in (facts.tool, facts.name):
            if len(name) >= SHORTEST_BORROWED:
                owners.setdefault(name, set()).add(facts.server)

    for facts in tools:
        for place, text in (("/title", facts.title or ""), ("/description", facts.description)):
            others = [owners[word] for word in _IDENTIFIER.findall(text) if word in owners]
            # A name that it has itself is its own to speak of.
            named = sorted({owner for found in others if facts.server not in found for owner in found})
            if named:
                message = f"it names a tool of server {named[0]!r}"
                yield (
                    (facts.server, facts.tool),
                    Finding("shadowing", severity="flag", place=place, message=message),
                )
