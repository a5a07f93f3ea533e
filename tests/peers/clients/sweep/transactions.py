"""The transaction coordinator's APIs: good requests, bad ones, out of order, repeated, in every version.

Apache Kafka answers EndTxn before the markers are written; the recorder waits after it, so that what follows does not
depend on the moment. Whatever would meet a transaction still completing is not asked here: there the two differ on
purpose (oncelog lets it wait).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from oncelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from oncelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.peers.clients.sweep.wire import NOWHERE, Sweep, Wire, versions

TIMEOUT_MS: Final = 60_000
V2_SINCE: Final = 5


class Producer(NamedTuple):
    """A transactional producer as the coordinator knows it."""

    name: str
    id: int
    epoch: int

    def with_epoch(self, epoch: int) -> Producer:
        """The same with another epoch."""
        return self._replace(epoch=epoch)


def init(wire: Wire, name: str, version: int = 4, **fields: Any) -> Producer:
    """InitProducerId; who one is now."""
    request = InitProducerIdRequest(**{"transactional_id": name, "transaction_timeout_ms": TIMEOUT_MS, **fields})
    answer = wire.call(request, version)
    return Producer(name, answer.producer_id, answer.producer_epoch)


def add(wire: Wire, producer: Producer, *partitions: tuple[str, int], version: int = 3) -> Any:
    """AddPartitionsToTxn of one's own transaction."""
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in partitions]
    if version >= 4:
        return wire.call(AddPartitionsToTxnRequest(transactions=[_transaction(producer, *partitions)]), version)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.name,
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=topics,
    )
    return wire.call(request, version)


def end(wire: Wire, producer: Producer, *, committed: bool = True, version: int = 3) -> Producer:
    """EndTxn; who one is afterwards."""
    request = EndTxnRequest(
        transactional_id=producer.name, producer_id=producer.id, producer_epoch=producer.epoch, committed=committed
    )
    answer = wire.call(request, version)
    if version >= V2_SINCE and answer.error_code == 0:
        return Producer(producer.name, answer.producer_id, answer.producer_epoch)
    return producer


def describe(wire: Wire, *names: str) -> None:
    """The coordinator's descriptions of transactional ids."""
    wire.call(DescribeTransactionsRequest(transactional_ids=list(names)), 0)


def _transaction(producer: Producer, *partitions: tuple[str, int], **fields: Any) -> AddPartitionsToTxnTransaction:
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in partitions]
    return AddPartitionsToTxnTransaction(
        **{
            "transactional_id": producer.name,
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "topics": topics,
            **fields,
        }
    )


def _strangers(producer: Producer) -> list[Producer]:
    """Producers that are not the one the coordinator knows."""
    return [
        producer.with_epoch(producer.epoch - 1),
        producer.with_epoch(producer.epoch + 1),
        producer.with_epoch(-1),
        producer._replace(id=producer.id + 100_000),
        producer._replace(id=-1),
        producer._replace(name=producer.name + "-unknown"),
        producer._replace(name=""),
    ]


def _init(wire: Wire) -> None:
    for version in versions(InitProducerIdRequest):
        name = f"st-init-{version}"
        first = init(wire, name, version)
        second = init(wire, name, version)
        for expected in (second, second, first, second._replace(id=second.id + 100_000), second.with_epoch(-1)):
            init(wire, name, version, producer_id=expected.id, producer_epoch=expected.epoch)
        init(wire, name, version, producer_id=-1, producer_epoch=3)
        init(wire, f"{name}-new", version, producer_id=second.id, producer_epoch=0)
        for timeout_ms in (0, -1, 900_000, 900_001, 2**31 - 1):
            init(wire, f"{name}-timeout", version, transaction_timeout_ms=timeout_ms)
        init(wire, "", version)
        init(wire, f"{name}-{'n' * 2000}", version)
        if version >= 6:
            init(wire, name, version, enable2_pc=True)
            init(wire, name, version, keep_prepared_txn=True)
            init(wire, name, version, enable2_pc=True, keep_prepared_txn=True)
        describe(wire, name, f"{name}-new", f"{name}-timeout")


def _add_partitions(wire: Wire) -> None:
    wire.topic("st-add", 3)
    for version in versions(AddPartitionsToTxnRequest):
        name = f"st-add-{version}"
        init(wire, name)
        producer = init(wire, name)
        for stranger in _strangers(producer):
            add(wire, stranger, ("st-add", 0), version=version)
        add(wire, producer, ("st-add", 0), ("st-none", 0), ("st-add", 9), version=version)
        add(wire, producer, ("st-add", -1), version=version)
        add(wire, producer, ("st-add", 0), ("__consumer_offsets", 0), version=version)
        describe(wire, name)
        add(wire, producer, ("st-add", 0), version=version)
        add(wire, producer, ("st-add", 0), version=version)
        add(wire, producer, ("st-add", 1), ("st-add", 0), version=version)
        describe(wire, name)
        for stranger in _strangers(producer):
            add(wire, stranger, ("st-add", 2), version=version)
        add(wire, producer, ("st-none", 2), version=version)
        describe(wire, name)
        end(wire, producer)
        add(wire, producer, ("st-add", 2), version=version)
        describe(wire, name)
        end(wire, producer, committed=False)


def _add_nothing(wire: Wire) -> None:
    for version in versions(AddPartitionsToTxnRequest):
        producer = init(wire, f"st-nothing-{version}")
        add(wire, producer, version=version)
        describe(wire, producer.name)
        end(wire, producer, committed=False)


def _add_in_batches(wire: Wire) -> None:
    wire.topic("st-batch", 2)
    for version in (4, 5):
        producers = [init(wire, f"st-batch-{version}-{number}") for number in range(3)]
        add(wire, producers[0], ("st-batch", 0))
        both = [("st-batch", 0), ("st-batch", 1)]
        for verify_only in (True, False, True):
            transactions = [_transaction(producer, *both, verify_only=verify_only) for producer in producers[:2]]
            transactions.append(_transaction(producers[2], ("st-none", 0), *both, verify_only=verify_only))
            wire.call(AddPartitionsToTxnRequest(transactions=transactions), version)
            strangers = [
                _transaction(stranger, *both, verify_only=verify_only)
                for stranger in _strangers(producers[0])
                if stranger.name != producers[0].name
            ]
            wire.call(AddPartitionsToTxnRequest(transactions=strangers), version)
        for stranger in _strangers(producers[0]):
            strangers = [_transaction(stranger, ("st-batch", 0), verify_only=True)]
            wire.call(AddPartitionsToTxnRequest(transactions=strangers), version)
        describe(wire, *[producer.name for producer in producers])
        for item in producers[:2]:
            end(wire, item)
            wire.call(AddPartitionsToTxnRequest(transactions=[_transaction(item, *both, verify_only=True)]), version)


def _add_offsets(wire: Wire) -> None:
    for version in versions(AddOffsetsToTxnRequest):
        name = f"st-offsets-{version}"
        init(wire, name)
        producer = init(wire, name)

        def ask(who: Producer, group: str = "st-group", at: int = version) -> None:
            request = AddOffsetsToTxnRequest(
                transactional_id=who.name, producer_id=who.id, producer_epoch=who.epoch, group_id=group
            )
            wire.call(request, at)

        for stranger in _strangers(producer):
            ask(stranger)
        ask(producer)
        ask(producer)
        ask(producer, "st-other-group")
        ask(producer, "")
        describe(wire, name)
        for stranger in _strangers(producer):
            ask(stranger)
        end(wire, producer)
        describe(wire, name)
        ask(producer)
        end(wire, producer, committed=False)


def _end(wire: Wire) -> None:
    wire.topic("st-end")
    for version in versions(EndTxnRequest):
        name = f"st-end-{version}"
        init(wire, name)
        producer = init(wire, name)
        for committed in (True, False):
            for stranger in _strangers(producer):
                end(wire, stranger, committed=committed, version=version)
            # Nothing is open: a commit is refused, an abort is legal with Transactions V2.
            end(wire, producer, committed=True, version=version)
            producer = end(wire, producer, committed=False, version=version)
            describe(wire, name)
            before = producer
            add(wire, producer, ("st-end", 0))
            for stranger in _strangers(producer):
                end(wire, stranger, committed=committed, version=version)
            describe(wire, name)
            producer = end(wire, producer, committed=committed, version=version)
            describe(wire, name)
            for again in (committed, not committed):
                end(wire, before, committed=again, version=version)
            describe(wire, name)
        producer = init(wire, name)
        end(wire, before, committed=True, version=version)
        describe(wire, name)


def _commit_offset(wire: Wire, producer: Producer, group: str, version: int, offset: int = 5, **fields: Any) -> None:
    partition = TxnOffsetCommitRequestPartition(
        partition_index=fields.pop("partition", 0), committed_offset=offset, committed_metadata="note"
    )
    names = {"name": fields.pop("topic", "st-commit"), "topic_id": fields.pop("topic_id")}
    topics = [TxnOffsetCommitRequestTopic(**names, partitions=[partition])]
    wire.call(
        TxnOffsetCommitRequest(
            **{
                "transactional_id": producer.name,
                "group_id": group,
                "producer_id": producer.id,
                "producer_epoch": producer.epoch,
                "topics": topics,
                **fields,
            }
        ),
        version,
    )


def _fetch_offsets(wire: Wire, group: str) -> None:
    topics = [OffsetFetchRequestTopics(name="st-commit", partition_indexes=[0, 1])]
    groups = [OffsetFetchRequestGroup(group_id=group, topics=topics)]
    for stable in (False, True):
        wire.call(OffsetFetchRequest(groups=groups, require_stable=stable), 8)


def _offset_commit(wire: Wire) -> None:
    existing = {"topic_id": wire.topic("st-commit", 2)}
    for version in versions(TxnOffsetCommitRequest):
        name, group = f"st-commit-{version}", f"st-group-{version}"
        init(wire, name)
        producer = init(wire, name)
        newer = version >= V2_SINCE
        for offset, committed in ((5, True), (7, False)):
            if not newer:
                _commit_offset(wire, producer, group, version, **existing)
                added = AddOffsetsToTxnRequest(
                    transactional_id=name, producer_id=producer.id, producer_epoch=producer.epoch, group_id=group
                )
                wire.call(added, 3)
            for stranger in _strangers(producer):
                _commit_offset(wire, stranger, group, version, **existing)
            _commit_offset(wire, producer, group, version, offset, topic="st-none", topic_id=NOWHERE)
            _commit_offset(wire, producer, group, version, offset, partition=9, **existing)
            _commit_offset(wire, producer, group, version, offset, generation_id=3, member_id="nobody", **existing)
            _commit_offset(wire, producer, group, version, offset, generation_id=3, **existing)
            _commit_offset(wire, producer, "", version, offset, **existing)
            _fetch_offsets(wire, group)
            _commit_offset(wire, producer, group, version, offset, **existing)
            _commit_offset(wire, producer, group, version, offset + 1, **existing)
            _fetch_offsets(wire, group)
            describe(wire, name)
            producer = end(wire, producer, committed=committed, version=5 if newer else 3)
            _fetch_offsets(wire, group)
        if not newer:
            _commit_offset(wire, producer, group, version, **existing)
        _fetch_offsets(wire, group)


SWEEPS: Final[dict[str, Sweep]] = {
    "transactions-init": _init,
    "transactions-add-partitions": _add_partitions,
    "transactions-add-nothing": _add_nothing,
    "transactions-add-in-batches": _add_in_batches,
    "transactions-add-offsets": _add_offsets,
    "transactions-end": _end,
    "transactions-offset-commit": _offset_commit,
}
