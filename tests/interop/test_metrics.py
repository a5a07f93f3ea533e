"""``/metrics`` of a broker that librdkafka uses, and docs/metrics.md: each has what the other has, and it is true."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from oncelog.admin.configs import ResourceType, alter_configs
from oncelog.client.blocking import Client
from tests.certificates import Authority
from tests.interop.admin.share_members import ACCEPT, REJECT, ShareMember
from tests.scenario.runtime.test_process import ready_line, serve
from tests.waiting import HANG_S

pytestmark = pytest.mark.slow
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "metrics.md"


class Running(NamedTuple):
    """The addresses of a broker and of its metrics."""

    bootstrap: str
    http: str

    def metrics(self) -> dict[str, Metric]:
        """By the names that queries use."""
        with urllib.request.urlopen(f"http://{self.http}/metrics") as response:
            families = text_string_to_metric_families(response.read().decode())
            return {family.name + "_total" * (family.type == "counter"): family for family in families}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    identity = Authority().broker().write(tmp_path)
    (tmp_path / "server.properties").write_text(
        "listeners=PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0\noffsets.topic.num.partitions=2\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={identity}\n"
    )
    process = serve(tmp_path, "--http", "127.0.0.1:0", "--config", str(tmp_path / "server.properties"), listen=None)
    try:
        match = re.search(r"http://(\S+)/metrics", ready_line(process))
        listening = re.search(r"ready on (\S+)", ready_line(process))
        assert match
        assert listening
        yield Running(listening[1], match[1])
    finally:
        process.terminate()
        process.communicate(timeout=HANG_S)


def read(bootstrap: str, partition: int, count: int) -> int:
    """Read so many committed records of a partition; how many there are."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False})
    reader.assign([TopicPartition("t", partition, 0)])
    consume = reader.consume(count, HANG_S)
    reader.close()
    return len(consume)


def use(bootstrap: str) -> Producer:
    """Ten records, a group that has got to the fourth of one partition, and three more in an open transaction."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result(HANG_S)
    plain = Producer(settings)
    for number in range(10):
        plain.produce("t", b"v", partition=number % 2)
    assert plain.flush(HANG_S) == 0
    reader = Consumer({**settings, "group.id": "g", "enable.auto.commit": False})
    reader.commit(offsets=[TopicPartition("t", 0, 4), TopicPartition("t", 1, 0)], asynchronous=False)
    reader.close()
    assert read(bootstrap, 0, 5) == 5
    open_one = Producer({**settings, "transactional.id": "id"})
    open_one.init_transactions(HANG_S)
    open_one.begin_transaction()
    for _ in range(3):
        open_one.produce("t", b"v", partition=1)
    assert open_one.flush(HANG_S) == 0
    return open_one


def value(metrics: dict[str, Metric], name: str, **labels: str) -> float:
    (result,) = [sample.value for sample in metrics[name].samples if sample.labels == labels]
    return result


def documented() -> dict[str, set[str]]:
    """Names in the documentation's tables of a broker, with their labels."""
    results = {}
    of_broker, _, _of_mirror = DOCUMENTATION.read_text("utf-8").partition("\n## A mirror\n")
    for line in of_broker.splitlines():
        row = re.match(r"\| (`oncelog_[^|]*) \| ([^|]*)\|", line)
        if row:
            labels = {label for label in row[2].replace(",", " ").split() if label}
            results.update(dict.fromkeys(re.findall(r"`(\w+)`", row[1]), labels))
    return results


def test_share_groups_are_measured(running: Running) -> None:
    with Client(running.bootstrap) as client:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("jobs", 1, 1)])["jobs"].result(HANG_S)
        before = running.metrics()
        assert value(before, "oncelog_share_sessions") == 0
        assert value(before, "oncelog_share_acknowledged_records_total", type="accept") == 0
        assert not before["oncelog_share_records_in_flight"].samples
        alter_configs(client, ResourceType.GROUP, "workers", change={"share.auto.offset.reset": "earliest"})
        plain = Producer({"bootstrap.servers": running.bootstrap})
        for _ in range(10):
            plain.produce("jobs", b"v")
        assert plain.flush(HANG_S) == 0
        member = ShareMember(client, "workers", "jobs")
        member.join()
        member.acquires(10)
        member.acknowledge(0, 2, ACCEPT)
        member.acknowledge(5, 5, REJECT)
        metrics = running.metrics()
    for kind, count in (("accept", 3), ("reject", 1), ("release", 0), ("renew", 0), ("gap", 0)):
        assert value(metrics, "oncelog_share_acknowledged_records_total", type=kind) == count
    assert value(metrics, "oncelog_share_records_in_flight", group="workers", topic="jobs") == 7
    assert value(metrics, "oncelog_share_batches_in_flight", group="workers", topic="jobs") >= 1
    assert (value(metrics, "oncelog_share_sessions"), value(metrics, "oncelog_share_session_partitions")) == (1, 1)
    assert value(metrics, "oncelog_share_partitions") == 1
    assert value(metrics, "oncelog_share_state_writes_total") >= 1
    assert value(metrics, "oncelog_groups", protocol="share", state="Stable") == 1
    assert value(metrics, "oncelog_share_lock_timeouts_total") == 0
    assert value(metrics, "oncelog_share_dead_letters_total", outcome="failed") == 0


def test_every_metric_is_documented_is_there_and_is_true(running: Running) -> None:
    transactional = use(running.bootstrap)
    metrics = running.metrics()
    documentation = documented()
    assert set(metrics) == set(documentation)
    for name, family in metrics.items():
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == documentation[name], sample
    assert value(metrics, "oncelog_records_in_total") == 13
    assert value(metrics, "oncelog_log_end_offset_sum", topic="t") == 13
    assert value(metrics, "oncelog_group_lag", group="g", topic="t") == 1 + 8
    assert value(metrics, "oncelog_groups", protocol="classic", state="Empty") == 1
    assert value(metrics, "oncelog_group_rebalances_total", protocol="consumer") == 0
    assert value(metrics, "oncelog_partitions") == 2 + 2 + 50
    assert value(metrics, "oncelog_open_transactions", verdict="young") == 1
    assert value(metrics, "oncelog_partition_last_stable_offset_lag", topic="t", partition="1") == 3
    assert value(metrics, "oncelog_max_last_stable_offset_lag") == 3
    assert value(metrics, "oncelog_transactional_ids", state="Ongoing") == 1
    assert value(metrics, "oncelog_connections") > 1
    transactional.commit_transaction(HANG_S)
    assert read(running.bootstrap, 1, 8) == 8, "its marker is durable"
    after = running.metrics()
    assert value(after, "oncelog_requests_total", api="EndTxn") == 1
    assert value(after, "oncelog_open_transactions", verdict="young") == 0
    assert not after["oncelog_partition_last_stable_offset_lag"].samples, "quiet partitions are no series"
    assert value(after, "oncelog_record_bytes_out_total") > 5
