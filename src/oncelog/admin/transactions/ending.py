"""Ends a transaction by its stored identity, through its coordinator: commit what a dead job counts on, or abort.

1. :func:`plan_end` finds out what became of the transaction (``stored_identity``), which records it has and which
   readers its end sets free (``transaction_contents``, ``blocked_groups``).
2. :func:`end_stored` describes the transaction again immediately before each EndTxn. It sends nothing unless the
   transaction is the one of the plan: same identity, same start time, still open.
3. Then it waits until the markers are written, and describes what became of it.

An EndTxn whose answer is lost is not repeated blindly: step 2 comes first. Under Transactions V2 the coordinator takes
the EndTxn of one transaction only. Under V1 a producer of the same identity that still lives could begin its next
transaction within milliseconds; :attr:`EndPlan.race` says so, and the start time afterwards shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from oncelog.admin.transactions.audit_trail import Audit, entry_of, no_audit
from oncelog.admin.transactions.blocked_groups import GroupBehind, groups_behind
from oncelog.admin.transactions.broker_requests import Progress, Unanswered, no_progress
from oncelog.admin.transactions.coordinator_log import read_coordinator_log
from oncelog.admin.transactions.partition_offsets import Bounds, bounds_of
from oncelog.admin.transactions.stored_identity import TRANSACTIONS_V2, EndAction, Evidence, Judgement, judge
from oncelog.admin.transactions.transaction_contents import Contents, PartitionContents, read_contents
from oncelog.admin.transactions.transactional_ids import TransactionRow, describe_transactions
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.base.transaction_verdicts import DECIDED_STATES, ONGOING_STATE
from oncelog.base.units import SECOND_MS
from oncelog.client.errors import ClientError, explain
from oncelog.client.machine.retry import Remedy, remedy
from oncelog.client.machine.transaction_values import StoredTransaction
from oncelog.client.programs import TRANSACTION_KEY, Cluster, Program, operation
from oncelog.client.programs.stored_transactions import send_end

TIMEOUT_MS: Final = 30 * SECOND_MS
RACE: Final = (
    "its client is not known to raise the epoch with each end (Transactions V2). A producer of this identity that "
    "still runs could begin its next transaction in the milliseconds before the request, which would end that one; "
    "make sure that the job is stopped"
)

_MEANINGS: Final[dict[int, str]] = {
    ErrorCode.INVALID_PRODUCER_EPOCH: "the id has another epoch by now; nothing was ended",
    ErrorCode.PRODUCER_FENCED: "the id has another epoch by now; nothing was ended",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the id has another producer id by now, or has expired; nothing was ended",
    ErrorCode.INVALID_TXN_STATE: "it has ended the other way by now; nothing was changed",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not allowed: it needs Write on the transactional id",
}


@dataclass(frozen=True, slots=True)
class EndPlan:
    """The effects of ending a stored transaction.

    ``row`` is the coordinator's entry, None if it does not know the id. ``contents`` and ``waiting`` (groups at the
    last stable offset, by partition) are read only while there is something to end. ``log_problem`` says why the
    coordinator's log was no help.
    """

    stored: StoredTransaction
    commit: bool
    judgement: Judgement
    row: TransactionRow | None
    contents: Contents
    waiting: Mapping[TopicPartition, list[GroupBehind]]
    unanswered: tuple[Unanswered, ...]
    log_problem: str | None
    keeps_epoch: bool

    @property
    def action(self) -> EndAction:
        return self.judgement.action(commit=self.commit)

    @property
    def race(self) -> str | None:
        """The race that the checks cannot exclude, in a sentence, or None."""
        may_race = self.action is EndAction.END and self.judgement.may_name_another
        return RACE if may_race else None

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.contents.partitions)

    @property
    def bytes(self) -> int:
        return sum(partition.bytes for partition in self.contents.partitions)

    @property
    def is_whole(self) -> bool:
        """True if all records were counted."""
        return all(partition.is_whole for partition in self.contents.partitions)

    @property
    def times_out_ms(self) -> int | None:
        """When the coordinator aborts it; None if never, or if it is not open."""
        row = self.row
        if row is None or row.state != ONGOING_STATE or row.start_ms is None or row.is_two_phase:
            return None
        return row.start_ms + row.timeout_ms


@dataclass(frozen=True, slots=True)
class EndedTransaction:
    """The outcome for one plan. ``error`` is None if the transaction ended as requested, now or before.

    ``sent`` is False if nothing was sent. ``bounds`` are those of its partitions afterwards. ``warning`` says that
    another transaction may have been ended, and what to check.
    """

    plan: EndPlan
    error: str | None = None
    sent: bool = False
    after: TransactionRow | None = None
    bounds: Mapping[TopicPartition, Bounds] = field(default_factory=dict)
    warning: str | None = None


@operation
def plan_end(
    cluster: Cluster,
    stored: StoredTransaction,
    *,
    commit: bool,
    stored_at_ms: int | None = None,
    keeps_epoch: bool | None = None,
    progress: Progress = no_progress,
) -> Program[EndPlan]:
    """Find out what became of a stored transaction, and what its end would do. Changes nothing.

    ``stored_at_ms`` is when the job stored the identity, by its clock: a transaction that began later is another one.
    With ``keeps_epoch`` the end does not raise the epoch, so that the job finds its commit carried out when it repeats
    it with EndTxn 4 or older; None: as the client of the transaction would (Transactions V1 or V2), as far as that is
    known. Raises ClientError if the coordinator does not answer.
    """
    row = yield from _describe(cluster, stored)
    log = yield from read_coordinator_log(cluster, stored.transactional_id, stored[1:], progress=progress)
    contents = Contents(())
    if row is not None and row.state == ONGOING_STATE and _identity_of(row) == stored[1:]:
        contents = yield from read_contents(cluster, stored, row.partitions, progress=progress)
    judgement = judge(
        Evidence(
            stored,
            row,
            log.transactions,
            stored_at_ms,
            any(partition.continues_epoch for partition in contents.partitions),
        )
    )
    waiting, unanswered = yield from _waiting(cluster, contents.partitions)
    if keeps_epoch is None:
        open_ones = [past for past in log.transactions[-1:] if past.committed is None]
        keeps_epoch = any(past.client_version < TRANSACTIONS_V2 for past in open_ones)
    return EndPlan(
        stored,
        commit,
        judgement,
        row,
        contents,
        waiting,
        (*contents.unanswered, *unanswered),
        log.problem,
        keeps_epoch,
    )


@operation
def end_stored(
    cluster: Cluster, plan: EndPlan, *, audit: Audit = no_audit, timeout_ms: int = TIMEOUT_MS
) -> Program[EndedTransaction]:
    """End the transaction of ``plan``, and wait until its markers are written. Raises only what ``audit`` raises."""
    if plan.action is EndAction.NOTHING:
        return EndedTransaction(plan, after=plan.row)
    if plan.action is EndAction.REFUSE or plan.row is None:
        audit(_entry(cluster, plan, "refused", error=plan.judgement.reason))
        return EndedTransaction(plan, plan.judgement.reason, after=plan.row)
    # On disk before the request is sent.
    audit(_entry(cluster, plan, "sending"))
    deadline = cluster.now_ms() + timeout_ms
    try:
        sent, refused = yield from _send(cluster, plan, plan.row, deadline)
        result = yield from _result(cluster, plan, plan.row, sent, refused, deadline)
    except ClientError as error:
        result = EndedTransaction(plan, f"{error}; `oncelog txn describe` shows what became of it", sent=True)
    outcome = ("committed" if plan.commit else "aborted") if result.error is None else "failed"
    state_after = None if result.after is None else result.after.state
    audit(_entry(cluster, plan, outcome, state_after=state_after, error=result.error, warning=result.warning))
    return result


def _send(cluster: Cluster, plan: EndPlan, before: TransactionRow, deadline: int) -> Program[tuple[bool, str | None]]:
    """Send EndTxn until it is answered or the transaction changes. Returns if it was sent, and why it was refused."""
    sent = False
    problem = "it is completing an earlier request"
    for attempt in range(1 << 30):
        row = yield from _describe(cluster, plan.stored)
        if row is None or not _is_same(row, before):
            return sent, None
        if cluster.now_ms() >= deadline:
            raise ClientError(f"the coordinator did not end {plan.stored} in time: {problem}")
        sent = True
        try:
            answer = yield from send_end(cluster, plan.stored, commit=plan.commit, keeps_epoch=plan.keeps_epoch)
        except ClientError as error:
            if not cluster.may_pass(error):
                return True, str(error)
            problem = str(error)
            cluster.forget_coordinator(plan.stored.transactional_id, TRANSACTION_KEY)
        else:
            code = answer.error_code
            if code == ErrorCode.NONE:
                return True, None
            problem = _MEANINGS.get(code) or explain(code)
            if remedy(code) is Remedy.FAIL:
                return True, problem
            if remedy(code) is Remedy.FIND_COORDINATOR:
                cluster.forget_coordinator(plan.stored.transactional_id, TRANSACTION_KEY)
        yield from cluster.pause(attempt)
    raise AssertionError("unreachable")


def _result(
    cluster: Cluster, plan: EndPlan, before: TransactionRow, sent: bool, refused: str | None, deadline: int
) -> Program[EndedTransaction]:
    """Wait until the markers are written. Returns the outcome."""
    after = yield from _completed(cluster, plan.stored, deadline)
    bounds, _ = yield from bounds_of(cluster, sorted(before.partitions))
    state = "CompleteCommit" if plan.commit else "CompleteAbort"
    if refused is None and after is not None and after.state == state and after.start_ms == before.start_ms:
        return EndedTransaction(plan, None, sent, after, bounds)
    log = yield from read_coordinator_log(cluster, plan.stored.transactional_id, plan.stored[1:])
    # The start time of the plan's transaction tells it from later ones.
    judgement = judge(Evidence(plan.stored, after, log.transactions, before.start_ms))
    if judgement.action(commit=plan.commit) is EndAction.NOTHING:
        return EndedTransaction(plan, None, sent, after, bounds, _later_warning(plan, before, after) if sent else None)
    error = judgement.reason if refused is None else f"{refused}. {judgement.reason}"
    return EndedTransaction(plan, error, sent, after, bounds)


def _completed(cluster: Cluster, stored: StoredTransaction, deadline: int) -> Program[TransactionRow | None]:
    for attempt in range(1 << 30):
        row = yield from _describe(cluster, stored)
        if row is None or row.state not in DECIDED_STATES:
            return row
        if cluster.now_ms() >= deadline:
            raise ClientError(f"{stored} is {row.state} and its markers are not written yet")
        yield from cluster.pause(attempt)
    raise AssertionError("unreachable")


def _later_warning(plan: EndPlan, before: TransactionRow, after: TransactionRow | None) -> str | None:
    if after is None or after.start_ms is None or after.start_ms == before.start_ms or plan.race is None:
        return None
    return (
        f"{plan.stored.transactional_id!r} has begun another transaction meanwhile, so its producer is alive. If that "
        "happened before the request, the request has ended the first part of it; check its records"
    )


def _describe(cluster: Cluster, stored: StoredTransaction) -> Program[TransactionRow | None]:
    """The coordinator's entry, None if it does not know the id. Raises ClientError if it does not answer."""
    name = stored.transactional_id
    described = yield from describe_transactions(cluster, [name])
    if name in described.unanswered:
        raise ClientError(f"transactional id {name!r}: {described.unanswered[name]}")
    return described.rows.get(name)


def _identity_of(row: TransactionRow) -> tuple[int, int]:
    return row.producer_id, row.producer_epoch


def _is_same(row: TransactionRow, before: TransactionRow) -> bool:
    """True if the transaction is still the one that ``before`` describes, and open."""
    same = (_identity_of(row), row.start_ms) == (_identity_of(before), before.start_ms)
    return same and row.state == ONGOING_STATE


def _waiting(
    cluster: Cluster, partitions: tuple[PartitionContents, ...]
) -> Program[tuple[dict[TopicPartition, list[GroupBehind]], list[Unanswered]]]:
    """Groups at the last stable offset of partitions that the transaction holds."""
    held = {
        partition.topic_partition: Bounds(partition.last_stable_offset, partition.end_offset)
        for partition in partitions
        if partition.last_stable_offset is not None
        and partition.end_offset is not None
        and partition.start_offset == partition.last_stable_offset
    }
    if not held:
        return {}, []
    waiting, unanswered = yield from groups_behind(cluster, held)
    return waiting, unanswered


def _entry(cluster: Cluster, plan: EndPlan, outcome: str, **details: Any) -> dict[str, Any]:
    row = plan.row
    return entry_of(
        "commit-transaction" if plan.commit else "abort-transaction",
        outcome,
        cluster=cluster.view.cluster_id,
        bootstrap=",".join(map(str, cluster.bootstrap)),
        transactional_id=plan.stored.transactional_id,
        producer_id=plan.stored.producer_id,
        producer_epoch=plan.stored.producer_epoch,
        coordinator=None if row is None else row.coordinator,
        coordinator_state=None if row is None else row.state,
        start_ms=None if row is None else row.start_ms,
        partitions=[str(partition.topic_partition) for partition in plan.contents.partitions],
        records=plan.records,
        state=plan.judgement.state.value,
        reason=plan.judgement.reason,
        **details,
    )
