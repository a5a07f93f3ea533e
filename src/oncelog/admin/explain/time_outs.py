"""Finds that an id's transactions end at their time-out, by its coordinator's log. Pure."""

# KAFKA-20785: the coordinator aborts a transaction that is older than its time-out, and raises the epoch. A producer
# that is slow rather than dead then commits with the epoch before. Transactions V1 answers PRODUCER_FENCED (clients
# begin again); V2 of Apache Kafka up to 4.4.0 INVALID_TXN_STATE, which ends the application; oncelog PRODUCER_FENCED.
# The log tells it from the producer's own abort: the coordinator's comes after the time-out, with a raised epoch.

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncelog.admin.explain.findings import Cause, Finding, Severity
from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.admin.transactions.history.recent_ends import MANY
from oncelog.admin.transactions.stored_identity import TRANSACTIONS_V2, PastTransaction
from oncelog.admin.transactions.transactional_ids import TransactionRow
from oncelog.base.notation.shell_words import argument
from oncelog.base.text import counted

_V2_ERRORS: Final = (
    "A commit that its producer still sends is answered PRODUCER_FENCED by oncelog and INVALID_TXN_STATE by Apache "
    "Kafka up to 4.4.0 (KAFKA-20785), which ends the application; it has to be started again."
)
_V1_ERRORS: Final = (
    "A commit that its producer still sends is answered PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH if its client is "
    "old: the application has to begin again with a new producer."
)
_ADVICE: Final = (
    "Raise transaction.timeout.ms above the longest pause between two ends (transaction.max.timeout.ms bounds it), or "
    "end transactions more often. Its state, and its client on oncelog:"
)


def time_out_findings(
    row: TransactionRow, past: Sequence[PastTransaction], now_ms: int, options: str = ""
) -> list[Finding]:
    ended = [transaction for transaction in past if transaction.committed is not None]
    timed_out = [transaction for transaction in ended if transaction.after_timeout]
    if not timed_out:
        return []
    is_last = past[-1].after_timeout
    if len(timed_out) < MANY and not is_last:
        return []
    last, owner = timed_out[-1], f" It belongs to {row.client}." if row.client else ""
    open_for = duration_text((last.ended_ms or last.start_ms) - last.start_ms)
    sentences = [
        f"Its coordinator aborted the transaction that began {moment_text(last.start_ms)} after {open_for}, at "
        f"{moment_text(last.ended_ms or 0)}: its time-out of {duration_text(row.timeout_ms)} had passed. The producer "
        f"did not abort it: the epoch rose from {last.producer_epoch} with the abort.{owner}"
    ]
    if is_last:
        sentences.append(_V2_ERRORS if last.client_version >= TRANSACTIONS_V2 else _V1_ERRORS)
        began_again = row.state == "Empty"
        sentences.append(
            "A producer has initialised the id since, and has begun no transaction."
            if began_again
            else "No producer has begun again since."
        )
    else:
        sentences.append("Its producer went on with a later transaction.")
    if len(timed_out) >= MANY:
        sentences.append(
            f"So ended {len(timed_out)} of the {counted(len(ended), 'transaction')} that the log of its coordinator "
            f"still has, since {moment_text(timed_out[0].start_ms)}."
        )
    return [
        Finding(
            Cause.TIMES_OUT if len(timed_out) >= MANY else Cause.ABORTED_AT_TIME_OUT,
            Severity.RISK,
            f"transactional id {row.transactional_id}",
            sentences,
            evidence={
                "timed_out": len(timed_out),
                "ended": len(ended),
                "timeout_ms": row.timeout_ms,
                "client_id": row.client_id,
                "client_host": row.client_host,
                "epoch_before": last.producer_epoch,
                "epoch": row.producer_epoch,
            },
            since_ms=timed_out[0].ended_ms if len(timed_out) >= MANY else last.ended_ms,
            affected=["committed readers of its topics: the records of those transactions are lost for them"],
            clears="It clears when its transactions end within their time-out.",
            advice=_ADVICE,
            commands=[f"oncelog txn describe{options} {argument(row.transactional_id)}"],
        )
    ]
