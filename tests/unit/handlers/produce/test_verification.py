"""KIP-890 with a coordinator that is elsewhere: what it said counts only as long as nothing has ended the transaction.

The handler is stepped by hand, so that a test says what happens between the coordinator's answer and the append.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, cast

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import ProducerEpoch, ProducerId, TopicName, TopicPartition, TransactionalId
from oncelog.core.transactions.model import AddReply, AddRequest, VerifyReply
from oncelog.core.transactions.shard import TransactionShard
from oncelog.handlers.broker.ports import LeaderLog, Marker
from oncelog.handlers.broker.waits import AddToTransaction, Offload
from oncelog.handlers.produce import handler as produce
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.storage.log.record_validation import RECORDS_PER_STEP
from oncelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.unit.handlers.log_broker import NOW_MS, context_of
from tests.unit.handlers.transaction_broker import TransactionBroker, partition

PRODUCER = 9
HERE = partition("t")
BESIDE = partition("t", 1)
YES = {11: VerifyReply(ErrorCode.NONE, {HERE: ErrorCode.NONE}), 12: AddReply(ErrorCode.NONE)}
"""The coordinator's answers, by the version of Produce."""


class Leader(TransactionBroker):
    """Leads the partitions but those that are said to be led elsewhere; the coordinator is another broker."""

    def __init__(self) -> None:
        super().__init__()
        self.led_elsewhere: set[TopicPartition] = set()
        self.takes_part = False
        """The coordinator is this broker, and knows of every partition."""

    def take_part(self, request: AddRequest) -> bool:
        return self.takes_part

    def leader_log(self, partition: TopicPartition, current_leader_epoch: int = -1) -> LeaderLog | ErrorCode:
        if partition in self.led_elsewhere:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return super().leader_log(partition, current_leader_epoch)

    def shard_of(self, transactional_id: TransactionalId) -> TransactionShard | None:
        return None


@pytest.fixture
def leader() -> Leader:
    made = Leader()
    made.add_topic("t", 2)
    return made


def batch(sequence: int) -> bytes:
    """One record of the producer."""
    return bytes(
        build_batch(
            [Record(0, NOW_MS, b"k", b"v")],
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
    )


class Producing:
    """A Produce request on its way, waiting for the coordinator."""

    def __init__(self, leader: Leader, version: int, sequence: int = 0, beside: TopicPartition | None = None) -> None:
        """``beside``: another partition, to which the request has a first batch."""
        data = [PartitionProduceData(index=0, records=memoryview(bytearray(batch(sequence))))]
        if beside is not None:
            data.append(PartitionProduceData(index=beside.partition, records=memoryview(bytearray(batch(0)))))
        topics = [TopicProduceData(name=TopicName("t"), partition_data=data)]
        request = ProduceRequest(transactional_id="x", acks=1, timeout_ms=1000, topic_data=topics)
        self.steps = cast("Generator[Any, Any, Any]", produce.handle(request, context_of(leader, 0, version)))
        assert isinstance(self.steps.send(None), AddToTransaction)

    def told(self, reply: object) -> ErrorCode:
        """The coordinator has answered; the outcome."""
        return self.told_each(reply)[0]

    def told_each(self, reply: object) -> list[ErrorCode]:
        """The same, of all partitions."""
        try:
            self.steps.send(reply)
        except StopIteration as answered:
            return [ErrorCode(response.error_code) for response in answered.value.responses[0].partition_responses]
        raise AssertionError("acks=1 waits for nothing more")


def write_marker(leader: Leader) -> None:
    """The abort of the transaction, before V2: at the same epoch."""
    leader_log = leader.leader_log(HERE)
    assert isinstance(leader_log, LeaderLog)
    leader.write_marker(leader_log, Marker(ProducerId(PRODUCER), ProducerEpoch(0), 0, committed=False))


def test_a_late_answer_opens_nothing(leader: Leader) -> None:
    """The marker came in between: nobody would end the transaction."""
    log = leader.logs.logs[HERE]
    late = Producing(leader, 11)
    write_marker(leader)
    end = log.log_end_offset
    assert late.told(YES[11]) is ErrorCode.INVALID_TXN_STATE
    assert (log.log_end_offset, log.producers.ongoing, len(log.producers.verifications)) == (end, {}, 0)
    again = Producing(leader, 11)
    assert again.told(YES[11]) is ErrorCode.NONE  # it was asked after the marker
    assert list(log.producers.ongoing) == [end]


@pytest.mark.parametrize("ended", ["the transaction before", "this transaction"])
def test_partitions_that_a_marker_overtakes_while_they_are_added_are_added_anew(leader: Leader, ended: str) -> None:
    """Only the coordinator knows which transaction the marker has ended."""
    log = leader.logs.logs[HERE]
    adding = Producing(leader, 12)
    write_marker(leader)
    end = log.log_end_offset
    assert isinstance(adding.steps.send(YES[12]), AddToTransaction)
    if ended == "this transaction":
        assert adding.told(AddReply(ErrorCode.PRODUCER_FENCED)) is ErrorCode.INVALID_PRODUCER_EPOCH
    else:
        assert adding.told(YES[12]) is ErrorCode.NONE
    assert list(log.producers.ongoing) == ([] if ended == "this transaction" else [end])
    assert len(log.producers.verifications) == 0


def test_who_is_overtaken_again_is_refused(leader: Leader) -> None:
    adding = Producing(leader, 12)
    write_marker(leader)
    assert isinstance(adding.steps.send(YES[12]), AddToTransaction)
    write_marker(leader)
    assert adding.told(YES[12]) is ErrorCode.INVALID_TXN_STATE


def test_the_guard_of_before_does_not_pass_for_that_of_after(leader: Leader) -> None:
    """The ABA: another request verifies the next transaction while the late one still waits."""
    late = Producing(leader, 11)
    write_marker(leader)
    following = Producing(leader, 11)
    assert late.told(YES[11]) is ErrorCode.INVALID_TXN_STATE
    assert following.told(YES[11]) is ErrorCode.NONE


def test_requests_that_verify_together_are_both_appended(leader: Leader) -> None:
    """The first begins the transaction, the second is in it."""
    first, second = Producing(leader, 11), Producing(leader, 11, sequence=1)
    assert [first.told(YES[11]), second.told(YES[11])] == [ErrorCode.NONE] * 2
    assert len(leader.logs.logs[HERE].producers.verifications) == 0


def test_a_transaction_of_v2_begins_with_its_first_batch(leader: Leader) -> None:
    """The first batch may still be on its way to a former leader: after the second it could never be appended."""
    second = Producing(leader, 12, sequence=1)
    assert second.told(YES[12]) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert Producing(leader, 12).told(YES[12]) is ErrorCode.NONE
    log = leader.logs.logs[HERE]
    assert (log.log_end_offset, len(log.producers.verifications)) == (1, 0)


def test_before_v2_a_producer_without_state_may_go_on_at_any_sequence(leader: Leader) -> None:
    """KIP-360: its state may have expired."""
    assert Producing(leader, 11, sequence=7).told(YES[11]) is ErrorCode.NONE


@pytest.mark.parametrize("version", [11, 12])
def test_a_partition_that_is_led_only_since_the_question_is_refused(leader: Leader, version: int) -> None:
    """Nobody was asked about it: its records would be in a transaction that nobody ends there."""
    leader.led_elsewhere.add(BESIDE)
    producing = Producing(leader, version, beside=BESIDE)
    leader.led_elsewhere.clear()
    assert producing.told_each(YES[version]) == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert leader.logs.logs[BESIDE].log_end_offset == 0


def test_a_transaction_that_has_ended_since_the_question_is_not_begun_again(leader: Leader) -> None:
    """It was open, so the coordinator was asked about the other partition only; its marker came in between."""
    assert Producing(leader, 11).told(YES[11]) is ErrorCode.NONE
    producing = Producing(leader, 11, sequence=1, beside=BESIDE)
    write_marker(leader)
    both = VerifyReply(ErrorCode.NONE, {BESIDE: ErrorCode.NONE})
    assert producing.told_each(both) == [ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE]
    assert leader.logs.logs[HERE].producers.ongoing == {}


@pytest.mark.parametrize("was_open", [True, False])
@pytest.mark.parametrize("ended", [True, False])
def test_a_transaction_that_ends_while_a_worker_validates_is_verified_again(
    leader: Leader, ended: bool, was_open: bool
) -> None:
    """The coordinator, asked after the marker, says why: a fenced producer learns of its epoch."""
    if was_open:
        assert Producing(leader, 11).told(YES[11]) is ErrorCode.NONE
    leader.takes_part = True
    records = [Record(number, NOW_MS, None, b"") for number in range(RECORDS_PER_STEP + 1)]
    sequence = int(was_open)
    large = build_batch(records, producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence, transactional=True)
    data = [PartitionProduceData(index=0, records=memoryview(large))]
    topics = [TopicProduceData(name=TopicName("t"), partition_data=data)]
    request = ProduceRequest(transactional_id="x", acks=1, timeout_ms=1000, topic_data=topics)
    steps = cast("Generator[Any, Any, Any]", produce.handle(request, context_of(leader, 0, 11)))
    offload = steps.send(None)
    assert isinstance(offload, Offload)
    reply = outcome_of(offload.steps)
    if ended:
        write_marker(leader)
        leader.takes_part = False
        assert isinstance(steps.send(reply), AddToTransaction)
        reply = AddReply(ErrorCode.PRODUCER_FENCED)
    with pytest.raises(StopIteration) as answered:
        steps.send(reply)
    (answer,) = answered.value.value.responses[0].partition_responses
    assert answer.error_code == (ErrorCode.INVALID_PRODUCER_EPOCH if ended else ErrorCode.NONE)
    producers = leader.logs.logs[HERE].producers
    assert (len(producers.verifications), bool(producers.ongoing)) == (0, not ended)


def outcome_of(steps: Generator[None, None, Any]) -> Any:
    """The outcome of a worker that drives ``steps``."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def test_nothing_is_kept_of_who_is_refused_or_has_gone(leader: Leader) -> None:
    """Or producers that do not exist would fill the memory."""
    verifications = leader.logs.logs[HERE].producers.verifications
    refused, gone = Producing(leader, 11), Producing(leader, 11)
    assert len(verifications) == 1
    assert refused.told(VerifyReply(ErrorCode.INVALID_PRODUCER_ID_MAPPING)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    gone.steps.close()
    assert len(verifications) == 0
