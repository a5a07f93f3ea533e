"""Transactional ids of all coordinators, or one (ListTransactions: KIP-664, KIP-994, KIP-1152).

The rule: a list says which coordinators did not answer, and whether the transaction log itself has partitions that
nobody leads, because ids that are not in the list may be there. A broker that is too old for a filter counts as one
that did not answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.transactions.asking import Question, Unanswered, ask
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TRANSACTION_STATE
from oncelog.client.blocking.client import Client
from oncelog.client.errors import BrokerRefused, ClientError, explain
from oncelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

LOADING_ATTEMPTS: Final = 5
"""How often a coordinator that is still loading is asked again."""
WHAT: Final = "its transactional ids"
_FIRST_VERSION_WITH_DURATION: Final = 1
_FIRST_VERSION_WITH_PATTERN: Final = 2


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class Listing:
    """What the coordinators that answered have, by id; and who did not answer, or what is not led by anybody."""

    rows: list[ListedTransaction]
    unanswered: list[Unanswered] = field(default_factory=list)
    answered: int = 0
    """How many coordinators did answer."""


@dataclass(frozen=True, slots=True)
class ListFilter:
    """Which ids: all that fulfil every condition. ``longer_than_ms`` is the coordinator's own time since the start;
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
        client.retrying(client.refresh)
    wanted = wanted or ListFilter()
    if coordinators is None:
        asked = sorted(client.view.brokers)
        unanswered = unled_coordinators(client)
    else:
        asked, unanswered = sorted(set(coordinators)), []
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
    return Listing(sorted(rows, key=lambda row: row.transactional_id), unanswered, answered)


def _ask_all(
    client: Client, brokers: list[int], wanted: ListFilter
) -> list[tuple[int, ListTransactionsResponse | Unanswered]]:
    """Answers without an error code in them. One that is loading is asked again a few times."""
    found: list[tuple[int, ListTransactionsResponse | Unanswered]] = []
    too_old = {broker: reason for broker in brokers if (reason := _too_old(client, broker, wanted))}
    found += [(broker, Unanswered(broker, WHAT, reason)) for broker, reason in too_old.items()]
    brokers = [broker for broker in brokers if broker not in too_old]
    for attempt in range(LOADING_ATTEMPTS):
        loading = []
        for question, answer in ask(client, [list_question(broker, wanted) for broker in brokers]):
            if isinstance(answer, Unanswered) or not answer.error_code:
                found.append((question.broker, _checked(answer, wanted)))
            elif answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and attempt + 1 < LOADING_ATTEMPTS:
                loading.append(question.broker)
            elif answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION:
                raise BrokerRefused(answer.error_code, f"pattern {wanted.pattern!r}", "not a regular expression of RE2")
            else:
                found.append((question.broker, Unanswered(question.broker, question.what, explain(answer.error_code))))
        brokers = loading
        if not brokers:
            break
        client.pause(attempt)
    return found


def _too_old(client: Client, broker: int, wanted: ListFilter) -> str | None:
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
    return Question(broker, message, WHAT)


def _checked(
    answer: ListTransactionsResponse | Unanswered, wanted: ListFilter
) -> ListTransactionsResponse | Unanswered:
    if isinstance(answer, ListTransactionsResponse) and answer.unknown_state_filters and wanted.states:
        unknown = ", ".join(answer.unknown_state_filters)
        raise BrokerRefused(ErrorCode.INVALID_REQUEST, f"state {unknown}", "there is no such state of a transaction")
    return answer


def unled_coordinators(client: Client) -> list[Unanswered]:
    """Why ids may be missing though every broker answers: partitions of the transaction log that nobody leads.

    Looks the transaction log up; nothing is missing where there is none yet.
    """
    info = client.metadata([TRANSACTION_STATE]).get(TRANSACTION_STATE)
    if info is None or info.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return []
    if info.error_code:
        return [Unanswered(None, f"partitions of {TRANSACTION_STATE}", explain(info.error_code))]
    unled = [one.partition for one in info.partitions.values() if one.leader < 0]
    if not unled:
        return []
    indexes = ", ".join(map(str, unled[:5])) + (", …" if len(unled) > 5 else "")
    return [
        Unanswered(None, f"{TRANSACTION_STATE} partition {indexes}", "nobody leads it, so its ids are known to nobody")
    ]
