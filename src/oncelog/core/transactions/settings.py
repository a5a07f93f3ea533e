"""Settings of transaction coordination and their configuration keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from oncelog.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

TRANSACTIONS_V2: Final = 2
"""The ``transaction.version`` level from which every end of a transaction raises the epoch (KIP-890)."""


@dataclass(slots=True)
class TransactionSettings:
    """Settings shared by all shards; ``SETTING_KEYS`` has the keys."""

    max_timeout_ms: int = 15 * MINUTE_MS
    transactional_id_expiration_ms: int = 7 * DAY_MS
    abort_timed_out_interval_ms: int = 10 * SECOND_MS
    remove_expired_interval_ms: int = HOUR_MS
    two_phase_commit_enable: bool = False
    refuse_late_requests: bool = False
    concurrent_wait_ms: int = 5 * SECOND_MS
    """How long a request may wait for a completing transaction before it fails with CONCURRENT_TRANSACTIONS."""
    transaction_version: int = TRANSACTIONS_V2
    """The finalized feature level; the node changes it after UpdateFeatures."""


SETTING_KEYS: Final[dict[str, str]] = {
    "max_timeout_ms": "transaction.max.timeout.ms",
    "transactional_id_expiration_ms": "transactional.id.expiration.ms",
    "abort_timed_out_interval_ms": "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "remove_expired_interval_ms": "transaction.remove.expired.transaction.cleanup.interval.ms",
    "two_phase_commit_enable": "transaction.two.phase.commit.enable",
    "refuse_late_requests": "oncelog.transaction.late.requests.refuse",
    "concurrent_wait_ms": "oncelog.transaction.wait.ms",
}
"""Field of TransactionSettings → configuration key, Apache Kafka's or ours."""
