"""Rules A1 to A3, A6 and A7: verdicts on open transactions and their ends, compared with the hangs that were injected.

A transaction that was not injected is no hang: live, prepared, completing. The checkers know the truth from the
injectors, the tool's verdicts from who ran it, and the broker's ends from its audit log.
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
SET_BACK_MS: Final = 4_000
"""The broker's clock may be set back so far between injection and end."""


class InjectedHang(NamedTuple):
    """A hang, or what may have become one (``certain`` once the leader has acknowledged it)."""

    kind: str
    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    transactional_id: str
    timeout_ms: int
    """The time-out of the transaction, as its coordinator has (or had) it."""
    injected_ms: Mapping[int, int]
    """The time before the hang was asked for, by the clock of each broker."""
    certain: bool = False
    start_offset: int = -1
    first_ms: int = 0
    """The transaction's first offset, and the time of its first record, once that is certain."""


InjectedHangs = Mapping[tuple[TopicPartition, int], InjectedHang]
"""Injected hangs by partition and producer id."""


def false_hanging_verdicts(found: Iterable[OpenTransaction], truth: InjectedHangs) -> Iterator[str]:
    """A1, which holds at any time: nothing is called hanging that is not."""
    for one in found:
        if one.verdict is Verdict.HANGING and (one.where, one.producer.producer_id) not in truth:
            yield f"{NOT_HANGING}: {_shown(one)}"


def verdicts_at_rest(
    found: Iterable[OpenTransaction], truth: InjectedHangs, *, now_ms: int, broker_ends_orphans: bool = False
) -> Iterator[str]:
    """When nobody writes any more and coordinators have nothing left to end, everything is called what it is.

    ``now_ms``: when the tool looked. ``broker_ends_orphans``: it does so itself, and has had the time.
    """
    found = list(found)
    yield from false_hanging_verdicts(found, truth)
    for one in found:
        injected = truth.get((one.where, one.producer.producer_id))
        if injected is None:
            continue
        if one.verdict is not Verdict.HANGING:
            yield f"{NOT_FOUND} ({injected.kind}): {_shown(one)}"
        elif broker_ends_orphans and _known_to_broker(one):
            yield f"{NOT_ENDED}: {_shown(one)}"
        if injected.start_offset == one.start_offset and one.age_ms != now_ms - injected.first_ms:
            yield f"{WRONG_AGE}: {one.age_ms} ms and not {now_ms - injected.first_ms}: {_shown(one)}"


def ended_too_early(broker_id: int, ends: Iterable[End], truth: InjectedHangs, grace_ms: int) -> Iterator[str]:
    """A broker that ends orphans, here ``ends``, waits for their own time-out, and for its grace, by its own clock."""
    for end in ends:
        injected = truth.get((end.partition, end.producer_id))
        if end.action == ORPHAN_ABORT and injected is not None:
            waited_ms = end.at_ms - injected.injected_ms[broker_id]
            if waited_ms < injected.timeout_ms + grace_ms - SET_BACK_MS:
                yield f"{TOO_EARLY}: {end.partition}, producer {end.producer_id}, {waited_ms} ms after it was injected"


def _known_to_broker(one: OpenTransaction) -> bool:
    """True when the broker has found the transaction hanging and a coordinator still has its id and time-out."""
    return one.producer.found == REPORTED_HANGING and one.code is not ReasonCode.FORGOTTEN


def _shown(one: OpenTransaction) -> str:
    who = f"{one.where} from {one.start_offset}, producer {one.producer.producer_id}, {one.transactional_id!r}"
    return f"{who}: {one.verdict.value}: {one.reason}"
