"""Each pair of requests, of all APIs, is carried out in order when their client has closed behind them."""

from __future__ import annotations

import itertools

import pytest

from oncelog.handlers.registry import APIS
from oncelog.wire.header import RequestHeader, encode_request
from tests.scenario.node.driver import Driver

WAITS_FOR_OTHERS = {"Fetch", "JoinGroup", "SyncGroup"}
"""They may have nothing left to do but their answer."""


class Carried:
    """The handlers of a node: which began, and which came to their end."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []

    def around(self, api, handle):
        def steps(request, context):
            self.begun.append(api.name)
            try:
                response = yield from handle(request, context)
            except GeneratorExit:
                raise
            except BaseException:
                self.ended.append(api.name)
                raise
            self.ended.append(api.name)
            return response

        return steps


def frame_of(api) -> bytes:
    """A request of an API as it is made, in its latest version."""
    module = __import__(f"oncelog.wire.messages.{api.module}", fromlist=["_"])
    request = getattr(module, f"{api.name}Request")()
    header = RequestHeader(api.key, api.max_version, 1, "c")
    return b"".join(map(bytes, encode_request(header, request)))[4:]


def make(carried: Carried) -> Driver:
    driver = Driver({"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"})
    driver.node.directory.measure = lambda: (1_000, 1_000)
    driver.node.put_around_handlers(carried.around)
    return driver


def closes_its_connection(api) -> bool:
    driver = make(Carried())
    peer = driver.connect()
    peer.raw = True
    peer.send_frame(frame_of(api))
    return peer.closed


@pytest.mark.slow
@pytest.mark.parametrize("held", [False, True])
def test_each_pair_of_apis_with_a_close_behind_them(held):
    sound = [api for api in APIS if not closes_its_connection(api)]
    assert len(sound) > 45
    frames = {api.name: frame_of(api) for api in sound}
    carried = Carried()
    driver = make(carried)
    for index, names in enumerate(itertools.product(frames, repeat=2)):
        carried.begun, carried.ended = [], []
        driver.hold_syncs = driver.hold_metadata = driver.hold_jobs = held
        peer = driver.connect()
        peer.raw = True
        for name in names:
            peer.send_frame(frames[name])
        if index % 3:
            driver.half_close(peer)
        if index % 3 < 2:
            driver.disconnect(peer)
        driver.release()
        driver.advance(1_000)
        if index % 3 == 2:
            assert peer.closed, names
            driver.disconnect(peer)
        assert tuple(carried.begun) == names
        assert [name for name in carried.ended if name not in WAITS_FOR_OTHERS] == [
            name for name in names if name not in WAITS_FOR_OTHERS
        ]
    assert driver.fatal is None
    assert driver.reports == []
    assert len(driver.node.requests.closed) == 0
