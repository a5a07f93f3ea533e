"""A follower's log beside its leader's, as a fetcher feeds it, and what must be the same in both."""

from __future__ import annotations

from oncelog.core.producers.entry import ProducerEntry
from oncelog.core.producers.state import ProducerState
from oncelog.records.batch import BatchHeader, iter_headers
from oncelog.storage.log.append_replicated import Replicated, append_replicated
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.storage.log.read import read_batches
from oncelog.storage.log.truncate import truncate_fully_and_start_at, truncate_to
from oncelog.storage.producer_snapshots import decode_snapshot
from oncelog.storage.transactions.producer_updates import replayed
from tests.unit.storage.support import NOW, PARTITION, World, content

Divergence = tuple[int, int]


def answer(leader: PartitionLog, offset: int, max_bytes: int = 1 << 20) -> bytes:
    """A leader's answer to a replica that fetches from ``offset``."""
    return content(read_batches(leader, offset, max_bytes=max_bytes, up_to_log_end=True))


def diverging(leader: PartitionLog, offset: int, epoch: int) -> Divergence | None:
    """The leader's answer to a replica whose last record, before ``offset``, is of ``epoch``: where they part."""
    if epoch < 0:
        return None
    result, end = leader.epoch_end_offset(epoch, leader.leader_epoch)
    return None if result == epoch and end >= offset else (result, end)


def must_begin_anew(leader: PartitionLog, follower: PartitionLog) -> bool:
    """True if nothing that the follower has can be kept."""
    end = follower.log_end_offset
    return end < leader.log_start_offset or (end > leader.log_end_offset and follower.leader_epoch < 0)


def truncation(leader: PartitionLog, follower: PartitionLog) -> int | None:
    """The offset to which the follower must be cut before it can fetch, None where the two agree."""
    if must_begin_anew(leader, follower):
        return int(leader.log_start_offset)
    end = follower.log_end_offset
    if (parted := diverging(leader, end, follower.leader_epoch)) is None:
        return None
    epoch, leader_end = parted
    return min(leader_end, follower.epoch_end_offset(epoch, follower.leader_epoch)[1], end)


def fetch_once(leader: PartitionLog, follower: PartitionLog, max_bytes: int = 1 << 20, now_ms: int = NOW) -> bool:
    """One round of a fetcher: begin anew, truncate or append; False when nothing was left to do."""
    if (offset := truncation(leader, follower)) is not None:
        cut = truncate_fully_and_start_at if must_begin_anew(leader, follower) else truncate_to
        cut(follower, offset, now_ms)
        return True
    data = answer(leader, follower.log_end_offset, max_bytes)
    done = append_replicated(follower, data, now_ms=now_ms, leader_epoch=leader.leader_epoch)
    follower.follow(leader.high_watermark, leader.log_start_offset)
    return bool(done.batch_count)


def catch_up(leader: PartitionLog, follower: PartitionLog, max_bytes: int = 1 << 20, now_ms: int = NOW) -> None:
    """Fetch until the follower has everything."""
    for _ in range(1000):
        if not fetch_once(leader, follower, max_bytes, now_ms):
            return
    raise AssertionError("the follower does not catch up")


def fed(data: bytes, world: World | None = None, epoch: int = 1 << 20) -> tuple[World, Replicated]:
    """A follower that was given ``data`` at once."""
    world = world or World()
    return world, append_replicated(world.log, data, now_ms=world.now_ms, leader_epoch=epoch)


def log_bytes(log: PartitionLog, start: int | None = None, end: int | None = None) -> bytes:
    """All batches in [``start``, ``end``) as they are on the disk; of the whole log when nothing is said."""
    result = b""
    offset = int(log.log_start_offset if start is None else start)
    end = log.log_end_offset if end is None else end
    while offset < end:
        data = answer(log, offset)
        for position, header in iter_headers(data):
            if header.base_offset >= end:
                return result
            result += data[position : position + header.size_bytes]
            offset = header.next_offset
        if not data:
            break
    return result


def batch_headers(log: PartitionLog) -> list[BatchHeader]:
    """Headers of all batches."""
    return [header for _, header in iter_headers(log_bytes(log))]


def aborted(log: PartitionLog) -> list[object]:
    """The transaction index of all segments."""
    return [entry for segment in log.segments for entry in segment.aborted]


def kept(state: ProducerState) -> dict[int, ProducerEntry]:
    """Producers as a snapshot keeps them: the last batch, with the producer's last timestamp."""
    return {producer: _kept(entry) for producer, entry in sorted(state.entries.items())}


def _kept(entry: ProducerEntry) -> ProducerEntry:
    batches = tuple(batch._replace(timestamp=entry.last_timestamp) for batch in entry.batches[-1:])
    return entry._replace(batches=batches)


def replay(data: bytes, upto: int) -> ProducerState:
    """Producer state that follows from batches before ``upto`` alone."""
    state = ProducerState()
    for position, header in iter_headers(data):
        if header.next_offset <= upto and header.producer_id >= 0:
            update = replayed(state, header, data, position)
            if update is not None:
                state.commit(update)
    return state


def check_derived(world: World) -> None:
    """Everything that follows from the batches of a log that begins at 0 is what they say."""
    log = world.log
    data = log_bytes(log, 0)
    state = replay(data, log.log_end_offset)
    assert kept(log.producers) == kept(state)
    assert log.producers.ongoing == state.ongoing
    assert log.producers.end_offset == log.log_end_offset
    assert set(world.directory.transactions.partitions.get(PARTITION, {})) == set(state.ongoing.values())
    assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
    assert log.durable_offset <= log.log_end_offset
    assert log.size_bytes == sum(segment.size_bytes for segment in log.segments) == len(data)
    for offset in log.snapshots.offsets:
        snapshot = decode_snapshot(world.memory.content(f"{PARTITION}/{offset:020d}.snapshot"))
        assert offset <= log.log_end_offset
        assert {entry.producer_id: entry for entry in snapshot} == kept(replay(data, offset)), offset
    assert world.names(".log") == [f"{segment.base_offset:020d}.log" for segment in log.segments]
    for segment in log.segments:
        assert world.files.size(segment.path(".log")) == segment.size_bytes
        assert all(segment.base_offset <= entry.last_offset < log.log_end_offset for entry in segment.aborted)
    starts: dict[int, int] = {}
    for _, header in iter_headers(data):
        starts.setdefault(header.partition_leader_epoch, header.base_offset)
    assert {e.epoch: e.start_offset for e in log.leader_epochs.entries if e.start_offset < log.log_end_offset} == starts
