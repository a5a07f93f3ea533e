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
from oncelog.core.transactions.classification import FORGOTTEN, Finding, classify
from oncelog.core.transactions.model import Identity
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


def marker_refusal(
    transaction: OpenTransaction, entry: ProducerEntry, context: Context, *, ends_live: bool
) -> Steps[ErrorCode]:
    """NONE if an administrator's marker may end the transaction that it names.

    A live one may be ended only by force: the producer of one that hung may have begun its next transaction here, at
    the same epoch, since somebody looked. Its coordinator's decision and two-phase commit are out of reach.

    Whoever coordinates it has to answer, on whichever broker; where its id is not known, all coordinators. Nothing may
    have changed on the partition until they have."""
    name = transaction.transactional_id
    partition, identity = transaction.partition, identity_of(entry)
    before = context.partitions.leader_log(partition)
    if name is None:  # lost in a power cut, or with the file of names
        try:
            name = yield FindTransactionalId(identity.producer_id)
        except CoordinatorRefusal:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        changed = _changed_since(before, entry, partition, context)
        if changed is not ErrorCode.NONE or name is None:
            return changed
    finding = yield AskCoordinator(TransactionalId(name), identity, partition)
    changed = _changed_since(before, entry, partition, context)
    if changed is not ErrorCode.NONE:
        return changed
    if finding is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    takes = leader_takes_marker(finding.code, forced=ends_live)
    return ErrorCode.NONE if takes else ErrorCode.INVALID_TXN_STATE


def _changed_since(
    before: LeaderLog | ErrorCode, entry: ProducerEntry, partition: TopicPartition, context: Context
) -> ErrorCode:
    """NONE if the partition is led as before and the producer has written nothing to it."""
    leader = context.partitions.leader_log(partition)
    if isinstance(leader, ErrorCode) or isinstance(before, ErrorCode):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if leader.log is not before.log or leader.leader_epoch != before.leader_epoch:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    unchanged = leader.log.producers.entries.get(entry.producer_id) == entry
    return ErrorCode.NONE if unchanged else ErrorCode.INVALID_TXN_STATE
