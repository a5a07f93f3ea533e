"""Changes that a running broker does not take, although it could be started with the same values.

Counts of threads go to no more than double, and no less than half, at a time; what is kept on the broker's own disk is
no more than what is kept at all; a listener that is there keeps its protocol. Most of these keys have no effect here.
They are checked as in Apache Kafka, so that scripts find the same; the sentences are its own, with the class that it
prints.
"""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.broker import BrokerConfig, broker_key
from oncelog.core.configs.kinds import ConfigError
from oncelog.core.configs.listeners import read_listeners

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
"""The value of a local retention that means all that is kept."""
_UNLIMITED: Final = -1


def check_change(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raise ConfigError if a running broker whose values are ``before`` does not take those of ``after``."""
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
    protocols = {each.listener_name: each.protocol for each in read_listeners(after).endpoints}
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
