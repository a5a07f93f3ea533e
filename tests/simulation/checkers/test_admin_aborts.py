"""Administrators' ends and verdicts: one directory or verdict that breaks each rule, and others that come close."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from oncelog.admin.transactions.cluster_scan import OpenTransaction
from oncelog.admin.transactions.partition_offsets import Start
from oncelog.admin.transactions.producers import ProducerRow
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.transaction_verdicts import ReasonCode, Verdict
from oncelog.handlers.broker.audit import AuditRecord, Value
from oncelog.records.builder import build_batch, end_transaction_marker
from oncelog.records.internal.transaction_records import TransactionValue, encode_key, encode_value
from oncelog.records.record import Record
from oncelog.sim.checkers import hanging_verdicts
from oncelog.sim.checkers.disk.admin_aborts import End, ends_of
from oncelog.sim.checkers.disk.observer import check_disk
from oncelog.sim.checkers.hanging_verdicts import InjectedHang
from tests.simulation.checkers.test_disk import PRODUCER, data, directory

PARTITION = TopicPartition(TopicName("t"), 0)
EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT = 0, 1, 2, 4
END = End("abort-hanging", PARTITION, PRODUCER, 0, 500)


def said(at: int, status: int, *, ms: int, epoch: int = 0, listed: bool = True, gone: bool = False) -> bytes:
    """A record of the coordinator's log."""
    partitions = (("t", (0,)),) if listed else ()
    value = TransactionValue(PRODUCER, epoch, 1000, status, partitions, ms, 0, client_transaction_version=2)
    record = Record(-1, ms, encode_key("x"), None if gone else encode_value(value, 1))
    return bytes(build_batch([record], base_offset=at, leader_epoch=0))


def aborted(at: int, *, ms: int = 500, epoch: int = 0, commit: bool = False) -> bytes:
    """A marker with a time."""
    return bytes(
        end_transaction_marker(
            committed=commit,
            coordinator_epoch=0,
            producer_id=PRODUCER,
            producer_epoch=epoch,
            timestamp=ms,
            base_offset=at,
            leader_epoch=0,
        )
    )


def rules(
    *batches: bytes, coordinator: Sequence[bytes], ended: Sequence[End] | None, deaths: Sequence[int] = ()
) -> set[str]:
    files = directory(*batches, coordinator=coordinator)
    return {name.partition(" ")[0] for name in check_disk(files, ended=ended, restarted_at_ms=deaths)}


FORGOTTEN = [said(0, EMPTY, ms=1, listed=False)]
LISTED = [said(0, ONGOING, ms=100)]
HUNG = (data(0), aborted(1))


def test_a_marker_that_nobody_answers_for_is_found() -> None:
    assert rules(*HUNG, coordinator=FORGOTTEN, ended=[]) == {"A4"}
    assert rules(*HUNG, coordinator=FORGOTTEN, ended=[END]) == set()
    assert rules(*HUNG, coordinator=FORGOTTEN, ended=None) == set()  # there is no audit log
    assert rules(*HUNG, coordinator=FORGOTTEN, ended=[], deaths=[500]) == set()  # it died before it could write it down
    for other in (END._replace(at_ms=501), END._replace(producer_epoch=1), END._replace(producer_id=8)):
        assert rules(*HUNG, coordinator=FORGOTTEN, ended=[other]) == {"A4"}


@pytest.mark.parametrize(
    ("coordinator", "touched"),
    [
        (LISTED, True),
        ([*LISTED, said(1, PREPARE_COMMIT, ms=900, epoch=1)], True),
        ([said(0, ONGOING, ms=100, listed=False)], False),
        ([said(0, ONGOING, ms=600)], False),  # listed since
        ([said(0, ONGOING, ms=100, epoch=1)], False),
        ([*LISTED, said(1, EMPTY, ms=200, listed=False)], False),
        ([*LISTED, said(1, EMPTY, ms=200, gone=True)], False),
    ],
)
def test_what_its_coordinator_lists_is_not_ended(coordinator: Sequence[bytes], touched: bool) -> None:
    assert ("A5" in rules(*HUNG, coordinator=coordinator, ended=[END])) is touched


def test_what_came_after_the_coordinators_marker_is_ended_rightly() -> None:
    decided = [*LISTED, said(1, PREPARE_COMMIT, ms=200), said(2, COMPLETE_COMMIT, ms=300, listed=False)]
    late = (data(0), aborted(1, ms=250, commit=True), data(2, 1), aborted(3))
    assert rules(*late, coordinator=decided, ended=[END]) == set()


def test_the_audit_log_tells_what_was_written() -> None:
    entries: list[dict[str, Value]] = [
        {"topic": "t", "partition": 0, "outcome": "NONE"},
        {"topic": "t", "partition": 1, "outcome": "INVALID_TXN_STATE"},
    ]
    text: dict[str, Value] = {"producer_id": PRODUCER, "producer_epoch": 0, "partitions": entries}
    hanging = AuditRecord(500, "abort-hanging", {}, text, (), "MIXED")
    new_instance = AuditRecord(500, "init-producer-id", {}, text, (), "NONE")
    assert ends_of([new_instance, hanging]) == [END]


def opened(
    verdict: Verdict, *, producer: int = PRODUCER, age_ms: int = 400, found: str | None = None
) -> OpenTransaction:
    row = ProducerRow("t", 0, 1, producer, 0, 0, 0, 0, 5, "x", found)
    code = ReasonCode.ENDED if verdict is Verdict.HANGING else ReasonCode.ONGOING
    return OpenTransaction(row, 5, Start(100, 5, 9), verdict, code, "why", age_ms, "x", 1, None, 0)


PLANTED = InjectedHang(
    "late", PARTITION, PRODUCER, 0, "x", 3_000, {1: 10_000, 2: 4_000}, certain=True, start_offset=5, first_ms=100
)
GROUND = {(PARTITION, PRODUCER): PLANTED}


def verdicts_at_rest(*found: OpenTransaction, alone: bool = False) -> list[str]:
    return [
        verdict[:2]
        for verdict in hanging_verdicts.verdicts_at_rest(found, GROUND, now_ms=500, broker_ends_orphans=alone)
    ]


def test_everything_is_called_what_it_is() -> None:
    assert verdicts_at_rest(opened(Verdict.HANGING), opened(Verdict.LIVE, producer=8)) == []
    assert verdicts_at_rest(opened(Verdict.HANGING, producer=8)) == ["A1"]
    assert verdicts_at_rest(opened(Verdict.SUSPECTED)) == verdicts_at_rest(opened(Verdict.TWO_PHASE)) == ["A2"]
    assert verdicts_at_rest(opened(Verdict.HANGING, age_ms=399)) == ["A7"]


def test_a_broker_that_ends_orphans_has_ended_those_it_knows() -> None:
    assert verdicts_at_rest(opened(Verdict.HANGING, found="hanging"), alone=True) == ["A3"]
    assert verdicts_at_rest(opened(Verdict.HANGING, found="unknown"), alone=True) == []
    assert verdicts_at_rest(opened(Verdict.HANGING, found="hanging")) == []


def test_and_not_before_time_out_and_grace_are_over() -> None:
    own = END._replace(action="orphan-abort", at_ms=10_000 + 3_000 + 15_000 - hanging_verdicts.SET_BACK_MS)
    early = own._replace(at_ms=own.at_ms - 1)
    assert not list(hanging_verdicts.ended_too_early(1, [own, END, early._replace(producer_id=8)], GROUND, 15_000))
    assert [item[:2] for item in hanging_verdicts.ended_too_early(1, [early], GROUND, 15_000)] == ["A6"]
    assert not list(hanging_verdicts.ended_too_early(2, [early], GROUND, 15_000)), "by a clock that was behind"
