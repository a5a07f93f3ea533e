"""A1 to A3, A6 and A7: verdicts on open transactions, and their ends, agree with the injected hangs.

Only injected transactions hang. The injectors tell the truth, the tool its verdicts, the audit log what the broker has
ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from oncelog.admin.transactions.cluster_scan import OpenTransaction
from oncelog.base.ids import TopicPartition
from oncelog.base.transaction_verdicts import REPORTED_HANGING, ReasonCode, Verdict
from oncelog.sim.checkers.disk.admin_aborts import ORPHAN_ABORT, End

NOT_HANGING: Final = "A1 said to hang, and it does not"
NOT_FOUND: Final = "A2 hangs, and that is not said"
NOT_ENDED: Final = "A3 orphan that the broker has not ended"
TOO_EARLY: Final = "A6 orphan ended before its time"
WRONG_AGE: Final = "A7 not the age since its first record"
# The broker's clock may be set back by this much between injection and end.
SET_BACK_MS: Final = 4_000


class InjectedHang(NamedTuple):
    """A transaction that hangs, or may hang until the leader's acknowledgement makes it ``certain``."""

    kind: str
    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    transactional_id: str
    # The transaction's timeout at its coordinator, current or former.
    timeout_ms: int
    # The time before the injection's request, by the clock of each broker.
    injected_ms: Mapping[int, int]
    certain: bool = False
    start_offset: int = -1
    # The first offset, and the time of the first record, once the hang is certain.
    first_ms: int = 0


# Injected hangs by partition and producer id.
InjectedHangs = Mapping[tuple[TopicPartition, int], InjectedHang]


def false_hanging_verdicts(transactions: Iterable[OpenTransaction], truth: InjectedHangs) -> Iterator[str]:
    """A1, at any time: a transaction that was not injected is not reported as hanging."""
    for transaction in transactions:
        if (
            transaction.verdict is Verdict.HANGING
            and (transaction.topic_partition, transaction.producer.producer_id) not in truth
        ):
            yield f"{NOT_HANGING}: {_describe(transaction)}"


def verdicts_at_rest(
    transactions: Iterable[OpenTransaction], truth: InjectedHangs, *, now_ms: int, broker_ends_orphans: bool = False
) -> Iterator[str]:
    """A2, A3 and A7, once clients have stopped and coordinators have ended all they can: every verdict is right.

    ``now_ms``: of the scan. ``broker_ends_orphans``: the broker ends hanging transactions, and had the time.
    """
    transactions = list(transactions)
    yield from false_hanging_verdicts(transactions, truth)
    for transaction in transactions:
        injected = truth.get((transaction.topic_partition, transaction.producer.producer_id))
        if injected is None:
            continue
        if transaction.verdict is not Verdict.HANGING:
            yield f"{NOT_FOUND} ({injected.kind}): {_describe(transaction)}"
        elif broker_ends_orphans and _known_to_broker(transaction):
            yield f"{NOT_ENDED}: {_describe(transaction)}"
        if injected.start_offset == transaction.start_offset and transaction.age_ms != now_ms - injected.first_ms:
            yield f"{WRONG_AGE}: {transaction.age_ms} ms and not {now_ms - injected.first_ms}: {_describe(transaction)}"


def ended_too_early(broker_id: int, ends: Iterable[End], truth: InjectedHangs, grace_ms: int) -> Iterator[str]:
    """A6: a broker that ends hanging transactions waits for their timeout and its grace period, by its own clock."""
    for end in ends:
        injected = truth.get((end.partition, end.producer_id))
        if end.action == ORPHAN_ABORT and injected is not None:
            waited_ms = end.at_ms - injected.injected_ms[broker_id]
            if waited_ms < injected.timeout_ms + grace_ms - SET_BACK_MS:
                yield f"{TOO_EARLY}: {end.partition}, producer {end.producer_id}, {waited_ms} ms after it was injected"


def _known_to_broker(transaction: OpenTransaction) -> bool:
    # True if the broker reports the transaction as hanging and a coordinator still has its id and timeout.
    return transaction.producer.found == REPORTED_HANGING and transaction.code is not ReasonCode.FORGOTTEN


def _describe(transaction: OpenTransaction) -> str:
    name = (
        f"{transaction.topic_partition} from {transaction.start_offset}, "
        f"producer {transaction.producer.producer_id}, {transaction.transactional_id!r}"
    )
    return f"{name}: {transaction.verdict.value}: {transaction.reason}"
