"""Asks the coordinator of an open transaction whether it is going to end it. Not an API.

The node asks about transactions that have grown old; WriteTxnMarkers asks in the very step in which an administrator's
marker would be written. The coordinator is on this broker; asking another will take a message, and the answer will be
as old as that.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from oncelog.base.ids import TRANSACTION_STATE, ProducerEpoch, ProducerId, TopicPartition, TransactionalId
from oncelog.base.transaction_verdicts import leader_takes_marker
from oncelog.core.transactions.findings import FORGOTTEN, Finding, classify
from oncelog.core.transactions.model import Identity

if TYPE_CHECKING:
    from oncelog.handlers.support.ports import ClusterView, Transactions
    from oncelog.storage.transactions.open_transactions import OpenTransaction


class OnPartition(Protocol):
    """An open transaction as the producer state of its partition has it."""

    @property
    def producer_id(self) -> int:
        """The producer that has it open."""

    @property
    def epoch(self) -> int:
        """The producer's current epoch there."""


def finding_of(
    transactions: Transactions,
    cluster: ClusterView,
    transactional_id: str,
    on_partition: OnPartition,
    partition: TopicPartition,
) -> Finding | None:
    """The finding about what the id's producer has open on a partition; None when its coordinator cannot be asked."""
    name = TransactionalId(transactional_id)
    shard = transactions.shard_of(name)
    if shard is None:
        return None if TRANSACTION_STATE in cluster.image.topics else FORGOTTEN
    identity = Identity(ProducerId(on_partition.producer_id), ProducerEpoch(on_partition.epoch))
    return classify(shard.describe(name), shard.outstanding(name), identity, partition)


def ids_of(transactions: Transactions, producer_ids: Collection[int]) -> dict[int, TransactionalId]:
    """The transactional ids whose open transactions these producers have, as far as coordinators here know: for what
    came without an id. Looks at many ids, so it is for all producers in question at once."""
    return {
        producer_id: transactional_id
        for shard in transactions.shards()
        for producer_id, transactional_id in shard.open_of(producer_ids).items()
    }


def is_protected(
    transactions: Transactions,
    cluster: ClusterView,
    transaction: OpenTransaction,
    on_partition: OnPartition,
    *,
    ends_live: bool,
) -> bool:
    """True if an administrator's marker must not end the transaction, though it names it.

    A live one may be ended only by force: the producer of one that hung may have begun its next transaction here, at
    the same epoch, since somebody looked. Its coordinator's decision and two-phase commit are out of reach."""
    name = transaction.transactional_id
    if name is None:  # a recovered log does not know it
        name = ids_of(transactions, (on_partition.producer_id,)).get(ProducerId(on_partition.producer_id))
    finding = None if name is None else finding_of(transactions, cluster, name, on_partition, transaction.partition)
    return finding is not None and not leader_takes_marker(finding.code, forced=ends_live)
