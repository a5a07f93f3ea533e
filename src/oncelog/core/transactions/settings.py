"""Settings of transaction coordination, and the keys that they are read from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from oncelog.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

TRANSACTIONS_V2: Final = 2
"""The level of ``transaction.version`` from which every end of a transaction raises the epoch (KIP-890)."""


@dataclass(slots=True)
class TransactionSettings:
    """Configuration of transaction coordination; keys are in ``SETTING_KEYS``. Shared by all shards."""

    max_timeout_ms: int = 15 * MINUTE_MS
    transactional_id_expiration_ms: int = 7 * DAY_MS
    abort_timed_out_interval_ms: int = 10 * SECOND_MS
    remove_expired_interval_ms: int = HOUR_MS
    two_phase_commit_enable: bool = False
    concurrent_wait_ms: int = 5 * SECOND_MS
    """Time that a request may wait for a transaction to complete before it is told CONCURRENT_TRANSACTIONS."""
    transaction_version: int = TRANSACTIONS_V2
    """The finalized level of the feature: the node moves it with UpdateFeatures."""


SETTING_KEYS: Final[dict[str, str]] = {
    "max_timeout_ms": "transaction.max.timeout.ms",
    "transactional_id_expiration_ms": "transactional.id.expiration.ms",
    "abort_timed_out_interval_ms": "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "remove_expired_interval_ms": "transaction.remove.expired.transaction.cleanup.interval.ms",
    "two_phase_commit_enable": "transaction.two.phase.commit.enable",
    "concurrent_wait_ms": "oncelog.transaction.wait.ms",
}
"""Field of TransactionSettings → configuration key: Apache Kafka's, or our own."""
