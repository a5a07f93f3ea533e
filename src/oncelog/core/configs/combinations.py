"""Limits that concern more than one broker key: of the file at the start, and of each change while the broker runs.

They are not looked at when a change arrives that another broker has taken: what is decided for all brokers is followed
by all, and a file here that does not go with it must not end the broker. The sentences are Apache Kafka's where it has
the limit.
"""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.entity_keys import GROUP_BOUNDS, GROUP_KINDS
from oncelog.core.configs.kinds import ConfigError

_BYTES_OF_A_CLEANER: Final = 1 << 20


def check_combinations(config: BrokerConfig) -> None:
    """Raise ConfigError for values that cannot be together."""
    for sentence in (_time_refusal(config), _replication_refusal(config), _connection_refusal(config)):
        if sentence is not None:
            raise ConfigError(f"requirement failed: {sentence}")
    _check_cleaner(config)
    _check_classic_groups(config)
    _check_other_groups(config)


def _time_refusal(config: BrokerConfig) -> str | None:
    if config.log_roll_ms < 1:
        return "log.roll.ms must be greater than or equal to 1"
    if config.log_roll_jitter_ms < 0:
        return "log.roll.jitter.ms must be greater than or equal to 0"
    if config.log_retention_ms == 0:
        return "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
    return None


def _replication_refusal(config: BrokerConfig) -> str | None:
    wait_ms = config.get("replica.fetch.wait.max.ms")
    if wait_ms > config.get("replica.socket.timeout.ms"):
        return (
            "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms "
            "to prevent unnecessary socket timeouts"
        )
    if wait_ms > config.get("replica.lag.time.max.ms"):
        return (
            "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms "
            "to prevent frequent changes in ISR"
        )
    return None


def _connection_refusal(config: BrokerConfig) -> str | None:
    if 0 < config.get("queued.max.request.bytes") < config.get("socket.request.max.bytes"):
        return "queued.max.request.bytes must be larger or equal to socket.request.max.bytes"
    if config.get("max.connections.per.ip") == 0 and not config.get("max.connections.per.ip.overrides"):
        return "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."
    delay_ms = config.get("connection.failed.authentication.delay.ms")
    idle_ms = config.get("connections.max.idle.ms")
    if 0 <= idle_ms <= delay_ms:
        return (
            f"connection.failed.authentication.delay.ms={delay_ms} should always be less than "
            f"connections.max.idle.ms={idle_ms} to prevent failed authentication responses from timing out"
        )
    return None


def _check_cleaner(config: BrokerConfig) -> None:
    threads, buffer_bytes = config.get("log.cleaner.threads"), config.get("log.cleaner.dedupe.buffer.size")
    if threads == 0 or buffer_bytes // threads <= _BYTES_OF_A_CLEANER:
        raise ConfigError("requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.")
    low, high = config.get("log.cleaner.min.compaction.lag.ms"), config.get("log.cleaner.max.compaction.lag.ms")
    if low > high:
        raise ConfigError.of_value(
            "log.cleaner.min.compaction.lag.ms",
            low,
            f"Value must not exceed log.cleaner.max.compaction.lag.ms ({high})",
        )


def _check_classic_groups(config: BrokerConfig) -> None:
    low, high = config.get("group.min.session.timeout.ms"), config.get("group.max.session.timeout.ms")
    if low > high:
        raise ConfigError.of_value(
            "group.min.session.timeout.ms", low, f"Value must not exceed group.max.session.timeout.ms ({high})"
        )


def _check_other_groups(config: BrokerConfig) -> None:
    """Defaults of groups of the newer protocols, which have no effect here."""
    for name, (low, high) in GROUP_BOUNDS.items():
        key, most = f"group.{name}", config.get(high)
        if low is not None and most < config.get(low):
            raise ConfigError(f"{high} must be greater than or equal to {low}")
        if low is not None and config.get(key) < config.get(low):
            raise ConfigError(f"{key} must be greater than or equal to {low}")
        if config.get(key) > most:
            raise ConfigError(f"{key} must be less than or equal to {high}")
    for kind in GROUP_KINDS:
        heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        if config.get(heartbeat) >= config.get(session):
            raise ConfigError(f"{heartbeat} must be less than {session}")
