"""Delays the first batch of a transaction that immediately follows another.

EndTxn is answered before the transaction has completed, which takes the coordinator another millisecond or so. An
Apache Kafka leader that is asked to add a partition meanwhile (transaction version 2) waits
``add.partitions.to.txn.retry.backoff.ms`` (20 ms, KIP-890) before it asks the coordinator again: a client that is too
quick loses 20 ms where a pause below one would do. Our broker needs no pause, so the pause is found by trial.

A batch that took as long as the back-off lengthens the pause by a step, any other shortens it by a twentieth of that,
so one batch in twenty is late. Without waits the pause is zero; it has a bound. Times in microseconds.
"""

from __future__ import annotations

from typing import Final

LONGEST_US: Final = 1_500
_STEP_US: Final = 100
_SMALLER_STEP_US: Final = 5
_LATE_US: Final = 18_000
_SOON_US: Final = 10_000
"""The transaction has completed by then: a batch sent later says nothing about the pause."""


class FirstBatchDelay:
    def __init__(self) -> None:
        self.pause_us = 0
        self._ended_us: int | None = None
        self._sent_us: int | None = None

    def ended(self, now_us: int) -> None:
        """EndTxn was answered."""
        self._ended_us = now_us

    def wait_us(self, now_us: int) -> int:
        return 0 if self._ended_us is None else max(0, self._ended_us + self.pause_us - now_us)

    def sent(self, now_us: int) -> None:
        """The first batch of a transaction is sent."""
        soon = self._ended_us is not None and now_us - self._ended_us < _SOON_US
        self._sent_us = now_us if soon else None
        self._ended_us = None

    def answered(self, now_us: int) -> None:
        """A batch was acknowledged; adjusts the delay if it was the first of its transaction."""
        if self._sent_us is None:
            return
        late = now_us - self._sent_us >= _LATE_US
        self.pause_us = max(0, min(self.pause_us + (_STEP_US if late else -_SMALLER_STEP_US), LONGEST_US))
        self._sent_us = None
