"""Faults of disks that other replicas make up for: bits that flip, a disk that fails for good, power without syncs.

A bit flips in the records of one batch, which is in its checksum. Two moments at which a broker has to notice are made:
a restart after a kill, which reads the segment of the recovery point; and a follower that has yet to copy the batch. A
batch that nobody reads is not noticed, by Apache Kafka either: what is left of these is mended at the end of the plan.
So is a flip above the recovery point of a broker that dies before it has noticed: its start takes the batch for one
that was being written.
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
from oncelog.sim.faults.fault import Fault, Kind, broker_of, come_back, image_of, others_than, span, take_down
from oncelog.sim.virtual.broker_host import BrokerHost
from oncelog.sim.virtual.files import MemoryFiles
from oncelog.sim.virtual.machine import Flip
from oncelog.sim.virtual.world import World
from oncelog.storage.checkpoints import read_offsets
from oncelog.storage.file_names import LOG, RECOVERY_POINTS, parse_segment_file
from oncelog.storage.segment.batch_scan import iter_checked

_MAX_BATCH_BYTES: Final = 1 << 30


class _Place(NamedTuple):
    partition: TopicPartition
    path: str
    position: int
    header: BatchHeader


async def _flipped_bit(world: World, fault: Fault) -> None:
    """A process is killed, and a bit flips in records that were on its disk and that the next start reads. In half of
    the cases all are killed, and this one is the first to come back: every in-sync set still counts on it."""
    broker = broker_of(world, fault)
    if broker.stays_down or not broker.is_up:
        return
    struck = [broker]
    if fault.choice & 1:
        struck += [other for other in others_than(world, broker) if not other.stays_down]
    for one in struck:
        take_down(one)
    points = read_offsets(broker.files, RECOVERY_POINTS)
    image = image_of(world)
    places = [
        place
        for partition in _partitions(broker.files)
        for place in _batches(broker.files, partition, points.get(partition, 0))
        if place.header.next_offset <= points.get(partition, 0) and _is_sound_elsewhere(world, image, broker, place)
    ]
    _flip_one(broker, places, fault)
    await span(fault)
    for one in struck:
        come_back(one)
        await asyncio.sleep((fault.choice >> 8) % 500 / 1_000)


async def _flipped_bit_in_leader(world: World, fault: Fault) -> None:
    """A bit flips on a leader's disk, in records that a follower has yet to copy: it was down while they came."""
    leader = broker_of(world, fault)
    others = [other for other in others_than(world, leader) if other.is_up and not other.stays_down]
    if not others or not leader.is_up:
        return
    follower = others[fault.choice % len(others)]
    take_down(follower)
    await asyncio.sleep((500 + fault.choice % 4_000) / 1_000)
    if leader.is_up:
        image = image_of(world)
        places = [
            place
            for led in leader.node.partitions.leader_logs()
            for place in _batches(leader.files, led.partition, _end(follower.files, led.partition))
            if place.header.base_offset >= _end(follower.files, led.partition)
            and place.header.next_offset <= led.log.durable_offset
            and _is_sound_elsewhere(world, image, leader, place)
        ]
        _flip_one(leader, places, fault)
        leader.tell_of_death(lambda _power_lost: _mend_like_torn(leader))
    come_back(follower)


def mend_unread(world: World) -> None:
    """Mend the flipped bits that nobody is going to read: those of which every replica has the batch."""
    for broker in world.brokers:
        for flip in broker.machine.standing_flips():
            if not _is_to_be_copied(world, BrokerId(broker.broker_id), flip):
                flip.undo()


def _mend_like_torn(broker: BrokerHost) -> None:
    """Mend the flipped bits of a broker that has died which its start cannot tell from a write that was torn."""
    points = read_offsets(broker.files, RECOVERY_POINTS)
    for flip in broker.machine.standing_flips():
        if flip.offset >= points.get(flip.partition, 0):
            flip.undo()


def _is_to_be_copied(world: World, broker_id: BrokerId, flip: Flip) -> bool:
    """True if the broker leads the partition and another replica has yet to copy the batch."""
    image = image_of(world).partition(flip.partition)
    if image is None or image.leader != broker_id:
        return False
    followers = [
        broker for broker in world.brokers if broker.broker_id in image.replicas and broker.broker_id != broker_id
    ]
    return any(_end(follower.files, flip.partition) <= flip.offset for follower in followers)


def _flip_one(broker: BrokerHost, places: list[_Place], fault: Fault) -> None:
    if not places:
        return
    entropy = random.Random(fault.choice)
    place = entropy.choice(places)
    at = place.position + HEADER_SIZE + entropy.randrange(place.header.size_bytes - HEADER_SIZE)
    node = broker.files.node(place.path)
    flip = Flip(place.partition, place.header.base_offset, node, at, 1 << entropy.randrange(8))
    broker.flip(flip)


def _partitions(files: MemoryFiles) -> list[TopicPartition]:
    found = (partition_of_directory(name) for name in files.list(""))
    return [one for one in found if one is not None and one.topic not in INTERNAL_TOPICS and _has_directory(files, one)]


def _has_directory(files: MemoryFiles, partition: TopicPartition) -> bool:
    return str(partition) in files.list("") and files.size(str(partition)) is None


def _batches(files: MemoryFiles, partition: TopicPartition, offset: int) -> Iterator[_Place]:
    """The sound batches of a log with records, from those in the segment of ``offset`` on."""
    directory = str(partition)
    segments = _segments(files, partition)
    first = max((base for base, _ in segments if base <= offset), default=0)
    for base, name in segments:
        if base >= first:
            path = f"{directory}/{name}"
            file = files.open(path)
            for position, header, _, _ in iter_checked(file, 0, file.size(), _MAX_BATCH_BYTES):
                if header.size_bytes > HEADER_SIZE and not header.is_control:
                    yield _Place(partition, path, position, header)


def _segments(files: MemoryFiles, partition: TopicPartition) -> list[tuple[int, str]]:
    """The base offsets and names of a log's segments, in order."""
    if not _has_directory(files, partition):
        return []
    parsed = [(parse_segment_file(name), name) for name in files.list(str(partition))]
    return sorted((item[0], name) for item, name in parsed if item is not None and item[1:] == (LOG, ""))


def _end(files: MemoryFiles, partition: TopicPartition) -> int:
    base = max((base for base, _ in _segments(files, partition)), default=0)
    return max((place.header.next_offset for place in _batches(files, partition, base)), default=base)


def _is_sound_elsewhere(world: World, image: ClusterImage, broker: BrokerHost, place: _Place) -> bool:
    """True if another replica that may lead has the batch as it was written, and nothing before it is damaged there: it
    would cut its log at that."""
    state = image.partition(place.partition)
    members: tuple[BrokerId, ...] = () if state is None else (*state.isr, *state.elr)
    for other in world.brokers:
        if other is broker or other.broker_id not in members:
            continue
        if any(flip.partition == place.partition for flip in other.machine.standing_flips()):
            continue
        for batch in _batches(other.files, place.partition, place.header.base_offset):
            if batch.header == place.header:
                return True
    return False


DAMAGE: Final[Mapping[str, Kind]] = {
    "flipped-bit": _flipped_bit,
    "flipped-bit-in-leader": _flipped_bit_in_leader,
}
"""Drawn only where every record is on two disks by the time that it is acknowledged."""


LONGEST_WAIT_MS: Final = 10_000
"""The longest wait for all in-sync sets to be full."""
_STEP_MS: Final = 100


async def _failing_disk(world: World, fault: Fault) -> None:
    """Every read and every write fails with EIO, until the disk is mended: the broker ends with the first."""
    files = broker_of(world, fault).files
    files.is_failing = True
    await span(fault)
    files.is_failing = False


async def _power_cut_in_full_sets(world: World, fault: Fault) -> None:
    """A machine loses power while every replica is in sync: what it has not synced, others have in memory. Where sets
    are not full for long there is no such moment, and nothing happens; nor is it one while the tree has yet to take
    those out of their sets that have come back from a death."""
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
