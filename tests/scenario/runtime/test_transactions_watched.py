"""Transactions in a scrape, and the audit log's record of those ended from outside."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from oncelog.base.transaction_verdicts import LATE_PADDING_MS
from oncelog.handlers.broker.audit import AuditRecord
from oncelog.node.access.audit_repeats import IN_FULL, REPEATED, REQUESTERS
from oncelog.node.hanging.watch import RECHECK_MS
from oncelog.node.kernel.events import Audit
from oncelog.runtime.data.audit_log import FILE_NAME, KEPT, AuditLog
from oncelog.runtime.data.disk_files import DiskFiles
from oncelog.runtime.metrics.transaction_samples import transaction_metrics
from oncelog.sim.virtual.files import MemoryFiles
from oncelog.testing import Broker
from tests.scenario.node.driver import Driver
from tests.scenario.node.hanging import TIMEOUT_MS, Producer, abort, made
from tests.scenario.node.requests import batch, log_of, produce

LATE_MS = 900_000 + LATE_PADDING_MS


def scraped(driver: Driver) -> dict[str, float]:
    """Name with labels → value."""
    return {
        sample.name + "".join(f",{value}" for value in sample.labels.values()): sample.value
        for metric in transaction_metrics(driver.node, driver.now_ms)
        for sample in metric.samples
    }


class TestMetrics:
    def test_a_hanging_transaction_shows_in_all_of_them(self) -> None:
        driver = made()
        late = Producer(driver, "late")
        late.hang(1)
        plain = driver.connect()
        plain.ask(produce("t", batch(driver, b"a", b"b"), 1), 9)
        driver.advance(TIMEOUT_MS + RECHECK_MS)
        result = scraped(driver)
        assert result["oncelog_partition_last_stable_offset_lag,t,1"] == 3
        assert result["oncelog_partition_max_active_transaction_duration_seconds,t,1"] == 120
        assert not [name for name in result if ",t,0" in name], "nothing to say, no series"
        assert result["oncelog_max_last_stable_offset_lag"] == 3
        assert result["oncelog_partitions_with_late_transactions"] == 0
        assert result["oncelog_open_transactions,hanging"] == 1
        assert result["oncelog_orphaned_transactions_found_total"] == 1
        assert result["oncelog_transactional_ids,CompleteCommit"] == 1
        driver.advance(LATE_MS)
        assert scraped(driver)["oncelog_partitions_with_late_transactions"] == 1

        assert abort(driver, late, log_of(driver, "t", 1).last_stable_offset, 1) == 0
        result = scraped(driver)
        assert result["oncelog_audit_records_total,abort-hanging,NONE"] == 1
        assert (result["oncelog_max_last_stable_offset_lag"], result["oncelog_open_transactions,hanging"]) == (0, 0)

    def test_exactly_the_padded_limit_is_not_late(self) -> None:
        driver = made()
        Producer(driver, "late").hang()
        driver.advance(LATE_MS)
        assert scraped(driver)["oncelog_partitions_with_late_transactions"] == 0
        driver.advance(1)
        assert scraped(driver)["oncelog_partitions_with_late_transactions"] == 1

    def test_coordinators_count_states_time_outs_and_markers(self) -> None:
        driver = made()
        slow, fast, idle = (Producer(driver, name) for name in ("slow", "fast", "idle"))
        for producer in (slow, fast):
            producer.add(0)
            producer.write()
        assert scraped(driver)["oncelog_transactional_ids,Ongoing"] == 2
        driver.hold_syncs = True
        driver.advance(TIMEOUT_MS + RECHECK_MS)  # decided, and the disk does not answer
        result = scraped(driver)
        assert result["oncelog_transactional_ids,PrepareAbort"] == 2
        assert result["oncelog_transaction_markers_outstanding"] == 2
        driver.hold_syncs = False
        driver.release()
        driver.advance(RECHECK_MS)
        result = scraped(driver)
        assert result["oncelog_transactional_ids,CompleteAbort"] == 2
        assert result["oncelog_transactional_ids,Empty"] == 1
        assert result["oncelog_transactions_timed_out_total"] == 2
        assert result["oncelog_transaction_markers_outstanding"] == 0
        assert idle.epoch == 0

    def test_states_are_counted_after_a_restart_too(self) -> None:
        driver = made()
        for name in ("a", "b", "c"):
            Producer(driver, name)
        Producer(driver, "c").add(0)
        before = {name: value for name, value in scraped(driver).items() if "transactional_ids" in name}
        driver.session.close()
        driver.start()
        assert {name: value for name, value in scraped(driver).items() if "transactional_ids" in name} == before
        assert before["oncelog_transactional_ids,Ongoing"] == 1
        assert before["oncelog_transactional_ids,Empty"] == 2

    def test_writes_that_no_transaction_has_are_counted(self) -> None:
        driver = made({"transaction.partition.verification.enable": "true"})
        stray = Producer(driver, "stray")
        with pytest.raises(AssertionError, match="48"):
            stray.write()
        assert scraped(driver)["oncelog_transaction_verification_failures_total"] == 1


class Inline:
    """Workers that work at once."""

    def submit(self, work: Callable[[], Callable[[], None]]) -> None:
        work()()


class Busy:
    """Workers that have not come to it yet."""

    def __init__(self) -> None:
        self.queued: list[Callable[[], Callable[[], None]]] = []

    def submit(self, work: Callable[[], Callable[[], None]]) -> None:
        self.queued.append(work)


class Later:
    """A loop's ``call_later`` whose time comes when the test says."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []

    def __call__(self, seconds: float, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)


def record(number: int = 0, text: str = "", **changes: Any) -> Audit:
    who = {"client_id": text, "principal": "User:a", "host": "10.0.0.1"}
    return Audit(replace(AuditRecord(number, "abort-hanging", who, {"producer_id": number}, ("c",), "NONE"), **changes))


def lines(files: Any, name: str = FILE_NAME) -> list[Any]:
    file = files.open(name)
    return [json.loads(line) for line in file.read(0, file.size()).splitlines()]


class TestAuditLog:
    def log(self, files: Any, max_bytes: int = 1 << 20) -> AuditLog:
        return AuditLog(files, Inline(), lambda: max_bytes, Later())  # type: ignore[arg-type]  # a fake of Workers

    def test_a_line_is_one_record_whatever_clients_call_themselves(self) -> None:
        files = MemoryFiles(now_ms=lambda: 0)
        log = self.log(files)
        log.write(record(1, 'a\n{"forged":1}\u2028\x00"'))
        log.write(record(2))
        assert [line["transaction"]["producer_id"] for line in lines(files)] == [1, 2]
        files.crash(1)
        assert len(lines(files)) == 2, "it was synced"

    def test_thirty_thousand_markers_are_not_thirty_thousand_syncs_in_front_of_everybodys(self) -> None:
        files, workers = MemoryFiles(now_ms=lambda: 0), Busy()
        size = len(record(10).record.line())
        log = AuditLog(files, workers, lambda: 4 * size, Later())  # type: ignore[arg-type]  # a fake of Workers
        for number in range(10, 16):
            log.write(record(number))
        assert len(workers.queued) == 1
        workers.queued.pop()()
        log.write(record(16))
        assert len(workers.queued) == 1, "what comes after it began has another"
        workers.queued.pop()()
        files.crash(1)
        assert [line["time_ms"] for line in lines(files, f"{FILE_NAME}.1")] == [10, 11, 12, 13], "rotated and synced"
        assert [line["time_ms"] for line in lines(files)] == [14, 15, 16]

    def test_it_goes_on_after_a_torn_line(self) -> None:
        files = MemoryFiles(now_ms=lambda: 0)
        files.open(FILE_NAME, create=True).append((b'{"torn',))
        self.log(files).write(record(7))
        file = files.open(FILE_NAME)
        assert json.loads(file.read(0, file.size()).splitlines()[1])["time_ms"] == 7

    @pytest.mark.parametrize("on_disk", [False, True])
    def test_it_is_rotated_by_size_and_ten_older_files_are_kept(self, on_disk: bool, tmp_path: Any) -> None:
        files: Any = DiskFiles(tmp_path) if on_disk else MemoryFiles(now_ms=lambda: 0)
        size = len(record(10).record.line())
        log = self.log(files, 3 * size)
        for number in range(10, 10 + 3 * (KEPT + 3)):
            log.write(record(number))
        names = [name for name in files.list("") if name.startswith(FILE_NAME)]
        assert len(names) == KEPT + 1
        newest = [line["time_ms"] for line in lines(files)]
        older = [line["time_ms"] for line in lines(files, f"{FILE_NAME}.1")]
        assert older[-1] + 1 == newest[0]
        assert (len(older), newest[-1]) == (3, 10 + 3 * (KEPT + 3) - 1)
        if on_disk:
            files.close()

    @pytest.mark.parametrize(
        "repeated", [{"action": "write-markers"}, {"outcome": "INVALID_TXN_STATE"}, {"action": "init-producer-id"}]
    )
    def test_whoever_repeats_himself_pushes_nothing_out(self, repeated: dict[str, str]) -> None:
        files, later = MemoryFiles(now_ms=lambda: 0), Later()
        size = len(record(10_000).record.line())
        log = AuditLog(files, Inline(), lambda: 100 * size, later)  # type: ignore[arg-type]  # a fake of Workers
        log.write(record(1))
        for number in range(10_000, 20_000):
            log.write(record(number, f"client {number}", **repeated))
        log.write(record(2))
        assert [line["time_ms"] for line in lines(files)] == [1, *range(10_000, 10_000 + IN_FULL), 2]
        (interval_over,) = later.callbacks
        interval_over()
        told = lines(files)[-1]
        outcome = repeated.get("outcome", "NONE")
        assert told[REPEATED] == {
            "more": 10_000 - IN_FULL,
            "since_ms": 10_000 + IN_FULL,
            "outcomes": {outcome: 10_000 - IN_FULL},
        }
        assert (told["time_ms"], told["outcome"]) == (19_999, outcome)
        log.write(record(20_000, **repeated))
        assert lines(files)[-1]["time_ms"] == 20_000, "a new interval"

    def test_others_are_not_taken_for_who_repeats_himself_and_all_are_bounded(self) -> None:
        files = MemoryFiles(now_ms=lambda: 0)
        log = self.log(files)
        for number in range(1000):
            log.write(record(number, action="write-markers"))
        other = {"principal": "User:b", "host": "10.0.0.1"}
        log.write(record(1, who=other, action="write-markers"))
        log.write(record(2, outcome="INVALID_TXN_STATE"))
        log.write(record(3, who={"broker": True}, action="orphan-abort"))
        assert [line["time_ms"] for line in lines(files)] == [*range(IN_FULL), 1, 2, 3]
        for number in range(10 * REQUESTERS):
            log.write(record(4, who={"principal": "User:c", "host": f"10.1.{number}"}, outcome="INVALID_TXN_STATE"))
        assert len(lines(files)) < IN_FULL + 3 + REQUESTERS + IN_FULL
        log.write_repeats()
        assert sum(line.get(REPEATED, {"more": 0})["more"] + 1 for line in lines(files)) == 1003 + 10 * REQUESTERS + 2

    def test_a_full_disk_loses_no_record_silently(self, caplog: pytest.LogCaptureFixture) -> None:
        class Full(MemoryFiles):
            def open(self, path: str, *, create: bool = False) -> Any:
                raise OSError(errno.ENOSPC, "No space left on device")

        self.log(Full(now_ms=lambda: 0)).write(record(7))
        # Once PySpark has logged an error in this process, ``caplog.text`` is JSON, with its quotes escaped.
        assert any('"producer_id":7' in message for message in caplog.messages)
        assert "No space left" in caplog.text

    def test_a_broker_writes_it_into_its_data_directory(self, tmp_path: Any) -> None:
        from oncelog.wire.messages.write_txn_markers import (
            WritableTxnMarker,
            WritableTxnMarkerTopic,
            WriteTxnMarkersRequest,
        )
        from tests.scenario.runtime.test_peers_that_misbehave import connect, encoded, read_frame

        with Broker(data_dir=tmp_path) as broker, connect(broker) as peer:
            marker = WritableTxnMarker(
                producer_id=7, start_offset=3, topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
            )
            peer.sendall(encoded(WriteTxnMarkersRequest(markers=[marker]), 1, 1))
            read_frame(peer)
            (line,) = [json.loads(text) for text in (tmp_path / FILE_NAME).read_text().splitlines()]
        assert (line["action"], line["outcome"]) == ("abort-hanging", "UNKNOWN_TOPIC_OR_PARTITION")
        assert line["who"]["host"] == "127.0.0.1"
