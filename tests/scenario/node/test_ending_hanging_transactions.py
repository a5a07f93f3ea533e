"""Hanging transactions are ended only when somebody says so, and what is prepared is never torn."""

from __future__ import annotations

import json
from typing import ClassVar

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.node.hanging.watch import RECHECK_MS
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from tests.scenario.node.hanging import HOUR_MS, OLD_MS, TIMEOUT_MS, Producer, abort, made, stable, told, warnings
from tests.scenario.node.requests import log_of
from tests.scenario.transactions.node_client import StepwiseDriver


class TestTwoPhaseCommit:
    def test_a_prepared_transaction_is_never_an_orphan_and_reported_after_an_hour_once_for_all_partitions(self) -> None:
        driver = made({"transaction.hanging.action": "abort", "transaction.hanging.grace.ms": "0"})
        prepared = Producer(driver, "prepared", two_phase=True)
        prepared.add(0, 1)
        prepared.write(0)
        prepared.write(1)
        driver.advance(HOUR_MS - RECHECK_MS)
        assert told(driver, 0) == told(driver, 1) == [("prepared", "two_phase")]
        assert (warnings(driver), driver.node.hanging_watch.overdue_count()) == ([], 0)
        driver.advance(HOUR_MS)
        (line,) = warnings(driver)
        assert "has waited for its decision" in line
        assert "oncelog txn force-terminate prepared" in line
        assert driver.node.hanging_watch.overdue_count() == 1
        prepared.end()
        assert driver.node.hanging_watch.overdue_count() == 0
        assert driver.audited == []

    def test_one_that_was_kept_for_a_new_instance_is_none_either(self) -> None:
        driver = made()
        prepared = Producer(driver, "prepared", two_phase=True)
        prepared.add(0)
        prepared.write()
        request = InitProducerIdRequest(
            transactional_id="prepared", transaction_timeout_ms=1000, enable2_pc=True, keep_prepared_txn=True
        )
        assert prepared.peer.ask(request, 6).ongoing_txn_producer_id == prepared.producer_id
        driver.advance(OLD_MS)
        assert told(driver) == [("prepared", "two_phase")]
        assert driver.audited == [], "nothing was ended"

    def test_no_administrators_marker_tears_it(self) -> None:
        driver = made()
        prepared = Producer(driver, "prepared", two_phase=True)
        prepared.add(0)
        start = prepared.write()
        assert abort(driver, prepared, start) is ErrorCode.INVALID_TXN_STATE
        assert not stable(driver)
        assert driver.audited[-1].outcome == "INVALID_TXN_STATE"

    def test_no_administrators_marker_tears_it_where_the_log_has_lost_its_id(self) -> None:
        driver = made()
        prepared = Producer(driver, "prepared", two_phase=True)
        prepared.add(0)
        start = prepared.write()
        (transaction,) = driver.node.logs.transactions.partitions[("t", 0)].values()
        transaction.transactional_id = None  # as after a crash
        assert abort(driver, prepared, start) is ErrorCode.INVALID_TXN_STATE
        assert not stable(driver)

    def test_nor_before_the_coordinators_have_read_their_logs(self) -> None:
        driver = made()
        prepared = Producer(driver, "prepared", two_phase=True)
        prepared.add(0)
        start = prepared.write()
        driver.session.close()
        driver.hold_syncs = driver.hold_jobs = True
        driver.start()
        assert driver.node.transactions.is_loading()
        assert abort(driver, prepared, start) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        driver.hold_syncs = driver.hold_jobs = False
        driver.release()
        assert abort(driver, prepared, start) is ErrorCode.INVALID_TXN_STATE


class TestAdministrators:
    def test_one_that_its_producer_has_gone_on_with_meanwhile_is_ended_by_force_only(self) -> None:
        driver = made()
        late = Producer(driver, "late")
        start = late.hang()
        late.add(0)  # its next transaction, at the same epoch, takes the late record in
        assert abort(driver, late, start) is ErrorCode.INVALID_TXN_STATE
        assert "not live" in driver.audited[-1].checked[-1]
        late.end()
        late.hang()
        late.add(0)
        assert abort(driver, late, start, ends_live=True) is ErrorCode.INVALID_TXN_STATE, "that one has ended"
        assert abort(driver, late, log_of(driver, "t").last_stable_offset, ends_live=True) is ErrorCode.NONE

    def test_an_orphan_is_aborted_and_the_record_says_all_of_it(self) -> None:
        driver = made()
        late = Producer(driver, "late")
        start = late.hang()
        driver.advance(OLD_MS)
        assert abort(driver, late, start + 1) is ErrorCode.INVALID_TXN_STATE
        assert abort(driver, late, start, producer_epoch=late.epoch + 1) is ErrorCode.INVALID_PRODUCER_EPOCH
        end = log_of(driver, "t").log_end_offset
        assert end == start + 1, "nothing was written"
        assert abort(driver, late, start) is ErrorCode.NONE
        assert stable(driver)
        assert told(driver) == []
        record = json.loads(driver.audited[-1].line())
        assert record == {
            "time": "2023-11-14T22:15:20.000Z",
            "time_ms": driver.now_ms,
            "action": "abort-hanging",
            "outcome": "NONE",
            "who": {"principal": "User:ANONYMOUS", "client_id": "driver", "host": "127.0.0.1"},
            "transaction": {
                "producer_id": late.producer_id,
                "producer_epoch": late.epoch,
                "coordinator_epoch": 0,
                "result": "ABORT",
                "start_offset": start,
                "partitions": [
                    {
                        "topic": "t",
                        "partition": 0,
                        "outcome": "NONE",
                        "open_from": start,
                        "open_since_ms": driver.now_ms - OLD_MS,
                        "transactional_id": "late",
                        "verdict": "hanging",
                    }
                ],
                "partition_count": 1,
            },
            "checked": record["checked"],
        }
        assert [r.outcome for r in driver.audited] == ["INVALID_TXN_STATE", "INVALID_PRODUCER_EPOCH", "NONE"]

    def test_a_hanging_transaction_cannot_be_committed(self) -> None:
        driver = made()
        late = Producer(driver, "late")
        start = late.hang()
        assert abort(driver, late, start, transaction_result=True) is ErrorCode.INVALID_REQUEST
        assert not stable(driver)

    @pytest.mark.parametrize("coordinator_epoch", [-1, 0, 7, 2**31 - 1])
    def test_its_marker_never_locks_the_coordinator_out(self, coordinator_epoch: int) -> None:
        driver = made()
        late = Producer(driver, "late")
        start = late.hang()
        assert abort(driver, late, start, coordinator_epoch=coordinator_epoch) is ErrorCode.NONE
        late.add(0)
        late.write()
        late.end()
        assert stable(driver)

    def test_what_its_coordinator_has_decided_is_not_torn(self) -> None:
        driver = made()
        deciding = Producer(driver, "deciding")
        deciding.add(0)
        start = deciding.write()
        driver.hold_syncs = True
        request = EndTxnRequest(
            transactional_id="deciding",
            producer_id=deciding.producer_id,
            producer_epoch=deciding.epoch,
            committed=True,
        )
        deciding.peer.send(request, 3)  # decided, the markers wait for the disk
        assert abort(driver, deciding, start) is ErrorCode.INVALID_TXN_STATE
        driver.hold_syncs = False
        driver.release()
        assert stable(driver)
        assert log_of(driver, "t").segments.active.aborted == []

    @pytest.mark.parametrize("committed", [True, False])
    def test_at_no_moment_of_its_completion_it_can_be_torn(self, committed: bool) -> None:
        driver = made(kind=StepwiseDriver)
        assert isinstance(driver, StepwiseDriver)
        deciding = Producer(driver, "deciding")
        deciding.add(0, 1)
        starts = {partition: deciding.write(partition) for partition in (0, 1)}
        driver.hold_syncs = True
        request = EndTxnRequest(
            transactional_id="deciding",
            producer_id=deciding.producer_id,
            producer_epoch=deciding.epoch,
            committed=committed,
        )
        deciding.peer.send(request, 3)
        moments = 0
        while driver.held:
            for partition, start in starts.items():
                assert abort(driver, deciding, start, partition) is ErrorCode.INVALID_TXN_STATE
            driver.finish(driver.held.pop(0))
            moments += 1
        assert moments >= 4, "the decision, two markers, the completion"
        for partition in starts:
            assert stable(driver, partition)
            assert log_of(driver, "t", partition).log_end_offset == 2, "one record, one marker"
            assert bool(log_of(driver, "t", partition).segments.active.aborted) is not committed

    def test_a_plain_marker_does_as_apache_kafka_does_and_is_written_down_too(self) -> None:
        driver = made()
        late = Producer(driver, "late")
        late.hang()
        assert abort(driver, late, -1) is ErrorCode.NONE
        assert stable(driver)
        assert [(r.action, r.outcome) for r in driver.audited] == [("write-markers", "NONE")]

    def test_a_forced_end_through_the_coordinator_is_written_down(self) -> None:
        driver = made()
        prepared = Producer(driver, "prepared", two_phase=True)
        prepared.add(0)
        prepared.write()
        request = InitProducerIdRequest(transactional_id="prepared", transaction_timeout_ms=1000)
        assert driver.connect().ask(request, 4).error_code == 0
        assert stable(driver)
        (record,) = driver.audited
        assert (record.action, record.outcome) == ("init-producer-id", "NONE")
        assert record.transaction["two_phase"] is True
        assert record.transaction["partitions"] == ["t-0"]


class TestSelfAbort:
    CONFIG: ClassVar = {"transaction.hanging.action": "abort", "transaction.hanging.grace.ms": "600000"}

    def test_after_the_grace_period_and_never_silently(self) -> None:
        driver = made(self.CONFIG)
        late, live = Producer(driver, "late"), Producer(driver, "prepared", two_phase=True)
        start = late.hang()
        live.add(1)
        live.write(1)
        driver.advance(OLD_MS + 500_000)
        assert told(driver) == [("late", "hanging")]
        assert driver.audited == []
        driver.advance(200_000)
        assert stable(driver)
        assert not stable(driver, 1)
        (record,) = driver.audited
        assert (record.action, record.outcome) == ("orphan-abort", "NONE")
        assert record.transaction["start_offset"] == start
        assert record.details["verdict"] == "hanging"
        assert [line.split()[0] for line in warnings(driver)] == ["hanging", "aborted"]
        assert (driver.node.hanging_watch.found_count, driver.node.hanging_watch.aborted) == (1, 1)

    def test_what_became_part_of_a_transaction_meanwhile_is_left_alone(self) -> None:
        driver = made(
            {**self.CONFIG, "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(100 * TIMEOUT_MS)}
        )
        late = Producer(driver, "late")
        late.hang()
        driver.advance(OLD_MS)
        assert told(driver) == [("late", "hanging")]
        late.add(0)  # the same producer and epoch (V1): what hung is part of its next transaction now
        driver.advance(HOUR_MS)
        assert told(driver) == [("late", "live")]
        late.end()
        assert stable(driver)
        assert driver.audited == []

    def test_it_can_be_switched_on_while_the_broker_runs(self) -> None:
        driver = made()
        Producer(driver, "late").hang()
        driver.advance(OLD_MS + 600_000)
        values = {"transaction.hanging.action": "abort", "transaction.hanging.grace.ms": "0"}
        configs = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in values.items()]
        resource = AlterConfigsResource(resource_type=4, resource_name="", configs=configs)
        answer = driver.connect().ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == 0
        driver.advance(RECHECK_MS)
        assert stable(driver)

    def test_without_its_id_nothing_is_aborted(self) -> None:
        driver = made(self.CONFIG)
        Producer(driver, "late").hang()
        (transaction,) = driver.node.logs.transactions.partitions[("t", 0)].values()
        transaction.transactional_id = None
        driver.advance(HOUR_MS)
        assert told(driver) == [(None, "unknown")]
        assert driver.audited == []

    def test_reporting_is_the_default(self) -> None:
        driver = made()
        Producer(driver, "late").hang()
        driver.advance(HOUR_MS)
        assert not stable(driver)
        assert driver.audited == []
