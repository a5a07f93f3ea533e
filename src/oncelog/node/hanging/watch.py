"""The broker finds its own hanging transactions (KIP-664 leaves that to an operator).

A leader knows what is open on its partitions and, since producers say so, under which transactional id; the id's
coordinator knows whether anybody is going to end it. What has been open for a while is looked at: its coordinator is
asked, and asked again when the transaction is older than its own time-out, and then from time to time. What is found is
a verdict (``base.transaction_verdicts``) that DescribeProducers tells; a hanging one is a metric and a line of the log.
With ``transaction.hanging.action=abort`` it is ended too, never silently, and never one that is live or in two-phase
commit: the marker is written when the coordinator has spoken and it is certain that this broker leads the partition,
if nothing has changed on it since.

A follower watches too, for the day on which it leads: it writes the ids down that its leader tells it.

Cost: a transaction that ends within a second costs a place in a queue, one that ends within ten an entry in a heap and
the writing of its id; partitions without an open transaction cost nothing at all. A pass is bounded.
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
from oncelog.node.hanging.coordinator_queries import CoordinatorQueries, Names
from oncelog.node.kernel.deadlines import Alarm, Deadlines
from oncelog.node.kernel.events import Effect, Report
from oncelog.storage.errors import AppendRefused
from oncelog.storage.transactions.open_transactions import OpenTransaction

if TYPE_CHECKING:
    from oncelog.node.replication.leadership_check import LeadershipChecker
    from oncelog.storage.log.partition_log import PartitionLog
    from oncelog.storage.log_directory import LogDirectory


class Baseline(NamedTuple):
    """The leadership of a partition and its producer's entry when the coordinator was asked."""

    leader: LeaderLog
    entry: ProducerEntry

    def still_holds(self, leader: LeaderLog | ErrorCode) -> bool:
        """True if nothing has come from the producer since, in the same leadership."""
        return leader is self.leader and leader.log.producers.entries.get(self.entry.producer_id) == self.entry


class WatchedTransaction:
    """A transaction that has been open for a while, and when to look at it next."""

    __slots__ = ("at_ms", "found_ms", "order", "reported", "timeout_ms", "transaction", "inconclusive_rounds")

    def __init__(self, transaction: OpenTransaction, at_ms: int, order: int) -> None:
        self.transaction = transaction
        self.at_ms = at_ms
        self.order = order
        self.timeout_ms = -1
        """The transaction's own time-out, once its coordinator has said it: the coordinator may forget it later."""
        self.found_ms: int | None = None
        """Since when it is known to hang."""
        self.reported = False
        self.inconclusive_rounds = 0
        """Rounds in a row in which nobody could say anything about it."""

    def __lt__(self, other: WatchedTransaction) -> bool:
        return (self.at_ms, self.order) < (other.at_ms, other.order)


PASS_MS: Final = SECOND_MS
"""The time between two passes, and the age of a transaction from which on its id is written down."""
FIRST_QUERY_MS: Final = 10 * SECOND_MS
AGAIN_MS: Final = MINUTE_MS
ADOPTED_PER_SLICE: Final = 100
"""Each may write to a file of its own: some milliseconds of the loop."""
QUERIES_PER_SLICE: Final = 100
SLICE_PAUSE_MS: Final = 10


class HangingTransactionWatch:
    """Looks for transactions on this broker's partitions that nobody is going to end."""

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
        self._overdue: dict[tuple[str, int, int], None] = {}
        """Transactions in two-phase commit that were reported: by id, producer id and epoch."""
        self.found_count = 0
        self.aborted = 0
        self.query_count = 0
        """Questions put to coordinators, counted."""

    def notice(self, now_ms: int, effects: list[Effect]) -> None:
        """Follow up an event: take over what has begun, and report what was found."""
        if self._transactions.begun:
            self._wake_at(now_ms + PASS_MS)
        if self._reports:
            effects += self._reports
            self._reports.clear()

    def overdue_count(self) -> int:
        """The number of transactions in two-phase commit, open here, that are older than the alarm."""
        return len(self._still_open())

    def _wake_at(self, at_ms: int) -> None:
        if self._alarm is not None and self._alarm.callback is not None:
            if self._alarm.at_ms <= at_ms:
                return
            self._deadlines.cancel(self._alarm)
        self._alarm = self._deadlines.at(at_ms, self._pass)

    def _pass(self, now_ms: int) -> None:
        self._in_pass = True
        more = self._adopt(now_ms) | self._look_at_due(now_ms)
        self._in_pass = False
        if more:
            self._wake_at(now_ms + SLICE_PAUSE_MS)
        elif self._transactions.begun:
            self._wake_at(now_ms + PASS_MS)
        elif self._due:
            self._wake_at(max(now_ms + PASS_MS, self._due[0].at_ms))

    def _adopt(self, now_ms: int) -> bool:
        """Watch what has been open for a second, and write its id down; whether there is more."""
        begun = self._transactions.begun
        written: dict[TopicPartition, None] = {}
        adopted = 0
        while begun and (begun[0].ended or not 0 <= now_ms - begun[0].started_ms < PASS_MS):
            if adopted == ADOPTED_PER_SLICE:
                break
            transaction = begun.popleft()
            if not transaction.ended:
                adopted += 1
                self._order += 1
                # What a start has found waits as long: by then coordinators have read their logs.
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
            except OSError as error:  # costs a name after the next restart, no more
                self._reports.append(Report("error", f"transactional ids of {partition} were not written: {error}"))

    def _look_at_due(self, now_ms: int) -> bool:
        due: list[WatchedTransaction] = []
        while self._due and self._due[0].at_ms <= now_ms and len(due) < QUERIES_PER_SLICE:
            watched = heapq.heappop(self._due)
            if not watched.transaction.ended:
                due.append(watched)
        unnamed: list[WatchedTransaction] = []
        for watched in due:
            if self._lacks_name(watched.transaction):
                unnamed.append(watched)
            else:
                self._look(watched, now_ms)
        if unnamed:
            producer_ids = {watched.transaction.producer_id for watched in unnamed}
            self._queries.find_ids(producer_ids, partial(self._look_with_names, unnamed))
        return bool(self._due) and self._due[0].at_ms <= now_ms

    def _lacks_name(self, transaction: OpenTransaction) -> bool:
        """True if coordinators are to be asked for the id of a transaction: a follower does not ask."""
        led = not isinstance(self._partitions.leader_log(transaction.partition), ErrorCode)
        return led and transaction.transactional_id is None

    def _look_with_names(self, unnamed: Sequence[WatchedTransaction], names: Names, _all_answered: bool) -> None:
        """Look at those whose ids were searched for; what is not found may be a coordinator's that did not answer."""
        for watched in unnamed:
            transaction = watched.transaction
            if not transaction.ended:
                if transaction.transactional_id is None:
                    transaction.transactional_id = names.get(transaction.producer_id)
                self._look(watched, self._deadlines.now_ms)

    def _look(self, watched: WatchedTransaction, now_ms: int) -> None:
        """Ask about one."""
        transaction = watched.transaction
        leader = self._partitions.leader_log(transaction.partition)
        if isinstance(leader, ErrorCode):
            self._look_again(watched, now_ms + AGAIN_MS, now_ms)  # this broker may come to lead the partition
            return
        entry = leader.log.producers.entries.get(transaction.producer_id)
        if entry is None or entry.transaction_first_offset != transaction.start_offset:
            return
        asked = Baseline(leader, entry)
        if transaction.transactional_id is None:
            self._answered(watched, asked, ID_UNKNOWN)
            return
        self.query_count += 1
        self._queries.ask(
            TransactionalId(transaction.transactional_id),
            identity_of(entry),
            transaction.partition,
            partial(self._answered, watched, asked),
        )

    def _look_again(self, watched: WatchedTransaction, at_ms: int, now_ms: int) -> None:
        watched.at_ms = max(at_ms, now_ms + PASS_MS)
        heapq.heappush(self._due, watched)
        if not self._in_pass:
            self._wake_at(watched.at_ms)

    def _answered(self, watched: WatchedTransaction, asked: Baseline, answer: Finding | None) -> None:
        """Draw the conclusions from the coordinator's answer. "Hanging" counts only if this broker leads the partition
        for certain: a later leader may have written the marker."""
        finding = COORDINATOR_NOT_AVAILABLE if answer is None else answer
        conclude = partial(self._conclude, watched, asked, finding)
        if finding.verdict is Verdict.HANGING:
            self._leadership.leads(watched.transaction.partition, conclude)
        else:
            conclude(leads=True)

    def _conclude(self, watched: WatchedTransaction, asked: Baseline, finding: Finding, leads: bool) -> None:
        """The same, when it is known who leads. "Hanging" counts only if nothing has come since the question."""
        now_ms = self._deadlines.now_ms
        if watched.transaction.ended:
            return
        again_ms: int | None = now_ms + PASS_MS
        leader = self._partitions.leader_log(watched.transaction.partition)
        if finding.verdict is not Verdict.HANGING or (leads and asked.still_holds(leader)):
            again_ms = self._judge(watched, finding, asked.leader.log, asked.entry, now_ms)
        if again_ms is not None:
            self._look_again(watched, again_ms, now_ms)

    def _judge(
        self, watched: WatchedTransaction, finding: Finding, log: PartitionLog, entry: ProducerEntry, now_ms: int
    ) -> int | None:
        """Tell what was found about one; when to look again, None: never."""
        transaction = watched.transaction
        if 0 < finding.timeout_ms < NEVER_TIMES_OUT:
            watched.timeout_ms = finding.timeout_ms
        if finding.code is ReasonCode.TWO_PHASE:
            transaction.verdict = finding.reported_as
            self._see_overdue(transaction, finding, log, entry, now_ms)
            return now_ms + AGAIN_MS
        old_ms = transaction.started_ms + self._late_after_ms(watched)
        if now_ms < old_ms:
            return min(old_ms, now_ms + AGAIN_MS)
        transaction.verdict = finding.reported_as
        if finding.verdict is Verdict.HANGING:
            return self._hanging(watched, finding, log, entry, now_ms)
        watched.found_ms = None
        watched.inconclusive_rounds = watched.inconclusive_rounds + 1 if finding.verdict is Verdict.SUSPECTED else 0
        if watched.inconclusive_rounds > 1 and not watched.reported:  # once may be a coordinator that reads its log
            watched.reported = True
            self._warn(reports.late(transaction, finding, log, entry.epoch, now_ms))
        return now_ms + AGAIN_MS

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
            return now_ms + AGAIN_MS
        abort_ms = watched.found_ms + int(config.get("transaction.hanging.grace.ms"))
        if now_ms < abort_ms:
            return min(abort_ms, now_ms + AGAIN_MS)
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
        return None if done else now_ms + AGAIN_MS

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

    def _see_overdue(
        self, transaction: OpenTransaction, finding: Finding, log: PartitionLog, entry: ProducerEntry, now_ms: int
    ) -> None:
        """Report a prepared transaction that waits for long, once for all its partitions."""
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
            for t in open_here.values()
            if (key := (t.transactional_id or "", t.producer_id, t.epoch)) in self._overdue
        }
