"""Past transactions from records of ``__transaction_state``: made by hand, and read through a fake cluster."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.admin.transactions import coordinator_log
from oncelog.admin.transactions.coordinator_log import read_coordinator_log, transactions_of
from oncelog.admin.transactions.stored_identity import PastTransaction
from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import TRANSACTION_STATE, TopicName, TopicPartition
from oncelog.records.builder import build_batch
from oncelog.records.internal.transaction_records import STATE_NAMES, TransactionValue, encode_key, encode_value
from oncelog.records.record import Record
from oncelog.wire.messages import fetch, list_offsets
from tests.unit.admin.transactions.cluster import FakeCluster

PARTITIONS = (("t", (0,)),)


def change(
    state: str, epoch: int, start_ms: int, update_ms: int, version: int = 0, producer_id: int = 7, **more: int
) -> TransactionValue:
    partitions = None if state == "Empty" else PARTITIONS if state in ("Ongoing", "PrepareCommit") else ()
    status = STATE_NAMES.index(state)
    return TransactionValue(
        producer_id, epoch, 1_000, status, partitions, update_ms, start_ms, client_transaction_version=version, **more
    )


def test_a_v2_transaction_keeps_the_epoch_of_its_records() -> None:
    changes = [
        change("Empty", 0, -1, 50),
        change("Ongoing", 0, 100, 100, 2),
        change("Ongoing", 0, 100, 110, 2),
        change("PrepareCommit", 1, 100, 200, 2),
        change("CompleteCommit", 1, 100, 210, 2),
        change("Ongoing", 1, 300, 300, 2),
    ]
    here = frozenset({TopicPartition(TopicName("t"), 0)})
    assert transactions_of(changes) == [
        PastTransaction(7, 0, 100, 200, True, client_version=2, partitions=here),
        PastTransaction(7, 1, 300, None, None, client_version=2, partitions=here),
    ]


def test_v1_transactions_of_one_epoch_are_told_apart_by_their_start() -> None:
    changes = [
        change("Ongoing", 3, 100, 100),
        change("PrepareCommit", 3, 100, 150),
        change("CompleteCommit", 3, 100, 160),
        change("Ongoing", 3, 100, 170),
        change("PrepareAbort", 3, 100, 180),
        change("CompleteAbort", 3, 100, 190),
    ]
    assert [(past.producer_epoch, past.ended_ms, past.committed) for past in transactions_of(changes)] == [
        (3, 150, True),
        (3, 180, False),
    ], "even those of the same millisecond"


def test_a_time_out_is_told_from_a_client_s_abort() -> None:
    timed_out = [change("Ongoing", 3, 100, 100), change("PrepareEpochFence", 4, 100, 1_200)]
    assert [past.after_timeout for past in transactions_of(timed_out)] == [True]
    early = [change("Ongoing", 3, 5_000, 5_000, 2), change("PrepareAbort", 4, 5_000, 5_010, 2)]
    assert [past.after_timeout for past in transactions_of(early)] == [False]


@pytest.mark.parametrize(
    ("value", "identity"),
    [
        (change("CompleteCommit", 4, 100, 200, 2), (7, 3)),
        (change("CompleteCommit", 4, 100, 200, 0), (7, 4)),
        (change("CompleteAbort", 4, 100, 200, 0), (7, None)),
        (change("CompleteAbort", 0, 100, 200, 2, producer_id=9, previous_producer_id=7), (7, None)),
    ],
)
def test_compaction_has_removed_the_start(value: TransactionValue, identity: tuple[int, int | None]) -> None:
    (past,) = transactions_of([value])
    assert (past.producer_id, past.producer_epoch) == identity


class Log:
    """The log of one coordinator: batches of one change each, of the id ``job`` and of others."""

    def __init__(self, cluster: FakeCluster, changes: list[tuple[str, TransactionValue]]) -> None:
        self.batches = [
            build_batch([Record(offset, 0, encode_key(name), encode_value(value, 1), ())])
            for offset, (name, value) in enumerate(changes)
        ]
        self.fetched: list[int] = []
        self.error_code = 0
        cluster.rules[list_offsets.ListOffsetsRequest] = self.list_offsets
        cluster.rules[fetch.FetchRequest] = self.fetch

    def list_offsets(self, broker: int, message: Any) -> Any:
        (topic,) = message.topics
        (partition,) = topic.partitions
        offset = 0 if partition.timestamp == -2 else len(self.batches)
        answer = list_offsets.ListOffsetsPartitionResponse(
            partition_index=partition.partition_index, offset=offset, error_code=self.error_code
        )
        return list_offsets.ListOffsetsResponse(
            topics=[list_offsets.ListOffsetsTopicResponse(name=topic.name, partitions=[answer])]
        )

    def fetch(self, broker: int, message: Any) -> Any:
        (topic,) = message.topics
        (partition,) = topic.partitions
        assert partition.partition == coordinator_partition("job", 4)
        self.fetched.append(partition.fetch_offset)
        data = fetch.PartitionData(
            partition_index=partition.partition, records=b"".join(self.batches[partition.fetch_offset :][:2])
        )
        return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(topic=TRANSACTION_STATE, partitions=[data])])


CHANGES = [
    ("job", change("Ongoing", 3, 100, 100)),
    ("job", change("PrepareCommit", 3, 100, 150)),
    *[("other", change("Ongoing", 0, 1, 1))] * 7,
    ("job", change("Ongoing", 3, 500, 500)),
]


def test_the_log_is_read_from_its_end_and_further_back_if_need_be(driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    log = Log(cluster, CHANGES)
    monkeypatch.setattr(coordinator_log, "WINDOWS", (4, 1_000))
    read = cluster.run(read_coordinator_log(cluster.cluster, "job", (7, 3)))
    assert read.problem is None
    assert [past.start_ms for past in read.transactions] == [100, 500]
    assert log.fetched == [6, 8, 0, 2, 4, 6, 8]
    log.fetched.clear()
    monkeypatch.setattr(coordinator_log, "WINDOWS", (10, 1_000))
    cluster.run(read_coordinator_log(cluster.cluster, "job", (7, 3)))
    assert log.fetched == [0, 2, 4, 6, 8], "the first window has the end of the transaction"


def test_bounds_and_refusals_are_problems_not_errors(driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    log = Log(cluster, CHANGES)
    monkeypatch.setattr(coordinator_log, "MOST_BYTES", 100)
    too_long = cluster.run(read_coordinator_log(cluster.cluster, "job", (7, 3)))
    assert too_long.transactions == ()
    assert "have more than" in (too_long.problem or "")
    log.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    denied = cluster.run(read_coordinator_log(cluster.cluster, "job", (7, 3)))
    assert "__transaction_state could not be read" in (denied.problem or "")
