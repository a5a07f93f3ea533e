"""Texts about hanging transactions: log lines for the operator, and the audit record of an abort.

Only formats; ``watch`` decides. Times are given as ages and as absolute times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.base.ids import TopicPartition
from oncelog.base.notation.shell_words import argument, option
from oncelog.base.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from oncelog.handlers.broker.audit import AuditRecord, Value, timestamp

if TYPE_CHECKING:
    from oncelog.core.transactions.classification import Finding
    from oncelog.storage.log.partition_log import PartitionLog
    from oncelog.storage.transactions.open_transactions import OpenTransaction

SELF_ABORT: Final = "orphan-abort"
_UNITS: Final = ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"), (SECOND_MS, "s"))
_CHECKED: Final = (
    "transaction.hanging.action is abort and the grace period is over",
    "the coordinator does not know of it, and nothing was written since it was asked",
    "not in two-phase commit",
    "the open transaction begins at the start offset and the producer epoch is the latest",
)


def age(milliseconds: int) -> str:
    """A duration in its two largest units: ``1 h 2 min``."""
    parts: list[str] = []
    remaining = max(0, milliseconds)
    for size, name in _UNITS:
        count, remaining = divmod(remaining, size)
        if count or parts:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2]) or f"{remaining} ms"


def _producer(transaction: OpenTransaction, epoch: int) -> str:
    name = transaction.transactional_id
    id_text = "an unknown transactional id" if name is None else f"transactional id {name!r}"
    return f"{id_text}, producer {transaction.producer_id} epoch {epoch}"


def _span(transaction: OpenTransaction, log: PartitionLog, now_ms: int) -> str:
    return (
        f"open on {transaction.partition} from offset {transaction.start_offset} since "
        f"{timestamp(transaction.started_ms)} ({age(now_ms - transaction.started_ms)})"
    )


def _impact(transaction: OpenTransaction, log: PartitionLog) -> str:
    behind = max(0, log.high_watermark - transaction.start_offset)
    stuck = log.last_stable_offset == max(transaction.start_offset, log.log_start_offset)
    effect = (
        f"read_committed consumers do not get past offset {log.last_stable_offset}"
        if stuck
        else "older ones hold back more"
    )
    return f"{behind} record{'' if behind == 1 else 's'} from there on; {effect}"


def _abort_command(partition: TopicPartition, start_offset: int) -> str:
    return (
        f"oncelog txn abort {option('--topic', partition.topic)} --partition {partition.partition} "
        f"--start-offset {start_offset}"
    )


def hanging(transaction: OpenTransaction, finding: Finding, log: PartitionLog, epoch: int, now_ms: int) -> str:
    return (
        f"hanging transaction of {_producer(transaction, epoch)}: {_span(transaction, log, now_ms)}, but "
        f"{finding.reason}, so it will never end. It blocks {_impact(transaction, log)}. "
        f"To end it: {_abort_command(transaction.partition, transaction.start_offset)}"
    )


def late(transaction: OpenTransaction, finding: Finding, log: PartitionLog, epoch: int, now_ms: int) -> str:
    """A transaction older than any time-out, whose coordinator could not be queried."""
    return (
        f"a transaction of {_producer(transaction, epoch)} is older than any time-out: "
        f"{_span(transaction, log, now_ms)}; {finding.reason}. It blocks {_impact(transaction, log)}. "
        f"{option('--topic', transaction.partition.topic)} --partition {transaction.partition.partition}"
    )


def overdue(transaction: OpenTransaction, finding: Finding, log: PartitionLog, epoch: int, now_ms: int) -> str:
    """A transaction in two-phase commit that waits long for its decision."""
    return (
        f"prepared transaction of {_producer(transaction, epoch)} has waited for its decision since "
        f"{timestamp(finding.start_ms)} ({age(now_ms - finding.start_ms)}): {_span(transaction, log, now_ms)}, and it "
        f"never times out. It blocks {_impact(transaction, log)}. Its application has to decide it; if that is "
        f"gone for good: oncelog txn force-terminate {argument(transaction.transactional_id or '')}"
    )


def self_abort(
    transaction: OpenTransaction, finding: Finding, epoch: int, found_ms: int, now_ms: int, outcome: str
) -> AuditRecord:
    transaction_values: dict[str, Value] = {
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.producer_id,
        "producer_epoch": epoch,
        "result": "ABORT",
        "start_offset": transaction.start_offset,
        "partitions": [
            {
                "topic": transaction.partition.topic,
                "partition": transaction.partition.partition,
                "outcome": outcome,
                "open_since_ms": transaction.started_ms,
            }
        ],
        "partition_count": 1,
    }
    details: dict[str, Value] = {
        "verdict": finding.reported_as,
        "reason": finding.reason,
        "hanging_since_ms": found_ms,
        # The name of this field before 0.1; removed in 0.2.
        "orphaned_since_ms": found_ms,
    }
    actor: dict[str, Value] = {"principal": None, "client_id": None, "host": None, "broker": True}
    return AuditRecord(now_ms, SELF_ABORT, actor, transaction_values, _CHECKED, outcome, details)
