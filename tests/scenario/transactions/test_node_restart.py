"""Restart equivalence: what is rebuilt from the logs is what was there, at every record boundary of a recorded run."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from oncelog.base.ids import CONSUMER_OFFSETS, TRANSACTION_STATE, CoordinatorEpoch, Offset, TopicName, TopicPartition
from oncelog.core.groups.settings import GroupSettings
from oncelog.core.groups.shard import GroupShard
from oncelog.core.transactions.settings import TransactionSettings
from oncelog.core.transactions.shard import TransactionShard
from oncelog.handlers.produce import partition_append
from oncelog.node.coordinators.log_batches import ApplyBatch, apply_slice, group_replayer, transaction_replayer
from oncelog.records.batch import iter_headers
from oncelog.storage.log import append as log_append
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.storage.log.read import read_batches
from oncelog.storage.log_config import LogConfig
from oncelog.storage.log_directory import LogDirectory
from tests.scenario.node.driver import Driver
from tests.scenario.node.requests import create_topic
from tests.scenario.transactions.node_client import GROUP, SETTINGS, SOURCE, TOPIC, Client, Steps, run

IDS = TopicPartition(TopicName(TRANSACTION_STATE), 0)
OFFSETS = TopicPartition(TopicName(CONSUMER_OFFSETS), 0)


def recorded(driver: Driver, v2: bool) -> Steps:
    """Two clients, one of whom times out; commits, aborts, offsets, an instance that fences."""
    first, second = Client("first", v2), Client("second", v2, timeout_ms=1000)
    yield from first.initialise()
    yield from second.initialise()
    yield from first.transaction("a", (0, 1), True, 5)
    yield from second.transaction("a", (1, 2), None, 7)
    yield from first.transaction("b", (2,), False, 6)
    driver.advance(20_000)  # the second one's time is over
    yield from first.transaction("c", (0, 2), None, 8)
    again = Client("first", v2)
    yield from again.initialise()  # aborts what its predecessor left
    yield from again.transaction("d", (0, 1, 2), True, 9)


@pytest.fixture(params=[True, False], ids=["v2", "v1"])
def script(request) -> Callable[[Driver], None]:
    def run_it(driver: Driver) -> None:
        run(driver.connect(), recorded(driver, request.param))

    return run_it


def new_driver() -> Driver:
    driver = Driver(SETTINGS)
    create_topic(driver.connect(), TOPIC, 3)
    create_topic(driver.connect(), SOURCE, 1)
    return driver


def of_groups(shard: GroupShard) -> object:
    return shard.persisted([]), {
        producer_id: {where: offset._replace(sequence=0) for where, offset in offsets.items()}
        for producer_id, offsets in shard._offsets.pending().items()
    }


def of_transactions(shard: TransactionShard) -> object:
    return shard.persisted()


def replayed(log: PartitionLog, replayer: ApplyBatch, look: Callable[[], object]) -> list[object]:
    """The state of a shard after every batch of its log."""
    states = []

    def apply(data: bytes, position: int, header) -> None:
        replayer(data, position, header)
        states.append(look())

    offset: Offset | None = Offset(0)
    while offset is not None:
        offset = apply_slice(apply, log, offset)
    return states


def test_transactions_are_rebuilt_as_they_were_at_every_batch(script, monkeypatch) -> None:
    lived = watch(monkeypatch, TransactionShard, "apply", of_transactions)
    driver = new_driver()
    script(driver)
    log = driver.node.partitions.leader_log(IDS).log
    ends = [header.next_offset for header in headers(log)]
    monkeypatch.undo()
    again = TransactionShard(0, CoordinatorEpoch(0), TransactionSettings())
    states = replayed(log, transaction_replayer(again), lambda: of_transactions(again))
    assert len(states) > 15
    assert states == [lived[end - 1] for end in ends]


def test_groups_are_rebuilt_as_they_were_at_every_batch(script, monkeypatch) -> None:
    lived: list[object] = []
    watch(monkeypatch, GroupShard, "apply", of_groups, lived)
    watch(monkeypatch, GroupShard, "apply_end_transaction", of_groups, lived)
    driver = new_driver()
    script(driver)
    log = driver.node.partitions.leader_log(OFFSETS).log
    monkeypatch.undo()
    again = GroupShard(0, GroupSettings())
    states = replayed(log, group_replayer(again), lambda: of_groups(again))
    assert len(states) > 8
    assert states == lived, "one record a batch here"
    assert of_groups(again)[0][GROUP][1][(SOURCE, 0)].offset == 9


def test_producers_are_rebuilt_as_they_were_at_every_append(script, monkeypatch) -> None:
    driver = new_driver()
    append = log_append.append_batch
    compared = 0

    def append_and_compare(log, *arguments, **options):
        nonlocal compared
        appended = append(log, *arguments, **options)
        if log.partition.topic in (TOPIC, OFFSETS.topic):
            compared += 1
            compare(driver, log)
        return appended

    for module in (log_append, partition_append):
        monkeypatch.setattr(module, "append_batch", append_and_compare)
    script(driver)
    assert compared > 25


def compare(driver: Driver, log: PartitionLog) -> None:
    """Recover a copy of the files as a killed process leaves them."""
    opened = LogDirectory.open(copy.deepcopy(driver.files), config_of=lambda _: LogConfig(), now_ms=driver.now_ms)
    again = opened.logs[log.partition]
    assert again.log_end_offset == log.log_end_offset
    assert again.producers.entries == log.producers.entries
    again.set_high_watermark(log.log_end_offset)
    firsts = [entry.transaction_first_offset for entry in log.producers.entries.values()]
    assert again.last_stable_offset == min((at for at in firsts if at is not None), default=log.log_end_offset)


def headers(log: PartitionLog):
    read = read_batches(log, Offset(0), max_bytes=1 << 20, isolation_read_committed=False, minimum_one=True)
    data = b"".join(piece.file.read(piece.position, piece.size_bytes) for piece in read.chunks)
    return [header for _, header in iter_headers(data)]


def watch(monkeypatch, kind, name: str, look, into: list[object] | None = None) -> list[object]:
    """Note what a shard holds after every call of a method while it is loaded."""
    seen = [] if into is None else into
    method = getattr(kind, name)

    def watched(self, *arguments, **options):
        method(self, *arguments, **options)
        if self.is_loaded:
            seen.append(look(self))

    monkeypatch.setattr(kind, name, watched)
    return seen


def test_a_restarted_node_holds_what_the_killed_one_held(script) -> None:
    driver = new_driver()
    script(driver)
    before = look_at(driver)
    driver.session.close()
    driver.start()  # the process was killed: the page cache is still there
    assert look_at(driver) == before
    driver.shutdown()
    assert driver.stopped
    driver.session.close()
    driver.start()
    assert look_at(driver) == before


def look_at(driver: Driver) -> object:
    node = driver.node
    partitions = (IDS, OFFSETS, *(TopicPartition(TopicName(TOPIC), index) for index in range(3)))
    logs = {partition: node.partitions.leader_log(partition).log for partition in partitions}
    return (
        [of_transactions(shard) for shard in node.transactions.shards()],
        [of_groups(shard) for shard in node.groups.shards()],
        {partition: log.producers.entries for partition, log in logs.items()},
        {p: (log.log_end_offset, log.high_watermark, log.last_stable_offset) for p, log in logs.items()},
    )
