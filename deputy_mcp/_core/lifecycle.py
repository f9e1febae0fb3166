"""One server's life as a value: states, events, the table between them, the restart window and the backoff.

Not a supervisor: nothing here starts, waits or kills. `_runtime.server` acts, says what happened and when, and gets
the next value. It promises that a process is never forgotten (only `closed` leaves a state that owns one), that only
a finished vetting serves calls, that `stop` always wins, and that a dying server is started at most `max_restarts`
times within any `window_seconds`, ever more slowly.
"""

# Laws of this file
# =================
#
# 1. Everything that decides where a server goes next lives here: first in the tables; what does not fit them, in
#    `verdict`, `Lifecycle.can` and `Lifecycle.step`. Whoever asks "may it?" outside asks `can`. The file is as long as
#    a file may be and is not split: half of it is prose and table, and the code makes no sense away from them.
#
# 2. This file knows no transport. A process, a pipe and an HTTP session start, are vetted, end and are closed alike.
#
# 3. No clock and no dice: `now` (monotonic seconds, any origin, never running backwards) and `jitter` are handed in.
#    An event is the caller's word that something happened: `elapsed` that `resume_at` has passed, `cooled` that a
#    call came after `cooled_at`. It is not checked again.
#
# 4. An illegal event changes nothing. Events cross (a child exits while we stop it, two tasks stop it at once); the
#    one that comes too late is no mistake. Callers who owe somebody an error ask `can` first.
#
# Theory
# ======
#
# Ending takes two events, because it takes time: `ended`, `stop` or `reload` enters CLOSING with a reason, `closed`
# says that nothing is left of the process, and the verdict over the reason says where to go. While it is CLOSING the
# reason can change: `stop` replaces any (somebody asked for quiet, after whatever else was going on), `reload`
# replaces a loss only. It does not replace a refusal, else a reload at the right moment would get round a
# quarantine; nor a stop. A reload that comes too late for that is legal again as soon as the server is STOPPED.
#
# Two memories judge a server that keeps dying, and they are separate:
#
# - `restart_times`, the window. OTP's rule: a restart that would be one more than `max_restarts` within
#   `window_seconds` is not made; the server is FAILED. Only time empties the window. A handshake does not, or a server
#   that starts, greets and dies would be restarted for ever. What counts is the moment of the start, not of the loss
#   before the wait. A `start` during the wait cuts it short and counts like `elapsed`: it is the same restart, earlier,
#   and a caller that starts whatever is down must not get round the limit. A `reload` counts as none.
#
# - `failures`, the backoff's exponent: losses in a row. READY for `window_seconds` or longer sets it to zero, however
#   READY is left; starting, vetting and a short READY do not.
#
# Both are about one chance. A server at rest (DORMANT, QUARANTINED, FAILED, STOPPED) is started only because somebody
# wants it now, a person or, after the cooldown, a call; that start begins with both memories empty. Otherwise a cooled
# or released server would have its first new loss held against it together with the old ones.

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from attrs import evolve, field, frozen

from deputy_mcp._core.config import RestartPolicy


class ServerState(StrEnum):
    """Where a server stands. What each state means is in house.md, "One server's states"."""

    DORMANT = "dormant"
    """Configured, never started."""
    STARTING = "starting"
    """Spawning and handshake, under a start deadline."""
    VETTING = "vetting"
    """Its tools are listed and judged; no handle is usable yet."""
    READY = "ready"
    """The only state that serves calls."""
    CLOSING = "closing"
    """Being taken down, in bounded time; `Lifecycle.ending` says why."""
    BACKING_OFF = "backing_off"
    """Waiting until `Lifecycle.resume_at` for the next start."""
    QUARANTINED = "quarantined"
    """Its first vetting could not be finished, or its sign-in was refused; a person must look."""
    FAILED = "failed"
    """Died more often than its policy allows; cools down."""
    STOPPED = "stopped"
    """Ended on request."""


class Event(StrEnum):
    """What can happen to a server."""

    START = "start"
    """Somebody asked for it to run."""
    OPENED = "opened"
    """The handshake is done."""
    VETTED = "vetted"
    """The listing was taken and judged; its tools may be called."""
    CHANGED = "changed"
    """The server says that its listing is another one now."""
    FORGOTTEN = "forgotten"
    """The HTTP session was forgotten and opened anew, as a new generation."""
    ENDED = "ended"
    """It was lost, or its vetting refused it; comes with an `Ending`."""
    STOP = "stop"
    """Somebody asked for it to end."""
    RELOAD = "reload"
    """Somebody asked for it to end and start again."""
    CLOSED = "closed"
    """Nothing is left of its process, its session and its connection."""
    ELAPSED = "elapsed"
    """`resume_at` has passed."""
    COOLED = "cooled"
    """A call came after `cooled_at`."""
    RELEASED = "released"
    """A person lets it try again."""


class EndKind(StrEnum):
    """Whose will an ending was."""

    LOST = "lost"
    """Nobody's: it ended without being asked, exit code 0 and a failed start included."""
    REFUSED = "refused"
    """Vetting refused the server, or a person or the server refused the sign-in: trying again by itself is no help."""
    STOP = "stop"
    """The host's: it shall be quiet."""
    RELOAD = "reload"
    """The host's: it shall start again."""


@frozen
class Ending:
    """Why a session ended."""

    kind: EndKind
    """Whose will it was; the verdict looks at nothing else."""
    code: str = field(kw_only=True)
    """A stable reason, as in `exited`, `start_failed`, `startup_timeout`, `flooded`, `hung`, `tool_missing`."""
    detail: str = field(kw_only=True, default="")
    """One clean line for a person."""


OWNING_STATES = frozenset({ServerState.STARTING, ServerState.VETTING, ServerState.READY, ServerState.CLOSING})
"""States in which a process or a connection exists; each is left for a state outside only through `closed`."""

_ALIVE = OWNING_STATES - {ServerState.CLOSING}

RESTING_STATES = frozenset({ServerState.DORMANT, ServerState.QUARANTINED, ServerState.FAILED, ServerState.STOPPED})
"""States that time alone never ends; the start that does is a fresh chance."""

TABLE: Mapping[ServerState, Mapping[Event, ServerState | None]] = MappingProxyType(
    {
        ServerState.DORMANT: {Event.START: ServerState.STARTING, Event.STOP: ServerState.STOPPED},
        ServerState.STARTING: {
            Event.OPENED: ServerState.VETTING,
            Event.ENDED: ServerState.CLOSING,
            Event.STOP: ServerState.CLOSING,
            Event.RELOAD: ServerState.CLOSING,
        },
        ServerState.VETTING: {
            Event.VETTED: ServerState.READY,
            Event.CHANGED: ServerState.VETTING,
            Event.ENDED: ServerState.CLOSING,
            Event.STOP: ServerState.CLOSING,
            Event.RELOAD: ServerState.CLOSING,
        },
        ServerState.READY: {
            # Not back to VETTING: calls go on, each behind its own pin check, while the new listing is vetted.
            Event.CHANGED: ServerState.READY,
            Event.FORGOTTEN: ServerState.VETTING,
            Event.ENDED: ServerState.CLOSING,
            Event.STOP: ServerState.CLOSING,
            Event.RELOAD: ServerState.CLOSING,
        },
        ServerState.CLOSING: {
            Event.CLOSED: None,  # by verdict, see VERDICTS
            Event.STOP: ServerState.CLOSING,
            Event.RELOAD: ServerState.CLOSING,  # only while the reason is in RELOADABLE
        },
        ServerState.BACKING_OFF: {
            Event.ELAPSED: ServerState.STARTING,
            Event.START: ServerState.STARTING,
            Event.RELOAD: ServerState.STARTING,
            Event.STOP: ServerState.STOPPED,
        },
        ServerState.QUARANTINED: {Event.RELEASED: ServerState.STARTING, Event.STOP: ServerState.STOPPED},
        ServerState.FAILED: {
            Event.COOLED: ServerState.STARTING,
            Event.RELEASED: ServerState.STARTING,
            Event.START: ServerState.STARTING,
            Event.RELOAD: ServerState.STARTING,
            Event.STOP: ServerState.STOPPED,
        },
        ServerState.STOPPED: {
            Event.START: ServerState.STARTING,
            Event.RELOAD: ServerState.STARTING,
            Event.STOP: ServerState.STOPPED,
        },
    }
)
"""State and event to the next state; None where the verdict decides. What is not here is illegal."""

VERDICTS: Mapping[EndKind, tuple[ServerState, ...]] = MappingProxyType(
    {
        EndKind.LOST: (ServerState.BACKING_OFF, ServerState.FAILED),
        EndKind.REFUSED: (ServerState.QUARANTINED,),
        EndKind.STOP: (ServerState.STOPPED,),
        EndKind.RELOAD: (ServerState.STARTING,),
    }
)
"""Where `closed` leads, by the reason; for a loss FAILED where the policy allows no further restart."""

RELOADABLE = frozenset({EndKind.LOST, EndKind.RELOAD})
"""Reasons of a CLOSING that a reload may replace."""

ENDINGS: Mapping[Event, frozenset[EndKind]] = MappingProxyType(
    {
        Event.ENDED: frozenset({EndKind.LOST, EndKind.REFUSED}),
        Event.STOP: frozenset({EndKind.STOP}),
        Event.RELOAD: frozenset({EndKind.RELOAD}),
    }
)
"""Events that come with an ending, and the kinds it may be of."""

ASKED: Mapping[Event, Ending] = MappingProxyType(
    {
        Event.STOP: Ending(EndKind.STOP, code="stopped", detail="stopped on request"),
        Event.RELOAD: Ending(EndKind.RELOAD, code="reloaded", detail="reloaded on request"),
    }
)
"""The endings of events that need no further explanation."""


@frozen(repr=False)
class Lifecycle:
    """One server's place in its life. Begin with `Lifecycle(since=now)`; every `step` gives a new value."""

    state: ServerState = field(default=ServerState.DORMANT)
    """Where it stands."""
    since: float = field(kw_only=True)
    """When the state was entered, in the caller's monotonic seconds."""
    ending: Ending | None = field(kw_only=True, default=None)
    """Why it is CLOSING, or came to stand where it stands; None while it starts and serves."""
    restart_times: tuple[float, ...] = field(kw_only=True, default=())
    """When this chance's counted restarts began, oldest first; those outside the window are dropped."""
    failures: int = field(kw_only=True, default=0)
    """Losses in a row since the last READY of `window_seconds` or longer."""
    resume_at: float | None = field(kw_only=True, default=None)
    """When the wait is over; None outside BACKING_OFF."""
    restarts: int = field(kw_only=True, default=0)
    """All restarts that were ever put into `restart_times`; never forgotten."""

    @property
    def ready_since(self) -> float | None:
        """When it became READY; None outside READY. A changed listing does not begin it anew."""
        return self.since if self.state is ServerState.READY else None

    def can(self, event: Event) -> bool:
        """Whether `event` is legal here. If not, `step` changes nothing, and who owes somebody an error raises it."""
        if self.state is ServerState.CLOSING and event is Event.RELOAD:
            return self.ending is not None and self.ending.kind in RELOADABLE

        return event in TABLE[self.state]

    def step(
        self,
        event: Event,
        *,
        now: float,
        policy: RestartPolicy,
        ending: Ending | None = None,
        jitter: float = 0.5,
    ) -> "Lifecycle":
        """The life after `event`; the same value if the event is illegal here or says nothing new.

        `ended` needs an `ending` of kind LOST or REFUSED; `stop` and `reload` may have one of their own kind; any
        other pair is a `ValueError`. `jitter` is used when the next state is BACKING_OFF (see `backoff_seconds`).
        """
        if not self.can(event):
            return self

        reason = _reason(event, ending)
        target = TABLE[self.state][event]
        if target is None:
            assert self.ending is not None  # nothing enters CLOSING without one
            target = verdict(self.ending, policy, self.restart_times, now)

        if target is self.state:
            # Only a reason can be news here. READY must keep `since`: a chatty server that announces a new listing
            # every second would never have been READY long enough.
            return evolve(self, ending=reason) if target is ServerState.CLOSING else self

        fresh = self.state in RESTING_STATES
        # A reload out of the wait is no restart; elapsed and start are the same one, late or early.
        restarted = self.state is ServerState.BACKING_OFF and event in (Event.ELAPSED, Event.START)

        restart_times = () if fresh else self.restart_times
        if restarted:
            restart_times = (*_within_window(restart_times, policy, now), now)

        failures = 0 if fresh or self._was_ready_long(policy, now) else self.failures
        if reason is not None and reason.kind is EndKind.LOST:
            failures += 1

        resume_at = None
        if target is ServerState.BACKING_OFF:
            resume_at = now + backoff_seconds(failures, policy=policy, jitter=jitter)

        return Lifecycle(
            target,
            since=now,
            ending=None if target in _ALIVE else reason or self.ending,
            restart_times=restart_times,
            failures=failures,
            resume_at=resume_at,
            restarts=self.restarts + (1 if restarted else 0),
        )

    def _was_ready_long(self, policy: RestartPolicy, now: float) -> bool:
        return self.ready_since is not None and now - self.ready_since >= policy.window_seconds

    def __repr__(self) -> str:
        parts = [f"{self.state} since {self.since:.3f}"]
        if self.ending is not None:
            parts.append(f"{self.ending.kind}: {self.ending.code}")

        if self.resume_at is not None:
            parts.append(f"until {self.resume_at:.3f}")

        parts.append(f"{self.failures} failures, {self.restarts} restarts")
        return f"<Lifecycle {', '.join(parts)}>"


def _reason(event: Event, ending: Ending | None) -> Ending | None:
    """The ending that `event` brings: the one given, else the event's own; None for an event that ends nothing."""
    kinds = ENDINGS.get(event, frozenset())
    given = ending or ASKED.get(event)
    if (given is None and kinds) or (given is not None and given.kind not in kinds):
        expected = " or ".join(sorted(kinds)) or "no"
        raise ValueError(f"{event} comes with an ending of kind {expected}, not {given and given.kind}")

    return given


def _within_window(times: tuple[float, ...], policy: RestartPolicy, now: float) -> tuple[float, ...]:
    # Both ends belong to the window, as in OTP: of two restarts exactly `window_seconds` apart, both count.
    return tuple(time for time in times if now - time <= policy.window_seconds)


def verdict(ending: Ending, policy: RestartPolicy, restart_times: tuple[float, ...], now: float) -> ServerState:
    """Where a server goes once everything of it is closed.

    The window is judged at `now`, before the wait: by the time of the start it can only have emptied further.
    """
    spent = len(_within_window(restart_times, policy, now)) >= policy.max_restarts
    if ending.kind is EndKind.LOST and (spent or policy.when == "never"):
        return ServerState.FAILED

    return VERDICTS[ending.kind][0]


def backoff_seconds(failures: int, *, policy: RestartPolicy, jitter: float) -> float:
    """The wait before the start that follows the `failures`-th loss in a row, counted from 1.

    The full wait grows by `backoff_factor` from `backoff_initial_seconds` up to `backoff_max_seconds`; `jitter` in
    [0, 1) takes its place in the upper half, `full * (0.5 + jitter / 2)`. Half is always waited, so a server that
    dies at once cannot spin; the other half keeps servers that died together from coming back together.
    """
    try:
        full = policy.backoff_initial_seconds * float(policy.backoff_factor) ** (failures - 1)
    except OverflowError:
        full = policy.backoff_max_seconds

    return min(full, policy.backoff_max_seconds) * (0.5 + jitter / 2)


def cooled_at(lifecycle: Lifecycle, policy: RestartPolicy) -> float | None:
    """From when a call may start a FAILED server again; None if no call may.

    None outside FAILED, and where the policy is `never`: there only a person starts it, by start, reload or release.
    """
    if lifecycle.state is not ServerState.FAILED or policy.when == "never":
        return None

    return lifecycle.since + policy.cooldown_seconds


def mermaid() -> str:
    """The tables as a Mermaid state diagram, for the docs. States that own a process have a thick border."""
    arrows: dict[tuple[ServerState, ServerState], list[str]] = {}
    for state, row in TABLE.items():
        for event, target in row.items():
            if target is not None:
                arrows.setdefault((state, target), []).append(event)
                continue

            for kind, targets in VERDICTS.items():
                for outcome in targets:
                    arrows.setdefault((state, outcome), []).append(f"{event} ({kind})")

    owning = ",".join(state.name for state in TABLE if state in OWNING_STATES)
    return "\n".join(
        (
            "stateDiagram-v2",
            f"    [*] --> {ServerState.DORMANT.name}",
            *(f"    {a.name} --> {b.name}: {', '.join(labels)}" for (a, b), labels in arrows.items()),
            "    classDef owning stroke-width:3px",
            f"    class {owning} owning",
            "",
        )
    )
