"""Asks the coordinator of an open transaction whether it is going to end it. Not an API.

The node asks about transactions that have grown old, WriteTxnMarkers before an administrator's marker is written. A
coordinator on this broker is asked in the very step in which that happens. Another broker's answer takes a message; it
counts for a marker only if nothing has changed on the partition since it was asked for.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TRANSACTION_STATE, ProducerEpoch, ProducerId, TopicPartition, TransactionalId
from oncelog.base.transaction_verdicts import leader_takes_marker
from oncelog.core.transactions.findings import FORGOTTEN, Finding, classify
from oncelog.core.transactions.model import Identity
from oncelog.handlers.support.waits import AskCoordinator, Steps

if TYPE_CHECKING:
    from oncelog.core.producers.entry import ProducerEntry
    from oncelog.handlers.support.context import Context
    from oncelog.handlers.support.ports import ClusterView, Transactions
    from oncelog.storage.transactions.open_transactions import OpenTransaction


def finding_of(
    transactions: Transactions,
    cluster: ClusterView,
    transactional_id: str,
    identity: Identity,
    partition: TopicPartition,
) -> Finding | None:
    """The finding about what ``identity`` has open on a partition, by the id's coordinator on this broker; None when
    that cannot be asked."""
    name = TransactionalId(transactional_id)
    shard = transactions.shard_of(name)
    if shard is None:
        return None if TRANSACTION_STATE in cluster.image.topics else FORGOTTEN
    return classify(shard.describe(name), shard.outstanding(name), identity, partition)


def ids_of(transactions: Transactions, producer_ids: Collection[int]) -> dict[int, TransactionalId]:
    """The transactional ids whose open transactions these producers have, as far as coordinators here know: for what
    came without an id. Looks at many ids, so it is for all producers in question at once."""
    return {
        producer_id: transactional_id
        for shard in transactions.shards()
        for producer_id, transactional_id in shard.open_of(producer_ids).items()
    }


def identity_of(entry: ProducerEntry) -> Identity:
    """The producer of an open transaction, as the producer state of the partition has it."""
    return Identity(ProducerId(entry.producer_id), ProducerEpoch(entry.epoch))


def is_elsewhere(transactional_id: TransactionalId, context: Context) -> bool:
    """True if another broker coordinates the id, or nobody while the cluster has coordinators."""
    if TRANSACTION_STATE not in context.cluster.image.topics:
        return False
    return context.transactions.refusal(transactional_id) is ErrorCode.NOT_COORDINATOR


def marker_refusal(
    transaction: OpenTransaction, entry: ProducerEntry, context: Context, *, ends_live: bool
) -> Steps[ErrorCode]:
    """NONE if an administrator's marker may end the transaction that it names.

    A live one may be ended only by force: the producer of one that hung may have begun its next transaction here, at
    the same epoch, since somebody looked. Its coordinator's decision and two-phase commit are out of reach.

    Another broker that coordinates it has to answer, and nothing may have changed on the partition until it has."""
    name = transaction.transactional_id
    if name is None:  # a recovered log does not know it
        name = ids_of(context.transactions, (entry.producer_id,)).get(ProducerId(entry.producer_id))
    if name is None:
        return ErrorCode.NONE
    name, identity, partition = TransactionalId(name), identity_of(entry), transaction.partition
    if not is_elsewhere(name, context):
        finding = finding_of(context.transactions, context.cluster, name, identity, partition)
        return _refusal(finding, forced=ends_live)
    before = context.partitions.leader_log(partition)
    finding = yield AskCoordinator(name, identity, partition)
    leader = context.partitions.leader_log(partition)
    if isinstance(leader, ErrorCode) or leader is not before or finding is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if leader.log.producers.entries.get(entry.producer_id) != entry:
        return ErrorCode.INVALID_TXN_STATE
    return _refusal(finding, forced=ends_live)


def _refusal(finding: Finding | None, *, forced: bool) -> ErrorCode:
    takes = finding is None or leader_takes_marker(finding.code, forced=forced)
    return ErrorCode.NONE if takes else ErrorCode.INVALID_TXN_STATE
