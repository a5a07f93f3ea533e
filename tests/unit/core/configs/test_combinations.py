"""Values of a broker's file that do not go together, in Apache Kafka's words: each was tried with 4.3.1."""

from __future__ import annotations

import pytest

from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.combinations import check_combinations
from oncelog.core.configs.kinds import ConfigError

RETENTION = "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
ROLL = "requirement failed: log.roll.ms must be greater than or equal to 1"
CLEANER = "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
SOCKET = (
    "requirement failed: replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent "
    "unnecessary socket timeouts"
)
REFUSED = [
    ("log.roll.ms=0", ROLL),
    ("log.roll.ms=-1", ROLL),
    ("log.roll.jitter.ms=-1", "requirement failed: log.roll.jitter.ms must be greater than or equal to 0"),
    ("log.retention.ms=0", RETENTION),
    ("log.retention.minutes=0", RETENTION),
    ("log.retention.hours=0", RETENTION),
    ("replica.fetch.wait.max.ms=30001", SOCKET),
    ("replica.socket.timeout.ms=400", SOCKET),
    (
        "replica.lag.time.max.ms=400",
        "requirement failed: replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms "
        "to prevent frequent changes in ISR",
    ),
    (
        "queued.max.request.bytes=5",
        "requirement failed: queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
    ),
    (
        "max.connections.per.ip=0",
        "requirement failed: max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides "
        "property is set.",
    ),
    (
        "connections.max.idle.ms=100",
        "requirement failed: connection.failed.authentication.delay.ms=100 should always be less than "
        "connections.max.idle.ms=100 to prevent failed authentication responses from timing out",
    ),
    ("log.cleaner.dedupe.buffer.size=1048576", CLEANER),
    ("log.cleaner.threads=200", CLEANER),
    ("log.cleaner.threads=0", CLEANER),
    ("group.coordinator.rebalance.protocols=consumer", "Disabling the 'classic' protocol is not supported."),
    (
        "group.consumer.heartbeat.interval.ms=90000",
        "group.consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms",
    ),
    (
        "group.consumer.session.timeout.ms=1000",
        "group.consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
    ),
    (
        "group.consumer.max.session.timeout.ms=100",
        "group.consumer.max.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
    ),
]
OURS = [
    (
        "group.min.session.timeout.ms=10 group.max.session.timeout.ms=5",
        "Invalid value 10 for configuration group.min.session.timeout.ms: Value must not exceed "
        "group.max.session.timeout.ms (5)",
    ),
    (
        "log.cleaner.min.compaction.lag.ms=10 log.cleaner.max.compaction.lag.ms=5",
        "Invalid value 10 for configuration log.cleaner.min.compaction.lag.ms: Value must not exceed "
        "log.cleaner.max.compaction.lag.ms (5)",
    ),
]
"""Apache Kafka takes these."""
TAKEN = [
    "log.retention.ms=-7",
    "log.retention.hours=-1",
    "log.roll.jitter.ms=0",
    "queued.max.request.bytes=0",
    "max.connections.per.ip=0 max.connections.per.ip.overrides=127.0.0.1:5",
    "connections.max.idle.ms=-1",
    "connections.max.idle.ms=101",
    "log.cleaner.dedupe.buffer.size=1048577",
]


def config(text: str) -> BrokerConfig:
    """A configuration of pairs of key and value."""
    return BrokerConfig(dict(pair.split("=") for pair in text.split()))


@pytest.mark.parametrize(("text", "sentence"), [*REFUSED, *OURS])
def test_values_that_do_not_go_together(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_combinations(config(text))
    assert str(refused.value) == sentence


@pytest.mark.parametrize("text", TAKEN)
def test_values_that_do(text: str) -> None:
    check_combinations(config(text))


def test_what_all_brokers_follow_ends_none_of_them() -> None:
    own = config("log.cleaner.min.compaction.lag.ms=10")
    after = own.with_dynamic({"log.cleaner.max.compaction.lag.ms": "5"}, {})
    assert after.get("log.cleaner.max.compaction.lag.ms") == 5
