"""Plans reassignments: chooses the broker for each replica, from nothing but the present assignment.

Rules for every plan:
  P1  the replicas of a partition are on different brokers, as many as before (or as requested);
  P2  a replica that may stay where it is stays;
  P3  a new replica goes to the rack with the fewest replicas of the partition, there to the broker with the fewest
      replicas overall, then the fewest of the topic, then the lowest id; a broker without a rack is a rack of its own;
  P4  if the preferred leader has to change, the replica that is preferred least often elsewhere takes over, and an
      existing replica is chosen before one that has to be copied first.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeGuard

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.text import counted
from oncelog.client.errors import ClientError

Assignment = Mapping[TopicPartition, tuple[int, ...]]
"""The brokers of each partition, preferred leader first."""
Racks = Mapping[int, str | None]
"""The rack of each broker that may have replicas."""
VERSION: Final = 1
_MAX_PARTITIONS: Final = 1_000_000


class PlanRefused(ClientError):
    """No plan is possible; the message says why, and what would help."""


def plan_departure(assignment: Assignment, racks: Racks, leaving: int) -> dict[TopicPartition, tuple[int, ...]]:
    """New replicas for every partition that has one on ``leaving``; ``assignment`` covers the whole cluster.

    Raises PlanRefused if the other brokers are too few.
    """
    staying = {broker: rack for broker, rack in racks.items() if broker != leaving}
    loads = _Loads(staying, assignment)
    plan = {}
    for partition, old in sorted(assignment.items()):
        if leaving not in old:
            continue
        kept = [broker for broker in old if broker != leaving]
        new_broker = loads.choose(partition, kept)
        if new_broker is None:
            raise PlanRefused(
                f"{partition} has {counted(len(old), 'replica')}, and without broker {leaving} no other broker "
                "could take its replica; add a broker, or give the topic fewer replicas (oncelog topic reassign)"
            )
        new = [new_broker if broker == leaving else broker for broker in old]
        loads.place(partition, new_broker)
        if old[0] == leaving:
            new = loads.with_leader(new, rather=kept)
        plan[partition] = tuple(new)
    return plan


def plan_spread(
    assignment: Assignment, racks: Racks, replication_factor: int | None = None
) -> dict[TopicPartition, tuple[int, ...]]:
    """New replicas for the partitions of ``assignment``, spread evenly over the brokers of ``racks``.

    Replicas and preferred leaders stay where an even spread allows; the plan has only partitions that change. Raises
    PlanRefused.
    """
    factors = {partition: replication_factor or len(old) for partition, old in assignment.items()}
    most = max(factors.values(), default=0)
    if most > len(racks):
        raise PlanRefused(f"replication factor {most} is larger than the number of available brokers ({len(racks)})")
    loads = _Loads(racks, {})
    chosen = _kept(assignment, factors, racks, loads)
    for partition, replicas in chosen.items():
        while len(replicas) < factors[partition]:
            broker = loads.choose(partition, replicas)
            assert broker is not None, "there are as many brokers as replicas"
            replicas.append(broker)
            loads.place(partition, broker)
    spread = _with_leaders(assignment, chosen, loads)
    return {partition: new for partition, new in spread.items() if new != assignment[partition]}


def _kept(
    assignment: Assignment, factors: Mapping[TopicPartition, int], racks: Racks, loads: _Loads
) -> dict[TopicPartition, list[int]]:
    """The replicas that stay: at most an even share for each broker and each rack."""
    # -(-a // b) rounds up.
    share = -(-sum(factors.values()) // max(1, len(racks)))
    count_of_racks = len({rack_of(racks, broker) for broker in racks})
    chosen: dict[TopicPartition, list[int]] = {}
    for partition, old in sorted(assignment.items()):
        in_a_rack = -(-factors[partition] // max(1, count_of_racks))
        kept = chosen.setdefault(partition, [])
        for broker in old:
            if broker not in racks or len(kept) == factors[partition] or loads.replicas[broker] >= share:
                continue
            rack = rack_of(racks, broker)
            if sum(rack_of(racks, other) == rack for other in kept) < in_a_rack:
                kept.append(broker)
                loads.place(partition, broker)
    return chosen


def _with_leaders(
    assignment: Assignment, chosen: Mapping[TopicPartition, list[int]], loads: _Loads
) -> dict[TopicPartition, tuple[int, ...]]:
    """``chosen`` with preferred leaders: the old one within its even share, else the replica that leads least."""
    share = -(-len(chosen) // max(1, len(loads.racks)))
    led = {}
    for partition, replicas in chosen.items():
        old = assignment[partition][:1]
        if old and old[0] in replicas and loads.leads[old[0]] < share:
            loads.leads[old[0]] += 1
            led[partition] = (old[0], *(replica for replica in replicas if replica != old[0]))
    # Second pass: only now the leaderships that stay are all counted.
    for partition, replicas in chosen.items():
        if partition not in led:
            led[partition] = tuple(loads.with_leader(replicas, rather=assignment[partition]))
    return led


def rack_of(racks: Racks, broker: int) -> str | int:
    rack = racks.get(broker)
    # P3: a broker without a rack is a rack of its own.
    return broker if rack is None else rack


class _Loads:
    def __init__(self, racks: Racks, assignment: Assignment) -> None:
        self.racks = racks
        self.replicas: Counter[int] = Counter()
        self.of_topic: Counter[tuple[str, int]] = Counter()
        self.leads: Counter[int] = Counter()
        for partition, brokers in assignment.items():
            for broker in brokers:
                self.place(partition, broker)
            self.leads.update(brokers[:1])

    def place(self, partition: TopicPartition, broker: int) -> None:
        self.replicas[broker] += 1
        self.of_topic[partition.topic, broker] += 1

    def choose(self, partition: TopicPartition, brokers_used: Sequence[int]) -> int | None:
        """The broker for one more replica (P3); None if every broker has one."""
        in_rack = Counter(rack_of(self.racks, broker) for broker in brokers_used)
        return min(
            (broker for broker in self.racks if broker not in brokers_used),
            key=lambda broker: (
                in_rack[rack_of(self.racks, broker)],
                self.replicas[broker],
                self.of_topic[partition.topic, broker],
                broker,
            ),
            default=None,
        )

    def with_leader(self, replicas: Sequence[int], rather: Iterable[int]) -> list[int]:
        """``replicas`` reordered so that the preferred leader comes first (P4); the leadership is counted."""
        preferred = set(rather)
        at = min(
            range(len(replicas)), key=lambda index: (self.leads[replicas[index]], replicas[index] not in preferred)
        )
        self.leads[replicas[at]] += 1
        return [replicas[at], *replicas[:at], *replicas[at + 1 :]]


def assignment_json(plan: Assignment) -> dict[str, Any]:
    """A plan in the format of ``kafka-reassign-partitions --reassignment-json-file``."""
    rows = [
        {"topic": at.topic, "partition": at.partition, "replicas": list(brokers)}
        for at, brokers in sorted(plan.items())
    ]
    return {"version": VERSION, "partitions": rows}


def parse_assignment(text: str) -> dict[TopicPartition, tuple[int, ...]]:
    """A plan from that format. Raises PlanRefused with the reason."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise PlanRefused(f"it is not JSON: {error}") from None
    rows = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not 0 < len(rows) <= _MAX_PARTITIONS:
        raise PlanRefused('it has no list "partitions", like {"version":1,"partitions":[…]}')
    if document.get("version", VERSION) != VERSION:
        raise PlanRefused(f"version {document['version']!r} is not supported; use {VERSION}")
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    for number, row in enumerate(rows):
        partition, replicas = _row(row, f"partitions[{number}]")
        if partition in plan:
            raise PlanRefused(f"partitions[{number}] names {partition} a second time; name each partition once")
        plan[partition] = replicas
    return plan


def _row(row: Any, tp: str) -> tuple[TopicPartition, tuple[int, ...]]:
    if not isinstance(row, dict):
        raise PlanRefused(f'{tp} is not an object such as {{"topic":"flights","partition":0,"replicas":[1,2]}}')
    topic, partition, replicas = row.get("topic"), row.get("partition"), row.get("replicas")
    if not isinstance(topic, str) or not topic or not _is_id(partition):
        raise PlanRefused(f'{tp} needs "topic", a name, and "partition", a number')
    if not isinstance(replicas, list) or not replicas or not all(_is_id(replica) for replica in replicas):
        raise PlanRefused(f'{tp} ({topic}-{partition}) needs "replicas", a list of broker ids')
    if len(set(replicas)) < len(replicas):
        raise PlanRefused(f"{tp} ({topic}-{partition}) names a broker twice in replicas {replicas}; name each once")
    if any(log_dir != "any" for log_dir in row.get("log_dirs") or ()):
        raise PlanRefused(f"{tp} ({topic}-{partition}) names a log directory; only brokers can be chosen")
    return TopicPartition(TopicName(topic), partition), tuple(replicas)


def _is_id(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31
