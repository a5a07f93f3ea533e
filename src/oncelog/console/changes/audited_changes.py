"""Changes with their lines in the audit: transactions that are ended, offsets that are reset.

The rule: each function takes the :class:`Permit` that the gate gave to the request. The line that something is about
to be done is on disk before it is done, with who and from where; a second one says what came of it. A request that was
let in and refused here has a line too. What was typed to confirm is compared with the cluster as it is now, not as the
page had it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from oncelog.admin.groups import ResetRow, ResetTo, execute_reset, plan_reset
from oncelog.admin.transactions.abort_marker import Aborted, abort, find_one
from oncelog.admin.transactions.audit_trail import Audit, entry_of
from oncelog.admin.transactions.cluster_scan import Scope, scan
from oncelog.admin.transactions.termination import Terminated, force_terminate
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.client.errors import ClientError
from oncelog.client.programs.group import committed_offsets
from oncelog.console.admission.audit_lines import console_audit
from oncelog.console.admission.gate import Permit
from oncelog.console.query import NotConfirmed
from oncelog.console.rendering import shown

T = TypeVar("T")


class Listed(NamedTuple):
    """A transaction of a list as it was shown."""

    where: TopicPartition
    start_offset: int
    producer_id: int


class Changes:
    """The changes of one request with their audit lines."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self.is_noted = False
        """True once a line about it is on disk."""

    def abort_hanging(
        self,
        client: Client,
        permit: Permit,
        where: TopicPartition,
        start_offset: int,
        typed: str,
        min_age_ms: int | None,
    ) -> Aborted:
        """End a hanging transaction by a marker, after one more look at it. Raises ClientError; a refusal is in the
        result."""
        one = find_one(client, where, start_offset)
        name = one.transactional_id or str(one.producer.producer_id)
        confirmed(typed, name, "transaction")
        return abort(client, one, min_age_ms=min_age_ms, audit=self._of(permit))

    def abort_listed(
        self, client: Client, permit: Permit, listed: list[Listed], typed: str, min_age_ms: int | None
    ) -> list[Aborted | Listed]:
        """End the hanging transactions of a list that was shown, each after one more look at it; a Listed in the result
        has ended meanwhile. Nothing that was not in the list is touched."""
        confirmed(typed, f"abort {len(listed)}", "phrase")
        found = scan(client, Scope(partitions=tuple({one.where for one in listed})), min_age_ms=min_age_ms)
        there = {
            Listed(transaction.where, transaction.start_offset, transaction.producer.producer_id): transaction
            for transaction in found.transactions
        }
        if found.unanswered:
            raise ClientError(f"not all of it could be looked at again: {found.unanswered[0]}. Nothing was done")
        return [
            abort(client, there[one], min_age_ms=min_age_ms, audit=self._of(permit)) if one in there else one
            for one in listed
        ]

    def terminate(self, client: Client, permit: Permit, transactional_id: str, typed: str) -> Terminated:
        """Have the coordinator abort the open transaction of an id."""
        confirmed(typed, transactional_id, "transactional id")
        return force_terminate(client, transactional_id, audit=self._of(permit))

    def reset_offsets(
        self, client: Client, permit: Permit, group: str, plan: list[ResetRow], typed: str
    ) -> list[ResetRow]:
        """Carry out a reset exactly as it was shown; refused where the group has committed something else by now."""
        confirmed(typed, group, "group")
        committed = committed_offsets(client, group)
        for row in plan:
            found = committed.get(partition_of(row.topic, row.partition))
            if (None if found is None else found.offset) != row.current:
                raise NotConfirmed(
                    f"{row.topic}-{row.partition} has moved since the plan was shown; look at the new one. "
                    "Nothing was done"
                )
        details = {"group": group, "plan": [[f"{one.topic}-{one.partition}", one.current, one.target] for one in plan]}
        self.noted(permit, "reset-offsets", details, lambda: execute_reset(client, group, plan))
        return plan

    def noted(self, permit: Permit, action: str, details: Mapping[str, Any], work: Callable[[], T]) -> T:
        """Do something between two lines of the audit."""
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
        """Note a request that has no line yet, and so came to nothing: it was refused, or had nothing to do."""
        if not self.is_noted:
            said = {} if error is None else {"error": str(error) or type(error).__name__}
            self._of(permit)(entry_of("console", "refused" if said else "nothing to do", path=path, **details, **said))

    def _of(self, permit: Permit) -> Audit:
        return self._noting(console_audit(self._audit, permit.user, permit.address))

    def _noting(self, audit: Audit) -> Audit:
        def write(entry: Mapping[str, Any]) -> None:
            audit(entry)
            self.is_noted = True

        return write


def confirmed(typed: str, name: str, what: str) -> None:
    """Refuse what was not confirmed by its name, or by the text that stands for a name that cannot be typed."""
    if typed not in (name, shown(name)):
        raise NotConfirmed(f"{typed!r} was typed; the {what} is {name!r}. Nothing was done")


def reset_plan(client: Client, group: str, to: ResetTo, topic: str = "") -> list[ResetRow]:
    """The plan of a reset of all that a group has committed in, or of one topic of it. Changes nothing."""
    plan = plan_reset(client, group, to)
    return [row for row in plan if row.topic == topic] if topic else plan


def partition_of(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), partition)
