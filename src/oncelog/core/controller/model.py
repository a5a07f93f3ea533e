"""The parts of an image of the cluster; values, never changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.base.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from oncelog.base.tree import ABSENT as ABSENT
from oncelog.base.tree import Change as Change


class PartitionImage(NamedTuple):
    """A partition with its leader and leader epoch. ``version`` is that of its state node."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    version: int = 0


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic. ``version`` and ``config_version`` are those of its nodes."""

    name: TopicName
    topic_id: TopicId
    partitions: tuple[PartitionImage, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    version: int = 0
    config_version: int = ABSENT


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A live broker. ``epoch`` rises with each registration of any broker."""

    broker_id: BrokerId
    host: str
    port: int
    rack: str | None
    epoch: int
    version: int = 0


@dataclass(frozen=True, slots=True)
class ConfigImage:
    """The configs of a broker, all brokers, a group or a client metrics subscription."""

    configs: Mapping[str, str]
    version: int
