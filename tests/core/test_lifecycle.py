"""The life of one server: house.md's table row by row, the memories, and random walks that must keep the invariants.

The table here is written by hand from house.md and shares nothing with the implementation's own data.
"""

from collections.abc import Iterable, Sequence

import pytest
from attrs import evolve
from attrs.exceptions import FrozenInstanceError
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from deputy_mcp._core.config import RestartPolicy
from deputy_mcp._core.lifecycle import (
    OWNING_STATES,
    RESTING_STATES,
    Ending,
    EndKind,
    Event,
    Lifecycle,
    ServerState,
    backoff_seconds,
    cooled_at,
    mermaid,
    verdict,
)

DORMANT, STARTING, VETTING = ServerState.DORMANT, ServerState.STARTING, ServerState.VETTING
READY, CLOSING, BACKING_OFF = ServerState.READY, ServerState.CLOSING, ServerState.BACKING_OFF
QUARANTINED, FAILED, STOPPED = ServerState.QUARANTINED, ServerState.FAILED, ServerState.STOPPED

LOST = Ending(EndKind.LOST, code="exited", detail="exit code 1")
REFUSED = Ending(EndKind.REFUSED, code="tool_missing", detail="no tool 'search'")
STOP = Ending(EndKind.STOP, code="stopped", detail="stopped on request")
RELOAD = Ending(EndKind.RELOAD, code="reloaded", detail="reloaded on request")

POLICY = RestartPolicy(
    max_restarts=3, window_seconds=60, backoff_initial_seconds=1, backoff_factor=2, backoff_max_seconds=5
)
NEVER = RestartPolicy(when="never")

HOUSE: dict[ServerState, dict[str, ServerState]] = {
    DORMANT: {"start": STARTING, "stop": STOPPED},
    STARTING: {"opened": VETTING, "ended": CLOSING, "stop": CLOSING, "reload": CLOSING},
    VETTING: {"vetted": READY, "changed": VETTING, "ended": CLOSING, "stop": CLOSING, "reload": CLOSING},
    READY: {"changed": READY, "forgotten": VETTING, "ended": CLOSING, "stop": CLOSING, "reload": CLOSING},
    # Closed after a loss, as the lives below have it. Reload is ours: the house is silent about it.
    CLOSING: {"closed": BACKING_OFF, "stop": CLOSING, "reload": CLOSING},
    BACKING_OFF: {"elapsed": STARTING, "start": STARTING, "reload": STARTING, "stop": STOPPED},
    FAILED: {"cooled": STARTING, "released": STARTING, "start": STARTING, "reload": STARTING, "stop": STOPPED},
    QUARANTINED: {"released": STARTING, "stop": STOPPED},
    STOPPED: {"start": STARTING, "reload": STARTING, "stop": STOPPED},
}


def lived(*events: Event | Ending, policy: RestartPolicy = POLICY, now: float = 0) -> Lifecycle:
    """The life after these events, all at `now`; an `Ending` stands for `ended` with it."""
    life = Lifecycle(since=now)
    for event in events:
        if isinstance(event, Ending):
            life = life.step(Event.ENDED, now=now, policy=policy, ending=event)
        else:
            life = life.step(event, now=now, policy=policy)

    return life


LIVES: dict[ServerState, Lifecycle] = {
    DORMANT: lived(),
    STARTING: lived(Event.START),
    VETTING: lived(Event.START, Event.OPENED),
    READY: lived(Event.START, Event.OPENED, Event.VETTED),
    CLOSING: lived(Event.START, LOST),
    BACKING_OFF: lived(Event.START, LOST, Event.CLOSED),
    FAILED: lived(Event.START, LOST, Event.CLOSED, policy=NEVER),
    QUARANTINED: lived(Event.START, Event.OPENED, REFUSED, Event.CLOSED),
    STOPPED: lived(Event.STOP),
}


def ending_for(event: Event) -> Ending | None:
    return LOST if event is Event.ENDED else None


def crashed(life: Lifecycle, *, now: float, policy: RestartPolicy = POLICY, jitter: float = 0.5) -> Lifecycle:
    """`life`, lost and closed at `now`."""
    life = life.step(Event.ENDED, now=now, policy=policy, ending=LOST)
    return life.step(Event.CLOSED, now=now, policy=policy, jitter=jitter)


def stepped(life: Lifecycle, events: Iterable[Event], *, now: float, policy: RestartPolicy = POLICY) -> Lifecycle:
    for event in events:
        life = life.step(event, now=now, policy=policy)

    return life


@pytest.mark.parametrize("state", ServerState)
def test_each_state_can_be_reached(state: ServerState) -> None:
    """The lives that the table tests start from stand in the state they are filed under."""
    assert state is LIVES[state].state


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", ServerState)
def test_every_event_in_every_state_does_what_the_house_says(state: ServerState, event: Event) -> None:
    """A listed event leads where house.md's table says; any other changes nothing at all, and `can` says so."""
    life = LIVES[state]
    after = life.step(event, now=1, policy=POLICY, ending=ending_for(event))

    if event in HOUSE[state]:
        assert life.can(event)
        assert HOUSE[state][event] is after.state
    else:
        assert not life.can(event)
        assert life is after


@pytest.mark.parametrize(
    ("ending", "policy", "expected"),
    [
        (LOST, POLICY, BACKING_OFF),
        (LOST, NEVER, FAILED),
        (LOST, RestartPolicy(max_restarts=0), FAILED),
        (REFUSED, POLICY, QUARANTINED),
        (REFUSED, NEVER, QUARANTINED),
        (STOP, POLICY, STOPPED),
        (STOP, NEVER, STOPPED),
        (RELOAD, POLICY, STARTING),
        (RELOAD, NEVER, STARTING),
        (RELOAD, RestartPolicy(max_restarts=0), STARTING),
    ],
)
def test_the_verdict_follows_the_reason(ending: Ending, policy: RestartPolicy, expected: ServerState) -> None:
    """Only a loss asks the restart policy; a reload starts again under any."""
    assert expected is verdict(ending, policy, (), 0)


@pytest.mark.parametrize(
    ("restart_times", "expected"),
    [
        ((), BACKING_OFF),
        ((10, 20), BACKING_OFF),
        ((10, 20, 30), FAILED),
        ((0, 20, 30), FAILED),
        ((-0.001, 20, 30), BACKING_OFF),
        ((-50, -40, -30, -20, 20, 30), BACKING_OFF),
    ],
)
def test_one_restart_more_than_the_window_allows_is_not_made(
    restart_times: tuple[float, ...], expected: ServerState
) -> None:
    """OTP's rule: at 60 with three allowed in 60 s, a fourth is refused; a time exactly at the edge still counts."""
    assert expected is verdict(LOST, POLICY, restart_times, 60)


def test_a_server_that_dies_at_every_start_fails_after_its_last_allowed_restart() -> None:
    """Handshakes forgive nothing: three restarts are made, each after a longer wait, the fourth is not."""
    life = lived(Event.START)
    now, waits = 0.0, []
    while life.state is not FAILED:
        life = crashed(stepped(life, (Event.OPENED, Event.VETTED), now=now), now=now)
        if life.resume_at is not None:
            waits.append(life.resume_at - now)
            now = life.resume_at
            life = life.step(Event.ELAPSED, now=now, policy=POLICY)

    assert [0.75, 1.5, 3.0] == waits
    assert (0.75, 2.25, 5.25) == life.restart_times
    assert 3 == life.restarts
    assert 4 == life.failures
    assert LOST == life.ending
    assert life.resume_at is None


def test_ready_for_a_whole_window_sets_the_backoff_to_its_beginning() -> None:
    """Time in READY forgives earlier losses for the wait's length, whichever event ends it."""
    life = stepped(crashed(lived(Event.START), now=0), (Event.ELAPSED,), now=1)
    life = stepped(crashed(life, now=1), (Event.ELAPSED, Event.OPENED, Event.VETTED), now=3)

    assert 2 == life.failures
    assert 3 == crashed(life, now=62.999).failures
    assert 1 == crashed(life, now=63).failures
    assert 63.75 == crashed(life, now=63).resume_at
    assert 0 == life.step(Event.RELOAD, now=63, policy=POLICY).failures
    assert 2 == life.step(Event.RELOAD, now=62, policy=POLICY).failures
    assert 0 == life.step(Event.FORGOTTEN, now=63, policy=POLICY).failures


def test_time_in_ready_does_not_empty_the_restart_window() -> None:
    """The window is by times alone: a forgiven backoff leaves what was restarted within it."""
    policy = evolve(POLICY, window_seconds=60, max_restarts=1)
    life = stepped(crashed(lived(Event.START), now=0), (Event.ELAPSED, Event.OPENED, Event.VETTED), now=10)

    assert FAILED is crashed(life, now=70, policy=policy).state
    assert BACKING_OFF is crashed(life, now=70.001, policy=policy).state


def test_a_changed_listing_does_not_begin_the_time_in_ready_anew() -> None:
    """A server that announces a new listing every second can still become trusted."""
    life = LIVES[READY]

    assert life is life.step(Event.CHANGED, now=50, policy=POLICY)
    assert 0 == life.ready_since
    assert LIVES[VETTING].ready_since is None


def test_times_outside_the_window_are_dropped_at_the_next_restart() -> None:
    """`restart_times` stays as short as the limit, however long the server lives; `restarts` goes on counting."""
    life = crashed(evolve(LIVES[READY], restart_times=(1, 2, 100), restarts=3), now=110)
    life = life.step(Event.ELAPSED, now=112, policy=POLICY)

    assert (100, 112) == life.restart_times
    assert 4 == life.restarts


@pytest.mark.parametrize(
    ("event", "restarts", "times"), [(Event.ELAPSED, 1, (9,)), (Event.START, 1, (9,)), (Event.RELOAD, 0, ())]
)
def test_a_reload_out_of_the_wait_is_no_restart_but_a_start_is(
    event: Event, restarts: int, times: tuple[float, ...]
) -> None:
    """`start` only hastens the restart that was due, so it cannot be used to get round the limit."""
    life = LIVES[BACKING_OFF].step(event, now=9, policy=POLICY)

    assert restarts == life.restarts
    assert times == life.restart_times
    assert 1 == life.failures
    assert life.resume_at is None
    assert life.ending is None


def test_a_reload_of_a_running_server_keeps_its_memories() -> None:
    """A reload counts as no restart and forgives none either."""
    life = evolve(LIVES[READY], restart_times=(1, 2), failures=2, restarts=7)
    life = stepped(life, (Event.RELOAD, Event.CLOSED), now=3)

    assert STARTING is life.state
    assert (1, 2) == life.restart_times
    assert 2 == life.failures
    assert 7 == life.restarts


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (FAILED, Event.COOLED),
        (FAILED, Event.RELEASED),
        (FAILED, Event.START),
        (FAILED, Event.RELOAD),
        (QUARANTINED, Event.RELEASED),
        (STOPPED, Event.START),
        (STOPPED, Event.RELOAD),
    ],
)
def test_a_start_from_rest_is_a_fresh_chance(state: ServerState, event: Event) -> None:
    """What was held against the server is forgotten when somebody wants it again; the total is not."""
    life = evolve(LIVES[state], restart_times=(1, 2, 3), failures=4, restarts=7)
    after = life.step(event, now=5, policy=POLICY)

    assert Lifecycle(STARTING, since=5, restarts=7) == after
    assert BACKING_OFF is crashed(after, now=6).state


def test_a_stop_at_rest_says_why_it_stands_there_now() -> None:
    """A failed server that is stopped shows the stop as its reason; a second stop shows nothing new."""
    life = LIVES[FAILED].step(Event.STOP, now=5, policy=POLICY)

    assert (STOPPED, 5, STOP) == (life.state, life.since, life.ending)
    assert life is life.step(Event.STOP, now=9, policy=POLICY)


@pytest.mark.parametrize(
    ("reason", "event", "expected"),
    [
        (LOST, Event.STOP, STOPPED),
        (REFUSED, Event.STOP, STOPPED),
        (STOP, Event.STOP, STOPPED),
        (RELOAD, Event.STOP, STOPPED),
        (LOST, Event.RELOAD, STARTING),
        (RELOAD, Event.RELOAD, STARTING),
        (REFUSED, Event.RELOAD, QUARANTINED),
        (STOP, Event.RELOAD, STOPPED),
        (LOST, Event.ENDED, BACKING_OFF),
        (STOP, Event.ENDED, STOPPED),
    ],
)
def test_only_a_stronger_wish_replaces_the_reason_of_closing(
    reason: Ending, event: Event, expected: ServerState
) -> None:
    """Stop replaces any reason, a reload only a loss: it gets round neither a quarantine nor a stop."""
    closing = evolve(LIVES[CLOSING], ending=reason)
    after = closing.step(event, now=3, policy=POLICY, ending=ending_for(event))

    assert closing.since == after.since
    assert expected is after.step(Event.CLOSED, now=4, policy=POLICY).state


@pytest.mark.parametrize(("reason", "expected"), [(LOST, True), (RELOAD, True), (REFUSED, False), (STOP, False)])
def test_a_reload_that_would_be_lost_is_illegal(reason: Ending, expected: bool) -> None:
    """Who asks for a reload that cannot be remembered learns it from `can`, instead of waiting for nothing."""
    assert expected is evolve(LIVES[CLOSING], ending=reason).can(Event.RELOAD)


def test_a_loss_counts_even_if_a_reload_replaces_it() -> None:
    """Reloading a dying server at the right moment does not shorten its next wait."""
    life = stepped(LIVES[CLOSING], (Event.RELOAD, Event.CLOSED), now=1)

    assert STARTING is life.state
    assert 1 == life.failures
    assert 2 == crashed(life, now=2).failures


def test_an_ending_of_ones_own_is_kept() -> None:
    """Stop and reload may say more than that they were asked for; closed keeps the reason."""
    killed = Ending(EndKind.STOP, code="killed", detail="killed on request")
    life = LIVES[READY].step(Event.STOP, now=1, policy=POLICY, ending=killed)

    assert killed == life.ending
    assert killed == life.step(Event.CLOSED, now=2, policy=POLICY).ending


@pytest.mark.parametrize(
    ("event", "ending"),
    [
        (Event.ENDED, None),
        (Event.ENDED, STOP),
        (Event.ENDED, RELOAD),
        (Event.STOP, LOST),
        (Event.RELOAD, REFUSED),
        (Event.CHANGED, LOST),
    ],
)
def test_an_event_with_the_wrong_ending_is_an_error(event: Event, ending: Ending | None) -> None:
    """A loss must not pass for a stop, nor a stop for a loss: that is a defect of the caller."""
    with pytest.raises(ValueError, match="comes with an ending of kind"):
        LIVES[READY].step(event, now=1, policy=POLICY, ending=ending)


def test_a_failed_server_cools_down_from_when_it_failed() -> None:
    """The next call may try again `cooldown_seconds` after FAILED was entered, not before."""
    policy = RestartPolicy(max_restarts=0, cooldown_seconds=60)
    life = crashed(lived(Event.START), now=7, policy=policy)

    assert 67 == cooled_at(life, policy)


def test_nothing_cools_where_no_call_may_start_a_server() -> None:
    """`never` means that only a person starts a lost server; and only a FAILED one cools."""
    assert cooled_at(LIVES[FAILED], NEVER) is None
    assert [None] * 8 == [cooled_at(life, POLICY) for state, life in LIVES.items() if state is not FAILED]


@pytest.mark.parametrize(
    ("failures", "jitter", "expected"), [(1, 0, 0.5), (1, 0.5, 0.75), (2, 0, 1), (3, 0.5, 3), (4, 0, 2.5), (9, 0, 2.5)]
)
def test_the_wait_doubles_up_to_its_maximum(failures: int, jitter: float, expected: float) -> None:
    """Half of 1, 2, 4, 5, 5 … seconds is always waited; jitter takes its share of the other half."""
    assert expected == backoff_seconds(failures, policy=POLICY, jitter=jitter)


def test_a_wait_too_large_for_a_number_is_the_maximum() -> None:
    """A server that was lost ten thousand times waits `backoff_max_seconds`, without an overflow."""
    assert 2.5 == backoff_seconds(10_000, policy=POLICY, jitter=0)


def test_a_life_and_an_ending_are_values() -> None:
    """They cannot be changed in place, and equal histories are equal."""
    with pytest.raises(FrozenInstanceError):
        LIVES[READY].state = STOPPED  # type: ignore[misc]

    assert lived(Event.START, LOST) == LIVES[CLOSING]
    assert hash(lived(Event.START, LOST)) == hash(LIVES[CLOSING])
    assert Ending(EndKind.LOST, code="hung") == Ending(EndKind.LOST, code="hung", detail="")


def test_a_life_reads_as_a_status_line() -> None:
    """`repr` says where it stands, since when, why, and until when; the free text of an ending is left out."""
    assert "<Lifecycle dormant since 0.000, 0 failures, 0 restarts>" == repr(LIVES[DORMANT])
    assert "<Lifecycle backing_off since 0.000, lost: exited, until 0.750, 1 failures, 0 restarts>" == repr(
        LIVES[BACKING_OFF]
    )


def test_the_diagram_shows_the_house_table() -> None:
    """Every arrow of house.md is drawn, none besides, and states that own a process are marked."""
    expected = {
        (state, event, target) for state, row in HOUSE.items() for event, target in row.items() if event != "closed"
    } | {
        (CLOSING, "closed (lost)", BACKING_OFF),
        (CLOSING, "closed (lost)", FAILED),
        (CLOSING, "closed (refused)", QUARANTINED),
        (CLOSING, "closed (stop)", STOPPED),
        (CLOSING, "closed (reload)", STARTING),
    }
    first, begin, *arrows, _, owning = mermaid().splitlines()
    drawn = set()
    for arrow in arrows:
        ends, labels = arrow.split(": ")
        source, target = ends.split(" --> ")
        drawn |= {(source.strip().lower(), label, target.lower()) for label in labels.split(", ")}

    assert "stateDiagram-v2" == first
    assert "[*] --> DORMANT" == begin.strip()
    assert expected == drawn
    assert "class STARTING,VETTING,READY,CLOSING owning" == owning.strip()


def test_each_state_owns_waits_or_rests() -> None:
    """The sets that callers ask are house.md's column, and only BACKING_OFF is in neither."""
    assert {STARTING, VETTING, READY, CLOSING} == OWNING_STATES
    assert {DORMANT, QUARANTINED, FAILED, STOPPED} == RESTING_STATES


seconds = st.floats(min_value=0.01, max_value=120)
jitters = st.floats(min_value=0, max_value=1, exclude_max=True)


@st.composite
def policies(draw: st.DrawFn) -> RestartPolicy:
    initial = draw(seconds)
    return RestartPolicy(
        when=draw(st.sampled_from(["on_loss", "on_loss", "on_loss", "never"])),
        max_restarts=draw(st.integers(min_value=0, max_value=4)),
        window_seconds=draw(seconds),
        backoff_initial_seconds=initial,
        backoff_factor=draw(st.floats(min_value=1, max_value=10)),
        backoff_max_seconds=initial + draw(st.floats(min_value=0, max_value=120)),
        cooldown_seconds=draw(seconds),
    )


@settings(max_examples=100, deadline=None)
@given(policy=policies(), failures=st.integers(min_value=1, max_value=2000), jitter=jitters)
def test_the_wait_never_shrinks_and_never_passes_its_maximum(
    policy: RestartPolicy, failures: int, jitter: float
) -> None:
    """At equal jitter one more loss never shortens the wait; at any jitter it is above zero and at most the maximum."""
    wait = backoff_seconds(failures, policy=policy, jitter=jitter)
    longer = backoff_seconds(failures + 1, policy=policy, jitter=jitter)

    assert 0 < wait <= longer <= policy.backoff_max_seconds


class Walk(RuleBasedStateMachine):
    """Any events at any times, under any policy. Restarts are counted here from outside, not read from the life."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = POLICY
        self.now = 0.0
        self.life = Lifecycle(since=0)
        self.restarted_at: list[float] = []

    @initialize(policy=policies())
    def configured(self, policy: RestartPolicy) -> None:
        self.policy = policy

    @rule(passed=st.floats(min_value=0, max_value=200))
    def time_passes(self, passed: float) -> None:
        self.now += passed

    @rule(
        event=st.sampled_from(Event),
        ending=st.sampled_from([LOST, LOST, REFUSED]),
        jitter=jitters,
    )
    def anything_happens(self, event: Event, ending: Ending, jitter: float) -> None:
        self.happens(event, ending=ending if event is Event.ENDED else None, jitter=jitter)

    # Without these a walk seldom gets past a handshake, or round the loop often enough to reach its limit.
    @precondition(lambda self: self.life.state in (STARTING, VETTING, READY))
    @rule(jitter=jitters)
    def it_dies(self, jitter: float) -> None:
        self.happens(Event.ENDED, ending=LOST)
        self.happens(Event.CLOSED, jitter=jitter)

    @precondition(lambda self: self.life.state is STARTING)
    @rule()
    def it_becomes_ready(self) -> None:
        self.happens(Event.OPENED)
        self.happens(Event.VETTED)

    @precondition(lambda self: self.life.state is BACKING_OFF)
    @rule(event=st.sampled_from([Event.ELAPSED, Event.START]))
    def the_wait_is_over_or_cut_short(self, event: Event) -> None:
        assert self.life.resume_at is not None
        if event is Event.ELAPSED:
            self.now = max(self.now, self.life.resume_at)

        self.happens(event)

    def happens(self, event: Event, *, ending: Ending | None = None, jitter: float = 0.5) -> None:
        before = self.life
        legal = before.can(event)
        after = before.step(event, now=self.now, policy=self.policy, ending=ending, jitter=jitter)
        self.life = after
        if not legal:
            assert before is after
            return

        if before.state in OWNING_STATES and after.state not in OWNING_STATES:
            assert (CLOSING, Event.CLOSED) == (before.state, event)

        if before.state is CLOSING and after.state is not CLOSING:
            assert Event.CLOSED is event

        if after.state is READY:
            assert (before.state, event) in {(VETTING, Event.VETTED), (READY, Event.CHANGED)}

        if after.state is STARTING:
            self.count_start(before, event, after)

        if after.state is BACKING_OFF:
            assert after.resume_at == self.now + backoff_seconds(after.failures, policy=self.policy, jitter=jitter)
            assert self.now < after.resume_at

    def count_start(self, before: Lifecycle, event: Event, after: Lifecycle) -> None:
        counts = before.state is BACKING_OFF and event is not Event.RELOAD
        assert before.restarts + counts == after.restarts
        if counts:
            self.restarted_at.append(self.now)
        elif before.state in (DORMANT, QUARANTINED, FAILED, STOPPED):
            self.restarted_at = []
            assert Lifecycle(STARTING, since=self.now, restarts=before.restarts) == after

    @invariant()
    def stop_ends_it_from_here(self) -> None:
        life = self.life
        assert life.can(Event.STOP)
        life = life.step(Event.STOP, now=self.now, policy=self.policy)
        if life.state is CLOSING:
            life = life.step(Event.CLOSED, now=self.now, policy=self.policy)

        assert STOPPED is life.state

    @invariant()
    def no_window_holds_more_restarts_than_allowed(self) -> None:
        assert self.policy.max_restarts >= most_within(self.restarted_at, self.policy.window_seconds)

    @invariant()
    def the_fields_agree_with_the_state(self) -> None:
        life = self.life
        assert (life.state is BACKING_OFF) is (life.resume_at is not None)
        assert (life.state is READY) is (life.ready_since is not None)
        assert (life.state in (CLOSING, BACKING_OFF, QUARANTINED, FAILED, STOPPED)) is (life.ending is not None)
        assert (life.state is FAILED and self.policy.when == "on_loss") is (cooled_at(life, self.policy) is not None)
        assert life.restarts >= len(life.restart_times)


def most_within(times: Sequence[float], window_seconds: float) -> int:
    """How many of `times`, in order, lie at most within one window that is closed at both ends."""
    return max((sum(0 <= last - time <= window_seconds for time in times) for last in times), default=0)


Walk.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestAnyWalkKeepsTheInvariants = Walk.TestCase
