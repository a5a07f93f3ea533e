"""One Spark session and one broker for all tests here; each test has topics of its own."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from packaging.specifiers import SpecifierSet

from oncelog.admin.topics import NewTopic, add_partitions, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client
from oncelog.records.builder import build_batch
from oncelog.records.record import Headers, Record
from oncelog.spark.session import versions
from oncelog.testing import Broker
from tests.peers.jars import SPARK_AVRO, SPARK_CONNECTOR, jars_of
from tests.spark.jvms import prepare
from tests.spark.starting import patient_starts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIME = 1_700_000_000_000

_NOT_IN_NAMES = re.compile(r"[^\w.-]+")
"""Of topics; tests with parameters have them in their names."""
_OPEN_SOCKETS = "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
"""PySpark before 4.2 leaves those of its results open."""

prepare()


def pytest_configure(config: pytest.Config) -> None:
    if not versions.has_admission_control():
        config.addinivalue_line("filterwarnings", _OPEN_SOCKETS)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what does not hold for this version of PySpark."""
    import pyspark

    for marker in item.iter_markers("spark_versions"):
        if not SpecifierSet(marker.args[0]).contains(pyspark.__version__, prereleases=True):
            pytest.skip(f"holds for Spark {marker.args[0]}, and this is {pyspark.__version__}")


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="session")
def sink_broker() -> Iterator[Broker]:
    """With two-phase commit."""
    with Broker({"transaction.two.phase.commit.enable": "true"}) as running:
        yield running


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Finds the source by itself: nothing is registered. Has Spark's own connector and Avro only where tests of this
    run are about them, so that `make test` is the same on every machine."""
    from oncelog.spark.session.local_session import local_session

    with_peers = any(item.get_closest_marker(name) for item in request.session.items for name in ("java", "peer"))
    jars = [*jars_of(SPARK_CONNECTOR), *jars_of(SPARK_AVRO)] if with_peers else []
    config = {"spark.sql.shuffle.partitions": "2", "spark.sql.execution.pyspark.python.traceback.enabled": "true"}
    if jars:
        config["spark.jars"] = ",".join(map(str, jars))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ResourceWarning)  # PySpark leaves its gateway's socket open
        with local_session(master="local[2]", config=config) as session, patient_starts():
            session.sparkContext.setLogLevel("ERROR")
            yield session


class Topic:
    """A topic with known records: value ``v<n>``, time ``TIME`` + n seconds, n counting over all partitions."""

    def __init__(self, broker: Broker, name: str, partitions: int) -> None:
        self.name, self.bootstrap_servers = name, broker.bootstrap_servers
        self._client = Client(broker.bootstrap_servers)
        create_topic(self._client, NewTopic(name, partitions, configs={"retention.ms": "-1"}))  # its records are old
        self.partitions = partitions
        self.produced = 0

    def produce(self, count: int, *, headers: Headers = (), key: bytes | None = b"key") -> None:
        """``count`` records, dealt out to the partitions in turn."""
        by_partition: dict[int, list[Record]] = {}
        for number in range(self.produced, self.produced + count):
            record = Record(-1, TIME + number * 1000, key, b"v%d" % number, headers)
            by_partition.setdefault(number % self.partitions, []).append(record)
        for partition, records in by_partition.items():
            self._client.produce(self.partition(partition), build_batch(records))
        self.produced += count

    def grow(self, partitions: int) -> None:
        """More partitions."""
        add_partitions(self._client, self.name, partitions)
        self.partitions = partitions

    def delete_before(self, offset: int, partition: int = 0) -> None:
        """Let retention pass: the log begins at ``offset``."""
        from oncelog.wire.messages.delete_records import (
            DeleteRecordsPartition,
            DeleteRecordsRequest,
            DeleteRecordsTopic,
        )

        which = DeleteRecordsPartition(partition_index=partition, offset=offset)
        topics = [DeleteRecordsTopic(name=self.name, partitions=[which])]
        leader = self._client.leader(self.partition(partition))
        answer = self._client.request(DeleteRecordsRequest(topics=topics, timeout_ms=5000), broker=leader)
        assert not answer.topics[0].partitions[0].error_code

    def partition(self, number: int) -> TopicPartition:
        return TopicPartition(TopicName(self.name), number)

    def values(self, first: int = 0) -> list[bytes]:
        return sorted(b"v%d" % number for number in range(first, self.produced))

    def read(self, spark: SparkSession, format_name: str = "oncelog", **options: object) -> DataFrame:
        reader = spark.read.format(format_name).option("kafka.bootstrap.servers", self.bootstrap_servers)
        subscription = {} if "assign" in options else {"subscribe": self.name}
        return reader.options(**{**subscription, **options}).load()

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def topic_with(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Callable[..., Topic]]:
    """Makes topics: ``topic_with(records=10, partitions=2)``."""
    made: list[Topic] = []

    def make(records: int = 0, partitions: int = 2) -> Topic:
        name = f"{_NOT_IN_NAMES.sub('-', request.node.name)}-{len(made)}"
        topic = Topic(broker, name, partitions)
        made.append(topic)
        topic.produce(records)
        return topic

    yield make
    for topic in made:
        topic.close()
