"""A large group of the consumer protocol (KIP-848): how fast it forms, and what its heartbeats cost the broker."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Final

from tests.peers.clients.sweep.wire import Wire

from bench.options import Options
from bench.peers import Broker
from bench.report import Comparison, Figures
from bench.side_by_side import side_by_side
from oncelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

MEMBERS: Final = 1000
PARTITIONS: Final = 1000
_ROUNDS: Final = 3
_VERSION: Final = 1
_TIMEOUT_MS: Final = 300_000
_COORDINATOR_TRIES: Final = 300
_GOALS: Final = {"heartbeat, broker CPU ms": "≤ 0.2 ms", "joins/s": "≥ 0.5 ×"}


@dataclass
class _Member:
    member_id: str
    epoch: int = 0
    owned: list[TopicPartitions] = field(default_factory=list)


def consumer_heartbeats(options: Options) -> Comparison:
    """A thousand members of the consumer protocol join one group, and go on with heartbeats."""
    count = options.scaled(MEMBERS)

    def measure(broker: Broker, topic: str) -> Figures:
        members = [_Member(f"{topic}-{number}") for number in range(count)]
        with Wire(broker.bootstrap_servers) as wire:
            _wait_for_coordinator(wire, topic)
            started = time.perf_counter()
            for member in members:
                _beat(wire, topic, member, rebalance_timeout_ms=_TIMEOUT_MS, subscribed_topic_names=[topic])
            joined_s = time.perf_counter() - started
            _converge(wire, topic, members)
            cpu_before_s, started = broker.process.cpu_seconds(), time.perf_counter()
            for _ in range(_ROUNDS):
                for member in members:
                    _call(wire, topic, member, topic_partitions=None)
            took_s, cpu_s = time.perf_counter() - started, broker.process.cpu_seconds() - cpu_before_s
        beats = _ROUNDS * len(members)
        return {
            "joins/s": len(members) / joined_s,
            "heartbeat, broker CPU ms": 1000 * cpu_s / beats,
            "heartbeats/s, one after another": beats / took_s,
        }

    return side_by_side("A large consumer group", options, measure, _GOALS, partitions=PARTITIONS)


def _wait_for_coordinator(wire: Wire, group: str) -> None:
    """The first request for a group creates the coordinators' topic, and its coordinator loads."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    for _ in range(_COORDINATOR_TRIES):
        wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
        if wire.call(request, 8).groups[0].error_code == 0:
            return
        time.sleep(0.1)
    raise RuntimeError(f"the coordinator of {group} is not available after {_COORDINATOR_TRIES} tries")


def _converge(wire: Wire, group: str, members: list[_Member]) -> None:
    """Heartbeats until a round changes nothing."""
    is_stable = False
    while not is_stable:
        # A target assignment is computed once in this interval.
        time.sleep(1.1)
        is_stable = True
        for member in members:
            epoch = member.epoch
            has_changed = _beat(wire, group, member)
            is_stable &= not has_changed and member.epoch == epoch


def _beat(wire: Wire, group: str, member: _Member, **fields: Any) -> bool:
    """A heartbeat with the partitions that the member owns; True if they change."""
    answer = _call(wire, group, member, topic_partitions=member.owned, **fields)
    member.epoch = answer.member_epoch
    if answer.assignment is None:
        return False
    parts = answer.assignment.topic_partitions
    member.owned = [TopicPartitions(topic_id=part.topic_id, partitions=part.partitions) for part in parts]
    return True


def _call(wire: Wire, group: str, member: _Member, **fields: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member.member_id, member_epoch=member.epoch, **fields
    )
    answer = wire.call(request, _VERSION)
    if answer.error_code:
        raise RuntimeError(f"error {answer.error_code}: {answer.error_message}")
    return answer
