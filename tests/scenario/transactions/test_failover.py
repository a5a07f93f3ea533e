"""Another coordinator loads the log: what is finished, what stays open, and logs that refuse."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import CoordinatorEpoch, TransactionalId
from oncelog.base.invariant import InvariantViolation
from oncelog.core.transactions.model import InitReply, MarkersToWrite
from tests.scenario.transactions.driver import Driver, partitions


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("written", range(4))
def test_failover_between_prepare_and_each_marker(written: int, committed: bool) -> None:
    """However many of three markers were reported before: the next coordinator has all of them written, or has the
    transaction complete."""
    driver = Driver(writes_markers=False)
    me = driver.init().identity
    driver.add(me, 0, 1, 2)
    first = driver.end(me, commit=committed)
    for index in range(written):
        driver.carry_out(driver.shard.markers_written(driver.markers[0], partitions(index), driver.now_ms))
    again = driver.restarted()
    assert [(m.partitions, m.committed) for m in again.markers] == (
        [(partitions(0, 1, 2), committed)] if written < 3 else []
    )
    again.write_markers()
    assert again.state() == ("CompleteCommit" if committed else "CompleteAbort")
    assert again.end(me, commit=committed) == first
    assert again.add(first.identity, 0) is E.NONE


def test_a_prepared_transaction_is_driven_on_by_the_next_coordinator() -> None:
    """At each marker; the leaders get all of them again."""
    driver = Driver(writes_markers=False)
    me = driver.init().identity
    driver.add(me, 0, 1)
    driver.end(me, commit=False)
    driver.carry_out(driver.shard.markers_written(driver.markers[0], partitions(0), driver.now_ms))
    again = driver.restarted()
    assert [m.partitions for m in again.markers] == [partitions(0, 1)]
    again.write_markers()
    assert again.state() == "CompleteAbort"


def test_late_reports_about_markers_do_not_complete_another_transaction() -> None:
    """Before V2 the next transaction has the same identity; the number tells them apart, and the coordinator epoch."""
    driver = Driver(writes_markers=False)
    me = driver.init().identity
    driver.add(me, 0, version=0)
    driver.end(me, commit=True, version=0)
    (first,) = driver.markers
    driver.write_markers()
    driver.add(me, 0, version=0)
    driver.end(me, commit=False, version=0)
    for late in (first, replace_epoch(driver)):
        driver.carry_out(driver.shard.markers_written(late, late.partitions, driver.now_ms))
        assert driver.state() == "PrepareAbort"


def test_deleted_partitions_need_no_marker() -> None:
    """Or a transaction would never complete."""
    driver = Driver(writes_markers=False)
    me = driver.init().identity
    driver.add(me, 0, 1)
    driver.end(me, commit=True)
    driver.carry_out(driver.shard.partitions_deleted(partitions(1, 2, 3), driver.now_ms))
    assert driver.state() == "PrepareCommit"
    driver.carry_out(driver.shard.partitions_deleted(partitions(0), driver.now_ms))
    assert driver.state() == "CompleteCommit"


def test_a_refused_append_changes_nothing() -> None:
    """Whatever was asked; the same request then succeeds."""
    driver = Driver()
    driver.refuse_appends = 1
    assert driver.init() is E.COORDINATOR_NOT_AVAILABLE
    me = driver.init().identity
    driver.refuse_appends = 1
    assert driver.add(me, 0) is E.COORDINATOR_NOT_AVAILABLE
    driver.add(me, 0)
    driver.refuse_appends = 1
    assert driver.end(me, commit=True) is E.COORDINATOR_NOT_AVAILABLE
    driver.refuse_appends = 1
    assert driver.init() is E.COORDINATOR_NOT_AVAILABLE
    assert driver.state() == "Ongoing"
    assert driver.end(me, commit=True).identity == (1001, 1)


def test_a_complete_record_that_was_refused_is_tried_again() -> None:
    """Nobody else would."""
    driver = Driver(writes_markers=False)
    me = driver.init().identity
    driver.add(me, 0)
    driver.end(me, commit=True)
    driver.refuse_appends = 2
    driver.write_markers()
    assert driver.state() == "PrepareCommit"
    driver.init()
    driver.advance(2_000)
    assert driver.states()[-2:] == ["CompleteCommit", "Empty"]
    assert driver.replies[driver.last_token].identity == (1000, 2)


def test_a_refused_append_of_a_waiting_request_is_told() -> None:
    """It was parked, became ready, and its record was refused."""
    driver = Driver(writes_markers=False)
    me = driver.init().identity
    driver.add(me, 0)
    driver.end(me, commit=True)
    driver.init()
    markers = driver.markers.pop()
    completing = driver.shard.markers_written(markers, markers.partitions, driver.now_ms)
    driver.log += completing.records
    for key, value in completing.records:
        driver.shard.apply(key, value)
    driver.refuse_appends = 1
    driver.run_due()
    assert driver.replies[driver.last_token] == InitReply(E.COORDINATOR_NOT_AVAILABLE)
    assert driver.init().identity == (1000, 2)


def test_records_of_newer_versions_are_passed_over() -> None:
    """And counted; what the log said before them stays."""
    driver = Driver()
    driver.init()
    key = driver.log[0][0]
    driver.log += [(b"\x00\x09x", b""), (key, b"\x00\x02abc"), (b"\x00\x00\x00\x01y", b"\x00\x00")]
    again = driver.restarted()
    assert sum(again.shard.skipped.values()) == 3
    assert again.state() == "Empty"
    assert again.shard.describe(TransactionalId("y")) is None


def test_only_what_was_decided_is_applied() -> None:
    """X7: a record from elsewhere in a partition that is led is a broken invariant."""
    driver = Driver()
    driver.init()
    with pytest.raises(InvariantViolation, match="X7"):
        driver.shard.apply(*driver.log[0])


def replace_epoch(driver: Driver) -> MarkersToWrite:
    """The outstanding markers as another coordinator epoch would report them."""
    return driver.markers[0]._replace(coordinator_epoch=CoordinatorEpoch(6))
