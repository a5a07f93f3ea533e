"""Cases that the corpus lacks: refusals of the authoriser and of the coordinator, administrators' markers, waiting."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import ProducerEpoch, ProducerId, TransactionalId
from oncelog.core.transactions.identity import Identity
from oncelog.core.transactions.states import TransactionState
from oncelog.core.transactions.transitions import Transaction
from oncelog.handlers.api import CLUSTER_NAME, Operation
from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.wire.messages.list_transactions import ListTransactionsRequest
from oncelog.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.unit.handlers.log_broker import NOW_MS
from tests.unit.handlers.transaction_broker import TransactionBroker, partition

LIMIT = 2**15 - 1


@pytest.fixture
def broker() -> TransactionBroker:
    made = TransactionBroker()
    made.add_topic("t", 2)
    return made


def init(broker: TransactionBroker, name: str = "x", version: int = 6, **fields: Any) -> Any:
    return broker.call(
        InitProducerIdRequest(**{"transactional_id": name, "transaction_timeout_ms": 1000, **fields}), version
    )


def add(broker: TransactionBroker, producer: Any, *indexes: int, name: str = "x", version: int = 3) -> list[int]:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(indexes or (0,)))],
    )
    answer = broker.call(request, version)
    return [
        r.partition_error_code for topic in answer.results_by_topic_v3_and_below for r in topic.results_by_partition
    ]


def end(broker: TransactionBroker, producer: Any, *, committed: bool = True, version: int = 5, name: str = "x") -> Any:
    request = EndTxnRequest(
        transactional_id=name,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=committed,
    )
    return broker.call(request, version)


def append(broker: TransactionBroker, producer: Any) -> None:
    broker.append(
        "t",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        transactional=True,
    )


def state(broker: TransactionBroker, name: str = "x", *denied: tuple[Operation, str]) -> Any:
    return broker.call(DescribeTransactionsRequest(transactional_ids=[name]), 0, *denied).transaction_states[0]


class TestInitProducerId:
    def test_an_id_is_fetched_only_where_one_is_needed(self, broker: TransactionBroker) -> None:
        answers = [init(broker) for _ in range(3)]
        assert [(a.producer_id, a.producer_epoch) for a in answers] == [(1000, 0), (1000, 1), (1000, 2)]
        assert broker.next_producer_id == 1001

    def test_without_an_id_to_give_the_client_comes_again(self, broker: TransactionBroker) -> None:
        broker.next_producer_id = None
        answer = init(broker)
        assert (answer.error_code, answer.producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)

    def test_an_exhausted_epoch_gets_a_new_id(self) -> None:
        exhausted = Identity(ProducerId(7), ProducerEpoch(LIMIT - 1))
        broker = TransactionBroker(
            Transaction(TransactionalId("x"), exhausted, 1000, TransactionState.EMPTY, last_update_ms=NOW_MS)
        )
        broker.add_topic("t")
        assert add(broker, InitProducerIdResponse(producer_id=7, producer_epoch=LIMIT - 1)) == [0]
        ended = end(broker, InitProducerIdResponse(producer_id=7, producer_epoch=LIMIT - 1))
        assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (0, 1000, 0)
        assert broker.next_producer_id == 1001

    def test_an_open_transaction_is_aborted_first(self, broker: TransactionBroker) -> None:
        first = init(broker)
        add(broker, first)
        append(broker, first)
        second = init(broker)
        assert (second.producer_id, second.producer_epoch) == (1000, 2)
        log = broker.logs.logs[partition("t")]
        assert (log.log_end_offset, log.last_stable_offset) == (2, 2)
        assert end(broker, first).error_code == ErrorCode.PRODUCER_FENCED
        assert end(broker, first, version=1).error_code == ErrorCode.INVALID_PRODUCER_EPOCH

    def test_one_that_is_not_completed_in_time_is_told_so(self, broker: TransactionBroker) -> None:
        add(broker, init(broker))
        broker.holds_markers = True
        assert init(broker).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        broker.write_markers()
        assert init(broker).producer_epoch == 2

    def test_a_prepared_transaction_is_left_to_the_new_instance(self) -> None:
        broker = TransactionBroker(two_phase_commit_enable=True)
        broker.add_topic("t")
        first = init(broker, enable2_pc=True)
        add(broker, first)
        second = init(broker, enable2_pc=True, keep_prepared_txn=True)
        assert (second.ongoing_txn_producer_id, second.ongoing_txn_producer_epoch) == (1000, 0)
        assert (second.producer_id, second.producer_epoch) == (1000, 1)
        assert end(broker, first).error_code == ErrorCode.PRODUCER_FENCED
        ended = end(broker, second)
        assert (ended.error_code, ended.producer_epoch, state(broker).transaction_state) == (0, 2, "CompleteCommit")

    def test_two_phase_commit_has_a_permission_of_its_own(self) -> None:
        broker = TransactionBroker(two_phase_commit_enable=True)
        request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000, enable2_pc=True)
        refused = broker.call(request, 6, (Operation.TWO_PHASE_COMMIT, "x"))
        assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        request.enable2_pc = False
        assert broker.call(request, 6, (Operation.TWO_PHASE_COMMIT, "x")).error_code == 0


@pytest.mark.parametrize(
    "refusal", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE]
)
def test_what_the_coordinator_cannot_decide_is_told_by_every_api(broker: TransactionBroker, refusal: ErrorCode) -> None:
    producer = init(broker)
    broker.refused = refusal
    assert init(broker).error_code == refusal
    assert add(broker, producer, 0, 1) == [refusal, refusal]
    offsets = AddOffsetsToTxnRequest(transactional_id="x", producer_id=1000, producer_epoch=0, group_id="g")
    assert broker.call(offsets, 4).error_code == refusal
    assert end(broker, producer).error_code == refusal
    assert state(broker).error_code == refusal
    listed = broker.call(ListTransactionsRequest(), 2)
    assert (listed.error_code, listed.transaction_states) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])


class TestWhoMayNot:
    def test_use_the_transactional_id(self, broker: TransactionBroker) -> None:
        denied = (Operation.WRITE, "x")
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        entry = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
        assert broker.call(entry, 5, denied).error_code == refused
        offsets = AddOffsetsToTxnRequest(transactional_id="x", producer_id=1000, producer_epoch=0, group_id="g")
        assert broker.call(offsets, 4, denied).error_code == refused
        ended = broker.call(EndTxnRequest(transactional_id="x"), 5, denied)
        assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (refused, -1, -1)
        topics = [AddPartitionsToTxnTopic(name="t", partitions=[0])]
        request = AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=topics)
        answer = broker.call(request, 3, denied).results_by_topic_v3_and_below
        assert answer[0].results_by_partition[0].partition_error_code == refused
        result = FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])
        assert broker.call(result, 6, (Operation.DESCRIBE, "x")).coordinators[0].error_code == refused

    def test_write_to_a_topic_or_read_a_group(self, broker: TransactionBroker) -> None:
        producer = init(broker)
        broker.add_topic("secret")
        topics = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("t", "secret", "__consumer_offsets")]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x", v3_and_below_producer_id=producer.producer_id, v3_and_below_topics=topics
        )
        results = broker.call(request, 3, (Operation.WRITE, "secret")).results_by_topic_v3_and_below
        assert [result.results_by_partition[0].partition_error_code for result in results] == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ]
        assert state(broker).topics == []
        offsets = AddOffsetsToTxnRequest(transactional_id="x", producer_id=1000, producer_epoch=0, group_id="g")
        assert broker.call(offsets, 4, (Operation.READ, "g")).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED

    def test_speak_as_a_broker(self, broker: TransactionBroker) -> None:
        init(broker)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id="x",
            producer_id=1000,
            topics=[AddPartitionsToTxnTopic(name="__consumer_offsets", partitions=[0])],
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        refused = broker.call(request, 5, (Operation.CLUSTER_ACTION, CLUSTER_NAME))
        assert (refused.error_code, refused.results_by_transaction) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
        allowed = broker.call(request, 5, (Operation.WRITE, "x"), (Operation.WRITE, "__consumer_offsets"))
        assert allowed.results_by_transaction[0].topic_results[0].results_by_partition[0].partition_error_code == 0

    def test_see_what_is_not_theirs(self, broker: TransactionBroker) -> None:
        producer = init(broker)
        add(broker, producer)
        hidden = state(broker, "x", (Operation.DESCRIBE, "x"))
        assert (hidden.error_code, hidden.producer_id) == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 0)
        assert state(broker, "x", (Operation.DESCRIBE, "t")).topics == []
        assert broker.call(ListTransactionsRequest(), 2, (Operation.DESCRIBE, "x")).transaction_states == []
        request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
        answer = broker.call(request, 0, (Operation.READ, "t")).topics[0].partitions[0]
        assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


class TestWriteTxnMarkers:
    def write(self, broker: TransactionBroker, *denied: tuple[Operation, str], index: int = 0, **fields: Any) -> int:
        topics = [WritableTxnMarkerTopic(name="t", partition_indexes=[index])]
        marker = WritableTxnMarker(
            **{"producer_id": 1000, "producer_epoch": 0, "coordinator_epoch": 0, "topics": topics, **fields}
        )
        answer = broker.call(WriteTxnMarkersRequest(markers=[marker]), 2, *denied)
        code: int = answer.markers[0].topics[0].partitions[0].error_code
        return code

    @pytest.fixture
    def hanging(self, broker: TransactionBroker) -> TransactionBroker:
        broker.append("t")
        producer = init(broker)
        add(broker, producer)
        append(broker, producer)
        return broker

    @pytest.mark.parametrize("coordinator_epoch", [-1, 0])
    def test_an_administrator_ends_exactly_the_transaction_named(
        self, hanging: TransactionBroker, coordinator_epoch: int
    ) -> None:
        fields = {"coordinator_epoch": coordinator_epoch, "transaction_version": 2, "ends_live": True}
        assert self.write(hanging, start_offset=0, **fields) == ErrorCode.INVALID_TXN_STATE
        assert self.write(hanging, start_offset=2, **fields) == ErrorCode.INVALID_TXN_STATE
        assert self.write(hanging, start_offset=1, producer_epoch=1, **fields) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert self.write(hanging, start_offset=1, producer_id=7, **fields) == ErrorCode.INVALID_TXN_STATE
        log = hanging.logs.logs[partition("t")]
        assert (log.log_end_offset, log.last_stable_offset) == (2, 1)
        assert self.write(hanging, start_offset=1, **{**fields, "ends_live": False}) == ErrorCode.INVALID_TXN_STATE
        assert self.write(hanging, start_offset=1, **fields) == ErrorCode.NONE
        assert (log.log_end_offset, log.last_stable_offset) == (3, 3)
        assert self.write(hanging, start_offset=1, **fields) == ErrorCode.INVALID_TXN_STATE, "it is over"

    def test_an_administrator_needs_no_coordinator_epoch_where_one_is_known(self, hanging: TransactionBroker) -> None:
        assert self.write(hanging, coordinator_epoch=5) == ErrorCode.NONE
        hanging.append("t", producer_id=1000, producer_epoch=0, base_sequence=1, transactional=True)
        assert self.write(hanging, coordinator_epoch=-1) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert self.write(hanging, coordinator_epoch=-1, start_offset=3, ends_live=True) == ErrorCode.NONE
        entry = hanging.logs.logs[partition("t")].producers.entries[1000]
        assert entry.coordinator_epoch == 5, "the stored coordinator epoch never falls"

    def test_who_may(self, hanging: TransactionBroker) -> None:
        alter, act = (Operation.ALTER, CLUSTER_NAME), (Operation.CLUSTER_ACTION, CLUSTER_NAME)
        assert self.write(hanging, alter, act) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert hanging.logs.logs[partition("t")].log_end_offset == 2
        assert hanging.audited == [], "what is not allowed ends nothing"
        assert self.write(hanging, alter) == ErrorCode.NONE
        assert self.write(hanging, act) == ErrorCode.NONE
        assert [record.outcome for record in hanging.audited] == ["NONE", "NONE"]

    def test_who_may_end_a_hanging_one(self, hanging: TransactionBroker) -> None:
        alter, act = (Operation.ALTER, CLUSTER_NAME), (Operation.CLUSTER_ACTION, CLUSTER_NAME)
        assert self.write(hanging, alter, act, start_offset=1) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert hanging.logs.logs[partition("t")].last_stable_offset == 1
        assert self.write(hanging, act, start_offset=1, ends_live=True) == ErrorCode.NONE
        assert hanging.logs.logs[partition("t")].last_stable_offset == 3

    def test_what_is_not_durable_in_time_is_not_written(self, hanging: TransactionBroker) -> None:
        hanging.late = {partition("t"), partition("t", 1)}
        assert self.write(hanging) == ErrorCode.REQUEST_TIMED_OUT
        assert self.write(hanging, index=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_decided_transaction_shows_the_partitions_it_waits_for(broker: TransactionBroker) -> None:
    producer = init(broker)
    add(broker, producer, 0, 1)
    broker.holds_markers = True
    assert end(broker, producer).error_code == 0
    described = state(broker)
    assert (described.transaction_state, described.topics[0].partitions) == ("PrepareCommit", [0, 1])
    broker.write_markers()
    assert (state(broker).transaction_state, state(broker).topics) == ("CompleteCommit", [])


def test_a_broker_is_answered_about_the_transactions_it_believes_to_be_here(broker: TransactionBroker) -> None:
    init(broker)
    shards = {shard.partition: int(shard.coordinator_epoch) for shard in broker.shards()}
    last = max(shards)

    def listed(*led: tuple[int, int]) -> tuple[int, int]:
        request = ListTransactionsRequest(
            led_partitions=[partition for partition, _ in led], leader_epochs=[epoch for _, epoch in led]
        )
        answer = broker.call(request, 2)
        return answer.error_code, len(answer.transaction_states)

    assert listed() == (ErrorCode.NONE, 1)
    assert listed(*shards.items()) == (ErrorCode.NONE, 1)
    assert listed((last, shards[last] + 1)) == (ErrorCode.NOT_COORDINATOR, 0)
    assert listed((last, shards[last]), (last + 1, 0)) == (ErrorCode.NOT_COORDINATOR, 0)


def test_patterns_match_whole_ids_in_linear_time(broker: TransactionBroker) -> None:
    for name in ("a" * 60, "ab", "abc"):
        init(broker, name)

    def matching(pattern: str) -> set[str]:
        answer = broker.call(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
        return {listed.transactional_id for listed in answer.transaction_states}

    assert matching("ab") == {"ab"}
    assert matching("ab.?") == {"ab", "abc"}
    assert matching("(a*)*b") == {"ab"}
    assert matching("") == {"a" * 60, "ab", "abc"}
    for pattern in ("a{1001}", "(", "a" * 501, "(?i)" + r"\pL" * 21, ".{1000}"):
        refused = broker.call(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
        assert (refused.error_code, refused.transaction_states) == (ErrorCode.INVALID_REGULAR_EXPRESSION, [])
