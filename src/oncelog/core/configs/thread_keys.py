"""Counts of threads that change while a broker runs: to no more than double, and no less than half, at a time.

Most of them have no effect here. They are checked like Apache Kafka's, so that a change that would be refused there is
not taken over from here into a cluster's scripts. The sentences are Apache Kafka's, with the class that it prints.
"""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.broker import BrokerConfig, broker_key
from oncelog.core.configs.kinds import ConfigError

_CLEANERS: Final = "log.cleaner.threads"
_THREADS: Final = frozenset(
    {
        "background.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
        _CLEANERS,
    }
)


def check_thread_counts(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raise ConfigError if a count is more than double or less than half of what it is ``before``."""
    set_anywhere = {*before.dynamic, *before.dynamic_default, *after.dynamic, *after.dynamic_default}
    for name in sorted(set_anywhere):
        key = broker_key(name)
        if key is not None and key.name in _THREADS:
            _check(key.name, before.value_or(name, key.name), after.value_or(name, key.name))


def _check(name: str, before: int, after: int) -> None:
    if before // 2 <= after <= 2 * before:
        return
    if name == _CLEANERS:
        change = "increased to more than double" if after > before else "reduced to less than half"
        reason = f"Log cleaner threads cannot be {change} the current value {before}"
    else:
        bound = "not be greater than double" if after > before else "be at least half"
        reason = (
            f"Dynamic thread count update validation failed for {name}={after}, "
            f"value should {bound} the current value {before}"
        )
    raise ConfigError(
        f"Invalid value org.apache.kafka.common.config.ConfigException: {reason} "
        "for configuration Invalid dynamic configuration",
        key=name,
        value=after,
    )
