"""The pages of brokers: what one is configured with, where its records are, and links to it."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from oncelog.admin.configs import ResourceType, alter_configs
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.testing.broker import Broker
from tests.interop.admin.lab import at

pytestmark = pytest.mark.slow


def test_a_broker_has_configuration_directories_and_topics(broker: Broker, reader: TestClient) -> None:
    (row,) = reader.get("/brokers.json").json()["brokers"]["rows"]
    broker_id = row["broker_id"]
    with Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic("on-broker", partitions=3, replication_factor=1))
        client.topic("on-broker")
        client.produce(at("on-broker"), build_batch([Record(0, 0, None, b"v" * 1000)]))
        alter_configs(client, ResourceType.BROKER, str(broker_id), change={"log.cleaner.threads": "2"})
        try:
            path = f"/brokers/one.json?id={broker_id}"
            body = reader.get(f"{path}&filter=ON-BROKER").json()
            page = reader.get(f"/brokers/one?id={broker_id}").text
            everything = reader.get(f"{path}&all_configs=1").json()
        finally:
            alter_configs(client, ResourceType.BROKER, str(broker_id), delete=["log.cleaner.threads"])
    assert [(topic["topic"], topic["leads"], topic["follows"]) for topic in body["topics"]["rows"]] == [
        ("on-broker", 3, 0)
    ]
    assert body["topics"]["rows"][0]["size_bytes"] > 1000
    assert body["broker"]["is_controller"]
    configs = {config["name"]: config for config in body["configs"]}
    assert (configs["log.cleaner.threads"]["value"], configs["log.cleaner.threads"]["read_only"]) == ("2", False)
    assert not any(config["is_default"] for config in body["configs"]), "those at their defaults are on demand"
    assert len(everything["configs"]) == body["keys"] > len(body["configs"])
    assert not everything["configs"][0]["is_default"], "they come last"
    assert body["directories"][0]["size_bytes"] >= body["topics"]["rows"][0]["size_bytes"]
    assert "metadata.version" in {feature["name"] for feature in body["features"]}
    assert body["unanswered"] == []
    assert "while it runs" in page


def test_brokers_are_linked_from_where_they_are_named(broker: Broker, reader: TestClient) -> None:
    with Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic("linked", partitions=1, replication_factor=1))
    for path in ("/overview", "/brokers", "/topics/one?name=linked"):
        assert 'href="/brokers/one?id=' in reader.get(path).text, path


def test_an_unknown_broker_is_not_found(reader: TestClient) -> None:
    answer = reader.get("/brokers/one?id=77")
    assert answer.status_code == 404
    assert "the cluster has brokers" in answer.text
    assert reader.get("/brokers/one").status_code == 400
