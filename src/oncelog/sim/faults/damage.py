"""Disk faults that other replicas make up for: bit flips, a disk that fails for good, power cuts without syncs.

A bit flips in a batch's records, which the checksum covers, where the broker will read it: in the segment of the
recovery point, before a restart; or in a batch that a follower has yet to copy. Unread damage goes unnoticed, as in
Apache Kafka, and is repaired at the end of the plan; so is a flip above the recovery point of a broker that dies before
it notices, as the start would take the batch for torn.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from oncelog.base.ids import INTERNAL_TOPICS, BrokerId, TopicPartition, partition_of_directory
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.replicas.leadership import is_settled
from oncelog.records.batch import HEADER_SIZE, BatchHeader
from oncelog.sim.faults.brokers import POWER
from oncelog.sim.faults.fault import Fault, Kind, bring_back, broker_of, image_of, other_brokers, span, take_down
from oncelog.sim.virtual.broker_host import BrokerHost
from oncelog.sim.virtual.files import MemoryFiles
from oncelog.sim.virtual.machine import Flip
from oncelog.sim.virtual.world import World
from oncelog.storage.checkpoints import read_offsets
from oncelog.storage.file_names import LOG, RECOVERY_POINTS, parse_segment_file
from oncelog.storage.segment.batch_scan import iter_checked

_MAX_BATCH_BYTES: Final = 1 << 30


class _BatchPosition(NamedTuple):
    partition: TopicPartition
    path: str
    position: int
    header: BatchHeader


async def _flipped_bit(world: World, fault: Fault) -> None:
    # A process is killed, and a bit flips in durable records that the next start reads.
    broker = broker_of(world, fault)
    if broker.stays_down or not broker.is_up:
        return
    struck = [broker]
    if fault.choice & 1:
        # In half of the runs all brokers are killed, and the damaged one returns first: every in-sync set still has it.
        struck += [other for other in other_brokers(world, broker) if not other.stays_down]
    for struck_broker in struck:
        take_down(struck_broker)
    points = read_offsets(broker.files, RECOVERY_POINTS)
    image = image_of(world)
    batches = [
        batch
        for partition in _partitions(broker.files)
        for batch in _batches(broker.files, partition, points.get(partition, 0))
        if batch.header.next_offset <= points.get(partition, 0) and _is_sound_elsewhere(world, image, broker, batch)
    ]
    _flip_in_one_of(broker, batches, fault)
    await span(fault)
    for struck_broker in struck:
        bring_back(struck_broker)
        await asyncio.sleep((fault.choice >> 8) % 500 / 1_000)


async def _flipped_bit_in_leader(world: World, fault: Fault) -> None:
    # A bit flips on a leader's disk, in records that a stopped follower has yet to copy.
    leader = broker_of(world, fault)
    others = [other for other in other_brokers(world, leader) if other.is_up and not other.stays_down]
    if not others or not leader.is_up:
        return
    follower = others[fault.choice % len(others)]
    take_down(follower)
    await asyncio.sleep((500 + fault.choice % 4_000) / 1_000)
    if leader.is_up:
        image = image_of(world)
        batches = [
            batch
            for led in leader.node.partitions.leader_logs()
            for batch in _batches(leader.files, led.partition, _log_end(follower.files, led.partition))
            if batch.header.base_offset >= _log_end(follower.files, led.partition)
            and batch.header.next_offset <= led.log.durable_offset
            and _is_sound_elsewhere(world, image, leader, batch)
        ]
        _flip_in_one_of(leader, batches, fault)
        leader.call_on_death(lambda _power_lost: _repair_flips_that_look_torn(leader))
    bring_back(follower)


def mend_unread(world: World) -> None:
    """Repair the flipped bits that will not be read: every replica has the batch."""
    for broker in world.brokers:
        for flip in broker.machine.standing_flips():
            if not _is_to_be_copied(world, BrokerId(broker.broker_id), flip):
                flip.undo()


def _repair_flips_that_look_torn(broker: BrokerHost) -> None:
    # Repair the flipped bits of a dead broker that its start cannot tell from a torn write.
    points = read_offsets(broker.files, RECOVERY_POINTS)
    for flip in broker.machine.standing_flips():
        if flip.offset >= points.get(flip.partition, 0):
            flip.undo()


def _is_to_be_copied(world: World, broker_id: BrokerId, flip: Flip) -> bool:
    # True if the broker leads the partition and another replica has yet to copy the batch.
    image = image_of(world).partition(flip.partition)
    if image is None or image.leader != broker_id:
        return False
    followers = [
        broker for broker in world.brokers if broker.broker_id in image.replicas and broker.broker_id != broker_id
    ]
    return any(_log_end(follower.files, flip.partition) <= flip.offset for follower in followers)


def _flip_in_one_of(broker: BrokerHost, batches: list[_BatchPosition], fault: Fault) -> None:
    if not batches:
        return
    entropy = random.Random(fault.choice)
    batch = entropy.choice(batches)
    position = batch.position + HEADER_SIZE + entropy.randrange(batch.header.size_bytes - HEADER_SIZE)
    node = broker.files.node(batch.path)
    flip = Flip(batch.partition, batch.header.base_offset, node, position, 1 << entropy.randrange(8))
    broker.flip(flip)


def _partitions(files: MemoryFiles) -> list[TopicPartition]:
    partitions = (partition_of_directory(name) for name in files.list(""))
    return [
        partition
        for partition in partitions
        if partition is not None and partition.topic not in INTERNAL_TOPICS and _has_directory(files, partition)
    ]


def _has_directory(files: MemoryFiles, partition: TopicPartition) -> bool:
    return str(partition) in files.list("") and files.size(str(partition)) is None


def _batches(files: MemoryFiles, partition: TopicPartition, offset: int) -> Iterator[_BatchPosition]:
    """The sound batches of a log with records, from the segment of ``offset`` on."""
    directory = str(partition)
    segments = _segments(files, partition)
    first = max((base for base, _ in segments if base <= offset), default=0)
    for base, name in segments:
        if base >= first:
            path = f"{directory}/{name}"
            file = files.open(path)
            for position, header, _, _ in iter_checked(file, 0, file.size(), _MAX_BATCH_BYTES):
                if header.size_bytes > HEADER_SIZE and not header.is_control:
                    yield _BatchPosition(partition, path, position, header)


def _segments(files: MemoryFiles, partition: TopicPartition) -> list[tuple[int, str]]:
    if not _has_directory(files, partition):
        return []
    parsed = [(parse_segment_file(name), name) for name in files.list(str(partition))]
    return sorted((segment[0], name) for segment, name in parsed if segment is not None and segment[1:] == (LOG, ""))


def _log_end(files: MemoryFiles, partition: TopicPartition) -> int:
    base = max((base for base, _ in _segments(files, partition)), default=0)
    return max((batch.header.next_offset for batch in _batches(files, partition, base)), default=base)


def _is_sound_elsewhere(world: World, image: ClusterImage, broker: BrokerHost, damaged: _BatchPosition) -> bool:
    """True if another electable replica has the original batch and no damage in the partition."""
    state = image.partition(damaged.partition)
    members: tuple[BrokerId, ...] = () if state is None else (*state.isr, *state.elr)
    for other in world.brokers:
        if other is broker or other.broker_id not in members:
            continue
        # A replica truncates its log at earlier damage, and would lose the batch.
        if any(flip.partition == damaged.partition for flip in other.machine.standing_flips()):
            continue
        for batch in _batches(other.files, damaged.partition, damaged.header.base_offset):
            if batch.header == damaged.header:
                return True
    return False


# Drawn only if every record is on two disks once it is acknowledged.
DAMAGE: Final[Mapping[str, Kind]] = {
    "flipped-bit": _flipped_bit,
    "flipped-bit-in-leader": _flipped_bit_in_leader,
}


# The longest wait for full in-sync sets.
LONGEST_WAIT_MS: Final = 10_000
_STEP_MS: Final = 100


async def _failing_disk(world: World, fault: Fault) -> None:
    # Every read and write fails with EIO until the disk is repaired: the broker stops at the first.
    files = broker_of(world, fault).files
    files.is_failing = True
    await span(fault)
    files.is_failing = False


async def _power_cut_in_full_sets(world: World, fault: Fault) -> None:
    # A machine loses power while every replica is in sync: others have its unsynced records in memory.
    # If the sets are never full for long, nothing happens. They are not full while the tree has yet to remove replicas
    # that returned from a crash.
    for _ in range(LONGEST_WAIT_MS // _STEP_MS):
        if _all_in_sync(world):
            await POWER["power-cut"](world, fault)
            return
        await asyncio.sleep(_STEP_MS / 1_000)


def _all_in_sync(world: World) -> bool:
    image = image_of(world)
    partitions = [partition for topic in image.topics.values() for partition in topic.partitions]
    full = all(
        len(partition.isr) == len(partition.replicas) and is_settled(partition, image.brokers)
        for partition in partitions
    )
    return full and all(broker.is_up for broker in world.brokers)


REPLICA_DISKS: Final[Mapping[str, Kind]] = {
    "failing-disk": _failing_disk,
    "power-cut-in-full-sets": _power_cut_in_full_sets,
}
