"""Finds the transactions that a dead Flink job left open, each with the decision that its checkpoint implies.

Flink itself decides in this way when it restores the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncelog.admin.flink.checkpoint_directory import FlinkCheckpoint
from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.stored_identity import SavedTransaction
from oncelog.admin.transactions.transactional_ids import ListFilter, describe_transactions, list_transactions
from oncelog.base.transaction_verdicts import ONGOING_STATE
from oncelog.client.machine.transaction_values import StoredTransaction
from oncelog.client.programs import Cluster, Program, operation


@dataclass(frozen=True, slots=True)
class FlinkTransactions:
    """The job's transactions with their decisions, and coordinators that did not answer."""

    transactions: list[SavedTransaction]
    unanswered: list[Unanswered]


@operation
def lingering_transactions(cluster: Cluster, checkpoint: FlinkCheckpoint) -> Program[FlinkTransactions]:
    """The listed transactions, and the job's other open ones."""
    sink = checkpoint.sink
    # Committed by their exact identity. A restored job repeats these commits with the epoch of the checkpoint and by
    # the rules of Transactions V1, whatever its client: the end does not raise the epoch, or the job would take its
    # data for lost.
    saved = [
        SavedTransaction(
            stored, True, f"checkpoint {_id(checkpoint, number)} counts on it", checkpoint.stored_at_ms, True
        )
        for stored, number in sorted(sink.committables.items())
    ]
    # With a newer complete checkpoint nothing is aborted: that one may count on the transactions.
    if not sink.prefixes or checkpoint.newer:
        return FlinkTransactions(saved, [])
    listing = yield from list_transactions(cluster, ListFilter(states=(ONGOING_STATE,)))
    listed = {stored.transactional_id for stored in sink.committables}
    # Ids in ``prepared``, which a writer's state counts on without an identity, are left alone. Any other open
    # transaction of a writer of the job began after the checkpoint: it is aborted.
    names = [
        row.transactional_id
        for row in listing.rows
        if row.transactional_id not in listed | sink.prepared and sink.owns(row.transactional_id)
    ]
    described = yield from describe_transactions(cluster, names)
    for name in sorted(described.rows):
        row = described.rows[name]
        if row.state == ONGOING_STATE:
            stored = StoredTransaction(name, row.producer_id, row.producer_epoch)
            why = f"checkpoint {checkpoint.checkpoint_id} does not count on it: it began later"
            # The present transaction is meant, whatever the identity has named before.
            saved.append(SavedTransaction(stored, False, why, row.start_ms))
    return FlinkTransactions(saved, [*listing.unanswered, *described.unanswered.values()])


def _id(checkpoint: FlinkCheckpoint, number: int | None) -> int:
    return checkpoint.checkpoint_id if number is None else number
