"""The pause between transactions: found by trying, against leaders that wait 20 ms and leaders that do not."""

from __future__ import annotations

from oncelog.client.machine.first_batch_delay import LONGEST_US, FirstBatchDelay


def run(delay: FirstBatchDelay, completed_us: int, transactions: int, start_us: int = 0) -> int:
    """Transactions one after another on a leader that waits when the one before is not completed; how many wait."""
    now, late = start_us, 0
    for _ in range(transactions):
        delay.ended(now)
        now += delay.wait_us(now)
        took = 20_500 if now - start_us < completed_us else 500
        delay.sent(now)
        now += took
        late += took > 20_000
        delay.answered(now)
        start_us = now
    return late


def test_a_pause_is_found_that_is_long_enough_and_no_pause_where_none_is_needed() -> None:
    delay = FirstBatchDelay()
    run(delay, 800, 100)
    assert 700 <= delay.pause_us <= 900
    assert run(delay, 800, 1000) <= 60
    run(delay, 0, 1000)
    assert delay.pause_us == 0


def test_it_is_bounded_and_late_transactions_say_nothing() -> None:
    delay = FirstBatchDelay()
    run(delay, 10_000_000, 200)
    assert delay.pause_us == LONGEST_US
    delay.ended(0)
    assert delay.wait_us(1_000_000) == 0
    delay.sent(1_000_000)
    delay.answered(1_100_000)
    assert delay.pause_us == LONGEST_US
    assert FirstBatchDelay().wait_us(5) == 0
