"""Requests of share groups and of their state with values at the edges, carried out by a node in virtual time."""

from __future__ import annotations

from typing import Any, Final

import pytest

from oncelog.handlers.registry import APIS
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.hostile.edge_values import Asked, EdgeValues
from tests.scenario.node.driver import Driver, Peer
from tests.scenario.node.requests import batch, create_topic, produce
from tests.scenario.share.members import set_group_configs

SHARE: Final = [api for api in APIS if "Share" in api.name]
REQUESTS: Final = 300
LONGEST_MS: Final = 120_000
"""Behind the last attempt of a request to the coordinator of a share partition's state, and its lock."""


@pytest.fixture
def driver() -> Driver:
    driver = Driver({"share.coordinator.state.topic.num.partitions": "1"})
    peer = driver.connect()
    for name in ("t", "u"):
        create_topic(peer, name, 2)
        peer.ask(produce(name, batch(driver, b"a", b"b", b"c")), 9)
    for group in ("g", "t"):
        set_group_configs(peer, group, share_auto_offset_reset="earliest")
        peer.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4)
    return driver


def _answered(driver: Driver, peer: Peer, sent: Asked) -> bool:
    """True when the request has its answer; it may close the connection instead."""
    peer.send(sent.request, sent.version)
    waited_ms = 0
    while not peer.responses and not peer.closed:
        assert waited_ms <= LONGEST_MS, f"no answer to {sent}"
        driver.advance(1000)
        waited_ms += 1000
    assert driver.fatal is None, f"{sent}: {driver.fatal}"
    peer.responses.clear()
    return not peer.closed


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_request_is_answered_and_none_ends_the_node(driver: Any, seed: int) -> None:
    peer = driver.connect()
    topics = driver.node.cluster.image.topics
    values = EdgeValues(seed, [topics[name].topic_id for name in ("t", "u")], SHARE)
    for _ in range(REQUESTS):
        if not _answered(driver, peer, values.request()):
            peer = driver.connect()
    assert not [report for report in driver.reports if "failed" in report], driver.reports
