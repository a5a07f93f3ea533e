"""The delay of the first batch of a transaction that follows another at once.

EndTxn is answered before the transaction is completed; that takes the coordinator another millisecond or so. With
transaction version 2 an Apache Kafka leader that is asked in this time to add a partition waits
``add.partitions.to.txn.retry.backoff.ms`` (20 ms, KIP-890) before it asks the coordinator again, so a client that is
too quick loses 20 ms where a pause of less than one would have done. A broker that answers as soon as it can (ours)
needs no pause at all, so the pause is found by trying.

The rule: a batch that took a back-off's time makes the pause longer by a step, any other makes it shorter by a
twentieth of that. It settles where one in twenty is late: at nothing where nobody waits, and never above a bound.
Times in microseconds.
"""

from __future__ import annotations

from typing import Final

LONGEST_US: Final = 1_500
_STEP_US: Final = 100
_SMALLER_STEP_US: Final = 5
_LATE_US: Final = 18_000
_SOON_US: Final = 10_000
"""A batch sent later than this after the end met a completed transaction, whatever else it waited for."""


class FirstBatchDelay:
    """The delay of one transactional producer, adjusted by how long its first batches took."""

    def __init__(self) -> None:
        self.pause_us = 0
        self._ended_us: int | None = None
        self._sent_us: int | None = None

    def ended(self, now_us: int) -> None:
        """Note that EndTxn was answered."""
        self._ended_us = now_us

    def wait_us(self, now_us: int) -> int:
        """Microseconds to wait before the first batch of the next transaction."""
        return 0 if self._ended_us is None else max(0, self._ended_us + self.pause_us - now_us)

    def sent(self, now_us: int) -> None:
        """Note that the first batch of a transaction is sent."""
        soon = self._ended_us is not None and now_us - self._ended_us < _SOON_US
        self._sent_us = now_us if soon else None
        self._ended_us = None

    def answered(self, now_us: int) -> None:
        """Note that a batch is acknowledged, and adjust the delay if it was the first of its transaction."""
        if self._sent_us is None:
            return
        late = now_us - self._sent_us >= _LATE_US
        self.pause_us = max(0, min(self.pause_us + (_STEP_US if late else -_SMALLER_STEP_US), LONGEST_US))
        self._sent_us = None
