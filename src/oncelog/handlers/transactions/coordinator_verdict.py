"""Asks the coordinator of an open transaction whether it is going to end it. Not an API.

The node asks about old transactions, WriteTxnMarkers before an administrator's marker. A coordinator here answers in
the same step of the loop. Another broker's answer counts for a marker only if nothing has changed on the partition
since.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TRANSACTION_STATE, ProducerEpoch, ProducerId, TopicPartition, TransactionalId
from oncelog.base.transaction_verdicts import leader_takes_marker
from oncelog.core.transactions.classification import FORGOTTEN, Finding, classify
from oncelog.core.transactions.identity import Identity
from oncelog.handlers.broker.context import CoordinatorRefusal
from oncelog.handlers.broker.waits import AskCoordinator, FindTransactionalId, Steps

if TYPE_CHECKING:
    from oncelog.core.producers.entry import ProducerEntry
    from oncelog.handlers.broker.context import Context
    from oncelog.handlers.broker.ports import ClusterView, LeaderLog, Transactions
    from oncelog.storage.transactions.open_transactions import OpenTransaction


def finding_of(
    transactions: Transactions,
    cluster: ClusterView,
    transactional_id: str,
    identity: Identity,
    partition: TopicPartition,
) -> Finding | None:
    """The finding of the id's coordinator on this broker; None if it cannot be asked."""
    name = TransactionalId(transactional_id)
    shard = transactions.shard_of(name)
    if shard is None:
        return None if TRANSACTION_STATE in cluster.image.topics else FORGOTTEN
    return classify(shard.describe(name), shard.outstanding(name), identity, partition)


def ids_of(transactions: Transactions, producer_ids: Collection[int]) -> dict[int, TransactionalId]:
    """The transactional ids of these producers' open transactions that coordinators on this broker know."""
    # Scans many ids: call it once for all producers.
    return {
        producer_id: transactional_id
        for shard in transactions.shards()
        for producer_id, transactional_id in shard.open_of(producer_ids).items()
    }


def identity_of(entry: ProducerEntry) -> Identity:
    return Identity(ProducerId(entry.producer_id), ProducerEpoch(entry.epoch))


def marker_refusal(
    transaction: OpenTransaction, entry: ProducerEntry, context: Context, *, ends_live: bool
) -> Steps[ErrorCode]:
    """NONE if an administrator's marker may end the transaction that it names: a live one only by force
    (``ends_live``), a decided or two-phase one never. The id's coordinator has to answer, on any broker; without an id,
    all coordinators. Nothing may have changed on the partition until then.
    """
    name = transaction.transactional_id
    partition, identity = transaction.partition, identity_of(entry)
    before = context.partitions.leader_log(partition)
    if name is None:  # lost in a power cut, or with the file of ids
        try:
            name = yield FindTransactionalId(identity.producer_id)
        except CoordinatorRefusal:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        changed = _changed_since(before, entry, partition, context)
        if changed is not ErrorCode.NONE or name is None:
            return changed
    # The producer of a transaction that hung may have begun its next one here, at the same epoch.
    finding = yield AskCoordinator(TransactionalId(name), identity, partition)
    changed = _changed_since(before, entry, partition, context)
    if changed is not ErrorCode.NONE:
        return changed
    if finding is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    is_accepted = leader_takes_marker(finding.code, forced=ends_live)
    return ErrorCode.NONE if is_accepted else ErrorCode.INVALID_TXN_STATE


def _changed_since(
    before: LeaderLog | ErrorCode, entry: ProducerEntry, partition: TopicPartition, context: Context
) -> ErrorCode:
    """NONE if the leadership is the same and the producer has written nothing."""
    leader = context.partitions.leader_log(partition)
    if isinstance(leader, ErrorCode) or isinstance(before, ErrorCode):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if leader.log is not before.log or leader.leader_epoch != before.leader_epoch:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    # Equal entries: no batch, marker or new epoch of this producer since.
    unchanged = leader.log.producers.entries.get(entry.producer_id) == entry
    return ErrorCode.NONE if unchanged else ErrorCode.INVALID_TXN_STATE
