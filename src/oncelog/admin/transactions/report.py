"""Writes the sentences that explain why a partition's committed readers stand still. Pure: facts in, text out.

The rule: every sentence names its source (leader, coordinator, group). The report leads from the consumer back to the
cause, then to what waits behind it, when it clears by itself, and the one command that ends it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from oncelog.admin.transactions.blocked_groups import GroupBehind
from oncelog.admin.transactions.classification import OR_LOST
from oncelog.admin.transactions.cluster_scan import OpenTransaction
from oncelog.admin.transactions.durations import duration_text, moment_text
from oncelog.admin.transactions.history.lost_markers import LostMarker
from oncelog.admin.transactions.partition_offsets import Bounds
from oncelog.base.ids import TopicPartition
from oncelog.base.notation.shell_words import argument, option
from oncelog.base.transaction_verdicts import RULES, ReasonCode, Verdict
from oncelog.base.units import MINUTE_MS

MOST_NAMED: Final = 5
"""Groups that the sentences name."""
_SWEEP_TEXT: Final = "10 s"
"""How often coordinators check for time-outs (transaction.abort.timed.out.transaction.cleanup.interval.ms)."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Topic settings that eventually delete records. ``retention_ms`` −1 means never; None means unanswered."""

    cleanup_policy: str = "delete"
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A partition that committed readers cannot read to its end, with all facts about it.

    ``transactions`` are the open ones, by start offset: the first one holds the partition. ``retention`` matters only
    if that one hangs.
    """

    partition: TopicPartition
    bounds: Bounds
    transactions: tuple[OpenTransaction, ...]
    groups: tuple[GroupBehind, ...] = ()
    retention: Retention = Retention()
    now_ms: int = 0
    lost: LostMarker | None = None

    @property
    def holder(self) -> OpenTransaction | None:
        """The transaction at the last stable offset."""
        return self.transactions[0] if self.transactions else None


def held_sentences(held: Held) -> list[str]:
    """Sentences from the last stable offset to the cause and its consequences."""
    holder, bounds = held.holder, held.bounds
    sentences = [
        f"The last stable offset of {held.partition} is {bounds.last_stable_offset:,}: read_committed consumers stop "
        f"there, {_offsets(bounds.held)} before the end at {bounds.end_offset:,}."
    ]
    if holder is None:
        sentences.append(
            "Its leader has no transaction open: one has just ended, or its marker is still being replicated. "
            "Look again in a moment."
        )
        return sentences
    if holder.start_offset != bounds.last_stable_offset:
        sentences.append("It has moved on while it was being looked at; what follows is the first one open now.")
    sentences.append(_owner_sentence(holder, held.now_ms))
    if held.lost is None:
        reason = holder.reason.replace(OR_LOST, "")
        sentences.append(f"{reason}{_by_its_coordinator(holder, held.now_ms)}.")
    else:
        sentences += held.lost.sentences
    sentences.append(_verdict(holder))
    sentences += _behind(held)
    sentences.append(clears(held))
    return sentences


def clears(held: Held) -> str:
    """The sentence on when, and how, the partition becomes readable by itself."""
    holder = held.holder
    if holder is None:
        return "It clears by itself."
    at_ms = clears_at_ms(holder)
    if holder.verdict is Verdict.HANGING or holder.lacks_only_age:
        return _deleted(held)
    if holder.verdict is Verdict.TWO_PHASE:
        return "It does not clear by itself: the application that prepared it, or an administrator, has to end it."
    if holder.verdict is Verdict.SUSPECTED:
        return "Whether it clears by itself cannot be said before its coordinator can."
    if holder.code is ReasonCode.COMPLETING:
        return "It clears by itself, as soon as the marker is written."
    if at_ms is None or at_ms <= held.now_ms:
        return f"Its time-out has passed: it clears by itself when the coordinator sees that, every {_SWEEP_TEXT}."
    left = duration_text(at_ms - held.now_ms)
    return (
        f"It clears by itself when its producer ends it, at the latest at {moment_text(at_ms)}, in {left} "
        f"(and up to {_SWEEP_TEXT}), when the time-out fires."
    )


def clears_at_ms(transaction: OpenTransaction) -> int | None:
    """When the transaction's time-out fires; None if it has none, or it is unknown."""
    if transaction.code is not ReasonCode.ONGOING or transaction.row is None or transaction.row.start_ms is None:
        return None
    return transaction.row.start_ms + transaction.row.timeout_ms


def commands(held: Held, options: str = "") -> list[str]:
    """The commands to run, if any; ``options`` name the cluster."""
    holder = held.holder
    if holder is None:
        return []
    at = f"{option('--topic', holder.producer.topic)} --partition {holder.producer.partition}"
    if holder.verdict is Verdict.HANGING or holder.lacks_only_age:
        abort = f"oncelog txn abort {at} --start-offset {holder.start_offset}{options}"
        if held.lost is None or not held.lost.committed:
            return [abort]
        place = f"--partition {holder.producer.partition} --from {holder.start_offset}{options}"
        return [f"oncelog consume {place} --uncommitted --exit {argument(holder.producer.topic)}", abort]
    if holder.verdict is Verdict.SUSPECTED:
        return [f"oncelog txn find-hanging {at} --all{options}"]
    if not RULES[holder.code].force_terminate or holder.transactional_id is None:
        return []
    return [f"oncelog txn force-terminate{options} {argument(holder.transactional_id)}"]


def advice(held: Held) -> str:
    """The sentence before the commands."""
    holder = held.holder
    if holder is None or holder.code is ReasonCode.COMPLETING:
        return "There is nothing to do but wait."
    if held.lost is not None and held.lost.way_out:
        return held.lost.way_out
    if holder.verdict is Verdict.HANGING or holder.lacks_only_age:
        return "To end it (it is checked once more, and you are asked):"
    if holder.verdict is Verdict.SUSPECTED:
        return "To look again:"
    if holder.verdict is Verdict.TWO_PHASE:
        return "If the application that prepared it is gone for good (this aborts it, whatever was decided outside):"
    return "There is nothing to repair. If its application is known to be dead, and you cannot wait:"


def _owner_sentence(transaction: OpenTransaction, now_ms: int) -> str:
    producer = transaction.producer
    named = f"transactional id {transaction.transactional_id!r}, " if transaction.transactional_id else ""
    text = (
        f"It is held by a transaction of {named}producer id {producer.producer_id}, epoch {producer.producer_epoch}, "
        f"that begins at offset {transaction.start_offset:,}"
    )
    if transaction.age_ms is None:
        return f"{text}; since when is not known ({transaction.start.problem or 'its time lies in the future'})."
    text += f" and is open for {duration_text(transaction.age_ms)}, since {moment_text(now_ms - transaction.age_ms)}"
    idle_ms = now_ms - producer.last_timestamp_ms
    if producer.last_timestamp_ms >= 0 and 0 <= idle_ms < transaction.age_ms:
        text += f"; it last wrote {duration_text(idle_ms)} ago"
    return text + "."


def _by_its_coordinator(transaction: OpenTransaction, now_ms: int) -> str:
    """The start on the coordinator's clock, if records' own times (perhaps of past events) differ from it."""
    if (
        transaction.code not in (ReasonCode.ONGOING, ReasonCode.TWO_PHASE)
        or transaction.row is None
        or transaction.row.start_ms is None
    ):
        return ""
    open_ms = now_ms - transaction.row.start_ms
    if transaction.age_ms is not None and abs(transaction.age_ms - open_ms) < MINUTE_MS:
        return ""
    return f", since {moment_text(transaction.row.start_ms)} by its own clock ({duration_text(open_ms)})"


def _verdict(transaction: OpenTransaction) -> str:
    row = transaction.row
    who = "" if transaction.coordinator is None else f" (broker {transaction.coordinator} coordinates it)"
    if transaction.verdict is Verdict.HANGING:
        return f"So it hangs: no coordinator is going to end it{who}."
    if transaction.verdict is Verdict.TWO_PHASE:
        return f"So it waits for a decision from outside, and has no time-out{who}. It does not hang."
    if transaction.lacks_only_age:
        required_ms, age_ms = transaction.required_age_ms, transaction.age_ms
        left = "" if age_ms is None else f", in {duration_text(required_ms - age_ms)}"
        return (
            f"So no coordinator is going to end it{who}. It counts as hanging from an age of "
            f"{duration_text(required_ms)} on{left}; an administrator can end it before that."
        )
    if transaction.verdict is Verdict.SUSPECTED:
        return f"So it may hang, but that is not certain{who}."
    if transaction.code is ReasonCode.COMPLETING:
        return f"So it is about to end{who}."
    timeout = "" if row is None else f" within its time-out of {duration_text(row.timeout_ms)}"
    return f"So it is live: its producer has to end it{timeout}{who}."


def _behind(held: Held) -> list[str]:
    sentences = []
    if held.groups:
        names = ", ".join(f"{group.group} ({_offsets(group.lag)})" for group in held.groups[:MOST_NAMED])
        more = f" and {len(held.groups) - MOST_NAMED} more" if len(held.groups) > MOST_NAMED else ""
        sentences.append(f"Groups that wait behind it, if they read committed records: {names}{more}.")
    later = held.transactions[1:]
    if later:
        hanging = sum(transaction.verdict is Verdict.HANGING for transaction in later)
        count = f"{len(later)} more transactions are" if len(later) > 1 else "1 more transaction is"
        sentences.append(
            f"{count} open behind it, {hanging} of them hanging; the next begins at offset {later[0].start_offset:,}."
        )
    return sentences


def _deleted(held: Held) -> str:
    never = "It never clears by itself"
    retention = held.retention
    if "compact" in retention.cleanup_policy:
        keeps = "" if "delete" in retention.cleanup_policy else ", and the topic is not compacted beyond it"
        return f"{never}{keeps}."
    if retention.retention_ms is None:
        return f"{never}, only with its records, when retention deletes them."
    if retention.retention_ms < 0:
        return f"{never}: the topic keeps its records for ever."
    holder = held.holder
    text = f"{never}, only with its records, which are kept for {duration_text(retention.retention_ms)}"
    if holder is not None and holder.start.timestamp_ms is not None:
        return f"{text}: not before {moment_text(holder.start.timestamp_ms + retention.retention_ms)}."
    return f"{text}."


def _offsets(count: int) -> str:
    return f"{count:,} offset" + ("" if count == 1 else "s")
