"""Metadata of all topics that is told again is not read again, and never taken for the truth when it is not."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.cluster import ClusterClient
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.connection import Expected, Response
from oncelog.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


class Versions:
    def choose(self, message: Any) -> int:
        del message
        return 13


class ToldLink:
    """Answers with ``told``, and counts how often an answer is read."""

    is_open = True
    versions = Versions()

    def __init__(self) -> None:
        self.told = MetadataResponse()
        self.times_read = 0

    def submit(self, message: Any) -> int:
        self._names = [one.name for one in message.topics or ()]
        return 1

    def response(self, correlation_id: int) -> Response[MetadataResponse]:
        body = memoryview(b"".join(self.told.encode(13)))
        return Response(Expected(correlation_id, 3, 13, MetadataResponse), body)

    def decode(self, response: Response[MetadataResponse]) -> MetadataResponse:
        self.times_read += 1
        return response.decode()

    def call(self, message: Any) -> MetadataResponse:
        return self.decode(self.response(self.submit(message)))


def told(leaders: dict[str, int], *, throttle_ms: int = 0, error_code: int = 0) -> MetadataResponse:
    """An answer about topics of one partition."""
    topics = [
        MetadataResponseTopic(
            name=name,
            topic_id=name.encode().ljust(16),
            partitions=[MetadataResponsePartition(leader_id=leader, replica_nodes=[1, 2], isr_nodes=[1])],
        )
        for name, leader in leaders.items()
    ]
    brokers = [MetadataResponseBroker(node_id=one, host="h", port=one) for one in (1, 2)]
    return MetadataResponse(throttle_time_ms=throttle_ms, error_code=error_code, brokers=brokers, topics=topics)


@pytest.fixture
def link() -> ToldLink:
    return ToldLink()


@pytest.fixture
def client(link: ToldLink, monkeypatch: pytest.MonkeyPatch) -> ClusterClient:
    made = ClusterClient("h:1")
    monkeypatch.setattr(made, "link", lambda: link)
    return made


def test_what_is_told_again_is_read_once(client: ClusterClient, link: ToldLink) -> None:
    link.told = told({"a": 1, "b": 2})
    first = client.metadata(None)
    link.told = told({"a": 1, "b": 2}, throttle_ms=7)
    assert client.metadata(None) == first
    assert link.times_read == 1
    client.view.forget("a")
    client.metadata(None)
    assert client.view.age_ms("a", client.system.now_ms()) is not None
    link.told = told({"a": 2})
    assert {name: one.partitions[0].leader for name, one in client.metadata(None).items()} == {"a": 2}
    assert link.times_read == 2


def test_a_view_that_has_changed_since_is_told_anew(client: ClusterClient, link: ToldLink) -> None:
    """A topic that was deleted and is there again, or a leader that moved and went back: the last answer says it."""
    every = link.told = told({"a": 1, "b": 2})
    client.metadata(None)
    link.told = told({"a": 2})
    client.metadata(["a"])
    link.told = every
    assert client.metadata(None)[TopicName("a")].partitions[0].leader == 1
    assert client.view.leader_moved(TopicPartition(TopicName("b"), 0), 1, 5)
    assert client.metadata(None)[TopicName("b")].partitions[0].leader == 2
    link.told = told({"a": 1})
    times = link.times_read
    client.metadata(["a"])
    link.told = every
    client.metadata(None)
    assert link.times_read == times + 1, "a topic that is as it was changes nothing"


def test_an_error_is_raised_again_and_again(client: ClusterClient, link: ToldLink) -> None:
    link.told = told({"a": 1})
    client.metadata(None)
    link.told = told({}, error_code=31)
    for _ in range(2):
        with pytest.raises(BrokerRefused):
            client.metadata(None)
    assert [*client.view.topics] == ["a"]
