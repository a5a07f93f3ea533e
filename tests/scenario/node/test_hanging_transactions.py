"""The broker finds its own hanging transactions, and names them."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.node.access.authoriser import AccessControl
from oncelog.node.hanging.watch import FIRST_QUERY_MS, PASS_MS, RECHECK_MS
from oncelog.node.observation.transaction_metrics import verdicts
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest
from tests.scenario.node.hanging import HOUR_MS, LATE_MS, OLD_MS, TIMEOUT_MS, Producer, forget, made, told, warnings
from tests.scenario.node.requests import batch, create_topic, produce


class TestWhatIsFound:
    def test_a_write_after_its_marker_is_an_orphan_once_it_is_older_than_its_time_out(self) -> None:
        driver = made()
        start = Producer(driver, "late").hang()
        driver.advance(TIMEOUT_MS - 1)
        assert told(driver) == [("late", None)]
        assert warnings(driver) == []
        driver.advance(RECHECK_MS)
        assert told(driver) == [("late", "hanging")]
        driver.advance(20 * RECHECK_MS)
        (line,) = warnings(driver)
        for piece in (
            "transactional id 'late'",
            f"open on t-0 from offset {start} since 2023-11-14T22:13:20.000Z",
            "its coordinator has nothing open: CompleteCommit",
            f"1 record from there on; read_committed consumers do not get past offset {start}",
            f"oncelog txn abort --topic t --partition 0 --start-offset {start}",
        ):
            assert piece in line, line

    def test_beside_live_ones_and_those_that_ended_nothing_else_is_named(self) -> None:
        driver = made()
        live, ended, hanging = (Producer(driver, name) for name in ("live", "ended", "hanging"))
        ended.add(0)
        ended.write()
        ended.end()
        hanging.hang(1)
        driver.advance(TIMEOUT_MS - FIRST_QUERY_MS)
        live.add(1, 2)
        live.write(1)
        driver.advance(FIRST_QUERY_MS * 3)
        assert told(driver, 0) == []
        assert told(driver, 1) == [("hanging", "hanging"), ("live", None)]

    def test_one_that_times_out_is_live_until_its_coordinator_ends_it(self) -> None:
        driver = made({"transaction.abort.timed.out.transaction.cleanup.interval.ms": str(10 * TIMEOUT_MS)})
        slow = Producer(driver, "slow")
        slow.add(0)
        slow.write()
        driver.advance(OLD_MS)
        assert told(driver) == [("slow", "live")]
        driver.advance(10 * TIMEOUT_MS)
        assert told(driver) == []
        assert warnings(driver) == []

    def test_an_id_that_was_forgotten(self) -> None:
        driver = made()
        gone = Producer(driver, "gone")
        gone.add(0)
        gone.write()
        driver.advance(FIRST_QUERY_MS)  # it is asked once while its coordinator knows it
        forget(driver, "gone")
        driver.advance(OLD_MS)
        assert told(driver) == [("gone", "hanging")]
        assert "does not know the transactional id" in warnings(driver)[0]

    def test_whose_time_out_was_never_known_waits_for_the_longest(self) -> None:
        driver = made()
        gone = Producer(driver, "gone")
        gone.add(0)
        gone.write()
        forget(driver, "gone")
        driver.advance(LATE_MS - 2 * RECHECK_MS)
        assert told(driver) == [("gone", None)]
        driver.advance(2 * RECHECK_MS)
        assert told(driver) == [("gone", "hanging")]

    def test_a_coordinator_that_has_moved_past_the_epoch(self) -> None:
        driver = made()
        old = Producer(driver, "x")
        old.hang()
        Producer(driver, "x")  # a new instance raises the epoch; no marker is due for what is not listed
        driver.advance(OLD_MS)
        assert told(driver) == [("x", "hanging")]
        assert "moved past that epoch: Empty under epoch 1" in warnings(driver)[0]

    def test_a_partition_that_the_open_transaction_does_not_list(self) -> None:
        driver = made({"transaction.abort.timed.out.transaction.cleanup.interval.ms": str(10 * TIMEOUT_MS)})
        stray = Producer(driver, "stray")
        stray.add(0)
        stray.write(0)
        stray.write(1)
        driver.advance(OLD_MS)
        assert told(driver, 0) == [("stray", "live")]
        assert told(driver, 1) == [("stray", "hanging")]
        assert "does not list the partition" in warnings(driver)[0]

    def test_the_whole_state_of_coordinators_was_deleted(self) -> None:
        driver = made()
        gone = Producer(driver, "gone")
        gone.add(0)
        gone.write()
        driver.advance(FIRST_QUERY_MS)
        deleted = driver.connect().ask(DeleteTopicsRequest(topic_names=["__transaction_state"], timeout_ms=1000), 4)
        assert deleted.responses[0].error_code == 0
        driver.advance(OLD_MS)
        assert told(driver) == [("gone", "hanging")]

    def test_offsets_committed_in_a_transaction_have_its_id(self) -> None:
        from tests.scenario.node.transactional_offsets import Copier

        driver = made()
        copier = Copier(driver, "copier").init()
        assert copier.commit() == ErrorCode.NONE
        (result,) = driver.node.logs.transactions.partitions[("__consumer_offsets", 0)].values()
        assert result.transactional_id == "copier"

    def test_a_deleted_topic_takes_what_was_open_with_it(self) -> None:
        driver = made()
        Producer(driver, "late").hang()
        driver.advance(OLD_MS)
        driver.connect().ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 4)
        assert driver.node.logs.transactions.partitions == {}
        create_topic(driver.connect(), "t", 1)
        driver.advance(HOUR_MS)
        assert told(driver) == []
        assert len(warnings(driver)) == 1

    def test_a_transaction_without_an_id_is_unknown_unless_a_coordinator_here_has_its_producer(self) -> None:
        driver = made({"transaction.abort.timed.out.transaction.cleanup.interval.ms": str(100 * TIMEOUT_MS)})
        live, stray = Producer(driver, "live"), Producer(driver, "stray")
        live.add(0)
        live.write(0)
        stray.hang(1)
        for transactions in driver.node.logs.transactions.partitions.values():
            for transaction in transactions.values():
                transaction.transactional_id = None  # as after the loss of the files
        driver.advance(LATE_MS + RECHECK_MS)
        assert told(driver, 0) == [("live", "live")]
        assert told(driver, 1) == [(None, "unknown")]
        assert "older than any time-out" in warnings(driver)[0]

    def test_ids_and_verdicts_survive_restarts(self) -> None:
        driver = made()
        Producer(driver, "late").hang()
        driver.advance(2 * PASS_MS)
        driver.session.close()
        driver.start()  # the process was killed: what it wrote is there, synced or not
        assert told(driver) == [("late", None)]
        driver.advance(OLD_MS)
        assert told(driver) == [("late", "hanging")]
        driver.shutdown()
        driver.node.logs.close()
        driver.session.close()
        driver.start()
        driver.advance(FIRST_QUERY_MS)
        assert told(driver) == [("late", "hanging")], "it is as old as it was"

    @pytest.mark.parametrize("seed", range(8))
    def test_a_power_cut_costs_names_at_most(self, seed: int) -> None:
        driver = made()
        Producer(driver, "late").hang()
        driver.advance(2 * PASS_MS)
        driver.crash_and_restart(seed)
        driver.advance(OLD_MS)
        assert told(driver) in ([("late", "hanging")], [(None, None)])
        driver.advance(LATE_MS)
        assert told(driver) in ([("late", "hanging")], [(None, "unknown")])
        assert driver.fatal is None

    def test_who_may_not_describe_the_id_is_not_told_it(self) -> None:
        driver = made()
        Producer(driver, "late").hang()
        driver.node.requests._access = AccessControl(Denying("late"))
        assert told(driver) == [(None, None)]


class Denying:
    """Denies everything about one resource."""

    def __init__(self, name: str) -> None:
        self.name = name

    def allows(self, principal: str, host: str, operation: object, resource: object, name: str) -> bool:
        return name != self.name

    def allows_any(self, principal: str, host: str, operation: object, resource: object) -> bool:
        return True


class TestCost:
    def test_short_transactions_are_never_looked_at_or_written_down(self) -> None:
        driver = made()
        short = Producer(driver, "short")
        for _ in range(50):
            short.add(0)
            short.write()
            driver.advance(10)
            short.end()
        driver.advance(10 * RECHECK_MS)
        assert driver.node.hanging_watch.query_count == 0
        assert "transactional-ids" not in driver.files.list("t-0")
        assert verdicts(driver.node) == {}

    def test_only_what_is_open_is_looked_at_and_seldom(self) -> None:
        driver = made({"transaction.hanging.action": "report"}, partitions=20)
        plain = driver.connect()
        for index in range(20):
            plain.ask(produce("t", batch(driver, b"v"), index), 9)
        for number in range(5):
            Producer(driver, f"hanging-{number}").hang(number)
        driver.advance(20 * RECHECK_MS)
        assert driver.node.hanging_watch.query_count <= 5 * (20 + 3)
        assert verdicts(driver.node) == {"hanging": 5}

    def test_an_idle_broker_is_not_woken_for_it(self) -> None:
        driver = made()
        driver.advance(2 * PASS_MS)
        assert driver.node.hanging_watch._alarm is None
