"""Watches open transactions on led partitions, and reports or aborts those that no coordinator will end (KIP-664).

DescribeProducers shows the verdict (``base.transaction_verdicts``); a hanging one is logged and counted. With
``transaction.hanging.action=abort`` it is aborted and audited; live and two-phase ones never are. The marker is written
only after the coordinator's answer and a confirmation of this broker's leadership, and if the partition has not changed
since. Followers watch too, to be prepared for leading: they persist the ids that their leaders send.

A transaction that ends within a second costs a queue entry, within ten a heap entry and the write of its id. Each pass
is bounded. See docs/internals/hanging-transactions.md.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import Offset, ProducerEpoch, ProducerId, TopicPartition, TransactionalId
from oncelog.base.transaction_verdicts import NEVER_TIMES_OUT, ReasonCode, Verdict, late_after_ms
from oncelog.base.units import MINUTE_MS, SECOND_MS
from oncelog.core.producers.entry import ProducerEntry
from oncelog.core.transactions.classification import COORDINATOR_NOT_AVAILABLE, ID_UNKNOWN, Finding
from oncelog.handlers.broker.ports import ClusterView, LeaderLog, Marker, Partitions, Transactions
from oncelog.handlers.transactions.coordinator_verdict import identity_of
from oncelog.node.hanging import reports
from oncelog.node.hanging.coordinator_queries import CoordinatorQueries, IdsByProducer
from oncelog.node.kernel.deadlines import Alarm, Deadlines
from oncelog.node.kernel.events import Effect, Report
from oncelog.storage.errors import AppendRefused
from oncelog.storage.transactions.open_transactions import OpenTransaction

if TYPE_CHECKING:
    from oncelog.node.replication.leadership_check import LeadershipChecker
    from oncelog.storage.log.partition_log import PartitionLog
    from oncelog.storage.log_directory import LogDirectory


class Baseline(NamedTuple):
    """The leadership and the producer's entry at the time of a query."""

    leader: LeaderLog
    entry: ProducerEntry

    def still_holds(self, leader: LeaderLog | ErrorCode) -> bool:
        """True if the producer has written nothing since, in the same leadership."""
        return leader is self.leader and leader.log.producers.entries.get(self.entry.producer_id) == self.entry


class WatchedTransaction:
    __slots__ = ("at_ms", "found_ms", "inconclusive_rounds", "order", "reported", "timeout_ms", "transaction")

    def __init__(self, transaction: OpenTransaction, at_ms: int, order: int) -> None:
        self.transaction = transaction
        self.at_ms = at_ms
        self.order = order
        self.timeout_ms = -1
        """The transaction's own time-out, once its coordinator has told it; kept because the coordinator may forget
        it."""
        self.found_ms: int | None = None
        """Time at which it was found to hang."""
        self.reported = False
        self.inconclusive_rounds = 0
        """Consecutive rounds without an answer from a coordinator."""

    def __lt__(self, other: WatchedTransaction) -> bool:
        return (self.at_ms, self.order) < (other.at_ms, other.order)


PASS_MS: Final = SECOND_MS
"""Time between passes, and the age from which a transaction's id is persisted."""
FIRST_QUERY_MS: Final = 10 * SECOND_MS
RECHECK_MS: Final = MINUTE_MS
ADOPTED_PER_SLICE: Final = 100
"""Each may write to a file of its own: some milliseconds of the loop."""
QUERIES_PER_SLICE: Final = 100
SLICE_PAUSE_MS: Final = 10


class HangingTransactionWatch:
    def __init__(
        self,
        partitions: Partitions,
        coordinators: Transactions,
        queries: CoordinatorQueries,
        leadership: LeadershipChecker,
        cluster: ClusterView,
        logs: LogDirectory,
        deadlines: Deadlines,
    ) -> None:
        self._partitions = partitions
        self._coordinators = coordinators
        self._queries = queries
        self._leadership = leadership
        self._cluster = cluster
        self._logs = logs
        self._transactions = logs.transactions
        self._deadlines = deadlines
        self._in_pass = False
        self._alarm: Alarm | None = None
        self._due: list[WatchedTransaction] = []
        self._order = 0
        self._reports: list[Effect] = []
        # Two-phase transactions that were reported: by id, producer id and epoch.
        self._overdue: dict[tuple[str, int, int], None] = {}
        self.found_count = 0
        self.aborted = 0
        self.query_count = 0
        """Queries sent to coordinators."""

    def notice(self, now_ms: int, effects: list[Effect]) -> None:
        """After an event: schedule a pass for new transactions, and emit the collected reports."""
        if self._transactions.begun:
            self._wake_at(now_ms + PASS_MS)
        if self._reports:
            effects += self._reports
            self._reports.clear()

    def overdue_count(self) -> int:
        """Open two-phase transactions older than the alarm threshold."""
        return len(self._still_open())

    def _wake_at(self, at_ms: int) -> None:
        if self._alarm is not None and self._alarm.callback is not None:
            if self._alarm.at_ms <= at_ms:
                return
            self._deadlines.cancel(self._alarm)
        self._alarm = self._deadlines.at(at_ms, self._pass)

    def _pass(self, now_ms: int) -> None:
        self._in_pass = True
        more = self._adopt(now_ms) | self._query_due(now_ms)
        self._in_pass = False
        if more:
            self._wake_at(now_ms + SLICE_PAUSE_MS)
        elif self._transactions.begun:
            self._wake_at(now_ms + PASS_MS)
        elif self._due:
            self._wake_at(max(now_ms + PASS_MS, self._due[0].at_ms))

    def _adopt(self, now_ms: int) -> bool:
        """Watch the transactions open for a second, and persist their ids; True if more are waiting."""
        begun = self._transactions.begun
        written: dict[TopicPartition, None] = {}
        adopted = 0
        while begun and (begun[0].ended or not 0 <= now_ms - begun[0].started_ms < PASS_MS):
            # The rest follows in the next slice.
            if adopted == ADOPTED_PER_SLICE:
                break
            transaction = begun.popleft()
            if not transaction.ended:
                adopted += 1
                self._order += 1
                # Transactions found at start-up wait as long: by then coordinators have loaded their logs.
                heapq.heappush(
                    self._due, WatchedTransaction(transaction, now_ms + FIRST_QUERY_MS - PASS_MS, self._order)
                )
                written[transaction.partition] = None
        self._write_ids(written)
        return adopted == ADOPTED_PER_SLICE

    def _write_ids(self, partitions: dict[TopicPartition, None]) -> None:
        for partition in partitions:
            log = self._logs.logs.get(partition)
            try:
                if log is not None:
                    self._transactions.write_ids(log)
            except OSError as error:  # only an id is lost, after the next restart
                self._reports.append(Report("error", f"transactional ids of {partition} were not written: {error}"))

    def _query_due(self, now_ms: int) -> bool:
        due: list[WatchedTransaction] = []
        while self._due and self._due[0].at_ms <= now_ms and len(due) < QUERIES_PER_SLICE:
            watched = heapq.heappop(self._due)
            if not watched.transaction.ended:
                due.append(watched)
        unnamed: list[WatchedTransaction] = []
        for watched in due:
            if self._needs_id(watched.transaction):
                unnamed.append(watched)
            else:
                self._query(watched, now_ms)
        if unnamed:
            producer_ids = {watched.transaction.producer_id for watched in unnamed}
            self._queries.find_ids(producer_ids, partial(self._query_with_ids, unnamed))
        return bool(self._due) and self._due[0].at_ms <= now_ms

    def _needs_id(self, transaction: OpenTransaction) -> bool:
        """True if the id has to be searched for. Followers do not search."""
        led = not isinstance(self._partitions.leader_log(transaction.partition), ErrorCode)
        return led and transaction.transactional_id is None

    def _query_with_ids(self, unnamed: Sequence[WatchedTransaction], ids: IdsByProducer, _all_answered: bool) -> None:
        for watched in unnamed:
            transaction = watched.transaction
            if not transaction.ended:
                if transaction.transactional_id is None:
                    # Still None if the id belongs to a coordinator that did not answer.
                    transaction.transactional_id = ids.get(transaction.producer_id)
                self._query(watched, self._deadlines.now_ms)

    def _query(self, watched: WatchedTransaction, now_ms: int) -> None:
        transaction = watched.transaction
        leader = self._partitions.leader_log(transaction.partition)
        if isinstance(leader, ErrorCode):
            self._reschedule(watched, now_ms + RECHECK_MS, now_ms)  # this broker may lead the partition later
            return
        entry = leader.log.producers.entries.get(transaction.producer_id)
        if entry is None or entry.transaction_first_offset != transaction.start_offset:
            return
        baseline = Baseline(leader, entry)
        if transaction.transactional_id is None:
            self._answered(watched, baseline, ID_UNKNOWN)
            return
        self.query_count += 1
        self._queries.query(
            TransactionalId(transaction.transactional_id),
            identity_of(entry),
            transaction.partition,
            partial(self._answered, watched, baseline),
        )

    def _reschedule(self, watched: WatchedTransaction, at_ms: int, now_ms: int) -> None:
        watched.at_ms = max(at_ms, now_ms + PASS_MS)
        heapq.heappush(self._due, watched)
        if not self._in_pass:
            self._wake_at(watched.at_ms)

    def _answered(self, watched: WatchedTransaction, baseline: Baseline, answer: Finding | None) -> None:
        finding = COORDINATOR_NOT_AVAILABLE if answer is None else answer
        conclude = partial(self._conclude, watched, baseline, finding)
        # A later leader may have written the marker, so this broker's leadership must be confirmed.
        if finding.verdict is Verdict.HANGING:
            self._leadership.leads(watched.transaction.partition, conclude)
        else:
            conclude(leads=True)

    def _conclude(self, watched: WatchedTransaction, baseline: Baseline, finding: Finding, leads: bool) -> None:
        now_ms = self._deadlines.now_ms
        if watched.transaction.ended:
            return
        again_ms: int | None = now_ms + PASS_MS
        leader = self._partitions.leader_log(watched.transaction.partition)
        # A hanging transaction is acted on only if its partition has not changed since the query.
        if finding.verdict is not Verdict.HANGING or (leads and baseline.still_holds(leader)):
            again_ms = self._judge(watched, finding, baseline.leader.log, baseline.entry, now_ms)
        if again_ms is not None:
            self._reschedule(watched, again_ms, now_ms)

    def _judge(
        self, watched: WatchedTransaction, finding: Finding, log: PartitionLog, entry: ProducerEntry, now_ms: int
    ) -> int | None:
        """Record the verdict; returns the time of the next query, None: no further one."""
        transaction = watched.transaction
        if 0 < finding.timeout_ms < NEVER_TIMES_OUT:
            watched.timeout_ms = finding.timeout_ms
        if finding.code is ReasonCode.TWO_PHASE:
            transaction.verdict = finding.reported_as
            self._report_overdue(transaction, finding, log, entry, now_ms)
            return now_ms + RECHECK_MS
        old_ms = transaction.started_ms + self._late_after_ms(watched)
        if now_ms < old_ms:
            return min(old_ms, now_ms + RECHECK_MS)
        transaction.verdict = finding.reported_as
        if finding.verdict is Verdict.HANGING:
            return self._hanging(watched, finding, log, entry, now_ms)
        watched.found_ms = None
        watched.inconclusive_rounds = watched.inconclusive_rounds + 1 if finding.verdict is Verdict.SUSPECTED else 0
        if watched.inconclusive_rounds > 1 and not watched.reported:  # the first time, a coordinator may be loading
            watched.reported = True
            self._warn(reports.late(transaction, finding, log, entry.epoch, now_ms))
        return now_ms + RECHECK_MS

    def _late_after_ms(self, watched: WatchedTransaction) -> int:
        return late_after_ms(watched.timeout_ms, int(self._cluster.config.get("transaction.max.timeout.ms")))

    def _warn(self, message: str) -> None:
        self._reports.append(Report("warning", message))

    def _hanging(
        self, watched: WatchedTransaction, finding: Finding, log: PartitionLog, entry: ProducerEntry, now_ms: int
    ) -> int | None:
        if watched.found_ms is None:
            watched.found_ms = now_ms
            self.found_count += 1
            self._warn(reports.hanging(watched.transaction, finding, log, entry.epoch, now_ms))
        config = self._cluster.config
        if config.get("transaction.hanging.action") != "abort":
            return now_ms + RECHECK_MS
        abort_ms = watched.found_ms + int(config.get("transaction.hanging.grace.ms"))
        if now_ms < abort_ms:
            return min(abort_ms, now_ms + RECHECK_MS)
        # The producer has not written since the coordinator was asked: it is not live.
        outcome = self._abort(watched.transaction, entry)
        record = reports.self_abort(watched.transaction, finding, entry.epoch, watched.found_ms, now_ms, outcome.name)
        self._coordinators.audit(record)
        done = outcome is ErrorCode.NONE
        self.aborted += done
        self._warn(
            f"{'aborted' if done else f'could not abort ({outcome.name})'} the hanging transaction of producer "
            f"{entry.producer_id} on {watched.transaction.partition} from offset {watched.transaction.start_offset} on "
            "(transaction.hanging.action=abort); see the audit log"
        )
        return None if done else now_ms + RECHECK_MS

    def _abort(self, transaction: OpenTransaction, entry: ProducerEntry) -> ErrorCode:
        marker = Marker(
            ProducerId(entry.producer_id),
            ProducerEpoch(entry.epoch),
            entry.coordinator_epoch,
            committed=False,
            start_offset=Offset(transaction.start_offset),
        )
        leader = self._partitions.leader_log(transaction.partition)
        if isinstance(leader, ErrorCode):
            return leader
        try:
            self._coordinators.write_marker(leader, marker)
        except AppendRefused as refused:
            return refused.error_code
        except OSError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _report_overdue(
        self, transaction: OpenTransaction, finding: Finding, log: PartitionLog, entry: ProducerEntry, now_ms: int
    ) -> None:
        """Report a two-phase transaction, once for all its partitions."""
        if now_ms - finding.start_ms <= int(self._cluster.config.get("transaction.two.phase.commit.alarm.ms")):
            return
        key = (transaction.transactional_id or "", transaction.producer_id, transaction.epoch)
        if key not in self._overdue:
            self._overdue = {**self._still_open(), key: None}
            self._warn(reports.overdue(transaction, finding, log, entry.epoch, now_ms))

    def _still_open(self) -> dict[tuple[str, int, int], None]:
        if not self._overdue:
            return {}
        return {
            key: None
            for open_here in self._transactions.partitions.values()
            for transaction in open_here.values()
            if (key := (transaction.transactional_id or "", transaction.producer_id, transaction.epoch))
            in self._overdue
        }
