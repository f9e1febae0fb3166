"""What the outside sees of a connection: snapshots of its servers, and what happens to them as events."""

from collections import deque
from collections.abc import Mapping
from typing import Any

import anyio
import attrs
from attrs import field, frozen

from deputy_mcp._core.frozen import FrozenMapping
from deputy_mcp._core.lifecycle import ServerState
from deputy_mcp._core.sanitizing import clean_line, mask_secrets, masked_line
from deputy_mcp._runtime.server import ServerTask

MOST_EVENTS = 1_000
"""Events kept for a reader who is slow; then the oldest are dropped, and he is told how many."""


@frozen(kw_only=True)
class ConnectionEvent:
    """Something that happened, for `events()`.

    `kind`: `state`, `listing`, `warning` or `dropped` (then `facts["count"]` events were lost to a slow reader).
    """

    kind: str
    server: str | None
    facts: Mapping[str, Any]


@frozen(kw_only=True)
class ServerStatus:
    """A snapshot of one server; taken without IO."""

    name: str
    state: ServerState
    reason: str | None
    """Why it stands where it stands, for a person."""
    since: float
    """When it came there, in the event loop's monotonic seconds."""
    generation: int
    """Sessions so far."""
    protocol_version: str | None
    server_info: Mapping[str, Any] | None
    pid: int | None
    tools: int
    """How many tools are offered."""
    refused: Mapping[str, tuple[str, str]]
    """Tool → code and reason."""
    restarts: int
    calls_in_flight: int
    awaiting_approval: int
    bytes_in: int
    bytes_out: int
    stderr_tail: str = field(repr=False)
    last_error: str | None
    exit_code: int | None
    """Of the latest process that ended; negative: the signal."""


def snapshot(task: ServerTask, tools: int) -> ServerStatus:
    """Where a server stands now. No IO."""
    bytes_in, bytes_out = task.traffic
    link = task.link
    ending = task.life.ending
    refused = dict(task.listing.vetting.refused) if task.listing.vetting is not None else {}
    refused |= task.listing.refused
    shown = {name: (refusal.code, mask_secrets(refusal.reason, task.secrets)) for name, refusal in refused.items()}
    for tool in task.collisions:
        shown[tool] = ("name_collision", "another tool has the same public name")

    return ServerStatus(
        name=task.name,
        state=task.state,
        reason=(ending.detail or ending.code) if ending is not None else None,
        since=task.life.since,
        generation=task.generation,
        protocol_version=task.protocol_version,
        server_info=_clean_values(task.server_info, task.secrets),
        pid=link.pid if link is not None else None,
        tools=tools,
        refused=FrozenMapping(shown),
        restarts=task.life.restarts,
        calls_in_flight=len(task.requests.calls),
        awaiting_approval=task.awaiting_approval,
        bytes_in=bytes_in,
        bytes_out=bytes_out,
        stderr_tail=link.stderr_tail if link is not None else task.stderr_tail,
        last_error=task.last_error,
        exit_code=task.exit_code,
    )


def dormant(name: str) -> ServerStatus:
    """The status of a server that was never started."""
    return ServerStatus(
        name=name,
        state=ServerState.DORMANT,
        reason=None,
        since=0.0,
        generation=0,
        protocol_version=None,
        server_info=None,
        pid=None,
        tools=0,
        refused=FrozenMapping(),
        restarts=0,
        calls_in_flight=0,
        awaiting_approval=0,
        bytes_in=0,
        bytes_out=0,
        stderr_tail="",
        last_error=None,
        exit_code=None,
    )


def _clean_values(value: Any, secrets: tuple[str, ...]) -> Any:
    """A server's own words about itself, which go to terminals and logs."""
    if isinstance(value, str):
        return masked_line(value, secrets)

    if isinstance(value, Mapping):
        return {clean_line(key): _clean_values(item, secrets) for key, item in value.items()}

    return [_clean_values(item, secrets) for item in value] if isinstance(value, list) else value


@attrs.define(eq=False)
class EventReader:
    """One reader of events: a bounded queue that says what it lost."""

    queue: deque[ConnectionEvent] = attrs.field(factory=deque)
    dropped: int = 0
    ended: bool = False
    arrived: anyio.Event = attrs.field(factory=anyio.Event)

    def put(self, event: ConnectionEvent) -> None:
        if len(self.queue) >= MOST_EVENTS:
            self.queue.popleft()
            self.dropped += 1

        self.queue.append(event)
        self.arrived.set()

    def end(self) -> None:
        self.ended = True
        self.arrived.set()

    async def next(self) -> ConnectionEvent | None:
        while not self.queue and not self.ended:
            self.arrived = anyio.Event()
            await self.arrived.wait()

        if self.dropped:
            count, self.dropped = self.dropped, 0
            return ConnectionEvent(kind="dropped", server=None, facts=FrozenMapping({"count": count}))

        return self.queue.popleft() if self.queue else None
