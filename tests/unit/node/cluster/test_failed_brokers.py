"""Brokers that were lost, and requests that wait for their successors, by hand-moved time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from oncelog.base.ids import BrokerId
from oncelog.base.security import Endpoint, SecurityProtocol
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.image.model import BrokerImage, BrokerRecord
from oncelog.handlers.broker.waits import UntilElected
from oncelog.node.cluster.failed_brokers import DEPARTED_MS, FAILED_MS, FailedBrokers
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.kernel.tasks import Runnable

OTHER = BrokerId(2)


def image(epoch: int | None, **more: Any) -> ClusterImage:
    """Broker 2 registered in an epoch, or not."""
    return ClusterImage(brokers={} if epoch is None else {OTHER: BrokerImage(OTHER, "two", 9, None, epoch, **more)})


class Bench:
    def __init__(self) -> None:
        self.deadlines = Deadlines()
        self.runnable = Runnable()
        self.metadata: Any = SimpleNamespace(image=image(7), failed_brokers=frozenset(), departed_brokers={})
        self.brokers = FailedBrokers(self.metadata, self.deadlines, self.runnable)

    @property
    def lost(self) -> set[BrokerId]:
        return set(self.metadata.failed_brokers)

    @property
    def departed(self) -> set[BrokerId]:
        return set(self.metadata.departed_brokers)

    def change(self, after: ClusterImage) -> None:
        before, self.metadata.image = self.metadata.image, after
        self.brokers.follow(after, before)

    def pass_time(self, milliseconds: int) -> None:
        self.deadlines.now_ms += milliseconds
        self.deadlines.run_due(self.deadlines.now_ms)

    def wait(self) -> Any:
        """A request that waits until nobody is lost."""
        task: Any = _Task()
        self.brokers.park(task, UntilElected(lambda: not self.lost))
        return task

    def woken(self) -> Any:
        entry = self.runnable.take()
        return None if entry is None else entry[0]


class _Task:
    waiting = True
    forget: Any = None


def test_a_broker_is_lost_for_a_moment_and_once() -> None:
    bench = Bench()
    bench.brokers.mark_failed(OTHER)
    task = bench.wait()
    bench.pass_time(FAILED_MS - 1)
    bench.brokers.mark_failed(OTHER)
    assert (bench.lost, bench.woken()) == ({OTHER}, None)
    bench.pass_time(1)
    assert (bench.lost, bench.woken()) == (set(), task)
    bench.brokers.mark_failed(OTHER)
    assert bench.lost == set(), "nobody is elected, and nobody waits for that again"


def test_a_broker_that_is_reached_is_there_and_may_be_lost_anew() -> None:
    bench = Bench()
    bench.brokers.mark_failed(OTHER)
    task = bench.wait()
    bench.brokers.mark_reachable(OTHER)
    assert (bench.lost, bench.woken()) == (set(), task)
    bench.brokers.mark_failed(OTHER)
    assert bench.lost == {OTHER}


def test_a_broker_stays_lost_when_its_registration_has_ended_and_is_named_for_longer() -> None:
    bench = Bench()
    bench.brokers.mark_failed(OTHER)
    bench.change(image(None))
    assert (bench.lost, bench.departed) == ({OTHER}, {OTHER})
    bench.pass_time(FAILED_MS)
    assert (bench.lost, bench.departed) == (set(), {OTHER})
    bench.pass_time(DEPARTED_MS - FAILED_MS)
    assert (bench.lost, bench.departed) == (set(), set())


def test_the_end_of_a_registration_alone_says_that_a_broker_is_lost() -> None:
    bench = Bench()
    bench.change(image(None))
    assert (bench.lost, bench.departed) == ({OTHER}, {OTHER})


def test_who_was_lost_long_ago_is_not_lost_again_when_its_registration_ends() -> None:
    bench = Bench()
    bench.brokers.mark_failed(OTHER)
    bench.pass_time(FAILED_MS)
    bench.change(image(None))
    assert (bench.lost, bench.departed) == (set(), {OTHER})


def test_a_broker_that_said_that_it_stops_is_named_and_nobody_waits_for_what_it_led() -> None:
    bench = Bench()
    bench.change(image(7, in_controlled_shutdown=True))
    bench.change(image(None))
    assert (bench.lost, bench.departed) == (set(), {OTHER})
    bench.pass_time(DEPARTED_MS)
    assert (bench.lost, bench.departed) == (set(), set())


def test_a_broker_that_registers_anew_is_there() -> None:
    for after in (image(None), image(7)):  # with or without an image in which it was absent
        bench = Bench()
        bench.brokers.mark_failed(OTHER)
        bench.change(after)
        bench.change(image(8))
        assert (bench.lost, bench.departed) == (set(), set())


def test_requests_are_asked_with_every_change_of_the_image_and_forgotten_with_their_clients() -> None:
    bench = Bench()
    bench.brokers.mark_failed(OTHER)
    tasks = [_Task(), _Task()]
    requests = []
    for number, task in enumerate(tasks):
        bench.brokers.park(task, UntilElected(lambda number=number: requests.append(number)))  # type: ignore[arg-type, misc, func-returns-value]
    tasks[0].forget()
    bench.change(image(7))
    assert (requests, bench.woken()) == ([1], None)


def test_a_broker_that_starts_names_those_that_may_have_left_just_now() -> None:
    endpoint = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "three", 9)
    records = {
        OTHER: BrokerRecord("d", 7, endpoints=(endpoint,)),
        BrokerId(3): BrokerRecord("d", 6, rack="r", endpoints=(endpoint,)),
        BrokerId(4): BrokerRecord("d", 5, unregistered=True, endpoints=(endpoint,)),
        BrokerId(5): BrokerRecord("d", 4),
    }
    bench = Bench()
    bench.metadata.image = ClusterImage(brokers=image(7).brokers, broker_records=records)
    bench.brokers.start()
    assert bench.departed == {3}
    assert bench.metadata.departed_brokers[BrokerId(3)].endpoint("PLAINTEXT") == endpoint
    assert not bench.lost, "its successors were elected when it left"
    bench.pass_time(DEPARTED_MS)
    assert not bench.departed
