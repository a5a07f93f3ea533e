"""What coordinators know of transactional ids (DescribeTransactions, KIP-664).

The rule: an id is asked of the broker that leads its partition of the transaction log, which its hash names, so no
FindCoordinator is needed for each; where that cannot be seen, or the coordinator has moved, FindCoordinator is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.transactions.asking import Question, Unanswered, ask
from oncelog.base.errors import ErrorCode
from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import TRANSACTION_STATE, TopicName, TopicPartition
from oncelog.base.units import INT32_MAX
from oncelog.client.blocking.client import TRANSACTION_KEY, Client
from oncelog.client.errors import BrokerRefused, ClientError, explain
from oncelog.client.machine.retry import Remedy, remedy
from oncelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

NEVER_TIMES_OUT: Final = INT32_MAX
"""The time-out of two-phase commit (KIP-939): the coordinator leaves such a transaction alone."""
IDS_A_REQUEST: Final = 1000
ATTEMPTS: Final = 5


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
        """Whether it is never ended by a time-out."""
        return self.timeout_ms == NEVER_TIMES_OUT


@dataclass(frozen=True, slots=True)
class Described:
    """What was said of each id; the ids that their coordinators do not know; the questions without an answer."""

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


def coordinator_of(client: Client, transactional_id: str) -> int | None:
    """The broker that leads the id's partition of the transaction log, by the client's view; None if unseen."""
    info = client.view.topics.get(TRANSACTION_STATE)
    if info is None or not info.partitions:
        return None
    partition = info.partitions.get(coordinator_partition(transactional_id, len(info.partitions)))
    return None if partition is None or partition.leader < 0 else partition.leader


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
