"""Keys of the smaller resources: groups and client metrics subscriptions, as Apache Kafka 4.3 has them.

A group's keys concern the ``consumer`` protocol (KIP-848); a subscription's, the metrics that clients push (KIP-714).
"""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.kinds import ConfigKey, ConfigType
from oncelog.core.configs.limits import at_least, between

INT, LIST = ConfigType.INT, ConfigType.LIST

GROUP_KEYS: Final = {
    key.name: key
    for key in (
        ConfigKey(
            "consumer.session.timeout.ms",
            INT,
            "45000",
            "Time after which a silent member of a consumer-protocol group is removed.",
            at_least(1),
            synonym="group.consumer.session.timeout.ms",
        ),
        ConfigKey(
            "consumer.heartbeat.interval.ms",
            INT,
            "5000",
            "Time between two heartbeats of a member of a consumer-protocol group.",
            at_least(1),
            synonym="group.consumer.heartbeat.interval.ms",
        ),
        ConfigKey(
            "consumer.assignment.interval.ms",
            INT,
            "1000",
            "Least time between two assignments of a consumer-protocol group.",
            at_least(0),
            synonym="group.consumer.assignment.interval.ms",
        ),
    )
}

GROUP_BOUNDS: Final = {
    "consumer.session.timeout.ms": (
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    "consumer.heartbeat.interval.ms": (
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    "consumer.assignment.interval.ms": (
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
}
"""The broker keys between whose values a group's value must lie."""

CLIENT_METRICS_KEYS: Final = {
    key.name: key
    for key in (
        ConfigKey("interval.ms", INT, "300000", "Time between two pushes of a client.", between(100, 3_600_000)),
        ConfigKey("match", LIST, "", "Which clients the subscription is for, as selector=pattern."),
        ConfigKey("metrics", LIST, "", "Prefixes of the metrics to push."),
    )
}
