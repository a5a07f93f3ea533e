"""Samples of a cluster: rates, held records, lag; and that a cluster that is away is a gap."""

from __future__ import annotations

import math
from array import array

import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import TopicName
from oncelog.client.blocking import Client, Committed
from oncelog.client.errors import ClientError
from oncelog.client.programs.group import commit_offsets
from oncelog.console.metrics.cluster_counts import ClusterCounts, rates, topic_rates
from oncelog.console.metrics.sampler import Sampler
from oncelog.console.pages.metrics import CLUSTER, lines_of
from oncelog.console.settings import Settings
from oncelog.testing.broker import Broker
from tests.interop.admin.lab import ByHand, at
from tests.unit.console.visits import visiting
from tests.waiting import wait_until


def counts(at_s: float, **ends: list[int]) -> ClusterCounts:
    return ClusterCounts(at_s, {TopicName(name): array("q", found) for name, found in ends.items()})


def test_rates_count_what_both_samples_know() -> None:
    before = counts(0, a=[10, 10], b=[5], gone=[1], again=[100])
    now = counts(10, a=[20, -1, 50], b=[5], new=[9], again=[3])
    assert rates(topic_rates(before, now)) == {("records", ""): 1.0, ("records", "a"): 1.0}
    # An end that went back is another topic's, whose rate is unknown.
    assert topic_rates(before, now) == {"a": 1.0, "b": 0.0}
    assert rates(topic_rates(now, now)) == {}
    many = {f"t{number}": [number] for number in range(100)}
    result = rates(topic_rates(counts(0, **{name: [0] for name in many}), counts(1, **many)))
    assert result["records", ""] == sum(range(100))
    assert len(result) == 41
    assert ("records", "t99") in result
    assert ("records", "t1") not in result


def test_a_quiet_topic_has_rate_zero_and_an_absent_cluster_none() -> None:
    nan = math.nan
    series = {("records", ""): [nan, 5.0, 5.0, nan], ("records", "t"): [nan, 5.0, nan, nan]}
    everything, topic = lines_of(series, CLUSTER[0], "")
    assert (everything.name, topic.name) == ("all topics", "t")
    assert list(topic.values)[1:3] == [5.0, 0.0]
    assert [math.isnan(value) for value in topic.values] == [True, False, False, True]
    assert [line.name for line in lines_of(series, CLUSTER[0], "other")] == ["all topics"]


@pytest.mark.slow
def test_a_cluster_is_sampled(broker: Broker) -> None:
    sampler = Sampler(lambda: Client(broker.bootstrap_servers), [], 10)
    with Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic("sampled", partitions=2, replication_factor=1))
        client.topic("sampled")
        sampler.sample()
        writer = ByHand(client, "sampled-writer")
        writer.begin(at("sampled"))
        commit_offsets(client, "sampled-group", {at("sampled"): Committed(0)})
        sampler.sample()
        _, series = sampler.history.since(0)
        assert series["records", "sampled"][-1] > 0
        lags = sampler.groups.since(0)[1]
        assert lags["lag", "sampled-group"][-1] == 1
        assert lags["readable", "sampled-group"][-1] == 0
        assert series["held", "worst partition"][-1] >= 1
        assert series["transactions", "Ongoing"][-1] >= 1
        assert series["partitions", "under-replicated"] == [0, 0]
        assert math.isnan(series["records", ""][0]), "a rate needs two looks"
        writer.end()
    sampler.close()
    assert sampler.pause_s >= sampler.every_s - sampler.took_s


@pytest.mark.slow
def test_a_cluster_that_is_away_is_a_gap_and_a_reason(broker: Broker) -> None:
    present = iter([True, False, True, True])

    def connect() -> Client:
        if not next(present):
            raise ClientError("it is away")
        return Client(broker.bootstrap_servers)

    sampler = Sampler(connect, ["http://127.0.0.1:9/metrics"], 10)
    for _ in range(2):
        sampler.sample()
        sampler._drop_client()
    assert any("it is away" in problem for problem in sampler.problems)
    assert any("metrics of 127.0.0.1:9" in problem for problem in sampler.problems)
    sampler.sample()
    sampler.close()
    answers = sampler.history.since(0)[1]["answer", ""]
    assert [math.isnan(answer) for answer in answers] == [False, True, False]
    assert ("records", "") not in sampler.history.since(0)[1], "no rate over a gap"


@pytest.mark.slow
def test_the_page_draws_it_and_gives_its_values(broker: Broker) -> None:
    url = "http://127.0.0.1:9/"
    with visiting(broker.bootstrap_servers, sample_every_s=1.0, metrics_urls=(url,)) as visitor:
        wait_until(lambda: len(visitor.get("/metrics.json").json()["times_ms"]) >= 2, "two looks")
        body = visitor.get("/metrics.json?minutes=5").json()
        answer = next(item for item in body["plots"] if item["key"] == "answer")
        assert answer["lines"]["the cluster"][-1] > 0
        page = visitor.get("/metrics").text
        assert '<path class="line s0"' in page
        assert "metrics of 127.0.0.1:9" in page
        assert visitor.get("/metrics?minutes=7").status_code == 400
        assert visitor.get("/metrics?name=%3Cscript%3E&minutes=15").status_code == 200
    with visiting(broker.bootstrap_servers) as visitor:
        assert "--sample-every" in visitor.get("/metrics").text
        assert visitor.get("/metrics.json").json()["sampling"] is None


def test_settings_are_bounded() -> None:
    for wrong in ({"sample_every_s": 0.1}, {"sample_every_s": 9000.0}, {"metrics_urls": ("http://b",) * 99}):
        with pytest.raises(ClientError, match=r"sample-every|maximum"):
            Settings("x", **wrong)  # type: ignore[arg-type]
