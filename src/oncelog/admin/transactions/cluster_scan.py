"""Scans a cluster, or a part of it, for open transactions, each with its verdict (KIP-664's rule, and more than it).

Steps, each to all brokers at once: (1) partition leaders name their open transactions; (2) the start of each is read;
(3) all coordinators are asked for the ids behind the producer ids, (4) and what those ids are doing; (5) leaders are
asked again about what the coordinators contradict, (6) and all brokers who leads those partitions. The order of 1, 4,
5 and 6 makes the verdict safe (``classification``, ``leadership``). An id that the leader itself knows (oncelog's do)
is asked about even if its producer id changed.

The rule: nothing is concluded from a question that was not answered. Ids that one may not describe are not in a list,
without a word; so where a producer id is known to nobody it is tried out whether we may see such ids at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from oncelog.admin.transactions.broker_requests import Progress, Question, Unanswered, ask, no_progress
from oncelog.admin.transactions.classification import (
    CHANGING,
    Evidence,
    Finding,
    ages_of,
    classify,
    finding_of,
    needs_second_look,
    required_age_ms,
)
from oncelog.admin.transactions.leadership import Claim, claims_of, doubts_about
from oncelog.admin.transactions.partition_offsets import Start, read_starts
from oncelog.admin.transactions.producers import ProducerRow, describe_producers
from oncelog.admin.transactions.transactional_ids import (
    Described,
    ListFilter,
    TransactionRow,
    describe_transactions,
    list_transactions,
)
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.transaction_verdicts import ReasonCode, Verdict
from oncelog.base.units import MINUTE_MS
from oncelog.client.blocking.client import Client
from oncelog.client.errors import ClientError, UnknownTopic
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest

DEFAULT_MAX_TIMEOUT_MS: Final = 15 * MINUTE_MS
"""transaction.max.timeout.ms where the brokers do not tell."""
PRODUCER_IDS_A_REQUEST: Final = 20_000
_BROKER_RESOURCE: Final = 4
PROBE_ID: Final = "oncelog-may-i-see-this"
_SAME_LOOK_MS: Final = 500
"""The time for which an answer about all topics, as a cluster's status asks for, is used again."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The partitions to look at: all, or those that fulfil every condition. ``broker`` is the leader's id."""

    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    broker: int | None = None


@dataclass(frozen=True, slots=True)
class HangingRow:
    """An open transaction as ``find-hanging --json`` prints it. ``records_behind`` counts offsets from its start to
    the high watermark; None is what cannot be known."""

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
    """An open transaction of one partition with everything that was found out about it."""

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

    @property
    def where(self) -> TopicPartition:
        """The partition."""
        return self.producer.where

    @property
    def records_behind(self) -> int | None:
        """Offsets from its start to the high watermark."""
        end = self.start.end_offset
        return None if end is None else max(0, end - self.start_offset)

    @property
    def holds(self) -> bool:
        """True if the partition's last stable offset stands at its start."""
        return self.start.last_stable_offset == self.start_offset

    @property
    def takes_start_offset(self) -> bool:
        """True if the leader ends a transaction by its start offset: oncelog's do, which also name its id."""
        return self.producer.transactional_id is not None or self.producer.found is not None

    def as_row(self) -> HangingRow:
        """The row that ``--json`` prints."""
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
    """The open transactions of a cluster, by partition and start; ``unanswered`` is what could not be seen."""

    transactions: list[OpenTransaction]
    unanswered: list[Unanswered] = field(default_factory=list)
    partitions: int = 0
    now_ms: int = 0

    @property
    def saw_nothing(self) -> bool:
        """True if no partition at all could be looked at, so that finding nothing means nothing."""
        return bool(self.unanswered) and not self.partitions

    def of(self, *verdicts: Verdict) -> list[OpenTransaction]:
        """The transactions with one of the verdicts."""
        return [one for one in self.transactions if one.verdict in verdicts]


def find_hanging(client: Client, scope: Scope | None = None, *, min_age_ms: int | None = None) -> list[HangingRow]:
    """The transactions that hang. Without ``min_age_ms`` they are older than their own time-out where that is known,
    else than transaction.max.timeout.ms and five minutes. What could not be seen is in the result of :func:`scan`."""
    return [one.as_row() for one in scan(client, scope, min_age_ms=min_age_ms).of(Verdict.HANGING)]


def scan(
    client: Client,
    scope: Scope | None = None,
    *,
    min_age_ms: int | None = None,
    now_ms: int | None = None,
    progress: Progress = no_progress,
) -> Scan:
    """Every open transaction with its verdict. Raises UnknownTopic for a topic that is named and not there, and
    NoBrokerReachable; what single brokers refuse is in the result."""
    partitions = partitions_of(client, scope or Scope())
    found = describe_producers(client, partitions, open_only=True, progress=progress)
    scanned = examine(client, found.rows, min_age_ms=min_age_ms, now_ms=now_ms)
    absent = _absent(client, scope)
    return replace(scanned, unanswered=[*absent, *found.unanswered, *scanned.unanswered], partitions=found.partitions)


def examine(
    client: Client, producers: Sequence[ProducerRow], *, min_age_ms: int | None = None, now_ms: int | None = None
) -> Scan:
    """Steps 2 to 6 for transactions that partition leaders have just named; those that ended meanwhile are left out."""
    now_ms = client.system.wall_ms() if now_ms is None else now_ms
    opened = [(row, row.start_offset) for row in producers if row.start_offset is not None]
    starts = read_starts(client, [(row.where, offset) for row, offset in opened])
    unanswered: list[Unanswered] = []
    claims = claims_of(client, {row.where: None for row, _ in opened})
    findings = _findings(client, [row for row, _ in opened], unanswered)
    doubted = [row for (row, _), finding in zip(opened, findings, strict=True) if needs_second_look(finding)]
    second = describe_producers(client, {row.where: None for row in doubted}, open_only=True)
    again = {(row.where, row.producer_id, row.start_offset): row for row in second.rows}
    open_still = {row.where: claims[row.where] for row in second.rows if row.where in claims}
    moved = doubts_about(client, open_still, unanswered)
    max_timeout_ms = _max_timeout_ms(client) if min_age_ms is None and doubted else DEFAULT_MAX_TIMEOUT_MS
    transactions = []
    for (row, offset), finding in zip(opened, findings, strict=True):
        doubt = None
        if needs_second_look(finding):
            same = again.get((row.where, row.producer_id, offset))
            if same is None and row.where not in second.failed:
                continue
            doubt = _changed(row, same, claims.get(row.where)) or moved.get(row.where)
        required_ms = required_age_ms(finding.row, min_age_ms, max_timeout_ms)
        transactions.append(_classified(row, offset, starts[row.where, offset], finding, required_ms, now_ms, doubt))
    transactions.sort(key=lambda one: (one.where, one.start_offset, one.producer.producer_id))
    return Scan(transactions, [*unanswered, *second.unanswered], now_ms=now_ms)


def _changed(row: ProducerRow, again: ProducerRow | None, claim: Claim | None) -> str | None:
    """The doubt about a transaction that its partition's leader has told twice, by what was told."""
    leader = None if claim is None else claim.leader
    same = again is not None and again.producer_epoch == row.producer_epoch and row.leader == again.leader == leader
    return None if same else CHANGING


def _classified(
    row: ProducerRow, offset: int, start: Start, finding: Finding, required_ms: int, now_ms: int, doubt: str | None
) -> OpenTransaction:
    ages = ages_of(now_ms, start.timestamp_ms, row.last_timestamp_ms, required_ms, start.problem)
    classified = classify(finding, ages, doubt=doubt)
    named = finding.row.transactional_id if finding.row is not None else row.transactional_id or None
    return OpenTransaction(
        row,
        offset,
        start,
        classified.verdict,
        finding.code,
        classified.reason,
        ages.age_ms,
        named,
        finding.row.coordinator if finding.row is not None else None,
        finding.row,
        required_ms,
    )


def partitions_of(client: Client, scope: Scope) -> list[TopicPartition]:
    """The partitions of a scope, as the cluster has them now. Raises UnknownTopic."""
    if scope.topics or scope.partitions:
        names = {*scope.topics, *(one.topic for one in scope.partitions)}
        topics = {TopicName(name): client.topic(name) for name in sorted(names)}
    else:
        topics = client.all_topics(_SAME_LOOK_MS)
    wanted = set(scope.partitions)
    missing = [one for one in sorted(wanted) if one.partition not in topics[one.topic].partitions]
    if missing:
        count = len(topics[missing[0].topic].partitions)
        raise UnknownTopic(f"partition {missing[0].partition} of topic {missing[0].topic!r} ({count} partitions)")
    return [
        partition
        for topic in sorted(topics)
        for one in topics[topic].partitions.values()
        if scope.broker is None or one.leader == scope.broker
        if (partition := TopicPartition(topic, one.partition)) in wanted or topic in scope.topics or not wanted
    ]


def _absent(client: Client, scope: Scope | None) -> list[Unanswered]:
    """The broker of the scope, if it is not there: leading nothing, it would look as if nothing hung."""
    if scope is None or scope.broker is None or scope.broker in client.view.brokers:
        return []
    there = ", ".join(map(str, sorted(client.view.brokers)))
    return [Unanswered(scope.broker, "what it leads", f"it is not in the cluster at the moment (brokers: {there})")]


def _findings(client: Client, rows: Sequence[ProducerRow], unanswered: list[Unanswered]) -> list[Finding]:
    """Steps 3 and 4: what the coordinators say of each."""
    if not rows:
        return []
    by_producer: dict[int, list[str]] = {}
    missing: list[Unanswered] = []
    coordinators: dict[str, int] = {}
    producer_ids = sorted({row.producer_id for row in rows})
    for start in range(0, len(producer_ids), PRODUCER_IDS_A_REQUEST):
        wanted = ListFilter(producer_ids=tuple(producer_ids[start : start + PRODUCER_IDS_A_REQUEST]))
        listing = list_transactions(client, wanted)
        missing = [*missing, *listing.unanswered]
        for one in listing.rows:
            by_producer.setdefault(one.producer_id, []).append(one.transactional_id)
            coordinators[one.transactional_id] = one.coordinator
    named = {row.transactional_id for row in rows if row.transactional_id}
    described = describe_transactions(
        client, [*coordinators, *sorted(named - set(coordinators))], coordinators=coordinators
    )
    unanswered += [*missing, *dict.fromkeys(described.unanswered.values())]
    if any(row.producer_id not in by_producer and not row.transactional_id for row in rows):
        missing = [*missing, *_unseen_ids(client)]
    reasons = tuple(map(str, missing))
    return [finding_of(row, _evidence(row, by_producer.get(row.producer_id, []), described, reasons)) for row in rows]


def _evidence(row: ProducerRow, ids: Iterable[str], described: Described, unanswered: tuple[str, ...]) -> Evidence:
    named = row.transactional_id or None
    asked = [*ids, *([named] if named is not None else [])]
    rows = tuple(described.rows[one] for one in dict.fromkeys(asked) if one in described.rows)
    refused = tuple(str(described.unanswered[one]) for one in dict.fromkeys(asked) if one in described.unanswered)
    unknown = named if named is not None and named in described.unknown else None
    return Evidence(rows, unknown, (*unanswered, *refused))


def _unseen_ids(client: Client) -> list[Unanswered]:
    """One entry if there may be ids that we are not shown: nothing tells but to ask about one that does not exist."""
    question = DescribeTransactionsRequest(transactional_ids=[PROBE_ID])
    try:
        answer = client.request(question)
    except ClientError as error:
        return [Unanswered(None, "whether all transactional ids may be seen", str(error))]
    if any(one.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED for one in answer.transaction_states):
        return [Unanswered(None, "transactional ids", "not allowed to see all of them (Describe on transactional ids)")]
    return []


def _max_timeout_ms(client: Client) -> int:
    """The cluster's transaction.max.timeout.ms: the longest that a broker tells, its default where none does."""
    from oncelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource  # seldom needed

    questions = []
    for broker in sorted(client.view.brokers):
        resource = DescribeConfigsResource(
            resource_type=_BROKER_RESOURCE,
            resource_name=str(broker),
            configuration_keys=["transaction.max.timeout.ms"],
        )
        questions.append(Question(broker, DescribeConfigsRequest(resources=[resource]), "transaction.max.timeout.ms"))
    values = [
        int(one.value)
        for _, answer in ask(client, questions)
        if not isinstance(answer, Unanswered)
        for result in answer.results
        for one in result.configs
        if one.value is not None and one.value.isdigit()
    ]
    return max(values, default=DEFAULT_MAX_TIMEOUT_MS)
