"""Deadlines: order, replacement, and no growth under heartbeats."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.groups.classic.rebalance import TimerKey, TimerKind, Timers


def key(name: str) -> TimerKey:
    """A session deadline."""
    return TimerKey(TimerKind.SESSION, "g", name)


def test_equal_deadlines_fire_in_the_order_in_which_they_were_set() -> None:
    timers = Timers()
    for name in "cab":
        timers.schedule(key(name), 5)
    assert [timers.pop_due(5) for _ in range(4)] == [key("c"), key("a"), key("b"), None]


def test_a_hundred_thousand_heartbeats_leave_one_entry() -> None:
    timers = Timers()
    for now_ms in range(100_000):
        timers.schedule(key("a"), now_ms + 10_000)
        timers.next_deadline_ms()
    assert len(timers._heap) == 1


@given(st.lists(st.tuples(st.sampled_from(["set", "cancel", "pop"]), st.sampled_from("abc"), st.integers(0, 20))))
def test_it_does_what_a_dictionary_would(steps: list[tuple[str, str, int]]) -> None:
    timers, plain = Timers(), dict[TimerKey, int]()
    for text, name, time in steps:
        if text == "set":
            timers.schedule(key(name), time)
            plain[key(name)] = time
        elif text == "cancel":
            timers.cancel(key(name))
            plain.pop(key(name), None)
        else:
            fired = timers.pop_due(time)
            assert (fired is None) == all(deadline > time for deadline in plain.values())
            assert fired is None or plain.pop(fired) <= min(plain.values(), default=20)
        assert timers.next_deadline_ms() == min(plain.values(), default=None)
        assert len(timers) == len(plain)
