"""When a silent broker counts as frozen, by an observer whose own clock may stand still."""

from __future__ import annotations

from oncelog.core.liveness.silence import PROBES, TICK_MS, AwakeClock, Silence

LIMIT_MS = 1_500


def silent_since(requested_ms: int, accepted: dict[int, int]) -> Silence:
    """A broker that answered once, and got a request at this time. ``accepted``: when connections began and were
    accepted."""
    silence = Silence()
    silence.heard()
    silence.requested(requested_ms)
    for number, (began_ms, accepted_ms) in enumerate(accepted.items()):
        silence.probe(number, began_ms)
        silence.accepted(number, accepted_ms)
    return silence


def test_a_broker_that_accepts_and_does_not_answer_is_frozen_at_the_limit() -> None:
    silence = silent_since(0, {500: 500, 750: 750, 1_000: 1_000})
    assert not silence.is_frozen(LIMIT_MS - 1, LIMIT_MS)
    assert silence.is_frozen(LIMIT_MS, LIMIT_MS)


def test_a_broker_that_accepts_nothing_is_cut_off_or_down_and_not_frozen() -> None:
    silence = Silence()
    silence.heard()
    silence.requested(0)
    silence.probe(1, 500)
    silence.probe(2, 1_000)
    assert not silence.is_frozen(60_000, LIMIT_MS)


def test_one_accepted_connection_is_no_proof() -> None:
    assert not silent_since(0, {1_000: 1_000}).is_frozen(LIMIT_MS, LIMIT_MS)


def test_a_slow_network_gets_two_round_trips_to_answer() -> None:
    silence = silent_since(0, {500: 1_100, 750: 1_350, 1_500: 2_100})
    assert not silence.is_frozen(2_400, LIMIT_MS)
    assert silence.is_frozen(2_100 + 250 + 2 * 600, LIMIT_MS) is False, "the last connection is not recent"


def test_a_cut_after_a_short_pause_is_no_freeze() -> None:
    silence = silent_since(0, {500: 500, 750: 750})
    silence.probe(8, 1_000)
    silence.probe(9, 1_250)
    assert silence.is_frozen(LIMIT_MS, LIMIT_MS)
    assert not silence.is_frozen(LIMIT_MS + 1, LIMIT_MS)


def test_anything_heard_ends_the_silence() -> None:
    silence = silent_since(0, {500: 500, 750: 750, 1_000: 1_000})
    silence.heard()
    assert silence.silent_ms(LIMIT_MS) == 0
    assert not silence.is_frozen(LIMIT_MS, LIMIT_MS)


def test_a_broker_that_never_answered_is_starting() -> None:
    silence = Silence()
    silence.requested(0)
    assert not silence.wants_probe(10_000)


def test_probes_begin_after_half_a_second_and_are_bounded() -> None:
    silence = silent_since(0, {})
    assert not silence.wants_probe(499)
    dropped = []
    for number in range(PROBES + 2):
        now_ms = 500 + number * TICK_MS
        assert silence.wants_probe(now_ms)
        dropped.append(silence.probe(number, now_ms))
        assert not silence.wants_probe(now_ms)
    assert dropped == [None] * PROBES + [0, 1]


def test_a_pause_of_the_observer_is_not_the_brokers_silence() -> None:
    clock = AwakeClock()
    for now_ms in (0, 250, 500):
        clock.advance(now_ms)
    clock.advance(10_500)
    assert clock.now_ms < 1_000
    clock.advance(8_000)
    assert clock.now_ms < 1_000, "the clock was set back"


def test_an_observer_that_is_late_gives_others_as_much_longer() -> None:
    clock = AwakeClock()
    clock.advance(0)
    clock.advance(250)
    assert clock.lateness_ms == 0
    clock.advance(250 + TICK_MS + 400)
    assert clock.lateness_ms == 400
    clock.advance(650 + 2 * TICK_MS)
    assert 0 < clock.lateness_ms < 400


def test_a_freeze_of_the_observer_alone_tells_nothing_of_others() -> None:
    clock = AwakeClock()
    clock.advance(0)
    clock.advance(5_000)
    assert clock.lateness_ms == 0
