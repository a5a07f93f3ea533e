"""Chooses the protocol of a group member: classic, or consumer (KIP-848).

Without a choice by the caller, a group that the consumer protocol has made is joined by it, and any other group by the
classic one. Every Apache Kafka since 4.0 has the new protocol, but a member that used it would convert a running group:
other partitions would be assigned, and callbacks would get some of them instead of all. A pattern selects the consumer
protocol, whose coordinator resolves it. See docs/group-consumers.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal
from uuid import UUID

from oncelog.base.ids import uuid_text
from oncelog.client.errors import BrokerRefused, ConfigError
from oncelog.client.machine.assigned_partitions import AssignedPartitions
from oncelog.client.machine.consumer_group import (
    ConsumerGroupMember,
    heartbeat_answer_means_consumer_group,
    heartbeat_of_a_stranger,
)
from oncelog.client.machine.group import GroupMember, GroupSettings
from oncelog.client.machine.retry import Remedy, remedy
from oncelog.client.programs.classic_member import ClassicMemberPrograms
from oncelog.client.programs.cluster import Cluster
from oncelog.client.programs.consumer_member import ConsumerMemberPrograms
from oncelog.client.programs.group import MemberPrograms
from oncelog.client.programs.steps import Program, call
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

GroupProtocol = Literal["classic", "consumer"]
_PROTOCOLS: Final = ("classic", "consumer")
_FEATURE: Final = "group.version"


@dataclass(frozen=True, slots=True)
class Subscription:
    """A membership to be: the group, the topics by name or pattern, and its settings. Raises ConfigError."""

    group: str
    topics: Sequence[str] = ()
    pattern: str | None = None
    protocol: GroupProtocol | None = None
    settings: GroupSettings = field(default_factory=GroupSettings)

    def __post_init__(self) -> None:
        if isinstance(self.topics, str):
            raise TypeError(f"topics: give a list of names, [{self.topics!r}]")
        if self.protocol not in (None, *_PROTOCOLS):
            raise ConfigError(f"group protocol {self.protocol!r}: use {' or '.join(_PROTOCOLS)}, or leave it out")
        if self.pattern is not None and self.protocol == "classic":
            raise ConfigError("a pattern needs the group protocol 'consumer': name the topics in the classic one")


def choose_member(
    cluster: Cluster, subscription: Subscription, assigned: AssignedPartitions, read_committed: bool
) -> Program[MemberPrograms]:
    """The programs of a member in the protocol that it is to use. Raises ClientError."""
    protocol = subscription.protocol
    if protocol is None:
        protocol = "consumer"
        if subscription.pattern is None and not (yield from is_consumer_group(cluster, subscription.group)):
            protocol = "classic"
    group, topics, settings = subscription.group, subscription.topics, subscription.settings
    if protocol == "classic":
        return ClassicMemberPrograms(cluster, GroupMember(group, topics, settings), assigned, read_committed)
    member = ConsumerGroupMember(group, topics, subscription.pattern, settings, _new_member_id(cluster))
    return ConsumerMemberPrograms(cluster, member, assigned, read_committed)


def is_consumer_group(cluster: Cluster, group: str) -> Program[bool]:

    def attempt() -> Program[bool]:
        link = yield from cluster.link((yield from cluster.coordinator(group)))
        if not link.versions.features.get(_FEATURE) or not link.versions.supports(ConsumerGroupHeartbeatRequest):
            return False
        answer = yield from call(link, heartbeat_of_a_stranger(group, _new_member_id(cluster)))
        if remedy(answer.error_code) is not Remedy.FAIL:
            raise BrokerRefused(answer.error_code, f"group {group!r}", answer.error_message)
        return heartbeat_answer_means_consumer_group(answer.error_code)

    return (yield from cluster.retrying(attempt))


def _new_member_id(cluster: Cluster) -> str:
    """A random UUID as Apache Kafka's clients write it, but never like an option of a command line."""
    number = cluster.environment.jitter(0, 2**128 - 1)
    return uuid_text(UUID(int=number, version=4).bytes).lstrip("-")
