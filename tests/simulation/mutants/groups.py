"""Bugs of group coordinators and of clients."""

from __future__ import annotations

from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.client.machine import consumed_records as client_reading
from oncelog.client.machine.assigned_partitions import AssignedPartitions
from oncelog.client.machine.positions import Positions
from oncelog.client.machine.producer import ProducerMachine
from oncelog.client.machine.transactions import TransactionMachine
from oncelog.core.groups import commits
from oncelog.core.groups.classic.group import ClassicGroup
from oncelog.core.groups.commits import Commits
from oncelog.core.groups.offsets import OffsetStore
from oncelog.core.groups.shard import GroupShard
from tests.simulation.mutants.mutant import Mutant, every


def _abort_commits_offsets(right: Any) -> Any:
    def end_transaction(self: OffsetStore, producer_id: Any, *, committed: bool) -> None:
        right(self, producer_id, committed=True)

    return end_transaction


def _pending_shown(right: Any) -> Any:
    def put_pending(self: OffsetStore, producer_id: Any, group: Any, topic: Any, partition: int, offset: Any) -> None:
        right(self, producer_id, group, topic, partition, offset)
        self.committed.put(group, topic, partition, offset)

    return put_pending


def _unstable_told(right: Any) -> Any:
    def has_pending(self: OffsetStore, group_id: Any, topic: Any, partition: int) -> bool:
        return False

    return has_pending


def _members_unchecked(right: Any) -> Any:
    def fenced(group: ClassicGroup, request: Any) -> Any:
        return ErrorCode.NONE

    return fenced


def _commit_lost(right: Any) -> Any:
    now = every(6)

    def write(self: Commits, *what: Any) -> Any:
        out = right(self, *what)
        if now():
            out.records = []
        return out

    return write


def _offsets_not_loaded(right: Any) -> Any:
    def apply_end(self: GroupShard, producer_id: Any, *, committed: bool) -> None:
        if self.is_loaded:
            right(self, producer_id, committed=committed)

    return apply_end


def _decided_passed_over(right: Any) -> Any:
    def senders_of(*what: Any) -> Any:
        return frozenset()

    return senders_of


def _retry_with_new_sequence(right: Any) -> Any:
    def again(self: ProducerMachine, batch: Any, *what: Any) -> None:
        batch.encoded, batch.sequence = None, -1
        right(self, batch, *what)

    return again


def _filter_keeps_aborting(right: Any) -> Any:
    def is_abort(fetched: Any, at: int, header: Any) -> bool:
        return False

    return is_abort


def _aborted_shown(right: Any) -> Any:
    def visible(fetched: Any, read_committed: bool) -> Any:
        return right(fetched, read_committed=False)

    return visible


def _commit_one_past(right: Any) -> Any:
    def processed(self: AssignedPartitions, partition: Any, next_offset: int) -> None:
        right(self, partition, next_offset + 1)

    return processed


def _position_skips(right: Any) -> Any:
    now = every(50)

    def take(self: Positions, partition: Any, *what: Any) -> Any:
        fetched = right(self, partition, *what)
        return None if fetched is not None and not fetched.error_code and now() else fetched

    return take


def _offsets_not_sent(right: Any) -> Any:
    now = every(4)

    def add_offsets(self: TransactionMachine, offsets: Any, group: Any) -> None:
        if not now():
            right(self, offsets, group)

    return add_offsets


def _failure_passed_over(right: Any) -> Any:
    def batch_failed(self: TransactionMachine, code: int, message: str | None, text: str) -> None:
        """The transaction goes on as if all had been written."""

    return batch_failed


GROUPS: Final = (
    Mutant(
        "abort-commits-offsets",
        "offsets sent in a transaction count when it is aborted, too",
        OffsetStore,
        "end_transaction",
        _abort_commits_offsets,
    ),
    Mutant(
        "pending-offsets-shown",
        "offsets sent in a transaction count before it ends",
        OffsetStore,
        "put_pending",
        _pending_shown,
    ),
    Mutant(
        "unstable-offsets-told",
        "who wants stable offsets is told those before an open transaction",
        OffsetStore,
        "has_pending",
        _unstable_told,
    ),
    Mutant(
        "members-unchecked",
        "offsets of who is no member any more are accepted",
        commits,
        "_fenced",
        _members_unchecked,
    ),
    Mutant("commit-lost", "a commit is answered and not written, now and then", Commits, "_write", _commit_lost),
    Mutant(
        "ends-not-loaded",
        "a group coordinator that starts passes over the ends of transactions",
        GroupShard,
        "apply_end_transaction",
        _offsets_not_loaded,
    ),
    Mutant(
        "offset-goes-back",
        "offsets of a decided transaction are passed over",
        commits,
        "_senders_of",
        _decided_passed_over,
    ),
)

CLIENTS: Final = (
    Mutant(
        "client-new-sequence",
        "the client repeats a batch under a new sequence",
        ProducerMachine,
        "_again",
        _retry_with_new_sequence,
    ),
    Mutant(
        "client-keeps-aborting",
        "the client's filter does not notice that an aborted transaction is over",
        client_reading,
        "_is_abort",
        _filter_keeps_aborting,
    ),
    Mutant(
        "client-shows-aborted",
        "the client does not filter aborted records",
        client_reading,
        "visible_batches",
        _aborted_shown,
    ),
    Mutant(
        "client-commits-past",
        "the client commits one more than was processed",
        AssignedPartitions,
        "processed",
        _commit_one_past,
    ),
    Mutant(
        "client-skips",
        "the client loses what it has fetched, now and then",
        Positions,
        "_take",
        _position_skips,
    ),
    Mutant(
        "client-forgets-offsets",
        "the client leaves the offsets out of a transaction now and then",
        TransactionMachine,
        "add_offsets",
        _offsets_not_sent,
    ),
    Mutant(
        "client-passes-over-failures",
        "the client commits although a batch of the transaction has failed",
        TransactionMachine,
        "batch_failed",
        _failure_passed_over,
    ),
)
