"""``oncelog audit --iceberg`` of a table that Kafka Connect's Iceberg sink fills from one of our brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError

from oncelog.admin.topics import NewTopic, create_topic, delete_topics
from oncelog.cli.main import invoke
from oncelog.client.blocking import Client, Producer
from oncelog.client.blocking.transactions import TransactionalProducer, TransactionSettings
from oncelog.testing import Broker
from tests.peers.ecosystem import ConnectWorker
from tests.peers.jars import ICEBERG_SINK
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer("iceberg-sink")]
CONTROL = "control-iceberg"


class Lake:
    """A catalog in SQLite, which the sink's JdbcCatalog and pyiceberg share, and files beside it."""

    def __init__(self, root: Path) -> None:
        self.uri, self.warehouse = f"sqlite:///{root}/catalog.db", f"file://{root}/warehouse"

    def sink(self, bootstrap: str) -> dict[str, str]:
        return {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "tasks.max": "1",
            "topics": "orders",
            "iceberg.tables": "shop.orders",
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.control.topic": CONTROL,
            "iceberg.control.commit.interval-ms": "1000",
            "iceberg.control.commit.timeout-ms": "5000",
            # The coordinator begins at the end by default, and may miss the first files (apache/iceberg #18006).
            "iceberg.kafka.auto.offset.reset": "earliest",
            "iceberg.catalog": "lake",
            "iceberg.catalog.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "iceberg.catalog.uri": f"jdbc:{self.uri.replace(':///', ':')}",
            "iceberg.catalog.warehouse": self.warehouse,
            "iceberg.kafka.bootstrap.servers": bootstrap,
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "transforms": "place",
            "transforms.place.type": "org.apache.iceberg.connect.transforms.KafkaMetadataTransform",
        }

    def table(self) -> Table:
        catalog = SqlCatalog("lake", uri=self.uri, warehouse=self.warehouse, init_catalog_tables="false")
        return catalog.load_table("shop.orders")

    def rows(self) -> int:
        try:
            return self.table().scan().to_arrow().num_rows
        except (NoSuchTableError, OperationalError):
            return 0

    def audit(self, capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        storage = [f"uri={self.uri}", f"warehouse={self.warehouse}", "type=sql"]
        given = [part for option in storage for part in ("--storage-option", option)]
        assert invoke(["audit", "--iceberg", "shop.orders", "--catalog", "lake", *given, "--json", *options]) == 0
        listed: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["listed"]
        return listed


@pytest.fixture
def cluster() -> Iterator[tuple[Broker, Client]]:
    with Broker(config={"group.min.session.timeout.ms": "1000"}) as broker, Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic("orders", 2))
        create_topic(client, NewTopic(CONTROL, 1))
        yield broker, client


@pytest.mark.filterwarnings("ignore:SqlCatalog detected")
def test_a_table_of_the_sink(
    cluster: tuple[Broker, Client], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker, client = cluster
    with Producer(client) as producer:
        for number in range(20):
            producer.send("orders", json.dumps({"id": number}).encode(), partition=number % 2)
    with TransactionalProducer(client, TransactionSettings("shop")) as producer:
        producer.initialize()
        for commits in (False, True):
            producer.begin()
            producer.send("orders", json.dumps({"id": 100}).encode(), partition=0)
            producer.flush()
            producer.commit() if commits else producer.abort()
    lake = Lake(tmp_path)
    # A sink without new records acts only when its offsets are due.
    worker = ConnectWorker(broker.bootstrap_servers, tmp_path, ICEBERG_SINK, offset_flush_interval_ms="500")
    try:
        worker.configure("lake", lake.sink(broker.bootstrap_servers))
        wait_until(lambda: lake.rows() == 22, worker.process.log_tail)
    finally:
        worker.kill()
    at_cluster = ("--bootstrap-server", broker.bootstrap_servers)
    assert lake.audit(capsys, "--rows") == []
    # The sink's consumer is read_uncommitted unless consumer.override.isolation.level says otherwise.
    (aborted,) = lake.audit(capsys, *at_cluster)
    place = (aborted["kind"], aborted["topic"], aborted["partition"], aborted["first_offset"], aborted["rows"])
    assert place == ("aborted-rows", "orders", 0, 10, 1)

    table = lake.table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    entries = {name: text for name, text in snapshot.summary.additional_properties.items() if "kafka" in name}
    again = next(iter(table.scan().plan_files())).file.file_path
    table.add_files([again], snapshot_properties=entries, check_duplicate_files=False)
    kinds = [finding["kind"] for finding in lake.audit(capsys)]
    assert kinds == ["registered-twice", "commit-twice", "stale-commit"]

    delete_topics(client, [CONTROL])
    create_topic(client, NewTopic(CONTROL, 1))
    texts = [finding["text"] for finding in lake.audit(capsys, *at_cluster) if finding["kind"] == "control-topic"]
    assert len(texts) == 1
    assert "which ends at 0: it was created again" in texts[0]
