"""Keys of groups, as Apache Kafka 4.3 has them.

They concern the ``consumer`` protocol (KIP-848), share groups (KIP-932) and streams groups (KIP-1071), which
are not served here: what is set is kept and described.
"""

from __future__ import annotations

from typing import Final

from oncelog.core.configs.kinds import ConfigKey, ConfigType
from oncelog.core.configs.limits import at_least, offset_reset, one_of

BOOLEAN, STRING = ConfigType.BOOLEAN, ConfigType.STRING
INT = ConfigType.INT


def _of_kind(kind: str) -> tuple[ConfigKey, ...]:
    """The keys that groups of each kind may set: ``consumer``, ``share`` or ``streams``."""
    return (
        ConfigKey(
            f"{kind}.session.timeout.ms",
            INT,
            "45000",
            at_least(1),
            synonym=f"group.{kind}.session.timeout.ms",
            inert=True,
        ),
        ConfigKey(
            f"{kind}.heartbeat.interval.ms",
            INT,
            "5000",
            at_least(1),
            synonym=f"group.{kind}.heartbeat.interval.ms",
            inert=True,
        ),
        ConfigKey(
            f"{kind}.assignment.interval.ms",
            INT,
            "1000",
            at_least(0),
            synonym=f"group.{kind}.assignment.interval.ms",
            inert=True,
        ),
    )


GROUP_KEYS: Final = {
    key.name: key
    for key in (
        *_of_kind("consumer"),
        *_of_kind("share"),
        ConfigKey(
            "share.record.lock.duration.ms",
            INT,
            "30000",
            at_least(1000),
            synonym="group.share.record.lock.duration.ms",
            inert=True,
        ),
        ConfigKey(
            "share.delivery.count.limit", INT, "5", at_least(2), synonym="group.share.delivery.count.limit", inert=True
        ),
        ConfigKey(
            "share.partition.max.record.locks",
            INT,
            "2000",
            at_least(100),
            synonym="group.share.partition.max.record.locks",
            inert=True,
        ),
        ConfigKey("share.auto.offset.reset", STRING, "latest", offset_reset, inert=True),
        ConfigKey(
            "share.isolation.level",
            STRING,
            "read_uncommitted",
            one_of("read_committed", "read_uncommitted"),
            inert=True,
        ),
        ConfigKey("share.renew.acknowledge.enable", BOOLEAN, "true", inert=True),
        *_of_kind("streams"),
        ConfigKey(
            "streams.num.standby.replicas",
            INT,
            "0",
            at_least(0),
            synonym="group.streams.num.standby.replicas",
            inert=True,
        ),
        ConfigKey(
            "streams.initial.rebalance.delay.ms",
            INT,
            "3000",
            at_least(0),
            synonym="group.streams.initial.rebalance.delay.ms",
            inert=True,
        ),
    )
}


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
"""The broker keys between whose values a group's value must lie, in the order Apache Kafka looks at them."""

GROUP_KINDS: Final = ("consumer", "share", "streams")
"""A group's session time-out must exceed its heartbeat interval, in each kind."""
