"""Reads transactional ids from their coordinators: lists (ListTransactions) and details (DescribeTransactions).

From KIP-664, with the filters of KIP-994 and KIP-1152.

1. A list names the coordinators that did not answer and the transaction log partitions without a leader: their ids may
   exist. A broker that is too old for a filter counts as one that did not answer.
2. An id is listed once, even if coordinators move meanwhile (``unique_ids``).
3. An id's request goes to the broker that leads its partition of the transaction log, by the id's hash; only if that is
   unknown, or the coordinator moved, is FindCoordinator sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.transactions.broker_requests import BrokerRequest, Unanswered, send_requests
from oncelog.admin.transactions.leadership import Claim, claims_on_coordinators, coordinator_of, unled_coordinators
from oncelog.admin.transactions.unique_ids import ListedTransaction, UniqueIdFilter, has_repeated
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
"""Attempts to query a coordinator that is still loading."""
_IDS_TEXT: Final = "its transactional ids"
_FIRST_VERSION_WITH_DURATION: Final = 1
_FIRST_VERSION_WITH_PATTERN: Final = 2
IDS_PER_REQUEST: Final = 1000
ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Listing:
    """Transactional ids of the coordinators that answered, by id; and the requests without an answer."""

    rows: list[ListedTransaction]
    unanswered: list[Unanswered] = field(default_factory=list)
    answered: int = 0
    """The number of coordinators that answered."""
    claims: dict[TopicPartition, Claim] = field(default_factory=dict)
    """The leaders of the transaction log before all were queried; empty if unknown, or only some were queried."""


@dataclass(frozen=True, slots=True)
class ListFilter:
    """Conditions that all listed ids meet. ``longer_than_ms`` is on the coordinator's clock; ``pattern`` (RE2) matches
    the whole id."""

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    longer_than_ms: int = -1
    pattern: str | None = None


@operation
def list_transactions(
    cluster: Cluster, filters: ListFilter | None = None, *, coordinators: Iterable[int] | None = None
) -> Program[Listing]:
    """Ids by name, of all brokers or those in ``coordinators``. Raises NoBrokerReachable, and BrokerRefused for an
    invalid filter."""
    if not cluster.view.brokers:
        yield from cluster.retrying(cluster.refresh_brokers)
    filters = filters or ListFilter()
    if coordinators is None:
        unanswered = yield from unled_coordinators(cluster)
        brokers, claims = sorted(cluster.view.brokers), claims_on_coordinators(cluster)
    else:
        brokers, unanswered, claims = sorted(set(coordinators)), [], {}
    unique = UniqueIdFilter(cluster)
    rows: list[ListedTransaction] = []
    answered = 0
    answers = yield from _query_all(cluster, brokers, filters)
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
        yield from unique.settle()
    rows = list(unique.filter(rows))
    return Listing(rows, unanswered + unique.unanswered, answered, claims)


def _query_all(
    cluster: Cluster, brokers: list[int], filters: ListFilter
) -> Program[list[tuple[int, ListTransactionsResponse | Unanswered]]]:
    """Answers without an error code in them. A coordinator that is loading is queried again a few times."""
    results: list[tuple[int, ListTransactionsResponse | Unanswered]] = []
    able = []
    for broker in brokers:
        reason = yield from too_old(cluster, broker, filters)
        if reason:
            results.append((broker, Unanswered(broker, _IDS_TEXT, reason)))
        else:
            able.append(broker)
    brokers = able
    for attempt in range(LOADING_ATTEMPTS):
        loading = []
        answers = yield from send_requests(cluster, [list_question(broker, filters) for broker in brokers])
        for request, answer in answers:
            if not isinstance(answer, Unanswered) and (refused := refused_filter(answer, filters)):
                raise refused
            if isinstance(answer, Unanswered) or not answer.error_code:
                results.append((request.broker, answer))
            elif answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and attempt + 1 < LOADING_ATTEMPTS:
                loading.append(request.broker)
            else:
                results.append(
                    (request.broker, Unanswered(request.broker, request.subject, explain(answer.error_code)))
                )
        brokers = loading
        if not brokers:
            break
        yield from cluster.pause(attempt)
    return results


def too_old(cluster: Cluster, broker: int, filters: ListFilter) -> Program[str | None]:
    """The filter that the broker's version lacks and would silently ignore; None if it has all."""
    try:
        versions = (yield from cluster.link(broker)).versions
    except ClientError:
        return None  # the request itself will fail, and be reported
    if filters.longer_than_ms >= 0 and not versions.supports(ListTransactionsRequest, _FIRST_VERSION_WITH_DURATION):
        return "it is too old to filter by duration"
    if filters.pattern and not versions.supports(ListTransactionsRequest, _FIRST_VERSION_WITH_PATTERN):
        return "it is too old to filter by a pattern"
    return None


def list_question(broker: int, filters: ListFilter) -> BrokerRequest[ListTransactionsResponse]:
    message = ListTransactionsRequest(
        state_filters=list(filters.states),
        producer_id_filters=list(filters.producer_ids),
        duration_filter=filters.longer_than_ms,
        transactional_id_pattern=filters.pattern,
    )
    return BrokerRequest(broker, message, _IDS_TEXT)


def refused_filter(answer: ListTransactionsResponse, filters: ListFilter) -> BrokerRefused | None:
    if answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION:
        return BrokerRefused(
            answer.error_code,
            f"pattern {filters.pattern!r}",
            "not a regular expression of RE2, or larger than the broker takes",
        )
    if answer.unknown_state_filters and filters.states:
        unknown = ", ".join(answer.unknown_state_filters)
        return BrokerRefused(ErrorCode.INVALID_REQUEST, f"state {unknown}", "there is no such state of a transaction")
    return None


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """A transactional id as its coordinator has it. ``start_ms`` is None without an open transaction. Once it is
    decided, ``partitions`` are those still without a marker. oncelog's coordinators add the client, if they know it."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: frozenset[TopicPartition]
    client_id: str | None = None
    client_host: str | None = None

    @property
    def client(self) -> str:
        """The client in words, or ""."""
        return "" if self.client_id is None else f"client {self.client_id!r} on {(self.client_host or '?').lstrip('/')}"

    @property
    def is_two_phase(self) -> bool:
        """True if its transaction never times out (KIP-939)."""
        return self.timeout_ms == NEVER_TIMES_OUT

    @property
    def is_open(self) -> bool:
        """True while the coordinator has something to end or to complete."""
        return self.state == ONGOING_STATE or self.state in DECIDED_STATES


@dataclass(frozen=True, slots=True)
class Described:
    rows: dict[str, TransactionRow]
    unknown: dict[str, int] = field(default_factory=dict)
    """Maps an id to the coordinator that does not know it."""
    unanswered: dict[str, Unanswered] = field(default_factory=dict)


@operation
def describe_transactions(
    cluster: Cluster, transactional_ids: Iterable[str], *, coordinators: Mapping[str, int] | None = None
) -> Program[Described]:
    """Describe ids; ``coordinators`` are known from a list. Repeated while a coordinator loads or moves."""
    to_describe = list(dict.fromkeys(transactional_ids))
    described = Described({})
    known_coordinators = dict(coordinators or {})
    for attempt in range(ATTEMPTS):
        last = attempt + 1 == ATTEMPTS
        requests, ids_by_request = yield from _requests(cluster, to_describe, known_coordinators, described)
        to_describe = []
        answers = yield from send_requests(cluster, requests)
        for (request, answer), ids in zip(answers, ids_by_request, strict=True):
            if isinstance(answer, Unanswered):
                described.unanswered.update(dict.fromkeys(ids, answer))
                continue
            for state in answer.transaction_states:
                if _add_answer(state, request.broker, described, last):
                    to_describe.append(state.transactional_id)
        if not to_describe:
            break
        yield from cluster.pause(attempt)
        for name in to_describe:
            # The coordinator that was listed or cached has moved.
            known_coordinators.pop(name, None)
            cluster.forget_coordinator(name, TRANSACTION_KEY)
        yield from cluster.metadata([TRANSACTION_STATE])
    return described


@operation
def describe_transaction(cluster: Cluster, transactional_id: str) -> Program[TransactionRow]:
    """Raises BrokerRefused, with TRANSACTIONAL_ID_NOT_FOUND if its coordinator does not know the id."""
    described = yield from describe_transactions(cluster, [transactional_id])
    if transactional_id in described.rows:
        return described.rows[transactional_id]
    subject = f"transactional id {transactional_id!r}"
    if transactional_id in described.unknown:
        raise BrokerRefused(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            subject,
            "its coordinator does not know it; `oncelog txn list` shows all",
        )
    raise ClientError(f"{subject}: {described.unanswered[transactional_id]}")


def _requests(
    cluster: Cluster, names: list[str], known_coordinators: Mapping[str, int], described: Described
) -> Program[tuple[list[BrokerRequest[DescribeTransactionsResponse]], list[list[str]]]]:
    """Requests by coordinator, and the ids in each."""
    by_coordinator: dict[int, list[str]] = {}
    for name in names:
        try:
            broker = known_coordinators.get(name)
            if broker is None:
                broker = coordinator_of(cluster, name)
            if broker is None:
                broker = yield from cluster.coordinator(name, TRANSACTION_KEY)
        except ClientError as error:
            described.unanswered[name] = Unanswered(None, f"coordinator of {name!r}", str(error))
        else:
            by_coordinator.setdefault(broker, []).append(name)
    requests, ids_by_request = [], []
    for broker, names in by_coordinator.items():
        for start in range(0, len(names), IDS_PER_REQUEST):
            part = names[start : start + IDS_PER_REQUEST]
            message = DescribeTransactionsRequest(transactional_ids=part)
            subject = f"{len(part)} transactional ids" if len(part) > 1 else repr(part[0])
            requests.append(BrokerRequest(broker, message, subject))
            ids_by_request.append(part)
    return requests, ids_by_request


def _add_answer(state: TransactionState, broker: int, described: Described, last: bool) -> bool:
    """Add an answer to ``described``. Returns True if the id has to be queried again."""
    name = state.transactional_id
    if state.error_code == ErrorCode.NONE:
        described.rows[name] = row_of(state, broker)
    elif state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        described.unknown[name] = broker
    elif remedy(state.error_code) is not Remedy.FAIL and not last:
        return True
    else:
        described.unanswered[name] = Unanswered(broker, repr(name), explain(state.error_code))
    return False


def row_of(state: TransactionState, broker: int) -> TransactionRow:
    return TransactionRow(
        state.transactional_id,
        broker,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms if state.transaction_start_time_ms >= 0 else None,
        frozenset(
            TopicPartition(TopicName(topic.topic), index) for topic in state.topics for index in topic.partitions
        ),
        state.client_id,
        state.client_host,
    )
