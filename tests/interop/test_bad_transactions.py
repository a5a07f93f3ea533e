"""The table of refused transactional requests, asked of Apache Kafka: our tests expect its errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.client.blocking import ClientConfig
from oncelog.client.blocking.link import Link
from oncelog.client.config import parse_addresses
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.conformance.golden.corpus import BROKER_PROPERTIES, warm_up
from tests.peers.apache_kafka import ApacheKafka
from tests.scenario.transactions.bad_input import CASES, error_codes
from tests.scenario.transactions.node_client import GROUP, SOURCE, TOPIC, Client, run
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.java]


TOPICS = ((TOPIC, 3), (SOURCE, 1))


class Asked:
    """A connection as the scenarios' clients want it."""

    def __init__(self, bootstrap: str) -> None:
        self._link = Link(parse_addresses(bootstrap)[0], ClientConfig())

    def ask(self, request: Any, version: int) -> Any:
        """Send, and wait for the answer."""
        return self._link.call(request, version)

    def close(self) -> None:
        """Close it."""
        self._link.close()


def make_topics(bootstrap: str) -> None:
    """Create them, and wait until their leaders lead."""
    peer = Asked(bootstrap)
    made = [CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in TOPICS]
    peer.ask(CreateTopicsRequest(topics=made, timeout_ms=10_000), 5)
    topics = [
        ListOffsetsTopic(
            name=name, partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(count)]
        )
        for name, count in TOPICS
    ]
    wait_until(lambda: not error_codes(peer.ask(ListOffsetsRequest(topics=topics), 7)), "leaders", poll_s=0.05)
    peer.close()


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    with ApacheKafka(properties=BROKER_PROPERTIES) as running:
        warm_up((running.host, running.port), "transactions-bad")
        make_topics(running.bootstrap_servers)
        yield running


@pytest.mark.parametrize("v2", [True, False], ids=["v2", "v1"])
def test_the_errors_are_apache_kafkas(kafka: ApacheKafka, v2: bool) -> None:
    """All cases in one transaction, each on a connection of its own: none of them changes it."""
    client = Client(f"bad-{v2}", v2, timeout_ms=60_000, group=GROUP)
    peer = Asked(kafka.bootstrap_servers)
    run(peer, client.initialise())
    run(peer, client.initialise())
    run(peer, client.transaction("a", (0,), None, 5))
    results: dict[str, frozenset[ErrorCode]] = {}
    for case in CASES:
        if case.v2 == v2:
            stranger = Asked(kafka.bootstrap_servers)
            results[case.name] = error_codes(stranger.ask(*case.request(client)))
            stranger.close()
    assert run(peer, client.end(True)) == ErrorCode.NONE
    peer.close()
    assert results == {case.name: case.expected for case in CASES if case.v2 == v2}
