"""Audited changes of transactions and group offsets.

The rules: every function takes the :class:`Permit` that the gate gave to the request. An audit line with the user and
address is on disk before the change is made, and a second line records the outcome. A request that was admitted and
then rejected here has a line too. The typed confirmation is compared with the cluster as it is now, not with the page
that was shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from oncelog.admin.groups import ResetRow, ResetTo, execute_reset, group_positions, plan_reset
from oncelog.admin.transactions.abort_marker import Aborted, abort, find_one
from oncelog.admin.transactions.audit_trail import Audit, entry_of
from oncelog.admin.transactions.cluster_scan import Scope, scan
from oncelog.admin.transactions.termination import Terminated, force_terminate
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.errors import ClientError
from oncelog.console.admission.audit_lines import console_audit
from oncelog.console.admission.gate import Permit
from oncelog.console.query import Mistyped, NotConfirmed
from oncelog.console.rendering import shown

T = TypeVar("T")


class Listed(NamedTuple):
    """A transaction as the list showed it."""

    partition: TopicPartition
    start_offset: int
    producer_id: int


class Changes:
    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self.is_noted = False  # True once an audit line is on disk.

    def abort_hanging(
        self,
        client: Client,
        permit: Permit,
        partition: TopicPartition,
        start_offset: int,
        typed: str,
        min_age_ms: int | None,
    ) -> Aborted:
        """Abort a hanging transaction with a marker, after checking it once more.

        Raises ClientError; a refusal is in the result. It is named by its start offset, so without ``min_age_ms`` any
        age will do, as for ``oncelog txn abort``.
        """
        transaction = find_one(client, partition, start_offset)
        name = transaction.transactional_id or str(transaction.producer.producer_id)
        confirmed(typed, name, "transaction")
        return abort(client, transaction, min_age_ms=min_age_ms or 0, audit=self._of(permit))

    def abort_listed(
        self, client: Client, permit: Permit, listed: list[Listed], typed: str, min_age_ms: int | None
    ) -> list[Aborted | Listed]:
        """Abort the hanging transactions of a list, each after checking it once more.

        A Listed in the result has ended in the meantime. No transaction outside the list is touched.
        """
        confirmed(typed, f"abort {len(listed)}", "phrase")
        scanned = scan(client, Scope(partitions=tuple({entry.partition for entry in listed})), min_age_ms=min_age_ms)
        current = {
            Listed(transaction.topic_partition, transaction.start_offset, transaction.producer.producer_id): transaction
            for transaction in scanned.transactions
        }
        if scanned.unanswered:
            raise ClientError(f"the list could not be checked again: {scanned.unanswered[0]}. Nothing was done")
        return [
            abort(client, current[entry], min_age_ms=min_age_ms, audit=self._of(permit)) if entry in current else entry
            for entry in listed
        ]

    def terminate(self, client: Client, permit: Permit, transactional_id: str, typed: str) -> Terminated:
        """Make the coordinator abort the open transaction of an id."""
        confirmed(typed, transactional_id, "transactional id")
        return force_terminate(client, transactional_id, audit=self._of(permit))

    def reset_offsets(
        self, client: Client, permit: Permit, group: str, plan: list[ResetRow], typed: str
    ) -> list[ResetRow]:
        """Carry out a reset exactly as shown. Raises NotConfirmed if the group has another offset since."""
        confirmed(typed, group, "group")
        committed = group_positions(client, group)
        for row in plan:
            offset = committed.get(partition_of(row.topic, row.partition))
            if (None if offset is None else offset.offset) != row.current:
                raise NotConfirmed(
                    f"{row.topic}-{row.partition} has moved since the plan was shown; check the new plan. "
                    "Nothing was done"
                )
        details = {"group": group, "plan": [[f"{row.topic}-{row.partition}", row.current, row.target] for row in plan]}
        self.noted(permit, "reset-offsets", details, lambda: execute_reset(client, group, plan))
        return plan

    def noted(self, permit: Permit, action: str, details: Mapping[str, Any], work: Callable[[], T]) -> T:
        """Run ``work`` between two lines of the audit log."""
        audit = self._of(permit)
        audit(entry_of(action, "sending", **details))
        try:
            result = work()
        except Exception as error:
            audit(entry_of(action, "failed", **details, error=str(error) or type(error).__name__))
            raise
        audit(entry_of(action, "done", **details))
        return result

    def end(self, permit: Permit, path: str, details: Mapping[str, str], error: BaseException | None = None) -> None:
        """Write the line of a request that has none yet because it was rejected or had nothing to do."""
        if not self.is_noted:
            reason = {} if error is None else {"error": str(error) or type(error).__name__}
            self._of(permit)(
                entry_of("console", "refused" if reason else "nothing to do", path=path, **details, **reason)
            )

    def _of(self, permit: Permit) -> Audit:
        return self._noting(console_audit(self._audit, permit.user, permit.address))

    def _noting(self, audit: Audit) -> Audit:
        def write(entry: Mapping[str, Any]) -> None:
            audit(entry)
            self.is_noted = True

        return write


def confirmed(typed: str, name: str, kind: str) -> None:
    """Raise NotConfirmed unless ``typed`` is the name, or the visible form of a name that cannot be typed."""
    if typed not in (name, shown(name)):
        raise Mistyped(f"you typed {typed!r}, but the {kind} is {name!r}. Nothing was done")


def reset_plan(client: Client, group: str, to: ResetTo, topic: str = "") -> list[ResetRow]:
    """The plan of a reset of all committed partitions of a group, or of those of one topic. Changes nothing."""
    plan = plan_reset(client, group, to)
    return [row for row in plan if row.topic == topic] if topic else plan


def partition_of(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), partition)
