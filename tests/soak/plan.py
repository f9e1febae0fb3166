"""Which servers there are: dealt from the seed; every behaviour is on some server and every run has all roles."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from deputy_mcp import RestartPolicy
from deputy_mcp.testing import (
    Action,
    ScriptedServer,
    fail,
    hang_up,
    junk,
    leave,
    reply,
    respond,
    silence,
    tool,
    write_stderr,
)

from .behaviours import ALWAYS, BEHAVIOURS, HTTP, SSE, STDIO, Behaviour, lists

COUNTS = {STDIO: 12, HTTP: 6, SSE: 2}
HAND = 7
"""Behaviours of one server beside those that all have."""

EAGER = RestartPolicy(
    max_restarts=100_000, window_seconds=60, backoff_initial_seconds=0.02, backoff_max_seconds=0.4, cooldown_seconds=1
)
"""Comes back however often it is lost."""

BRITTLE = RestartPolicy(
    max_restarts=2, window_seconds=20, backoff_initial_seconds=0.02, backoff_max_seconds=0.2, cooldown_seconds=5
)
"""FAILED after a few losses; a person or a later call lets it try again."""

Role = Literal["plain", "brittle", "shy", "lame"]
ROLES: dict[str, tuple[Role, ...]] = {
    STDIO: ("brittle", "brittle", "shy", "lame", "lame"),
    HTTP: ("brittle", "lame"),
    SSE: (),
}
"""What the first servers of each transport are beside their behaviours. `shy`: gives no listing the first time, and
is quarantined. `lame`: its handshakes go wrong for a while."""


@dataclass(frozen=True)
class Planned:
    """One server of a run."""

    name: str
    transport: str
    role: Role
    script: ScriptedServer
    tools: dict[str, Behaviour] = field(repr=False)
    restart: RestartPolicy

    @property
    def options(self) -> dict[str, Any]:
        """The fields of its entry that the plan decides."""
        return {"restart": self.restart}

    def __str__(self) -> str:
        hand = " ".join(name for name in self.tools if name not in (*ALWAYS, "drift", "settle", "moving"))
        return f"{self.name} {self.role} {self.script.era}{' sessions' if self.script.sessions else ''}: {hand}"


def make_plan(seed: int, folder: Path) -> list[Planned]:
    """The twenty servers of this seed, their scripts and ledgers in `folder`."""
    dice = random.Random(f"plan {seed}")
    servers = []
    for transport, count in COUNTS.items():
        hands = _deal(dice, transport, count)
        for index in range(count):
            roles = ROLES[transport]
            role: Role = roles[index] if index < len(roles) else "plain"
            servers.append(_server(dice, f"{transport}{index:02}", transport, role, hands[index], folder))

    return servers


def _deal(dice: random.Random, transport: str, count: int) -> list[tuple[str, ...]]:
    """Everything at least once, then again from the top, until every hand is full; a hand holds nothing twice."""
    pool = [name for name, what in BEHAVIOURS.items() if transport in what.where and name not in ALWAYS]
    size = min(max(HAND, math.ceil(len(pool) / count)), len(pool))
    hands: list[list[str]] = [[] for _ in range(count)]
    cards: list[str] = []
    while any(len(hand) < size for hand in hands):
        cards = cards or dice.sample(pool, len(pool))
        card = cards.pop()
        hand = min((hand for hand in hands if card not in hand), key=len, default=None)
        if hand is not None and len(hand) < size:
            hand.append(card)

    return [(*ALWAYS, *hand) for hand in hands]


def _server(dice: random.Random, name: str, transport: str, role: Role, hand: Sequence[str], folder: Path) -> Planned:
    tools = lists(tuple(hand))
    methods: dict[str, Sequence[Action]] = {}
    if role == "shy":
        methods["tools/list"] = [fail(-32000, "not now"), reply()]
    elif role == "lame":
        methods = _bad_starts(dice, transport)

    at_start = Action()
    if transport == STDIO and dice.random() < 0.3:
        at_start = junk("Welcome! \u2713\n", times=3) + write_stderr("starting\n")

    eras: list[Literal["both", "legacy", "modern"]] = ["both", "legacy", "modern"]
    era = "legacy" if transport == SSE else dice.choice(eras)
    script = ScriptedServer(
        folder,
        name=name,
        tools=[tool(each) for each in tools],
        calls={each: what.turns for each, what in tools.items()},
        methods=methods,
        at_start=at_start,
        era=era,
        page_size=dice.choice([None, None, 3]),
        sessions=transport == HTTP and era != "modern" and dice.random() < 0.8,
    )
    return Planned(name, transport, role, script, tools, BRITTLE if role == "brittle" else EAGER)


def _bad_starts(dice: random.Random, transport: str) -> dict[str, Sequence[Action]]:
    """A dozen handshakes of which half go wrong; afterwards all is well."""
    wrong = [silence(), fail(-32601, "never heard of it"), junk("starting up\n") + reply(), leave(1)]
    if transport != STDIO:
        wrong = [silence(), fail(-32601, "never heard of it"), respond(503), hang_up()]

    def turns() -> list[Action]:
        return [dice.choice(wrong) if dice.random() < 0.5 else reply() for _ in range(12)] + [reply()]

    return {"server/discover": turns(), "initialize": turns(), "tools/list": [*turns()[:6], reply()]}
