"""One consumer group of ours, driven like the judge's: operations in, answers and records out."""

from __future__ import annotations

import re
from typing import Any

from oncelog.base.ids import GroupId, MemberId, TopicId, TopicName
from oncelog.core.groups.consumer.assignors import range as range_assignor
from oncelog.core.groups.consumer.assignors import uniform
from oncelog.core.groups.consumer.group import ConsumerGroup, ResolvedRegex
from oncelog.core.groups.consumer.heartbeat import (
    ConsumerHeartbeat,
    HeartbeatDecision,
    decide_heartbeat,
    decide_leave,
)
from oncelog.core.groups.consumer.metadata_hash import hash_of_topic
from oncelog.core.groups.consumer.records import GroupRecord
from oncelog.core.groups.consumer.regular_expressions import decide_resolution
from oncelog.core.groups.consumer.settings import GroupLimits
from oncelog.records.internal import consumer_group_records
from oncelog.records.internal.consumer_group_records import Key, Value

GROUP = GroupId("g")
CLIENT, HOST = "client", "localhost/127.0.0.1"
RACKS = 4

TopicTable = dict[str, tuple[str, int]]
"""Topic → its id in hexadecimal, and its partitions."""


class TopicView:
    """The topics of the judge's metadata: partition p has replicas in the racks p and p + 1, of four."""

    def __init__(self, topics: TopicTable) -> None:
        self.version = 0
        self.version_with_new_topics = 0
        self.replace(topics)

    def replace(self, topics: TopicTable) -> None:
        self.topics = dict(topics)
        self.version += 1

    def id_of(self, name: TopicName) -> TopicId | None:
        return TopicId(bytes.fromhex(self.topics[name][0])) if name in self.topics else None

    def name_of(self, topic: TopicId) -> TopicName | None:
        return next(
            (TopicName(name) for name, (hexadecimal, _) in self.topics.items() if hexadecimal == topic.hex()), None
        )

    def partitions_of(self, topic: TopicId) -> int:
        return next(count for topic_id, count in self.topics.values() if bytes.fromhex(topic_id) == topic)

    def hash_of(self, name: TopicName) -> int:
        topic_id, count = self.topics[name]
        racks = [[f"rack{index % RACKS}", f"rack{(index + 1) % RACKS}"] for index in range(count)]
        return hash_of_topic(TopicId(bytes.fromhex(topic_id)), name, racks)


class CoreGroup:
    """Our group, with the soft state that a shard would keep for it."""

    def __init__(self, topics: TopicTable, interval_ms: int, max_size: int) -> None:
        self.topics = TopicView(topics)
        self.now_ms = 1000
        self.group: ConsumerGroup | None = None
        self._to_resolve: frozenset[str] = frozenset()
        assignors = {"range": range_assignor.assign, "uniform": uniform.assign}
        self._limits = GroupLimits(assignors, interval_ms, max_size)

    def heartbeat(self, operation: dict[str, Any]) -> HeartbeatDecision:
        """Decide and apply a heartbeat. Raises Refused."""
        group = self.group or ConsumerGroup(GROUP)
        request = _request(operation)
        if request.epoch < 0:
            decision = decide_leave(group, request, self.topics, self._limits, self.now_ms)
        else:
            decision = decide_heartbeat(group, request, self.topics, self._limits, self.now_ms)
        self.group = group
        if decision.to_resolve:
            self._to_resolve, group.is_resolving = decision.to_resolve, True
        self.apply(decision.records)
        return decision

    def resolve(self) -> list[GroupRecord]:
        """Resolve the expressions that are due, and apply the result."""
        if self.group is None or not self._to_resolve:
            return []
        resolved = {
            regex: ResolvedRegex(
                frozenset(TopicName(name) for name in self.topics.topics if re.fullmatch(regex, name)),
                self.topics.version,
                self.now_ms,
            )
            for regex in self._to_resolve
        }
        self._to_resolve, self.group.is_resolving = frozenset(), False
        records = decide_resolution(self.group, resolved, self.topics)
        self.apply(records)
        return records

    def change_topics(self, topics: TopicTable, *, has_new: bool) -> None:
        self.topics.replace(topics)
        # The judge's coordinator takes its first update for one with new topics.
        if has_new or not self.topics.version_with_new_topics:
            self.topics.version_with_new_topics = self.topics.version
        if self.group is not None:
            self.group.metadata_refresh_epoch = None

    def apply(self, records: list[tuple[Key, Value | None]]) -> None:
        self.group = self.group or ConsumerGroup(GROUP)
        for key, value in records:
            self.group.apply(key, value)


def decoded(records: list[list[str]]) -> list[tuple[Key, Value | None]]:
    """The judge's records, which must encode to the bytes they came as."""
    result: list[tuple[Key, Value | None]] = []
    for key_text, value_text in records:
        key_bytes = bytes.fromhex(key_text)
        key = consumer_group_records.decode_key(int.from_bytes(key_bytes[:2], "big"), key_bytes[2:])
        assert consumer_group_records.encode_key(key) == key_bytes
        value = None if value_text is None else consumer_group_records.decode_value(key, bytes.fromhex(value_text))
        if value is not None:
            assert consumer_group_records.encode_value(value) == bytes.fromhex(value_text), (key, value)
        result.append((key, value))
    return result


def _request(operation: dict[str, Any]) -> ConsumerHeartbeat:
    topics, owned = operation.get("topics"), operation.get("owned")
    return ConsumerHeartbeat(
        GROUP,
        MemberId(operation["member"]),
        operation["epoch"],
        operation.get("instance"),
        operation.get("rack"),
        operation.get("timeout", -1),
        None if topics is None else frozenset(TopicName(name) for name in topics),
        operation.get("regex"),
        operation.get("assignor"),
        None if owned is None else {TopicId(bytes.fromhex(topic)): frozenset(owned[topic]) for topic in owned},
        CLIENT,
        HOST,
    )
