"""Scans a cluster, or part of it, for open transactions and gives each a verdict (KIP-664's rule, and more)."""

# Steps, each to all brokers at once: (1) partition leaders list their open transactions; (2) the start of each is
# read; (3) all coordinators are queried for the ids behind the producer ids, and (4) for the state of those ids
# (``coordinator_answers``); (5) leaders are queried again about contradicted transactions, and (6) all brokers about
# who leads those partitions and the coordinators' (``recheck``). The order of 1, 3, 4, 5 and 6 makes the verdict safe
# (``classification``, ``leadership``). An id that the leader itself names (oncelog's do) is queried even if its
# producer id changed.
#
# The rule: a missing answer proves nothing. An answer from a broker that is not the coordinator counts as no answer.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from oncelog.admin.transactions.broker_requests import BrokerRequest, Progress, Unanswered, no_progress, send_requests
from oncelog.admin.transactions.classification import (
    Finding,
    ages_of,
    classify,
    needs_recheck,
    overdue_ms,
    required_age_ms,
)
from oncelog.admin.transactions.coordinator_answers import query_coordinators
from oncelog.admin.transactions.leadership import claims_of
from oncelog.admin.transactions.partition_offsets import Start, read_starts
from oncelog.admin.transactions.producers import ProducerRow, describe_producers
from oncelog.admin.transactions.recheck import recheck_transactions
from oncelog.admin.transactions.transactional_ids import TransactionRow
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.transaction_verdicts import ReasonCode, Verdict
from oncelog.base.units import MINUTE_MS
from oncelog.client.errors import UnknownTopic
from oncelog.client.programs import Cluster, Program, operation

DEFAULT_MAX_TIMEOUT_MS: Final = 15 * MINUTE_MS
"""transaction.max.timeout.ms if the brokers do not reveal it."""
_BROKER_RESOURCE: Final = 4
_TOPICS_MAX_AGE_MS: Final = 500
"""How long an answer about all topics is reused; a cluster status asks for it again at once."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The partitions to scan: all, or those that match every condition. ``broker`` is the leader's id."""

    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    broker: int | None = None


@dataclass(frozen=True, slots=True)
class HangingRow:
    """An open transaction as ``find-hanging --json`` prints it. ``records_behind`` counts offsets from its start to the
    high watermark. None means unknown.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    age_ms: int | None
    transactional_id: str | None
    coordinator: int | None
    verdict: str
    reason: str
    records_behind: int | None


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    producer: ProducerRow
    start_offset: int
    start: Start
    verdict: Verdict
    code: ReasonCode
    reason: str
    age_ms: int | None
    transactional_id: str | None
    coordinator: int | None
    row: TransactionRow | None
    required_age_ms: int
    is_confirmed: bool = False
    """The coordinators contradict the leader, and a second look at all of them found the same."""
    overdue_ms: int = 0
    """How long ago the coordinator that lists it should have ended it."""

    @property
    def lacks_only_age(self) -> bool:
        """True if nothing but its age keeps a suspected transaction from counting as hanging."""
        return self.is_confirmed and self.verdict is Verdict.SUSPECTED

    @property
    def topic_partition(self) -> TopicPartition:
        return self.producer.topic_partition

    @property
    def records_behind(self) -> int | None:
        end = self.start.end_offset
        return None if end is None else max(0, end - self.start_offset)

    @property
    def holds(self) -> bool:
        """True if the partition's last stable offset is at its start."""
        return self.start.last_stable_offset == self.start_offset

    @property
    def takes_start_offset(self) -> bool:
        """True if the leader can end a transaction by its start offset: oncelog's leaders, which also name its id."""
        return self.producer.transactional_id is not None or self.producer.found is not None

    def as_row(self) -> HangingRow:
        return HangingRow(
            self.producer.topic,
            self.producer.partition,
            self.producer.producer_id,
            self.producer.producer_epoch,
            self.start_offset,
            self.age_ms,
            self.transactional_id,
            self.coordinator,
            self.verdict.value,
            self.reason,
            self.records_behind,
        )


@dataclass(frozen=True, slots=True)
class Scan:
    """The open transactions of a cluster, by partition and start; ``unanswered`` lists what could not be seen."""

    transactions: list[OpenTransaction]
    unanswered: list[Unanswered] = field(default_factory=list)
    partitions: int = 0
    now_ms: int = 0

    @property
    def scanned_nothing(self) -> bool:
        """True if no partition could be scanned, so that an empty result proves nothing."""
        return bool(self.unanswered) and not self.partitions

    def of(self, *verdicts: Verdict) -> list[OpenTransaction]:
        return [transaction for transaction in self.transactions if transaction.verdict in verdicts]


@operation
def find_hanging(
    cluster: Cluster, scope: Scope | None = None, *, min_age_ms: int | None = None
) -> Program[list[HangingRow]]:
    """The hanging transactions. Without ``min_age_ms`` they are older than their own time-out if that is known, else
    than transaction.max.timeout.ms and five minutes. :func:`scan` also returns what could not be seen.
    """
    scanned = yield from scan(cluster, scope, min_age_ms=min_age_ms)
    return [transaction.as_row() for transaction in scanned.of(Verdict.HANGING)]


@operation
def scan(
    cluster: Cluster,
    scope: Scope | None = None,
    *,
    min_age_ms: int | None = None,
    now_ms: int | None = None,
    progress: Progress = no_progress,
) -> Program[Scan]:
    """Every open transaction with its verdict. Raises UnknownTopic for a named topic that does not exist, and
    NoBrokerReachable; refusals of single brokers are in the result.
    """
    partitions = yield from partitions_of(cluster, scope or Scope())
    producers = yield from describe_producers(cluster, partitions, open_only=True, progress=progress)
    scanned = yield from examine(cluster, producers.rows, min_age_ms=min_age_ms, now_ms=now_ms)
    absent = _absent(cluster, scope)
    return replace(
        scanned, unanswered=[*absent, *producers.unanswered, *scanned.unanswered], partitions=producers.partitions
    )


@operation
def examine(
    cluster: Cluster, producers: Sequence[ProducerRow], *, min_age_ms: int | None = None, now_ms: int | None = None
) -> Program[Scan]:
    """Steps 2 to 6 for transactions that partition leaders have just listed; ended ones are left out."""
    now_ms = cluster.environment.wall_ms() if now_ms is None else now_ms
    opened = [(row, row.start_offset) for row in producers if row.start_offset is not None]
    starts = yield from read_starts(cluster, [(row.topic_partition, offset) for row, offset in opened])
    unanswered: list[Unanswered] = []
    # Before the coordinators are queried: see rule 1 of ``leadership``.
    claims = claims_of(cluster, {row.topic_partition: None for row, _ in opened})
    rows = [row for row, _ in opened]
    answers = yield from query_coordinators(cluster, rows, unanswered)
    second = yield from recheck_transactions(cluster, rows, answers, claims, unanswered)
    # Reading the brokers' maximum costs a request to each: only a hanging verdict needs it.
    doubted = any(needs_recheck(coordinator_finding.finding) for coordinator_finding in answers.findings)
    max_timeout_ms = (yield from _max_timeout_ms(cluster)) if min_age_ms is None and doubted else DEFAULT_MAX_TIMEOUT_MS
    transactions = []
    for (row, offset), coordinator_finding in zip(opened, answers.findings, strict=True):
        finding, doubt = coordinator_finding.finding, None
        if needs_recheck(finding):
            # It completed while the coordinators were queried.
            if second.has_ended(row):
                continue
            doubt = second.doubt_about(row, coordinator_finding)
        required_ms = required_age_ms(finding.row, min_age_ms, max_timeout_ms)
        transactions.append(
            _classified(row, offset, starts[row.topic_partition, offset], finding, required_ms, now_ms, doubt)
        )
    transactions.sort(
        key=lambda transaction: (
            transaction.topic_partition,
            transaction.start_offset,
            transaction.producer.producer_id,
        )
    )
    return Scan(transactions, [*unanswered, *second.unanswered], now_ms=now_ms)


def _classified(
    row: ProducerRow, offset: int, start: Start, finding: Finding, required_ms: int, now_ms: int, doubt: str | None
) -> OpenTransaction:
    ages = ages_of(now_ms, start.timestamp_ms, row.last_timestamp_ms, required_ms, start.problem)
    classified = classify(finding, ages, doubt=doubt)
    transactional_id = finding.row.transactional_id if finding.row is not None else row.transactional_id or None
    return OpenTransaction(
        row,
        offset,
        start,
        classified.verdict,
        finding.code,
        classified.reason,
        ages.age_ms,
        transactional_id,
        finding.row.coordinator if finding.row is not None else None,
        finding.row,
        required_ms,
        needs_recheck(finding) and doubt is None,
        overdue_ms(finding, now_ms),
    )


@operation
def partitions_of(cluster: Cluster, scope: Scope) -> Program[list[TopicPartition]]:
    """The partitions of a scope, as the cluster has them now. Raises UnknownTopic."""
    if scope.topics or scope.partitions:
        names = {*scope.topics, *(partition.topic for partition in scope.partitions)}
        topics = {}
        for name in sorted(names):
            topics[TopicName(name)] = yield from cluster.topic(name)
    else:
        topics = yield from cluster.all_topics(_TOPICS_MAX_AGE_MS)
    named = set(scope.partitions)
    missing = [
        partition for partition in sorted(named) if partition.partition not in topics[partition.topic].partitions
    ]
    if missing:
        count = len(topics[missing[0].topic].partitions)
        raise UnknownTopic(f"partition {missing[0].partition} of topic {missing[0].topic!r} ({count} partitions)")
    return [
        partition
        for topic in sorted(topics)
        for info in topics[topic].partitions.values()
        if scope.broker is None or info.leader == scope.broker
        if (partition := TopicPartition(topic, info.partition)) in named or topic in scope.topics or not named
    ]


def _absent(cluster: Cluster, scope: Scope | None) -> list[Unanswered]:
    """The broker of the scope if it is not in the cluster: it leads nothing, so an empty result would look healthy."""
    if scope is None or scope.broker is None or scope.broker in cluster.view.brokers:
        return []
    brokers = ", ".join(map(str, sorted(cluster.view.brokers)))
    return [Unanswered(scope.broker, "what it leads", f"it is not in the cluster at the moment (brokers: {brokers})")]


def _max_timeout_ms(cluster: Cluster) -> Program[int]:
    """The cluster's transaction.max.timeout.ms: the highest that a broker reports, or the default."""
    from oncelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource  # seldom needed

    requests = []
    for broker in sorted(cluster.view.brokers):
        resource = DescribeConfigsResource(
            resource_type=_BROKER_RESOURCE,
            resource_name=str(broker),
            configuration_keys=["transaction.max.timeout.ms"],
        )
        requests.append(
            BrokerRequest(broker, DescribeConfigsRequest(resources=[resource]), "transaction.max.timeout.ms")
        )
    answers = yield from send_requests(cluster, requests)
    values = [
        int(config.value)
        for _, answer in answers
        if not isinstance(answer, Unanswered)
        for result in answer.results
        for config in result.configs
        if config.value is not None and config.value.isdigit()
    ]
    return max(values, default=DEFAULT_MAX_TIMEOUT_MS)
