"""Links to other brokers by hand-moved time: connecting, answers, time-outs, back-off, and brokers that change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.base.ids import BrokerId
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.controller.image.cluster_image import ClusterImage
from oncelog.core.controller.image.model import BrokerImage
from oncelog.node.brokers.broker_links import BrokerLinks, LinkPurpose
from oncelog.node.brokers.link import RECONNECT_BACKOFF_MAX_MS, RECONNECT_BACKOFF_MS
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.kernel.events import (
    BrokerConnected,
    BrokerDisconnected,
    BrokerSent,
    ConnectToBroker,
    DisconnectFromBroker,
    Report,
    SendToBroker,
)
from oncelog.wire.chunks import join_chunks
from oncelog.wire.header import decode_request_header, encode_response
from oncelog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from oncelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

ME, OTHER = BrokerId(1), BrokerId(2)
CONTROL = LinkPurpose.CONTROL
ASK = ListTransactionsRequest()
SETUP_MS, TIMEOUT_MS = 10_000, 30_000


class Bench:
    """Links of broker 1, and broker 2 at the other end, which answers when the test says so."""

    def __init__(self, **config: str) -> None:
        self.deadlines = Deadlines()
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.metadata: Any = SimpleNamespace(
            broker_id=ME, config=BrokerConfig(settings), image=self.image(epoch=7), failed_brokers=frozenset()
        )
        self.links = BrokerLinks(self.metadata, self.deadlines)
        self.answers: list[Any] = []
        self.refused: list[BrokerId] = []
        self.links.on_refused.append(self.refused.append)
        self.broken: list[BrokerId] = []
        self.links.on_broken.append(self.broken.append)
        self.reached: list[BrokerId] = []
        self.links.on_reached.append(self.reached.append)
        self.asked: dict[int, list[int]] = {}
        """Correlation ids that await their answers, by connection."""

    @staticmethod
    def image(epoch: int, port: int = 9092) -> ClusterImage:
        return ClusterImage(brokers={OTHER: BrokerImage(OTHER, "broker-2", port, None, epoch)})

    def ask(self, message: Any = ASK, purpose: LinkPurpose = CONTROL, timeout_ms: int | None = None) -> Any:
        return self.links.request(OTHER, purpose, message, self.answers.append, timeout_ms)

    def effects(self) -> list[Any]:
        effects: list[Any] = []
        self.links.take_outgoing(effects)
        return effects

    def connecting(self) -> ConnectToBroker:
        """The one connection that is asked for now."""
        (effect,) = [effect for effect in self.effects() if isinstance(effect, ConnectToBroker)]
        return effect

    def sent(self, link_id: int) -> list[int]:
        """The API keys of what was sent now; notes their correlation ids."""
        keys = []
        for effect in self.effects():
            assert isinstance(effect, SendToBroker), effect
            assert effect.link_id == link_id
            data = join_chunks(effect.chunks)
            while data:
                size = int.from_bytes(data[:4], "big")
                header, _ = decode_request_header(data[4 : 4 + size])
                self.asked.setdefault(link_id, []).append(header.correlation_id)
                keys.append(header.api_key)
                data = data[4 + size :]
        return keys

    def connect(self, *, highest: int = 2) -> int:
        """Accept the connection and agree on versions; its number."""
        link_id = self.connecting().link_id
        self.links.connected(BrokerConnected(link_id))
        assert self.sent(link_id) == [18]
        versions = ApiVersionsResponse(api_keys=[ApiVersion(api_key=66, min_version=0, max_version=highest)])
        self.answer(link_id, versions, 4, 18)
        return link_id

    def answer(self, link_id: int, response: Any, version: int = 2, api_key: int = 66) -> None:
        correlation_id = self.asked[link_id].pop(0)
        data = join_chunks(encode_response(correlation_id, api_key, version, response))
        self.links.received(BrokerSent(link_id, data))

    def pass_time(self, milliseconds: int) -> None:
        target_ms = self.deadlines.now_ms + milliseconds
        while (at_ms := self.deadlines.next_ms()) is not None and at_ms <= target_ms:
            self.deadlines.now_ms = max(at_ms, self.deadlines.now_ms)
            self.deadlines.run_due(at_ms)
        self.deadlines.now_ms = target_ms


def test_the_first_request_connects_and_waits_for_the_versions() -> None:
    bench = Bench()
    bench.ask()
    effect = bench.connecting()
    assert (effect.host, effect.port) == ("broker-2", 9092)
    bench.links.connected(BrokerConnected(effect.link_id))
    bench.ask()
    assert bench.sent(effect.link_id) == [18]
    versions = ApiVersionsResponse(api_keys=[ApiVersion(api_key=66, min_version=0, max_version=1)])
    bench.answer(effect.link_id, versions, 4, 18)
    assert bench.sent(effect.link_id) == [66, 66], "both at once, in one effect"
    bench.answer(effect.link_id, ListTransactionsResponse(throttle_time_ms=1), 1)
    bench.answer(effect.link_id, ListTransactionsResponse(throttle_time_ms=2), 1)
    assert [answer.throttle_time_ms for answer in bench.answers] == [1, 2]


def test_each_purpose_has_a_connection_of_its_own() -> None:
    bench = Bench()
    bench.ask()
    first = bench.connect()
    assert bench.sent(first) == [66]
    bench.ask(purpose=LinkPurpose.FETCH)
    assert bench.connecting().link_id != first


def test_a_broker_that_is_not_registered_is_not_reached_and_that_is_said_later() -> None:
    bench = Bench()
    bench.links.request(BrokerId(9), CONTROL, ASK, bench.answers.append)
    assert (bench.effects(), bench.answers) == ([], [])
    bench.pass_time(0)
    assert bench.answers == [None]


def test_a_refused_connection_answers_all_that_waits_and_is_told() -> None:
    bench = Bench()
    bench.ask()
    bench.ask()
    bench.links.disconnected(BrokerDisconnected(bench.connecting().link_id, refused=True))
    assert (bench.answers, bench.refused) == ([None, None], [OTHER])


def test_a_connection_that_fails_otherwise_says_nothing_of_the_process() -> None:
    bench = Bench()
    bench.ask()
    bench.links.disconnected(BrokerDisconnected(bench.connecting().link_id))
    assert (bench.answers, bench.refused) == ([None], [])


def test_back_off_doubles_up_to_a_second_and_requests_wait_for_it() -> None:
    bench = Bench()
    delay_ms = RECONNECT_BACKOFF_MS
    for _ in range(8):
        bench.ask()
        bench.links.disconnected(BrokerDisconnected(bench.connecting().link_id, refused=True))
        bench.ask()
        bench.pass_time(delay_ms - 1)
        assert bench.effects() == []
        bench.pass_time(1)
        bench.links.disconnected(BrokerDisconnected(bench.connecting().link_id, refused=True))
        bench.pass_time(min(2 * delay_ms, RECONNECT_BACKOFF_MAX_MS))
        assert bench.effects() == [], "nobody asks"
        delay_ms = min(4 * delay_ms, RECONNECT_BACKOFF_MAX_MS)
    assert bench.answers == [None] * 16


def test_a_request_whose_time_passes_while_backing_off_is_answered() -> None:
    bench = Bench()
    bench.ask()
    bench.links.disconnected(BrokerDisconnected(bench.connecting().link_id, refused=True))
    bench.ask(timeout_ms=10)
    bench.pass_time(10)
    assert bench.answers == [None, None]
    bench.pass_time(10_000)
    assert bench.effects() == []


def test_a_late_answer_ends_the_connection_and_all_that_was_sent_on_it() -> None:
    bench = Bench()
    bench.ask(timeout_ms=100)
    bench.ask(timeout_ms=200)
    link_id = bench.connect()
    bench.sent(link_id)
    bench.pass_time(100)
    report, end = bench.effects()
    assert isinstance(report, Report)
    assert report.message == "broker 2 at broker-2:9092: no response to ListTransactionsRequest before its time-out"
    assert end == DisconnectFromBroker(link_id)
    assert bench.answers == [None, None]
    bench.answer(link_id, ListTransactionsResponse())
    assert bench.answers == [None, None], "it comes on a connection that was given up"


@pytest.mark.parametrize(("purpose", "key"), [(CONTROL, "request"), (LinkPurpose.FETCH, "replica_socket")])
def test_time_outs_are_kafkas(purpose: LinkPurpose, key: str) -> None:
    bench = Bench(**{f"{key}_timeout_ms": "1234"})
    bench.ask(purpose=purpose)
    bench.pass_time(1233)
    assert bench.answers == []
    bench.pass_time(1)
    assert bench.answers == [None]


def test_a_peer_that_accepts_and_says_nothing_is_given_up() -> None:
    bench = Bench()
    bench.ask(timeout_ms=2 * SETUP_MS)
    link_id = bench.connecting().link_id
    bench.links.connected(BrokerConnected(link_id))
    bench.sent(link_id)
    bench.pass_time(SETUP_MS)
    assert DisconnectFromBroker(link_id) in bench.effects()
    assert bench.answers == [None]


def test_a_connection_that_was_up_is_tried_again_at_once() -> None:
    """So that the death of a process is noticed when its connections end, by the refusal."""
    bench = Bench()
    bench.ask()
    link_id = bench.connect()
    bench.sent(link_id)
    bench.pass_time(RECONNECT_BACKOFF_MS)
    bench.links.disconnected(BrokerDisconnected(link_id))
    assert (bench.answers, bench.refused) == ([None], [])
    bench.links.disconnected(BrokerDisconnected(bench.connecting().link_id, refused=True))
    assert bench.refused == [OTHER]
    bench.pass_time(TIMEOUT_MS)
    assert bench.effects() == [], "and no more until somebody asks"


def test_a_peer_that_always_closes_is_not_asked_in_a_circle() -> None:
    bench = Bench()
    bench.ask()
    link_id = bench.connect()
    bench.sent(link_id)
    bench.links.disconnected(BrokerDisconnected(link_id))
    assert bench.effects() == []


def test_a_connection_without_a_request() -> None:
    bench = Bench()
    bench.links.connect(OTHER, CONTROL)
    bench.links.connect(BrokerId(9), CONTROL)
    link_id = bench.connect()
    bench.links.connect(OTHER, CONTROL)
    assert bench.effects() == []
    bench.ask()
    assert bench.sent(link_id) == [66]


def test_who_forgets_is_not_answered() -> None:
    bench = Bench()
    waiting = bench.ask()
    sent = bench.ask()
    waiting()
    link_id = bench.connect()
    assert bench.sent(link_id) == [66]
    sent()
    bench.answer(link_id, ListTransactionsResponse())
    nowhere = bench.links.request(BrokerId(9), CONTROL, ASK, bench.answers.append)
    nowhere()
    bench.pass_time(TIMEOUT_MS)
    assert bench.answers == []


@pytest.mark.parametrize("image", [ClusterImage(), Bench.image(epoch=8, port=9093)])
def test_a_broker_that_left_or_registered_anew_is_another(image: ClusterImage) -> None:
    bench = Bench()
    bench.ask()
    link_id = bench.connect()
    bench.sent(link_id)
    bench.metadata.image = image
    bench.links.apply_change(image)
    assert bench.effects() == [DisconnectFromBroker(link_id)]
    assert bench.answers == [None]
    bench.links.disconnected(BrokerDisconnected(link_id))
    bench.ask()
    if image.brokers:
        assert bench.connecting().port == 9093
    else:
        bench.pass_time(0)
        assert bench.answers == [None, None]


def test_other_changes_of_the_cluster_leave_a_link_alone() -> None:
    bench = Bench()
    bench.ask()
    link_id = bench.connect()
    bench.links.apply_change(bench.metadata.image)
    assert bench.sent(link_id) == [66]


def test_garbage_ends_the_connection() -> None:
    bench = Bench()
    bench.ask()
    link_id = bench.connect()
    bench.sent(link_id)
    bench.links.received(BrokerSent(link_id, b"\x7f\xff\xff\xff"))
    report, end = bench.effects()
    assert isinstance(report, Report)
    assert end == DisconnectFromBroker(link_id)
    assert bench.answers == [None]


def test_a_request_that_the_other_does_not_have() -> None:
    bench = Bench()
    bench.ask()
    link_id = bench.connecting().link_id
    bench.links.connected(BrokerConnected(link_id))
    bench.sent(link_id)
    bench.answer(link_id, ApiVersionsResponse(), 4, 18)
    (report,) = bench.effects()
    assert isinstance(report, Report)
    bench.pass_time(0)
    assert bench.answers == [None]


def test_an_answer_may_bring_the_next_request() -> None:
    bench = Bench()

    def again(response: object) -> None:
        bench.answers.append(response)
        if len(bench.answers) < 3:
            bench.links.request(OTHER, CONTROL, ASK, again)

    bench.links.request(OTHER, CONTROL, ASK, again)
    link_id = bench.connect()
    for _ in range(2):
        assert bench.sent(link_id) == [66]
        bench.answer(link_id, ListTransactionsResponse())
    bench.sent(link_id)
    bench.links.disconnected(BrokerDisconnected(link_id))
    assert bench.answers[-1] is None
    assert len(bench.answers) == 3


def test_a_large_response_comes_in_pieces() -> None:
    bench = Bench()
    bench.ask()
    link_id = bench.connect()
    bench.sent(link_id)
    names = [f"state-{number:06}" for number in range(20_000)]
    response = ListTransactionsResponse(unknown_state_filters=names)
    data = join_chunks(encode_response(bench.asked[link_id].pop(0), 66, 2, response))
    assert len(data) > 200_000
    for start in range(0, len(data), 65_536):
        bench.links.received(BrokerSent(link_id, memoryview(data)[start : start + 65_536]))
    assert bench.answers == [response]


def test_a_connection_that_ends_in_the_middle_of_a_request_is_told_and_so_is_the_next_that_is_ready() -> None:
    bench = Bench()
    bench.ask()
    link_id = bench.connect()
    assert (bench.reached, bench.broken) == ([OTHER], [])
    bench.sent(link_id)
    bench.links.disconnected(BrokerDisconnected(link_id))
    assert (bench.reached, bench.broken, bench.refused) == ([OTHER], [OTHER], [])
    bench.ask()
    bench.pass_time(RECONNECT_BACKOFF_MS)
    bench.connect()
    assert bench.reached == [OTHER, OTHER]


def test_an_idle_connection_that_ends_says_nothing_of_the_process() -> None:
    bench = Bench()
    bench.ask()
    link_id = bench.connect()
    bench.sent(link_id)
    bench.answer(link_id, ListTransactionsResponse())
    bench.links.disconnected(BrokerDisconnected(link_id))
    assert (bench.broken, bench.refused) == ([], [])
