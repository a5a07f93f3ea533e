"""Finds the transactions that a dead Flink job left open, each with the decision that its checkpoint implies.

Rules, as Flink itself decides when it restores the checkpoint:

1. A transaction that the checkpoint lists for commit is committed, by its exact identity.
2. Any other open transaction whose id a writer of the job makes is aborted: it began after the checkpoint.
3. Ids that a writer's state counts on, and which are not listed with an identity, are left alone.
4. With a newer complete checkpoint beside this one nothing is aborted: that one may count on the transactions.
5. A restored job repeats its commits with the epoch of the checkpoint and by the rules of Transactions V1, whatever its
   client: the end does not raise the epoch, or the job would take its data for lost.
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
    saved = [
        SavedTransaction(
            stored, True, f"checkpoint {_id(checkpoint, number)} counts on it", checkpoint.stored_at_ms, True
        )
        for stored, number in sorted(sink.committables.items())
    ]
    if not sink.prefixes or checkpoint.newer:
        return FlinkTransactions(saved, [])
    listing = yield from list_transactions(cluster, ListFilter(states=(ONGOING_STATE,)))
    listed = {stored.transactional_id for stored in sink.committables}
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
