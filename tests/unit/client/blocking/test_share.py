"""The blocking share consumer in virtual time, beside fake leaders: callbacks that raise, and loops."""

from __future__ import annotations

import pytest

from oncelog.client.blocking import Client, ShareConsumer
from oncelog.client.machine.share.values import Acknowledged
from tests.unit.client.programs.fake_brokers import CONFIG, BlockingRunner, FakeBrokers
from tests.unit.client.programs.fake_share_group import FakeShareGroup


class VirtualClient(Client):
    """A blocking client of fake brokers."""

    def __init__(self, brokers: FakeBrokers) -> None:
        super().__init__("h:1", config=CONFIG)
        runner = BlockingRunner(brokers)
        self.cluster, self.run = runner.cluster, runner.run


def test_a_callback_that_raises_loses_no_record() -> None:
    brokers = FakeBrokers()
    group = FakeShareGroup(brokers, 1)
    group.append(0, 1)
    has_failed = False

    def fail_once(_: list[Acknowledged]) -> None:
        nonlocal has_failed
        if not has_failed:
            has_failed = True
            raise ValueError("the caller's")

    consumer = ShareConsumer(VirtualClient(brokers), "g", ["t"], on_acknowledged=fail_once)
    got: list[int] = []
    for _ in range(12):
        try:
            got += [record.offset for record in consumer.poll()]
        except ValueError:
            continue
        if len(got) < 4:
            group.append(0, 1)
    consumer.commit()
    assert has_failed
    assert got == list(range(4))
    assert group.states() == ["accepted"] * 4
    assert {stored.deliveries for stored in group.records.values()} == {1}


def test_a_loop_that_fails_gives_back_the_record_in_work_and_those_after_it() -> None:
    brokers = FakeBrokers()
    group = FakeShareGroup(brokers, 1)
    group.append(0, 4)

    def work_through() -> None:
        with ShareConsumer(VirtualClient(brokers), "g", ["t"]) as consumer:
            for record in consumer:
                if record.offset == 2:
                    raise ValueError(record.value)

    with pytest.raises(ValueError, match="2"):
        work_through()
    assert group.states() == ["accepted", "accepted", "available", "available"]


def test_a_loop_may_commit_the_record_that_it_works_on() -> None:
    brokers = FakeBrokers()
    group = FakeShareGroup(brokers, 1)
    group.append(0, 3)
    with ShareConsumer(VirtualClient(brokers), "g", ["t"]) as consumer:
        for record in consumer.records(idle_ms=1_000):
            (result,) = consumer.commit()
            assert (result.first_offset, result.last_offset, result.error) == (record.offset, record.offset, None)
    assert group.states() == ["accepted"] * 3
