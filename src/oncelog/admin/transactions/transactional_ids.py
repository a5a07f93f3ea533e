"""Transactional ids as their coordinators have them: lists (ListTransactions) and details (DescribeTransactions).

From KIP-664, with the filters of KIP-994 and KIP-1152. Rules:

1. A list names the coordinators that did not answer, and the partitions of the transaction log that nobody leads:
   ids that are not in the list may be there. A broker that is too old for a filter counts as one that did not answer.
2. An id is told once, whichever coordinators move meanwhile (``unique_ids``).
3. An id is asked of the broker that leads its partition of the transaction log, which its hash names, so no
   FindCoordinator is needed for each; where that is not known, or the coordinator has moved, FindCoordinator is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.transactions.broker_requests import Question, Unanswered, ask
from oncelog.admin.transactions.leadership import Claim, claims_on_coordinators, coordinator_of, unled_coordinators
from oncelog.admin.transactions.unique_ids import ListedTransaction, ToldOnce, has_repeated
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TRANSACTION_STATE, TopicName, TopicPartition
from oncelog.base.transaction_verdicts import DECIDED_STATES, NEVER_TIMES_OUT, ONGOING_STATE
from oncelog.client.errors import BrokerRefused, ClientError, explain
from oncelog.client.machine.retry import Remedy, remedy
from oncelog.client.programs import TRANSACTION_KEY, Cluster, Program, operation
from oncelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from oncelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

LOADING_ATTEMPTS: Final = 5
"""Attempts to ask a coordinator that is still loading."""
_WHAT: Final = "its transactional ids"
_FIRST_VERSION_WITH_DURATION: Final = 1
_FIRST_VERSION_WITH_PATTERN: Final = 2
IDS_A_REQUEST: Final = 1000
ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Listing:
    """Transactional ids of the coordinators that answered, by id; and the questions without an answer."""

    rows: list[ListedTransaction]
    unanswered: list[Unanswered] = field(default_factory=list)
    answered: int = 0
    """Number of coordinators that did answer."""
    claims: dict[TopicPartition, Claim] = field(default_factory=dict)
    """The leaders of the transaction log before all were asked; empty where they are not known, or only some were."""


@dataclass(frozen=True, slots=True)
class ListFilter:
    """Conditions that all listed ids fulfil. ``longer_than_ms`` is the coordinator's own time since the start;
    ``pattern`` has to match the whole id (RE2)."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    longer_than_ms: int = -1
    pattern: str | None = None


@operation
def list_transactions(
    cluster: Cluster, wanted: ListFilter | None = None, *, coordinators: Iterable[int] | None = None
) -> Program[Listing]:
    """Ids by name, of all brokers or those named. Raises NoBrokerReachable, and BrokerRefused for a wrong filter."""
    if not cluster.view.brokers:
        yield from cluster.retrying(cluster.refresh_brokers)
    wanted = wanted or ListFilter()
    if coordinators is None:
        unanswered = yield from unled_coordinators(cluster)
        asked, claims = sorted(cluster.view.brokers), claims_on_coordinators(cluster)
    else:
        asked, unanswered, claims = sorted(set(coordinators)), [], {}
    told = ToldOnce(cluster)
    rows: list[ListedTransaction] = []
    answered = 0
    answers = yield from _ask_all(cluster, asked, wanted)
    for broker, response in answers:
        if isinstance(response, Unanswered):
            unanswered.append(response)
        else:
            answered += 1
            rows += [
                ListedTransaction(state.transactional_id, state.producer_id, state.transaction_state, broker)
                for state in response.transaction_states
            ]
    rows.sort(key=lambda row: row.transactional_id)
    if coordinators is None or has_repeated(rows):
        yield from told.settle()
    rows = list(told.filter(rows))
    return Listing(rows, unanswered + told.unanswered, answered, claims)


def _ask_all(
    cluster: Cluster, brokers: list[int], wanted: ListFilter
) -> Program[list[tuple[int, ListTransactionsResponse | Unanswered]]]:
    """Answers without an error code in them. One that is loading is asked again a few times."""
    found: list[tuple[int, ListTransactionsResponse | Unanswered]] = []
    able = []
    for broker in brokers:
        reason = yield from too_old(cluster, broker, wanted)
        if reason:
            found.append((broker, Unanswered(broker, _WHAT, reason)))
        else:
            able.append(broker)
    brokers = able
    for attempt in range(LOADING_ATTEMPTS):
        loading = []
        answers = yield from ask(cluster, [list_question(broker, wanted) for broker in brokers])
        for question, answer in answers:
            if not isinstance(answer, Unanswered) and (refused := refused_filter(answer, wanted)):
                raise refused
            if isinstance(answer, Unanswered) or not answer.error_code:
                found.append((question.broker, answer))
            elif answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and attempt + 1 < LOADING_ATTEMPTS:
                loading.append(question.broker)
            else:
                found.append((question.broker, Unanswered(question.broker, question.what, explain(answer.error_code))))
        brokers = loading
        if not brokers:
            break
        yield from cluster.pause(attempt)
    return found


def too_old(cluster: Cluster, broker: int, wanted: ListFilter) -> Program[str | None]:
    """The filter that the broker's version cannot express, which it would pass over in silence."""
    try:
        versions = (yield from cluster.link(broker)).versions
    except ClientError:
        return None  # It is asked all the same, and reported then.
    if wanted.longer_than_ms >= 0 and not versions.supports(ListTransactionsRequest, _FIRST_VERSION_WITH_DURATION):
        return "it is too old to filter by duration"
    if wanted.pattern and not versions.supports(ListTransactionsRequest, _FIRST_VERSION_WITH_PATTERN):
        return "it is too old to filter by a pattern"
    return None


def list_question(broker: int, wanted: ListFilter) -> Question[ListTransactionsResponse]:
    message = ListTransactionsRequest(
        state_filters=list(wanted.states),
        producer_id_filters=list(wanted.producer_ids),
        duration_filter=wanted.longer_than_ms,
        transactional_id_pattern=wanted.pattern,
    )
    return Question(broker, message, _WHAT)


def refused_filter(answer: ListTransactionsResponse, wanted: ListFilter) -> BrokerRefused | None:
    """The error of a filter that is wrong, None for an answer that says nothing of the kind."""
    if answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION:
        return BrokerRefused(
            answer.error_code,
            f"pattern {wanted.pattern!r}",
            "not a regular expression of RE2, or larger than the broker takes",
        )
    if answer.unknown_state_filters and wanted.states:
        unknown = ", ".join(answer.unknown_state_filters)
        return BrokerRefused(ErrorCode.INVALID_REQUEST, f"state {unknown}", "there is no such state of a transaction")
    return None


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """A transactional id as its coordinator has it.

    ``start_ms`` is None while no transaction is open. Of a decided one, ``partitions`` are those that still have to get
    their marker.
    """

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: frozenset[TopicPartition]

    @property
    def is_two_phase(self) -> bool:
        """True if no time-out ever ends its transaction (KIP-939)."""
        return self.timeout_ms == NEVER_TIMES_OUT

    @property
    def is_open(self) -> bool:
        """True while the coordinator still has something to end, or to complete."""
        return self.state == ONGOING_STATE or self.state in DECIDED_STATES


@dataclass(frozen=True, slots=True)
class Described:
    """Rows by id; the ids that their coordinators do not know; the questions without an answer."""

    rows: dict[str, TransactionRow]
    unknown: dict[str, int] = field(default_factory=dict)
    """Id → the coordinator that does not know it."""
    unanswered: dict[str, Unanswered] = field(default_factory=dict)


@operation
def describe_transactions(
    cluster: Cluster, transactional_ids: Iterable[str], *, coordinators: Mapping[str, int] | None = None
) -> Program[Described]:
    """Ask about ids; ``coordinators`` are those known from a list. Asked again while a coordinator loads or moves."""
    wanted = list(dict.fromkeys(transactional_ids))
    described = Described({})
    known = dict(coordinators or {})
    for attempt in range(ATTEMPTS):
        last = attempt + 1 == ATTEMPTS
        questions, asked = yield from _questions(cluster, wanted, known, described)
        wanted = []
        answers = yield from ask(cluster, questions)
        for (question, answer), ids in zip(answers, asked, strict=True):
            if isinstance(answer, Unanswered):
                described.unanswered.update(dict.fromkeys(ids, answer))
                continue
            for state in answer.transaction_states:
                if _take(state, question.broker, described, last):
                    wanted.append(state.transactional_id)
        if not wanted:
            break
        yield from cluster.pause(attempt)
        for name in wanted:
            known.pop(name, None)
            cluster.forget_coordinator(name, TRANSACTION_KEY)
        yield from cluster.metadata([TRANSACTION_STATE])
    return described


@operation
def describe_transaction(cluster: Cluster, transactional_id: str) -> Program[TransactionRow]:
    """One id. Raises BrokerRefused, with TRANSACTIONAL_ID_NOT_FOUND where its coordinator does not know it."""
    described = yield from describe_transactions(cluster, [transactional_id])
    if transactional_id in described.rows:
        return described.rows[transactional_id]
    what = f"transactional id {transactional_id!r}"
    if transactional_id in described.unknown:
        raise BrokerRefused(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, what, "its coordinator does not know it; `oncelog txn list` shows all"
        )
    raise ClientError(f"{what}: {described.unanswered[transactional_id]}")


def _questions(
    cluster: Cluster, wanted: list[str], known: Mapping[str, int], described: Described
) -> Program[tuple[list[Question[DescribeTransactionsResponse]], list[list[str]]]]:
    """Requests by coordinator, and the ids in each."""
    by_coordinator: dict[int, list[str]] = {}
    for name in wanted:
        try:
            broker = known.get(name)
            if broker is None:
                broker = coordinator_of(cluster, name)
            if broker is None:
                broker = yield from cluster.coordinator(name, TRANSACTION_KEY)
        except ClientError as error:
            described.unanswered[name] = Unanswered(None, f"coordinator of {name!r}", str(error))
        else:
            by_coordinator.setdefault(broker, []).append(name)
    questions, asked = [], []
    for broker, names in by_coordinator.items():
        for start in range(0, len(names), IDS_A_REQUEST):
            part = names[start : start + IDS_A_REQUEST]
            message = DescribeTransactionsRequest(transactional_ids=part)
            what = f"{len(part)} transactional ids" if len(part) > 1 else repr(part[0])
            questions.append(Question(broker, message, what))
            asked.append(part)
    return questions, asked


def _take(one: TransactionState, broker: int, described: Described, last: bool) -> bool:
    """Take in an answer; True when it is to be asked again."""
    name = one.transactional_id
    if one.error_code == ErrorCode.NONE:
        described.rows[name] = row_of(one, broker)
    elif one.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        described.unknown[name] = broker
    elif remedy(one.error_code) is not Remedy.FAIL and not last:
        return True
    else:
        described.unanswered[name] = Unanswered(broker, repr(name), explain(one.error_code))
    return False


def row_of(one: TransactionState, broker: int) -> TransactionRow:
    """A row of an answer without an error."""
    return TransactionRow(
        one.transactional_id,
        broker,
        one.transaction_state,
        one.producer_id,
        one.producer_epoch,
        one.transaction_timeout_ms,
        one.transaction_start_time_ms if one.transaction_start_time_ms >= 0 else None,
        frozenset(TopicPartition(TopicName(topic.topic), index) for topic in one.topics for index in topic.partitions),
    )
