"""The effective settings of a share group: the broker's ``group.share.*`` and the group's own configs (KIP-932)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from oncelog.base.ids import GroupId
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.keys import GROUP_KEYS
from oncelog.core.configs.limits import OffsetReset, read_offset_reset
from oncelog.core.groups.bounded_settings import BoundedSetting, GroupConfigs, Warn

_SESSION: Final = BoundedSetting(
    "share.session.timeout.ms",
    "group.share.session.timeout.ms",
    "group.share.min.session.timeout.ms",
    "group.share.max.session.timeout.ms",
)
_HEARTBEAT: Final = BoundedSetting(
    "share.heartbeat.interval.ms",
    "group.share.heartbeat.interval.ms",
    "group.share.min.heartbeat.interval.ms",
    "group.share.max.heartbeat.interval.ms",
)
_ASSIGNMENT: Final = BoundedSetting(
    "share.assignment.interval.ms",
    "group.share.assignment.interval.ms",
    "group.share.min.assignment.interval.ms",
    "group.share.max.assignment.interval.ms",
)
_LOCK: Final = BoundedSetting(
    "share.record.lock.duration.ms",
    "group.share.record.lock.duration.ms",
    "group.share.min.record.lock.duration.ms",
    "group.share.max.record.lock.duration.ms",
)
_DELIVERIES: Final = BoundedSetting(
    "share.delivery.count.limit",
    "group.share.delivery.count.limit",
    "group.share.min.delivery.count.limit",
    "group.share.max.delivery.count.limit",
)
_LOCKS: Final = BoundedSetting(
    "share.partition.max.record.locks",
    "group.share.partition.max.record.locks",
    "group.share.min.partition.max.record.locks",
    "group.share.max.partition.max.record.locks",
)


class ShareGroupSettings(NamedTuple):
    """The settings of one group. Times in milliseconds; the defaults are Apache Kafka's."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    max_size: int = 200
    initialize_retry_ms: int = 30_000
    """The time after which an initialization of share state without an outcome is tried again."""
    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    partition_max_record_locks: int = 2_000
    offset_reset: OffsetReset = OffsetReset("latest")
    """The start of a partition without a start offset."""
    read_committed: bool = False
    renew_enabled: bool = True
    dead_letter_topic: str = ""
    """The topic for records that were not delivered; empty: none."""
    copies_dead_letters: bool = False
    """True if the topic gets the records themselves, not only what happened to them."""


def share_group_settings(
    group_id: GroupId, config: BrokerConfig, configs: Mapping[str, str], warn: Warn
) -> ShareGroupSettings:
    """The settings of a group with ``configs``; ``warn`` gets a sentence about each value that is capped."""
    values = GroupConfigs(group_id, config, configs, warn)
    session_ms, heartbeat_ms = values.number(_SESSION), values.number(_HEARTBEAT)
    values.check_times(_SESSION, session_ms, _HEARTBEAT, heartbeat_ms)
    return ShareGroupSettings(
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        assignment_interval_ms=values.number(_ASSIGNMENT),
        max_size=config.get("group.share.max.size"),
        initialize_retry_ms=max(
            config.get("group.share.initialize.retry.interval.ms"), config.get("offsets.commit.timeout.ms")
        ),
        record_lock_duration_ms=values.number(_LOCK),
        delivery_count_limit=values.number(_DELIVERIES),
        partition_max_record_locks=values.number(_LOCKS),
        offset_reset=read_offset_reset(_text(configs, "share.auto.offset.reset")),
        read_committed=_text(configs, "share.isolation.level") == "read_committed",
        renew_enabled=_flag(configs, "share.renew.acknowledge.enable"),
        dead_letter_topic=_text(configs, "errors.deadletterqueue.topic.name"),
        copies_dead_letters=_flag(configs, "errors.deadletterqueue.copy.record.enable"),
    )


def default_share_settings(_: GroupId) -> ShareGroupSettings:
    """The settings of every group of a broker without configuration."""
    return ShareGroupSettings()


def _text(configs: Mapping[str, str], key: str) -> str:
    text = configs.get(key, GROUP_KEYS[key].default)
    return str(GROUP_KEYS[key].parse(text or ""))


def _flag(configs: Mapping[str, str], key: str) -> bool:
    text = configs.get(key, GROUP_KEYS[key].default)
    return bool(GROUP_KEYS[key].parse(text or ""))
