"""Constraints between broker keys, for the file at start and for each dynamic change.

They are not checked for a change that another broker has accepted: a contradicting local file must not stop a broker.
Messages are Apache Kafka's where it has the constraint, with the class name that it prints.
"""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.keys import broker_key
from oncelog.core.configs.kinds import ConfigError
from oncelog.core.configs.listeners import read_listeners

_BYTES_OF_A_CLEANER: Final = 1 << 20
_PROTOCOLS: Final = "listener.security.protocol.map"
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
_AS_ALL: Final = -2
"""A local retention equal to the total retention."""
_UNLIMITED: Final = -1


def _bounds(kind: str, *keys: str) -> dict[str, tuple[str, str]]:
    return {f"{kind}.{key}": (f"group.{kind}.min.{key}", f"group.{kind}.max.{key}") for key in keys}


GROUP_BOUNDS: Final[dict[str, tuple[str | None, str]]] = {
    **_bounds("consumer", "heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"),
    **_bounds("share", "heartbeat.interval.ms", "session.timeout.ms"),
    **_bounds("share", "record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks"),
    **_bounds("share", "assignment.interval.ms"),
    **_bounds("streams", "heartbeat.interval.ms", "session.timeout.ms"),
    "streams.num.standby.replicas": (None, "group.streams.max.standby.replicas"),
    **_bounds("streams", "assignment.interval.ms"),
}
"""The broker keys that bound a group's value, in the order in which Apache Kafka checks them."""

GROUP_KINDS: Final = ("consumer", "share", "streams")
"""In each kind, a group's session time-out must exceed its heartbeat interval."""


def check_combinations(config: BrokerConfig) -> None:
    """Raises ConfigError."""
    if "classic" not in config.get("group.coordinator.rebalance.protocols"):
        raise ConfigError("Disabling the 'classic' protocol is not supported.")
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
    # Also protects the division.
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
    """Check the defaults of the newer group protocols; those of streams groups have no effect here."""
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
    if config.get("group.share.max.share.sessions") < config.get("group.share.max.size"):
        raise ConfigError("group.share.max.share.sessions must be greater than or equal to group.share.max.size")


def check_change(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raise ConfigError if a running broker rejects the change from ``before`` to ``after``.

    Most of these keys have no effect here; scripts get the same errors as from Apache Kafka.
    """
    _check_retention("log.local.retention.ms", "log.retention.ms", after, after.log_retention_ms)
    _check_retention("log.local.retention.bytes", "log.retention.bytes", after, after.get("log.retention.bytes"))
    _check_listeners(before, after)
    for name in sorted({*before.dynamic, *before.dynamic_default, *after.dynamic, *after.dynamic_default}):
        key = broker_key(name)
        if key is not None and key.name in _THREADS:
            _check_threads(key.name, before.value_or(name, key.name), after.value_or(name, key.name))


def _check_retention(local_key: str, key: str, config: BrokerConfig, whole: int) -> None:
    local = config.get(local_key)
    if whole == _UNLIMITED or local == _AS_ALL:
        return
    if local == _UNLIMITED:
        raise _refused(local_key, local, f"Value must not be -1 as {key} value is set as {whole}.")
    if local > whole:
        raise _refused(local_key, local, f"Value must not be more than {key} property value: {whole}")


def _check_listeners(before: BrokerConfig, after: BrokerConfig) -> None:
    if after.get(_PROTOCOLS) == before.get(_PROTOCOLS):
        return
    protocols = {endpoint.listener_name: endpoint.protocol for endpoint in read_listeners(after).endpoints}
    for endpoint in read_listeners(BrokerConfig(before.static)).endpoints:
        name = endpoint.listener_name
        if protocols[name] != endpoint.protocol:
            reason = f"Security protocol cannot be updated for existing listener ListenerName({name})"
            raise _wrapped(_PROTOCOLS, after.get(_PROTOCOLS), reason)


def _check_threads(name: str, before: int, after: int) -> None:
    if before // 2 <= after <= 2 * before:
        return
    if name == _CLEANERS:
        change = "increased to more than double" if after > before else "reduced to less than half"
        raise _wrapped(name, after, f"Log cleaner threads cannot be {change} the current value {before}")
    bound = "not be greater than double" if after > before else "be at least half"
    reason = f"{name}={after}, value should {bound} the current value {before}"
    raise _wrapped(name, after, f"Dynamic thread count update validation failed for {reason}")


def _refused(key: str, value: int, reason: str) -> ConfigError:
    return _wrapped(key, value, str(ConfigError.of_value(key, value, reason)))


def _wrapped(key: str, value: int | str, reason: str) -> ConfigError:
    return ConfigError(
        f"Invalid value org.apache.kafka.common.config.ConfigException: {reason} "
        "for configuration Invalid dynamic configuration",
        key=key,
        value=value,
    )
