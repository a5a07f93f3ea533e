"""Rows of a table of Kafka Connect's Iceberg sink, compared with the topics and groups of a live cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.admin.group_descriptions import describe_group
from oncelog.admin.topics import NewTopic, create_topic, delete_records
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client, Committed, GroupConsumer, Producer
from oncelog.client.blocking.transactions import TransactionalProducer, TransactionSettings
from oncelog.client.programs.group import commit_offsets
from oncelog.spark.table_audit.audit import Topics
from oncelog.spark.table_audit.control_topic import sink_names
from oncelog.testing import Broker
from tests.unit.spark.table_audit.tables import CONTROL, GROUP, SinkTable, audited, kinds
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ORDERS = TopicPartition(TopicName("orders"), 0)
CONTROL_AT = TopicPartition(TopicName(CONTROL), 0)


@pytest.fixture
def client() -> Iterator[Client]:
    """Offsets 0–2 committed, 3–4 aborted, 5 its marker, 6 committed, 7 its marker, 8–9 open; a control topic to 6."""
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic("orders", 2))
        create_topic(client, NewTopic(CONTROL, 1))
        with Producer(client) as producer:
            for _ in range(3):
                producer.send("orders", b"v", partition=0)
            for _ in range(6):
                producer.send(CONTROL, b"event", partition=0)
        transactional = TransactionalProducer(client, TransactionSettings("shop"))
        transactional.initialize()
        for count, end in ((2, transactional.abort), (1, transactional.commit), (2, None)):
            transactional.begin()
            for _ in range(count):
                transactional.send("orders", b"v", partition=0)
            transactional.flush()
            if end is not None:
                end()
        yield client


def test_rows_and_records(client: Client, tmp_path: Path) -> None:
    sink = SinkTable(tmp_path)
    sink.commit(6, sink.file(0, 1, 3, 4, 7, 9, 20))
    commit_offsets(client, GROUP, {ORDERS: Committed(8)})
    result = audited(sink.history(), topics=Topics(client=client))
    places = {(finding.kind, finding.first_offset): finding.rows for finding in result.findings.kept}
    assert places == {
        ("aborted-rows", 3): 2,
        ("unknown-rows", 7): 1,
        ("open-rows", 9): 1,
        ("unknown-rows", 20): 1,
        ("missing-rows", 2): 2,
    }
    assert kinds(result)[0] == "aborted-rows"
    assert [row.committed_records for row in result.partitions] == [4]


def test_a_partition_of_which_no_file_was_registered(client: Client, tmp_path: Path) -> None:
    """apache/iceberg #17551: the sink's tasks have gone on, and their files were never announced to a coordinator."""
    sink = SinkTable(tmp_path)
    sink.commit(6, sink.file(0, 1, 2, 6))
    with Producer(client) as producer:
        producer.send("orders", b"lost", partition=1)
    commit_offsets(client, GROUP, {ORDERS: Committed(8), TopicPartition(ORDERS.topic, 1): Committed(1)})
    (finding,) = audited(sink.history(), topics=Topics(client=client)).findings.kept
    assert (finding.kind, finding.partition, finding.rows) == ("missing-rows", 1, 1)
    assert "up to the sink's committed offset" in finding.text


def test_the_offsets_of_a_running_sink_lead_its_table(client: Client, tmp_path: Path) -> None:
    """Its tasks commit them before the coordinator registers their files."""
    sink = SinkTable(tmp_path)
    sink.commit(6, sink.file(0, 1, 2))
    commit_offsets(client, GROUP, {ORDERS: Committed(8)})
    stopped = audited(sink.history(), topics=Topics(client=client))
    assert [(finding.kind, finding.first_offset) for finding in stopped.findings.kept] == [("missing-rows", 6)]
    with GroupConsumer(client, GROUP, ["orders"]) as task:
        wait_until(lambda: task.poll() is not None and bool(describe_group(client, GROUP).members), "its member")
        running = audited(sink.history(), topics=Topics(client=client))
    assert kinds(running) == []
    assert f"the sink of {CONTROL}.{GROUP} runs" in running.caveats[0]


@pytest.mark.parametrize(
    ("recorded", "deleted_to", "coordinator", "text"),
    [
        (6, 0, 6, ""),
        (9, 0, 6, "which ends at 6: it was created again"),
        (3, 5, 6, "which begins at 5: files announced between were never registered"),
        (6, 5, 2, "group connect-iceberg-sink-coord is at 2"),
    ],
)
def test_control_topics(
    client: Client, tmp_path: Path, recorded: int, deleted_to: int, coordinator: int, text: str
) -> None:
    sink = SinkTable(tmp_path)
    sink.commit(recorded, sink.file(0, 1, 2, 6))
    commit_offsets(client, f"{GROUP}-coord", {CONTROL_AT: Committed(coordinator)})
    delete_records(client, {CONTROL_AT: deleted_to})
    texts = [finding.text for finding in audited(sink.history(), topics=Topics(client=client)).findings.kept]
    assert len(texts) == (1 if text else 0)
    assert text in "".join(texts)


def test_a_control_topic_that_is_not_there(client: Client, tmp_path: Path) -> None:
    sink = SinkTable(tmp_path)
    sink.commit(1, sink.file(0), **{"kafka.connect.offsets.other.topic.group": '{"0": 3}'})
    findings = audited(sink.history(), topics=Topics(client=client)).findings.kept
    assert [finding.kind for finding in findings] == ["control-topic"]
    assert "no control topic of other.topic.group" in findings[0].text


def test_names_of_control_topics_may_have_dots() -> None:
    assert sink_names("a.b.connect-x.y", ["a.b", "a"]) == ("a.b", "connect-x.y")
    assert sink_names("control.group", ["other"]) is None
