"""The requests of a transactional producer to the coordinators, and what it makes of each answer."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import ConfigError, OutOfTurn, ProducerFenced, ProducerUnusable, TransactionFailed
from oncelog.client.machine.offsets import Committed, GroupMetadata
from oncelog.client.machine.pending_batch import Failed
from oncelog.client.machine.producer import ProducerMachine, ProducerSettings
from oncelog.client.machine.transaction_states import NEXT, State, Step, Verdict, produce_verdict, verdict
from oncelog.client.machine.transaction_values import Ended, StoredTransaction, TransactionSettings
from oncelog.client.machine.transactions import LAST_PRODUCE_VERSION_1, TransactionMachine
from oncelog.records.batch import read_header
from oncelog.records.record import Record
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from oncelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

T0, T1 = (TopicPartition(TopicName("t"), index) for index in range(2))
GROUP = GroupMetadata("g", 3, "m")


def asked(machine: TransactionMachine, kind: type[Any]) -> Any:
    ask = machine.next_request()
    assert ask is not None
    assert type(ask.message) is kind
    return ask.message


def initialized(version: int = 2, *, two_phase: bool = False) -> TransactionMachine:
    machine = TransactionMachine(TransactionSettings("x", two_phase=two_phase))
    machine.observe({"transaction.version": version}, can_bump=True)
    machine.initialize()
    machine.answered(InitProducerIdResponse(producer_id=7, producer_epoch=0))
    assert machine.state is State.READY
    return machine


def added(*codes: int) -> AddPartitionsToTxnResponse:
    results = [
        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        for index, code in enumerate(codes)
    ]
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[AddPartitionsToTxnTopicResult(name="t", results_by_partition=results)]
    )


def offsets_answer(*codes: int) -> TxnOffsetCommitResponse:
    parts = [
        TxnOffsetCommitResponsePartition(partition_index=index, error_code=code) for index, code in enumerate(codes)
    ]
    return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="t", partitions=parts)])


def test_version_1_announces_partitions_and_groups_once_and_keeps_its_epoch() -> None:
    machine = initialized(1)
    machine.begin()
    assert machine.produce_version_limit == LAST_PRODUCE_VERSION_1
    machine.register([T0])
    machine.register([])
    assert asked(machine, AddPartitionsToTxnRequest).v3_and_below_producer_id == 7
    machine.answered(added(0))
    machine.register([T0])
    assert not machine.has_request
    for offset in (1, 2):
        machine.add_offsets({T0: Committed(offset)}, GROUP)
        if offset == 1:
            assert asked(machine, AddOffsetsToTxnRequest).group_id == "g"
            machine.answered(AddOffsetsToTxnResponse())
        message = asked(machine, TxnOffsetCommitRequest)
        assert (message.generation_id, message.member_id) == (3, "m")
        machine.answered(offsets_answer(0))
    machine.commit()
    ask = machine.next_request()
    assert ask is not None
    assert (ask.at_most, asked(machine, EndTxnRequest).committed) == (4, True)
    machine.answered(EndTxnResponse())
    assert (machine.state, machine.producer_epoch) == (State.READY, 0)


def test_version_2_asks_only_for_the_end_and_takes_the_epoch_from_it() -> None:
    machine = initialized(2)
    machine.begin()
    machine.register([T0, T1])
    assert not machine.has_request
    assert machine.produce_version_limit is None
    machine.add_offsets({T0: Committed(1)}, GROUP)
    ask = machine.next_request()
    assert ask is not None
    assert (ask.group, ask.at_least) == ("g", 5)
    machine.answered(offsets_answer(0))
    machine.commit()
    ask = machine.next_request()
    assert ask is not None
    assert ask.at_least == 5
    machine.answered(EndTxnResponse(producer_id=7, producer_epoch=1))
    assert (machine.state, machine.producer_epoch) == (State.READY, 1)


def test_a_transaction_without_anything_in_it_asks_nothing() -> None:
    machine = initialized(2)
    for end in (machine.commit, machine.abort):
        machine.begin()
        end()
        assert not machine.has_request
        assert machine.state is State.READY


def test_where_the_cluster_moved_to_version_2_the_epoch_is_raised_before_the_next_transaction() -> None:
    machine = initialized(1)
    machine.begin()
    machine.observe({"transaction.version": 2}, can_bump=True)
    assert machine.version == 1
    machine.commit()
    message = asked(machine, InitProducerIdRequest)
    assert (message.producer_id, message.producer_epoch) == (7, 0)
    machine.answered(InitProducerIdResponse(producer_id=7, producer_epoch=1))
    assert (machine.state, machine.version, machine.producer_epoch) == (State.READY, 2, 1)


def test_only_what_was_refused_for_now_is_committed_again() -> None:
    machine = initialized(2)
    machine.begin()
    machine.add_offsets({T0: Committed(1), T1: Committed(2)}, GROUP)
    assert machine.answered(offsets_answer(0, ErrorCode.NOT_COORDINATOR)) is Verdict.FIND_COORDINATOR
    (topic,) = asked(machine, TxnOffsetCommitRequest).topics
    assert [partition.partition_index for partition in topic.partitions] == [1]
    assert machine.answered(offsets_answer(0)) is Verdict.DONE
    assert not machine.has_request


def test_a_group_that_moved_on_costs_the_transaction_and_not_the_producer() -> None:
    machine = initialized(2)
    machine.begin()
    machine.add_offsets({T0: Committed(1)}, GROUP)
    asked(machine, TxnOffsetCommitRequest)
    machine.answered(offsets_answer(ErrorCode.ILLEGAL_GENERATION))
    assert machine.state is State.ABORTABLE_ERROR
    for refused in (machine.commit, lambda: machine.require_open("send"), machine.begin):
        with pytest.raises(TransactionFailed) as caught:
            refused()
        assert caught.value.code == ErrorCode.ILLEGAL_GENERATION
    machine.abort()
    machine.answered(EndTxnResponse(producer_id=7, producer_epoch=1))
    machine.begin()
    machine.require_open("send")


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED])
def test_a_fenced_producer_is_told_so_from_then_on(code: ErrorCode) -> None:
    machine = initialized(2)
    machine.begin()
    machine.register([T0])
    machine.commit()
    assert machine.answered(EndTxnResponse(error_code=code)) is Verdict.FATAL
    for refused in (machine.abort, machine.begin, machine.initialize):
        with pytest.raises(ProducerFenced) as caught:
            refused()
        assert caught.value.code == ErrorCode.PRODUCER_FENCED


def test_lost_records_in_version_1_end_with_an_abort_and_a_higher_epoch() -> None:
    machine = initialized(1)
    machine.begin()
    machine.register([T0])
    machine.answered(added(0))
    machine.batch_failed(ErrorCode.MESSAGE_TOO_LARGE, "too large")
    machine.abort()
    assert asked(machine, EndTxnRequest).committed is False
    machine.answered(EndTxnResponse())
    message = asked(machine, InitProducerIdRequest)
    assert (message.producer_id, message.producer_epoch) == (7, 0)
    machine.answered(InitProducerIdResponse(producer_id=7, producer_epoch=1))
    assert machine.state is State.READY


def test_an_id_the_coordinator_has_forgotten_is_not_ended_but_asked_for_anew() -> None:
    machine = initialized(1)
    machine.begin()
    machine.register([T0])
    machine.answered(added(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    assert machine.state is State.ABORTABLE_ERROR
    machine.abort()
    assert asked(machine, InitProducerIdRequest).producer_id == 7


def test_an_announcement_whose_answer_was_lost_is_repeated_before_the_abort() -> None:
    machine = initialized(1)
    machine.begin()
    machine.register([T0])
    asked(machine, AddPartitionsToTxnRequest)
    machine.abort()
    asked(machine, AddPartitionsToTxnRequest)
    machine.answered(added(0))
    assert asked(machine, EndTxnRequest).committed is False
    machine.answered(EndTxnResponse())
    assert machine.state is State.READY


def test_an_announcement_that_was_never_sent_or_is_refused_leaves_nothing_to_end() -> None:
    machine = initialized(1)
    machine.begin()
    machine.register([T0])
    machine.abort()
    assert (machine.state, machine.has_request) == (State.READY, False)
    machine.begin()
    machine.register([T0])
    asked(machine, AddPartitionsToTxnRequest)
    machine.abort()
    machine.answered(added(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert (machine.state, machine.has_request) == (State.READY, False)


def test_of_several_partitions_the_one_that_matters_decides() -> None:
    machine = initialized(1)
    machine.begin()
    machine.register([T0, T1])
    machine.answered(added(ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(TransactionFailed) as caught:
        machine.raise_failure("send")
    assert caught.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_commit_is_the_same_commit_until_it_is_answered() -> None:
    machine = initialized(2)
    machine.begin()
    machine.register([T0])
    machine.commit()
    machine.next_request()
    machine.commit()
    with pytest.raises(OutOfTurn):
        machine.abort()
    assert machine.answered(EndTxnResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)) is Verdict.RETRY
    machine.answered(EndTxnResponse(producer_id=7, producer_epoch=1))
    assert (machine.state, machine.has_request) == (State.READY, False)


def test_prepared_and_completed_by_the_same_producer() -> None:
    machine = initialized(2, two_phase=True)
    machine.begin()
    machine.register([T0])
    stored = machine.prepare()
    assert stored == StoredTransaction("x", 7, 0)
    with pytest.raises(OutOfTurn):
        machine.require_open("send")
    assert machine.complete(StoredTransaction.parse(str(stored))) is Ended.COMMITTED
    assert asked(machine, EndTxnRequest).committed is True
    machine.answered(EndTxnResponse(producer_id=7, producer_epoch=1))
    assert machine.complete(stored) is Ended.NOTHING_PREPARED


@pytest.mark.parametrize(
    ("stored", "ended"),
    [
        (StoredTransaction("x", 7, 4), Ended.COMMITTED),
        (StoredTransaction("x", 7, 3), Ended.ABORTED),
        (StoredTransaction("y", 7, 4), Ended.ABORTED),
        (None, Ended.ABORTED),
    ],
)
def test_a_new_instance_ends_what_was_prepared_with_the_id_it_got(
    stored: StoredTransaction | None, ended: Ended
) -> None:
    machine = TransactionMachine(TransactionSettings("x", two_phase=True))
    machine.observe({"transaction.version": 2}, can_bump=True)
    machine.initialize(keep_prepared=True)
    ask = machine.next_request()
    assert ask is not None
    assert ask.at_least == 6
    message = asked(machine, InitProducerIdRequest)
    assert (message.enable2_pc, message.keep_prepared_txn, message.transaction_timeout_ms) == (True, True, 2**31 - 1)
    answer = InitProducerIdResponse(
        producer_id=7, producer_epoch=5, ongoing_txn_producer_id=7, ongoing_txn_producer_epoch=4
    )
    machine.answered(answer)
    assert machine.state is State.PREPARED
    assert machine.complete(stored) is ended
    end = asked(machine, EndTxnRequest)
    assert (end.producer_epoch, end.committed) == (5, ended is Ended.COMMITTED)


def test_stored_transactions_that_are_none_are_refused() -> None:
    for text in ("", "1:2", "a:1:x", "1:-1:x", "1:40000:x", f"{2**63}:1:x"):
        with pytest.raises(ConfigError):
            StoredTransaction.parse(text)
    assert StoredTransaction.parse("1:2:a:b").transactional_id == "a:b"


def test_a_transaction_is_prepared_only_by_a_producer_made_for_it() -> None:
    machine = initialized(2)
    machine.begin()
    with pytest.raises(OutOfTurn):
        machine.prepare()
    machine.commit()
    with pytest.raises(ConfigError):
        TransactionSettings("")


def test_every_state_can_fail_for_good_and_only_fatal_stays() -> None:
    assert set(NEXT) == set(State)
    assert all(State.FATAL_ERROR in after for after in NEXT.values())
    assert NEXT[State.FATAL_ERROR] == {State.FATAL_ERROR}
    assert State.COMMITTING not in NEXT[State.ABORTABLE_ERROR]
    assert State.ABORTING not in NEXT[State.COMMITTING]


@pytest.mark.parametrize(
    ("step", "code", "expected"),
    [
        (Step.INIT, ErrorCode.COORDINATOR_NOT_AVAILABLE, Verdict.FIND_COORDINATOR),
        (Step.INIT, ErrorCode.CONCURRENT_TRANSACTIONS, Verdict.RETRY),
        (Step.INIT, ErrorCode.INVALID_TRANSACTION_TIMEOUT, Verdict.FATAL),
        (Step.INIT, ErrorCode.UNKNOWN_PRODUCER_ID, Verdict.FATAL),
        (Step.ADD_PARTITIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Verdict.RETRY),
        (Step.ADD_PARTITIONS, ErrorCode.INVALID_TXN_STATE, Verdict.FATAL),
        (Step.ADD_PARTITIONS, ErrorCode.UNKNOWN_SERVER_ERROR, Verdict.ABORT),
        (Step.ADD_OFFSETS, ErrorCode.GROUP_AUTHORIZATION_FAILED, Verdict.ABORT),
        (Step.ADD_OFFSETS, ErrorCode.UNKNOWN_SERVER_ERROR, Verdict.FATAL),
        (Step.COMMIT_OFFSETS, ErrorCode.UNKNOWN_MEMBER_ID, Verdict.ABORT),
        (Step.COMMIT_OFFSETS, ErrorCode.REQUEST_TIMED_OUT, Verdict.FIND_COORDINATOR),
        (Step.END, ErrorCode.UNKNOWN_PRODUCER_ID, Verdict.ABORT_AND_BUMP),
        (Step.END, ErrorCode.TRANSACTION_ABORTABLE, Verdict.ABORT),
        (Step.END, ErrorCode.INVALID_TXN_STATE, Verdict.FATAL),
    ],
)
def test_verdicts(step: Step, code: ErrorCode, expected: Verdict) -> None:
    assert verdict(step, code) is expected


def test_a_stale_epoch_said_by_a_leader_costs_the_transaction_only() -> None:
    assert produce_verdict(ErrorCode.INVALID_PRODUCER_EPOCH) is Verdict.ABORT
    assert produce_verdict(ErrorCode.PRODUCER_FENCED) is Verdict.FATAL
    machine = initialized(2)
    machine.begin()
    machine.register([T0])
    machine.batch_failed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    with pytest.raises(ProducerUnusable):
        machine.abort()


def test_batches_of_an_aborted_transaction_are_dropped_and_their_sequences_reported() -> None:
    machine = ProducerMachine(ProducerSettings(batch_bytes=1), transactional=True)
    machine.identify(7, 0)
    for value in (b"a", b"b"):
        machine.add(T0, Record(-1, 0, None, value), 0)
    batch = machine.drain(T0)
    header = read_header(batch.encoded or b"")
    assert (header.is_transactional, header.base_sequence) == (True, 0)
    machine.answered(batch, 0, 0, None, 0)
    assert machine.discard() is False, "the other was never sent"
    assert (machine.is_empty, machine.buffered_bytes) == (True, 0)
    machine.add(T0, Record(-1, 0, None, b"c"), 0)
    batch = machine.drain(T0)
    assert batch.sequence == 1
    machine.lost(batch, 0)
    assert machine.discard() is True
    machine.identify(7, 1)
    machine.add(T0, Record(-1, 0, None, b"d"), 0)
    assert machine.drain(T0).sequence == 0


def test_a_stale_epoch_is_not_repaired_by_a_transactional_producer() -> None:
    machine = ProducerMachine(ProducerSettings(batch_bytes=1), transactional=True)
    machine.identify(7, 0)
    machine.add(T0, Record(-1, 0, None, b"a"), 0)
    outcome = machine.answered(machine.drain(T0), ErrorCode.INVALID_PRODUCER_EPOCH, -1, None, 0)
    assert isinstance(outcome, Failed)
