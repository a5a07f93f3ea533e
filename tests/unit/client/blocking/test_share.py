"""The blocking share consumer in virtual time, beside fake leaders: callbacks that raise, and loops."""

from __future__ import annotations

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
