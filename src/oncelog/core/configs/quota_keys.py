"""Broker keys about quotas of clients and throttles of replication; Apache Kafka 4.3's types and defaults."""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.kinds import ConfigKey, ConfigType, Update, inert
from oncelog.core.configs.limits import at_least

INT = ConfigType.INT
CLASS = ConfigType.CLASS


def throttle(name: str, *, is_inert: bool = False) -> ConfigKey:
    """A limit that kafka-reassign-partitions sets and removes: without a default, listed only while it is set, and,
    as in Apache Kafka, without documentation."""
    return ConfigKey(name, ConfigType.LONG, None, at_least(0), Update.CLUSTER_WIDE, inert=is_inert, internal=True)


QUOTA_KEYS: Final = (
    ConfigKey("quota.window.num", INT, "11", at_least(1)),
    ConfigKey("controller.quota.window.num", INT, "11", at_least(1)),
    ConfigKey("quota.window.size.seconds", INT, "1", at_least(1)),
    ConfigKey("controller.quota.window.size.seconds", INT, "1", at_least(1)),
    ConfigKey("replication.quota.window.num", INT, "11", at_least(1)),
    ConfigKey("replication.quota.window.size.seconds", INT, "1", at_least(1)),
    throttle("leader.replication.throttled.rate"),
    throttle("follower.replication.throttled.rate"),
    inert("client.quota.callback.class", CLASS, None),
)
