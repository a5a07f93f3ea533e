"""Figures in the list of topics: records, last write, throughput and skews; sorted, unknown ones last."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from oncelog.admin.topics import NewTopic, TopicRow, create_topic
from oncelog.base.ids import BrokerId, LeaderEpoch
from oncelog.client.blocking import Client
from oncelog.client.machine.metadata import PartitionInfo
from oncelog.console.cluster.rates import Rate
from oncelog.console.cluster.topic_figures import leader_skew
from oncelog.console.metrics.sampler import Sampler
from oncelog.console.page import PageRequest
from oncelog.console.pages import topics
from oncelog.console.query import Query
from oncelog.console.settings import Settings
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.testing.broker import Broker
from tests.interop.admin.lab import at


def led(*leaders: int) -> list[PartitionInfo]:
    return [
        PartitionInfo(index, BrokerId(leader), LeaderEpoch(0), (leader,), (leader,), ())
        for index, leader in enumerate(leaders)
    ]


def test_leaders_are_compared_with_equal_shares() -> None:
    assert leader_skew(led(1, 2, 3), 3) == 1.0
    assert leader_skew(led(1, 1, 1), 3) == 3.0
    assert leader_skew(led(1, 1, 2, 2), 4) == 2.0
    # Two partitions cannot be spread over more than two brokers.
    assert leader_skew(led(1, 2), 5) == 1.0
    assert leader_skew(led(1, 1, -1), 2) == 2.0
    assert leader_skew(led(1), 3) is leader_skew(led(-1), 3) is leader_skew(led(1, 1), 1) is None


def test_the_samplers_rate_comes_first(broker: Broker) -> None:
    sampler = Sampler(lambda: Client(broker.bootstrap_servers), (), 10)
    observed = Rate(3.0, 4.0, 5.0)
    assert sampler.rate_of("t", observed) == observed
    sampler.topic_rates, sampler.window_s = {"t": 0.0}, 10.0
    assert sampler.rate_of("t", observed) == Rate(0.0, 4.0, 10.0)


@pytest.mark.slow
def test_the_sampler_reads_figures_of_all_topics_while_they_are_needed(broker: Broker) -> None:
    sampler = Sampler(lambda: Client(broker.bootstrap_servers), (), 10)
    with Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic("sampled-all", partitions=2, replication_factor=1))
        client.topic("sampled-all")
        client.produce(at("sampled-all", 1), build_batch([Record(0, 7000, None, b"v")]))
    try:
        sampler.sample()
        assert sampler.figures()[0] is None
        sampler.sample()
        figures, _ = sampler.figures()
        assert figures is not None
        assert (figures["sampled-all"].records, figures["sampled-all"].last_write_ms) == (1, 7000)
        rows = [TopicRow(name, None, 2, 1, False) for name in figures]
        request = PageRequest(Query({}), Settings("x"), sampler=sampler)
        with Client(broker.bootstrap_servers) as client:
            many = [TopicRow("many", None, topics.MAX_SORTED + 1, 1, False), *rows]
            assert topics._figures_to_sort(client, request, "records", many)[0] == figures
    finally:
        sampler.close()


@pytest.mark.slow
def test_topics_are_sorted_by_their_figures(
    broker: Broker, reader: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(broker.bootstrap_servers) as client:
        for name, partitions in (("figures-a", 2), ("figures-b", 3), ("figures-c", 1), ("figures-d", 4)):
            create_topic(client, NewTopic(name, partitions=partitions, replication_factor=1))
            client.topic(name)
        for name, partition, count, time_ms in (
            ("figures-a", 0, 6, 3000),
            ("figures-a", 1, 2, 1000),
            ("figures-b", 0, 1, 9000),
            ("figures-b", 1, 1, 5000),
            ("figures-c", 0, 4, 2000),
        ):
            client.produce(at(name, partition), build_batch([Record(n, time_ms, None, b"v") for n in range(count)]))

    def rows(**selected: str) -> list[dict[str, object]]:
        answer = reader.get("/topics.json", params={"filter": "figures-", **selected}).json()
        return list(answer["topics"]["rows"])

    figures = {row["name"]: (row["records"], row["last_write_ms"], row["skew"]) for row in rows()}
    assert figures == {
        "figures-a": (8, 3000, 1.5),
        "figures-b": (2, 9000, 1.5),
        "figures-c": (4, 2000, None),
        "figures-d": (0, None, None),
    }

    def order(**selected: str) -> str:
        return "".join(str(row["name"])[-1] for row in rows(**selected))

    assert (order(), order(direction="up")) == ("abcd", "dcba")
    assert (order(sort="records"), order(sort="records", direction="up")) == ("acbd", "dbca")
    assert (order(sort="last write"), order(sort="last write", direction="up")) == ("bacd", "cabd")
    assert (order(sort="partitions"), order(sort="skew")) == ("dbac", "abcd")
    assert set(order(sort="size")) == set(order(sort="rate")) == set(order(sort="leaders")) == set("abcd")
    page = reader.get("/topics?filter=figures-&sort=records").text
    assert 'aria-sort="descending"' in page
    assert "1.5×" in page
    assert reader.get("/topics?sort=beauty").status_code == 400
    monkeypatch.setattr(topics, "MAX_SORTED", 5)
    assert "filter the topics by name" in reader.get("/topics?filter=figures-&sort=records").text
