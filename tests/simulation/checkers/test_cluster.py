"""The rules of clusters: journals, disks and logs that break one of them, and others that only come close."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from oncelog.base.ids import BrokerId, LeaderEpoch, TopicId, TopicName, TopicPartition
from oncelog.coordination.memory import MemoryTree
from oncelog.core.controller.image import layout
from oncelog.core.controller.image.model import Assignment, BrokerImage, BrokerRecord, PartitionImage
from oncelog.ports import Create, Delete, Operation, Set
from oncelog.sim.checkers.cluster.in_sync import MISSING, InSyncReplicas
from oncelog.sim.checkers.cluster.replicas import (
    MOVING,
    NOT_FULL,
    STILL_THERE,
    STRAY,
    UNEQUAL,
    LogStarts,
    differences_at_rest,
    members_agree,
    producers_agree,
    replicas_agree,
)
from oncelog.sim.checkers.cluster.tree_journal import EPOCH_FELL, TWO_LEADERS, UNCLEAN, WRONG_STATE, TreeJournal
from oncelog.sim.checkers.disk.scan import scan
from oncelog.sim.checkers.wire.exchange import Exchange, Topics
from oncelog.sim.checkers.wire.observer import WireObserver
from oncelog.sim.checkers.wire.watermarks import FELL, ClusterWatermarks
from oncelog.sim.virtual.files import MemoryFiles
from oncelog.storage.checkpoints import write_topic_id
from oncelog.storage.file_names import segment_file
from oncelog.storage.log.append_replicated import append_replicated
from oncelog.storage.log.partition_log import PartitionLog
from oncelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from oncelog.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from oncelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from tests.simulation.checkers.talk import OLD, batch
from tests.unit.storage.support import World as StorageWorld

PARTITION = TopicPartition(TopicName("t"), 0)
ONE, TWO, THREE = (BrokerId(number) for number in (1, 2, 3))
BEGIN = PartitionImage(ONE, LeaderEpoch(0), (ONE, TWO, THREE), (ONE, TWO), leader_broker_epoch=1)


class Journal:
    """A tree with three brokers and one partition, and what its journal's follower has objected to."""

    def __init__(self, begin: PartitionImage = BEGIN, adding: tuple[BrokerId, ...] = ()) -> None:
        self.tree = MemoryTree()
        self.found: list[str] = []
        self.journal = TreeJournal(self.tree, lambda rule, instance: self.found.append(rule))
        self.session = self.tree.session()
        assignment = Assignment(begin.replicas, adding)
        brokers = [BrokerImage(broker, "h", 9092, None, epoch=int(broker)) for broker in (ONE, TWO, THREE)]
        self.commit(
            *layout.missing_base([]),
            *(Create(layout.broker_path(b.broker_id), layout.broker_value(b, 0), ephemeral=True) for b in brokers),
            Create(layout.topic_path(PARTITION.topic), layout.topic_value(TopicId(OLD), [assignment])),
            Create(layout.partitions_path(PARTITION.topic), b""),
            Create(layout.partition_path(PARTITION.topic, 0), b""),
            Create(layout.state_path(PARTITION.topic, 0), layout.state_value(begin, 1)),
        )

    def commit(self, *operations: Operation) -> None:
        self.session.commit(operations)

    def change(self, state: PartitionImage) -> list[str]:
        """Write the partition's state; the rules that this breaks."""
        self.found.clear()
        self.commit(Set(layout.state_path(PARTITION.topic, 0), layout.state_value(state, 1), -1))
        return self.found


def test_a_journal_begins_with_nothing_to_object_to() -> None:
    journal = Journal()
    assert not journal.found
    assert [state.isr for _, state in journal.journal.partitions()] == [(ONE, TWO)]
    assert journal.journal.images[journal.journal.position] is journal.journal.image


@pytest.mark.parametrize(
    "state",
    [
        BEGIN._replace(isr=(ONE,)),
        BEGIN._replace(isr=(ONE, TWO, THREE)),
        BEGIN._replace(leader=TWO, leader_epoch=LeaderEpoch(1), leader_broker_epoch=2),
        BEGIN._replace(leader=TWO, leader_epoch=LeaderEpoch(1), leader_broker_epoch=2, isr=(TWO,), elr=(ONE,)),
        BEGIN._replace(leader=BrokerId(-1), leader_epoch=LeaderEpoch(1), leader_broker_epoch=-1),
        BEGIN._replace(leader_epoch=LeaderEpoch(1), leader_broker_epoch=4),
    ],
)
def test_elections_and_changes_of_the_set_that_may_be(state: PartitionImage) -> None:
    assert Journal().change(state) == []


@pytest.mark.parametrize(
    ("state", "rule"),
    [
        (BEGIN._replace(leader=TWO), TWO_LEADERS),
        (BEGIN._replace(leader_broker_epoch=4), TWO_LEADERS),
        (BEGIN._replace(leader=THREE, leader_epoch=LeaderEpoch(1), isr=(THREE,)), UNCLEAN),
        (BEGIN._replace(leader=TWO, leader_epoch=LeaderEpoch(1), isr=(TWO, THREE)), UNCLEAN),
        (BEGIN._replace(isr=(TWO,)), WRONG_STATE),
        (BEGIN._replace(elr=(TWO,)), WRONG_STATE),
    ],
)
def test_elections_and_changes_of_the_set_that_may_not_be(state: PartitionImage, rule: str) -> None:
    assert rule in Journal().change(state)


def test_a_leader_epoch_does_not_fall() -> None:
    journal = Journal()
    assert journal.change(BEGIN._replace(leader=TWO, leader_epoch=LeaderEpoch(4))) == []
    assert journal.change(BEGIN._replace(leader_epoch=LeaderEpoch(3))) == [EPOCH_FELL]


def test_an_eligible_replica_may_be_elected() -> None:
    begin = BEGIN._replace(isr=(ONE,), elr=(TWO,))
    assert Journal(begin).change(begin._replace(leader=TWO, leader_epoch=LeaderEpoch(1), isr=(TWO,), elr=())) == []


def test_a_fenced_replica_joins_only_where_it_is_the_last_that_may_lead() -> None:
    nobody = PartitionImage(BrokerId(-1), LeaderEpoch(1), BEGIN.replicas, (), leader_broker_epoch=-1, elr=(TWO,))
    fenced = layout.broker_value(BrokerImage(TWO, "h", 9092, None, epoch=2, fenced=True), 0)
    for begin, after, broken in (
        (nobody, nobody._replace(isr=(TWO,), elr=()), []),
        (BEGIN._replace(isr=(ONE,), elr=(TWO,)), BEGIN, [WRONG_STATE]),
    ):
        journal = Journal(begin)
        journal.commit(Set(layout.broker_path(TWO), fenced, -1))
        assert journal.change(after) == broken


def test_nobody_joins_who_is_not_registered() -> None:
    journal = Journal()
    journal.session.commit([layout_delete(THREE)])
    assert journal.change(BEGIN._replace(isr=(ONE, TWO, THREE))) == [WRONG_STATE]


def test_nobody_joins_who_is_about_to_stop_or_has_no_room() -> None:
    usual = BrokerImage(TWO, "h", 9092, None, epoch=2)
    for broker, broken in (
        (usual._replace(in_controlled_shutdown=True), [WRONG_STATE]),
        (usual._replace(has_full_disk=True), [WRONG_STATE]),
        (usual, []),
    ):
        journal = Journal(BEGIN._replace(isr=(ONE,)))
        journal.commit(Set(layout.broker_path(TWO), layout.broker_value(broker, 0), -1))
        assert journal.change(BEGIN) == broken


def layout_delete(broker: BrokerId) -> Operation:
    return Delete(layout.broker_path(broker), -1)


def disk(*batches: bytes, synced: int) -> MemoryFiles:
    """A disk with the partition's log, of which the first ``synced`` batches are durable."""
    files = MemoryFiles()
    directory = str(PARTITION)
    files.make_directory(directory)
    files.sync_directory("")
    write_topic_id(files, directory, TopicId(OLD))
    file = files.open(f"{directory}/{segment_file(0, '.log')}", create=True)
    files.sync_directory(directory)
    file.append(batches[:synced])
    file.sync()
    file.append(batches[synced:])
    return files


def told(journal: Journal, disks: Mapping[BrokerId, MemoryFiles], offset: int) -> list[str]:
    results: list[str] = []
    members = InSyncReplicas(journal.journal, disks, lambda rule, instance: results.append(f"{rule}: {instance}"))
    members.record_watermark(PARTITION, TopicId(OLD), offset)
    members.check_all()
    return results


BATCHES = [batch(value, at=at) for at, value in enumerate("abc")]


def test_what_was_told_is_on_the_disk_of_every_member_and_others_do_not_count() -> None:
    disks = {ONE: disk(*BATCHES, synced=3), TWO: disk(*BATCHES, synced=2), THREE: disk(synced=0)}
    assert told(Journal(), disks, 2) == []
    result = told(Journal(), disks, 3)
    assert len(result) == 1
    assert result[0].startswith(f"{MISSING}: t-0: 3 was shown, broker 2 has 2")


def test_a_lost_disk_does_not_count_until_the_set_was_without_it() -> None:
    journal = Journal()
    disks = {ONE: disk(*BATCHES, synced=3), TWO: disk(*BATCHES, synced=3), THREE: disk(synced=0)}
    results: list[str] = []
    members = InSyncReplicas(journal.journal, disks, lambda rule, instance: results.append(rule))
    members.record_watermark(PARTITION, TopicId(OLD), 3)
    members.lost_disk(TWO, MemoryFiles())
    members.check_all()
    assert list(members.members(PARTITION)) == [ONE]
    journal.change(BEGIN._replace(isr=(ONE,)))
    journal.change(BEGIN)
    members.check_all()
    assert results == [], "by a fetch from before the loss"
    record = layout.broker_record_value(BrokerRecord("another", epoch=9))
    journal.commit(Create(layout.broker_record_path(TWO), record))
    members.check_all()
    assert results == []
    journal.change(BEGIN._replace(isr=(ONE,)))
    journal.change(BEGIN)
    members.check_all()
    assert results == [MISSING], "by a fetch of the registration before"


def test_who_left_a_set_that_became_too_small_counts_as_long_as_it_may_be_elected() -> None:
    journal = Journal()
    disks = {ONE: disk(*BATCHES, synced=3), TWO: disk(*BATCHES, synced=2), THREE: disk(synced=0)}
    journal.change(BEGIN._replace(isr=(ONE,), elr=(TWO,)))
    assert len(told(journal, disks, 3)) == 1
    journal.change(BEGIN._replace(isr=(ONE,)))
    assert told(journal, disks, 3) == []


def test_without_syncs_disks_are_not_looked_at_and_a_power_cut_takes_a_member_out() -> None:
    results: list[str] = []
    disks = {ONE: disk(*BATCHES, synced=1), TWO: disk(*BATCHES, synced=1)}
    members = InSyncReplicas(Journal().journal, disks, lambda rule, instance: results.append(rule), synced=False)
    members.record_watermark(PARTITION, TopicId(OLD), 3)
    members.check_all()
    assert results == []
    members.lost_power(TWO)
    assert list(members.members(PARTITION)) == [ONE]


def test_a_look_goes_on_where_the_last_one_ended_and_sees_what_was_cut() -> None:
    disks = {ONE: disk(*BATCHES, synced=1), TWO: disk(*BATCHES, synced=3)}
    results: list[str] = []
    members = InSyncReplicas(Journal().journal, disks, lambda rule, instance: results.append(instance))
    members.record_watermark(PARTITION, TopicId(OLD), 1)
    members.check_all()
    file = disks[ONE].open(f"{PARTITION}/{segment_file(0, '.log')}")
    file.sync()
    members.record_watermark(PARTITION, TopicId(OLD), 3)
    members.check_all()
    assert results == []
    file.truncate(len(BATCHES[0]))
    file.sync()
    members.check_all()
    assert len(results) == 1


def test_an_epoch_and_an_offset_name_one_batch() -> None:
    other = batch("x", at=1)
    disks = {ONE: scan(disk(*BATCHES, synced=3)), TWO: scan(disk(BATCHES[0], synced=1))}
    assert list(replicas_agree(disks)) == []
    disks[THREE] = scan(disk(BATCHES[0], other, synced=2))
    assert list(replicas_agree(disks)) == ["t-0@1, leader epoch 0: brokers 1 and 3"]


def test_below_what_was_told_members_have_the_same_batches_whatever_their_epochs_say() -> None:
    other = batch("x", at=1, leader_epoch=1)
    disks = {ONE: scan(disk(*BATCHES, synced=3)), TWO: scan(disk(BATCHES[0], other, synced=2))}
    both = [ONE, TWO]
    assert list(replicas_agree(disks)) == []
    assert list(members_agree(disks, lambda _: both, lambda _: 1)) == []
    assert list(members_agree(disks, lambda _: [ONE], lambda _: 3)) == []
    [result] = members_agree(disks, lambda _: both, lambda _: 3)
    assert result == "t-0@1: of leader epoch 0 on broker 1, 1 on broker 2; 3 was shown"


def copied(*batches: bytes, leader_epoch: int = 0) -> PartitionLog:
    """A replica's log in memory."""
    log = StorageWorld().log
    append_replicated(log, b"".join(batches), now_ms=0, leader_epoch=LeaderEpoch(leader_epoch))
    return log


def test_replicas_with_the_same_log_know_the_same_of_producers() -> None:
    written = [batch(value, at=at, producer=7, epoch=0, sequence=at) for at, value in enumerate("abc")]
    logs = {ONE: copied(*written), TWO: copied(*written), THREE: copied(*written[:2])}
    assert list(producers_agree(PARTITION, logs)) == []  # the third has yet to copy the rest
    logs[TWO].producers.load([logs[THREE].producers.entries[7]], 3)
    [result] = producers_agree(PARTITION, logs)
    assert result.startswith("t-0, producer 7: broker 1")


def test_at_rest_sets_are_full_replicas_equally_long_and_no_log_is_stray() -> None:
    full = BEGIN._replace(isr=(ONE, TWO, THREE))
    journal = Journal(full).journal
    ends = {broker: {PARTITION: 3} for broker in (ONE, TWO, THREE)}
    assert list(differences_at_rest(journal, ends)) == []
    assert [rule for rule, _ in differences_at_rest(journal, {**ends, TWO: {PARTITION: 2}})] == [UNEQUAL]
    assert [rule for rule, _ in differences_at_rest(journal, {**ends, TWO: {}})] == [UNEQUAL]
    stray = {PARTITION: 3, TopicPartition(TopicName("gone"), 0): 0}
    assert [rule for rule, _ in differences_at_rest(journal, {**ends, TWO: stray})] == [STRAY]
    assert [rule for rule, _ in differences_at_rest(Journal().journal, ends)] == [NOT_FULL]
    assert [rule for rule, _ in differences_at_rest(Journal(full, adding=(THREE,)).journal, ends)] == [MOVING]


def test_deleted_records_are_on_no_live_member() -> None:
    results: list[str] = []
    starts = LogStarts(lambda rule, instance: results.append(rule))
    starts.deleted(PARTITION, TopicId(OLD), 5, {ONE: 5, TWO: 7})
    assert results == []
    starts.deleted(PARTITION, TopicId(OLD), 6, {ONE: 6, TWO: 5})
    assert results == [STILL_THERE]


def test_deleted_records_are_not_there_again_after_a_start() -> None:
    results: list[str] = []
    starts, key = LogStarts(lambda rule, instance: results.append(rule)), (PARTITION, TopicId(OLD))
    starts.deleted(*key, 5, {ONE: 5, TWO: 5})
    starts.deleted(*key, 3, {ONE: 5, TWO: 5})
    starts.started(ONE, {key: 5})
    starts.started(TWO, {(PARTITION, TopicId(bytes(15) + b"2")): 0})
    starts.started(THREE, {key: 0})
    starts.lost_disk(TWO)
    starts.started(TWO, {key: 0})
    assert results == [], "as it was, of another topic, by a broker that did not live, on an empty disk"
    starts.started(ONE, {key: 4})
    assert results == [STILL_THERE]


class Wire:
    """Answers of any broker about one partition."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.index = 0
        topics = Topics()
        topics.add_name("t", OLD)
        self.watermarks = ClusterWatermarks(topics, lambda rule, instance: self.found.append(rule))

    def asked(self, request: object) -> Exchange:
        self.index += 1
        return Exchange(self.index, 12, request, 0)

    def fetched(self, high: int) -> None:
        data = PartitionData(partition_index=0, high_watermark=high, last_stable_offset=high, log_start_offset=0)
        response = FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=OLD, partitions=[data])])
        requests = self.asked(FetchRequest())
        self.index += 1
        self.watermarks.fetched(requests, response, self.index)

    def listed(self, offset: int) -> None:
        partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
        answer = ListOffsetsPartitionResponse(partition_index=0, offset=offset)
        requests = self.asked(ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[partition])]))
        response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[answer])])
        self.index += 1
        self.watermarks.listed(requests, response, self.index)


def test_a_new_leader_may_know_less_but_does_not_list_less() -> None:
    wire = Wire()
    wire.fetched(10)
    wire.fetched(7)
    wire.listed(10)
    assert wire.found == []
    wire.listed(9)
    assert wire.found == [FELL]


def test_what_began_anew_may_be_lower() -> None:
    wire = Wire()
    wire.listed(10)
    wire.watermarks.replicas_lost(["t-0"])
    wire.listed(9)
    assert wire.found == []


def test_everybody_is_told_of_high_watermarks() -> None:
    wire = Wire()
    heard: list[tuple[TopicPartition, bytes, int]] = []
    wire.watermarks.on_high_watermark = lambda partition, topic_id, offset: heard.append((partition, topic_id, offset))
    wire.fetched(10)
    wire.listed(11)
    assert heard == [(PARTITION, OLD, 10), (PARTITION, OLD, 11)]


def test_answers_to_delete_records_are_told_by_topic_id() -> None:
    heard: list[tuple[TopicPartition, bytes, int]] = []
    observer = WireObserver(is_cluster=True)
    observer.on_deleted = lambda partition, topic_id, before: heard.append((partition, topic_id, before))
    expected = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=5)])
    for number, error in enumerate((0, 7)):
        observer.received("client", number, 2, DeleteRecordsRequest(topics=[expected]), 0)
        answer = DeleteRecordsPartitionResult(partition_index=0, low_watermark=5, error_code=error)
        topic = DeleteRecordsTopicResult(name="t", partitions=[answer])
        observer.answered("client", number, DeleteRecordsResponse(topics=[topic]), 0)
    assert heard == [(PARTITION, bytes(16), 5)]
