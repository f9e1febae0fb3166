"""What only shows when the tools of several servers are laid side by side: names that are equal, alike, or borrowed.

One server's text says nothing of it, so the scanner of texts cannot find it. The rules:
- the same name on two servers is usual (a note: a model may take one for the other);
- a name that reads like another server's and is not it poses as it (a flag, on both: nothing says which came first);
- on request (`shadowing`), a text that names another server's tool is a flag: it could steer how that one is used;
- two tools of one public name are both refused: nothing could choose between them.
"""

import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice

from deputy_mcp._core.annotations import Finding
from deputy_mcp._core.catalog import ToolFacts

SHORTEST_BORROWED = 4
"""Characters of a tool's name below which naming it is no sign of anything."""

USUAL_NAME = 128
"""Names up to this length are remembered: a name that comes and goes is read once."""

_SEPARATORS = re.compile(r"[^a-z0-9]+")
_TWINS = str.maketrans({"0": "o", "1": "l", "i": "l", "5": "s"})
_STYLE = re.compile(r"[_\-./\s]+")
_IDENTIFIER = re.compile(r"\w[\w-]*")

Found = Mapping[str, tuple[Finding, ...]]
"""Findings by the wire name of the tool; tools without one are left out."""


class Neighbours:
    """The tools of all servers, compared as their listings come.

    A listing costs what came or went in it, and what reads like that; with `shadowing`, what all servers offer.
    """

    # Mutable state: what each server offers; of whom each public name is, and who has names of each skeleton; and per
    # server what was found by names, by texts, and which tools' public names are taken twice.
    def __init__(self, *, shadowing: bool) -> None:
        self._shadowing = shadowing
        self._offered: dict[str, dict[str, ToolFacts]] = {}
        self._owners: dict[str, set[tuple[str, str]]] = {}
        self._alike: dict[str, dict[str, set[str]]] = {}
        self._named: defaultdict[str, dict[str, tuple[Finding, ...]]] = defaultdict(dict)
        self._borrowed: Mapping[str, Found] = {}
        self._colliding: defaultdict[str, set[str]] = defaultdict(set)

    def put(self, server: str, tools: Iterable[ToolFacts]) -> set[str]:
        """Take what a server offers from now on; gives the servers of whose tools something else may be found now."""
        before = self._offered.get(server, {})
        now = self._offered[server] = {facts.tool: facts for facts in tools}
        touched = {server}
        if before.keys() != now.keys():
            self._change_owners(server, before, now, touched)
            self._change_alike(server, before.keys(), now.keys(), touched)

        if self._shadowing:
            kept, self._borrowed = self._borrowed, _borrowed(self._offered)
            touched |= {other for other in self._offered if kept.get(other) != self._borrowed.get(other)}

        return touched

    def found(self, server: str) -> Found:
        """The findings on a server's tools that come from what other servers offer."""
        named, borrowed = self._named[server], self._borrowed.get(server, {})
        return {tool: (*named.get(tool, ()), *borrowed.get(tool, ())) for tool in {**named, **borrowed}}

    def colliding(self, server: str) -> frozenset[str]:
        """The wire names of a server's tools whose public names other tools have, too."""
        return frozenset(self._colliding[server])

    def _change_owners(
        self, server: str, before: Mapping[str, ToolFacts], now: Mapping[str, ToolFacts], touched: set[str]
    ) -> None:
        for tool in before.keys() ^ now.keys():
            public = (now.get(tool) or before[tool]).name
            owners = self._owners.pop(public, set())
            # Also of whom it is no longer.
            for owner, name in {*owners, (server, tool)}:
                self._colliding[owner].discard(name)
                touched.add(owner)

            owners ^= {(server, tool)}
            if owners:
                self._owners[public] = owners

            if len(owners) > 1:
                for owner, name in owners:
                    self._colliding[owner].add(name)

    def _change_alike(self, server: str, before: Iterable[str], now: Iterable[str], touched: set[str]) -> None:
        was, mine = _by_skeleton(before), _by_skeleton(now)
        for skeleton in was.keys() | mine.keys():
            if was[skeleton] == mine[skeleton]:
                continue

            alike = self._alike.pop(skeleton, {})
            for tool in alike.pop(server, ()):
                self._named[server].pop(tool, None)

            if mine[skeleton]:
                alike[server] = mine[skeleton]

            if alike:
                self._alike[skeleton] = alike

            for other, tool, found in _compare_names(alike):
                named = self._named[other]
                # One finding on one server is one object, so that what is not new is seen without a look into it.
                if named.get(tool) is not found:
                    touched.add(other)
                    if found is None:
                        del named[tool]
                    else:
                        named[tool] = found


def _by_skeleton(names: Iterable[str]) -> defaultdict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name in names:
        found[_read(name)[0]].add(name)

    return found


def _read(name: str) -> tuple[str, str]:
    """What a reader takes a name for (look-alikes as one letter, no case, no separators), and how it is spelled.

    The spelling is without what differs by style alone: `readFile`, `read-file` and `read_file` are one.
    """
    return _read_usual(name) if len(name) <= USUAL_NAME else _read_any(name)


@functools.lru_cache(maxsize=8192)
def _read_usual(name: str) -> tuple[str, str]:
    return _read_any(name)


def _read_any(name: str) -> tuple[str, str]:
    from deputy_mcp._core.scanning.folding import fold  # here: its tables are the scanner's, which is loaded when used

    skeleton = _SEPARATORS.sub("", fold(name).lower()).translate(_TWINS).replace("rn", "m").replace("vv", "w")
    return skeleton, _STYLE.sub("", name).lower()


def _compare_names(alike: Mapping[str, Iterable[str]]) -> Iterable[tuple[str, str, tuple[Finding, ...] | None]]:
    """Server, tool and finding of each of several tools that read alike; None where only one server has such."""
    spelled = {server: {_read(tool)[1] for tool in tools} for server, tools in alike.items()}
    servers = sorted(spelled)
    # Not each with each: a server may offer thousands of names that read alike.
    differing: dict[str, list[str]] = {}
    for server, tools in alike.items():
        for tool in tools:
            spelling = _read(tool)[1]
            if spelling not in differing:
                differing[spelling] = list(islice((one for one in servers if spelled[one] != {spelling}), 2))

            imitated = [one for one in differing[spelling] if one != server]
            shared = [one for one in servers[:2] if one != server]
            yield (
                server,
                tool,
                _imitates(imitated[0]) if imitated and shared else _shares(shared[0]) if shared else None,
            )


@functools.lru_cache(maxsize=1024)
def _imitates(server: str) -> tuple[Finding, ...]:
    message = f"its name reads like a tool of server {server!r} and is not the same"
    return (Finding("name_imitated", severity="flag", place="/name", message=message),)


@functools.lru_cache(maxsize=1024)
def _shares(server: str) -> tuple[Finding, ...]:
    return (
        Finding("name_shared", severity="note", place="/name", message=f"server {server!r} has a tool of this name"),
    )


def _borrowed(offered: Mapping[str, Mapping[str, ToolFacts]]) -> dict[str, dict[str, tuple[Finding, ...]]]:
    tools = [facts for own in offered.values() for facts in own.values()]
    owners: dict[str, set[str]] = {}
    for facts in tools:
        for name in (facts.tool, facts.name):
            if len(name) >= SHORTEST_BORROWED:
                owners.setdefault(name, set()).add(facts.server)

    found: dict[str, dict[str, tuple[Finding, ...]]] = {}
    for facts in tools:
        for place, text in (("/title", facts.title or ""), ("/description", facts.description)):
            others = [owners[word] for word in _IDENTIFIER.findall(text) if word in owners]
            # A name that it has itself is its own to speak of.
            named = sorted(
                {owner for found_owners in others if facts.server not in found_owners for owner in found_owners}
            )
            if named:
                message = f"it names a tool of server {named[0]!r}"
                finding = Finding("shadowing", severity="flag", place=place, message=message)
                mine = found.setdefault(facts.server, {})
                mine[facts.tool] = (*mine.get(facts.tool, ()), finding)

    return found
