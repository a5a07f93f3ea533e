"""Transactional ids as their coordinators have them: lists (ListTransactions) and details (DescribeTransactions).

From KIP-664, with the filters of KIP-994 and KIP-1152. Rules:

1. A list names the coordinators that did not answer, and the partitions of the transaction log that nobody leads:
   ids that are not in the list may be there. A broker that is too old for a filter counts as one that did not answer.
2. An id is told once, whichever coordinators move meanwhile (``told_once``).
3. An id is asked of the broker that leads its partition of the transaction log, which its hash names, so no
   FindCoordinator is needed for each; where that is not known, or the coordinator has moved, FindCoordinator is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.transactions.broker_requests import Question, Unanswered, ask
from oncelog.admin.transactions.leadership import Claim, claims_on_coordinators, coordinator_of, unled_coordinators
from oncelog.admin.transactions.told_once import ToldOnce
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TRANSACTION_STATE, TopicName, TopicPartition
from oncelog.base.transaction_verdicts import DECIDED_STATES, NEVER_TIMES_OUT, ONGOING_STATE
from oncelog.client.blocking.client import Client
from oncelog.client.errors import BrokerRefused, ClientError, explain
from oncelog.client.machine.retry import Remedy, remedy
from oncelog.client.programs.cluster import TRANSACTION_KEY
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
class ListedTransaction:
    """A transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


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


def list_transactions(
    client: Client, wanted: ListFilter | None = None, *, coordinators: Iterable[int] | None = None
) -> Listing:
    """Ids by name, of all brokers or those named. Raises NoBrokerReachable, and BrokerRefused for a wrong filter."""
    if not client.view.brokers:
        client.retrying(client.refresh_brokers)
    wanted = wanted or ListFilter()
    if coordinators is None:
        unanswered = unled_coordinators(client)
        asked, claims = sorted(client.view.brokers), claims_on_coordinators(client)
    else:
        asked, unanswered, claims = sorted(set(coordinators)), [], {}
    told = ToldOnce(client)
    rows: list[ListedTransaction] = []
    answered = 0
    for broker, response in _ask_all(client, asked, wanted):
        if isinstance(response, Unanswered):
            unanswered.append(response)
        else:
            answered += 1
            rows += [
                ListedTransaction(one.transactional_id, one.producer_id, one.transaction_state, broker)
                for one in response.transaction_states
            ]
    if coordinators is None:
        told.settle()
    rows = list(told.filter(sorted(rows, key=lambda row: row.transactional_id)))
    return Listing(rows, unanswered + told.unanswered, answered, claims)


def _ask_all(
    client: Client, brokers: list[int], wanted: ListFilter
) -> list[tuple[int, ListTransactionsResponse | Unanswered]]:
    """Answers without an error code in them. One that is loading is asked again a few times."""
    found: list[tuple[int, ListTransactionsResponse | Unanswered]] = []
    reasons = {broker: reason for broker in brokers if (reason := too_old(client, broker, wanted))}
    found += [(broker, Unanswered(broker, _WHAT, reason)) for broker, reason in reasons.items()]
    brokers = [broker for broker in brokers if broker not in reasons]
    for attempt in range(LOADING_ATTEMPTS):
        loading = []
        for question, answer in ask(client, [list_question(broker, wanted) for broker in brokers]):
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
        client.pause(attempt)
    return found


def too_old(client: Client, broker: int, wanted: ListFilter) -> str | None:
    """The filter that the broker's version cannot express, which it would pass over in silence."""
    try:
        versions = client.link(broker).versions
    except ClientError:
        return None  # It is asked all the same, and reported then.
    if wanted.longer_than_ms >= 0 and not versions.supports(ListTransactionsRequest, _FIRST_VERSION_WITH_DURATION):
        return "it is too old to filter by duration"
    if wanted.pattern and not versions.supports(ListTransactionsRequest, _FIRST_VERSION_WITH_PATTERN):
        return "it is too old to filter by a pattern"
    return None


def list_question(broker: int, wanted: ListFilter) -> Question[ListTransactionsResponse]:
    """The request for one coordinator."""
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


def describe_transactions(
    client: Client, transactional_ids: Iterable[str], *, coordinators: Mapping[str, int] | None = None
) -> Described:
    """Ask about ids; ``coordinators`` are those known from a list. Asked again while a coordinator loads or moves."""
    wanted = list(dict.fromkeys(transactional_ids))
    described = Described({})
    known = dict(coordinators or {})
    for attempt in range(ATTEMPTS):
        last = attempt + 1 == ATTEMPTS
        questions, asked = _questions(client, wanted, known, described)
        wanted = []
        for (question, answer), ids in zip(ask(client, questions), asked, strict=True):
            if isinstance(answer, Unanswered):
                described.unanswered.update(dict.fromkeys(ids, answer))
                continue
            for one in answer.transaction_states:
                if _take(one, question.broker, described, last):
                    wanted.append(one.transactional_id)
        if not wanted:
            break
        client.pause(attempt)
        for name in wanted:
            known.pop(name, None)
            client.forget_coordinator(name, TRANSACTION_KEY)
        client.metadata([TRANSACTION_STATE])
    return described


def describe_transaction(client: Client, transactional_id: str) -> TransactionRow:
    """One id. Raises BrokerRefused, with TRANSACTIONAL_ID_NOT_FOUND where its coordinator does not know it."""
    described = describe_transactions(client, [transactional_id])
    if transactional_id in described.rows:
        return described.rows[transactional_id]
    what = f"transactional id {transactional_id!r}"
    if transactional_id in described.unknown:
        raise BrokerRefused(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, what, "its coordinator does not know it; `oncelog txn list` shows all"
        )
    raise ClientError(f"{what}: {described.unanswered[transactional_id]}")


def _questions(
    client: Client, wanted: list[str], known: Mapping[str, int], described: Described
) -> tuple[list[Question[DescribeTransactionsResponse]], list[list[str]]]:
    """Requests by coordinator, and the ids in each."""
    by_coordinator: dict[int, list[str]] = {}
    for name in wanted:
        try:
            broker = known.get(name)
            if broker is None:
                broker = coordinator_of(client, name)
            if broker is None:
                broker = client.coordinator(name, TRANSACTION_KEY)
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
