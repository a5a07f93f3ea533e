from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.quotas.connection_rates import ANY_ADDRESS, ConnectionRates
from oncelog.core.quotas.limits import ANY
from oncelog.core.quotas.quotas import MAX_MEASURED, Charge, MutationQuota, RateQuota, Usage
from oncelog.core.quotas.rates import Windows

SECOND = Windows()


def quota(limit: float = 1000.0, max_throttle_ms: int | None = None) -> RateQuota:
    made = RateQuota(SECOND, max_throttle_ms)
    made.limits.set((None, ANY), limit)
    return made


@given(
    st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 400)), min_size=1, max_size=60),
    st.floats(2500, 50_000),
)
def test_who_waits_as_told_takes_no_more_than_the_quota_and_one_request(
    requests: list[tuple[int, int]], limit: float
) -> None:
    """Of requests that are each worth two seconds at most. One that is worth more than all windows is paid by a pause
    after which all is forgotten, so that a new client's allowance comes on top: Apache Kafka's arithmetic."""
    made, now_ms = quota(limit), 1_000_000
    taken: list[tuple[int, int]] = []
    for value, pause_ms in requests:
        for first, (since_ms, _) in enumerate(taken):
            allowed = limit * (now_ms - since_ms + SECOND.span_ms + len(taken)) / 1000  # rounding: a millisecond each
            assert sum(each for _, each in taken[first:]) - max(each for _, each in taken) <= allowed
        throttle_ms = made.record("u", "c", value, now_ms)
        taken.append((now_ms, value))
        now_ms += throttle_ms + pause_ms


def test_clients_are_measured_apart_and_those_of_a_user_together() -> None:
    made = quota()
    assert made.record("u", "c", 20_000, 0) > 0
    assert made.record("u", "d", 1, 0) == 0
    made.limits.set(("u", None), 1000.0)
    assert made.record("u", "c", 9_000, 0) == 0
    assert made.record("u", "d", 9_000, 0) > 0


def test_a_limit_holds_from_the_moment_it_is_set() -> None:
    made = quota(1e9)
    assert made.record("u", "c", 100_000, 0) == 0
    made.limits.set((None, "c"), 1000.0)
    assert made.record("u", "c", 1, 0) > 0


def test_what_is_taken_back_does_not_count() -> None:
    made = quota()
    assert made.record("u", "c", 20_000, 0) > 0
    made.record_unchecked("u", "c", -20_000, 0)
    assert made.record("u", "c", 10_000, 0) == 0


def test_the_longest_throttle_can_be_bounded() -> None:
    assert quota().record("u", "c", 1e9, 0) > 100_000
    assert quota(max_throttle_ms=1000).record("u", "c", 1e9, 0) == 1000


def test_the_most_at_once_is_never_more_than_what_a_new_client_may_take() -> None:
    made = quota()
    most = made.max_unthrottled("u", "c")
    assert most == 10_000
    assert made.record("u", "c", most, 0) == 0
    assert made.record("u", "d", most + 1, 0) > 0
    assert RateQuota(SECOND).max_unthrottled("u", "c") is None


def test_a_million_client_ids_take_bounded_memory() -> None:
    made = quota()
    for number in range(MAX_MEASURED + 500):
        made.record("u", f"c{number}", 1, 0)
    assert len(made.usage(0)) == MAX_MEASURED
    made.record("u", "late", 1, SECOND.span_ms)
    made.record("u", "later", 1, SECOND.span_ms)
    assert len(made.usage(SECOND.span_ms)) < MAX_MEASURED


def test_a_client_without_a_limit_is_not_measured() -> None:
    made = RateQuota(SECOND)
    made.limits.set(("someone", None), 5.0)
    assert made.record("u", "c", 1e12, 0) == 0
    assert made.usage(0) == []


def test_mutations_are_refused_once_the_bucket_is_overdrawn() -> None:
    made = MutationQuota(SECOND)
    made.limits.set(("u", None), 2.0)
    assert made.charge("u", None, 30, 0, strict=True) == Charge(True, 0)
    assert made.charge("u", None, 1, 0, strict=True) == Charge(False, 4000)
    assert made.charge("v", None, 10**6, 0, strict=True) == Charge(True, 0)


def test_mutations_of_old_versions_are_done_and_waited_for() -> None:
    made = MutationQuota(SECOND)
    made.limits.set(("u", None), 2.0)
    now_ms = 1_000_000
    assert made.charge("u", None, 30, now_ms, strict=False) == Charge(True, 4000)
    assert made.charge("u", None, 2, now_ms, strict=True) == Charge(False, 4000)
    assert made.charge("u", None, 2, now_ms + 4000, strict=True) == Charge(True, 0)
    assert [usage.limit for usage in made.usage(now_ms + 4000)] == [2.0]


def test_usage_says_who_takes_how_much() -> None:
    made = quota()
    made.record("u", "c", 5000, 0)
    (usage,) = made.usage(0)
    assert usage == Usage(usage.client, 500.0, 1000.0)
    assert usage.client == ("", "c")


def test_connections_above_the_rate_are_held_and_not_counted() -> None:
    rates = ConnectionRates(SECOND)
    assert rates.admit("10.0.0.1", 0) == 0
    rates.set_limit(ANY_ADDRESS, 2.0)
    now_ms = 1_000_000
    assert [rates.admit("10.0.0.1", now_ms) for _ in range(20)] == [0] * 20
    assert rates.admit("10.0.0.1", now_ms) == 500
    assert rates.admit("10.0.0.2", now_ms) == 0
    assert rates.admit("10.0.0.1", now_ms + 500) == 0
    rates.set_limit("10.0.0.1", 1000.0)
    assert rates.admit("10.0.0.1", now_ms + 500) == 0
    rates.set_limit("10.0.0.1", None)
    assert rates.admit("10.0.0.1", now_ms + 501) > 0
    assert rates.throttled == 2


def test_addresses_that_knock_take_bounded_memory() -> None:
    rates = ConnectionRates(SECOND)
    rates.set_limit(ANY_ADDRESS, 1.0)
    for number in range(MAX_MEASURED + 100):
        rates.admit(str(number), 0)
    assert len(rates._rates) == MAX_MEASURED
