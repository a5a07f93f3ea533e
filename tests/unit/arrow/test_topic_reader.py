"""``oncelog.read_arrow`` against a real broker in this process."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count

import pyarrow as pa
import pytest

import oncelog
from oncelog.admin.topics import NewTopic, add_partitions, create_topic, delete_records, delete_topics
from oncelog.arrow import Positions, RecordsGone
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client, TransactionalProducer, TransactionSettings
from oncelog.client.errors import ConfigError, UnknownTopic
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.testing import Broker

TIME = 1_700_000_000_000
NUMBERS = count()
SOON = {"unknown.topic.grace.ms": "20", "retry.backoff.ms": "1", "retry.backoff.max.ms": "1"}
Make = Callable[..., str]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as made:
        yield made


def partition(topic: str, number: int = 0) -> TopicPartition:
    return TopicPartition(TopicName(topic), number)


@pytest.fixture
def make(client: Client) -> Make:
    def made(batches: int = 4, partitions: int = 2, name: str | None = None) -> str:
        """Batches of five records, dealt out in turn; times rise by a second from record to record."""
        topic = name or f"arrow-{next(NUMBERS)}"
        client.view.forget(topic)
        create_topic(client, NewTopic(topic, partitions, configs={"retention.ms": "-1"}))
        for batch in range(batches):
            records = [Record(-1, TIME + 1000 * n, None, b"v%d" % n) for n in range(batch * 5, batch * 5 + 5)]
            client.produce(partition(topic, batch % partitions), build_batch(records))
        return topic

    return made


def values(topic: str | list[str], broker: Broker, **given: object) -> list[bytes]:
    read = oncelog.read_arrow(topic, bootstrap_servers=broker.bootstrap_servers, **given)  # type: ignore[arg-type]  # its keywords
    return sorted(read.to_table()["value"].to_pylist(), key=lambda value: int(value[1:]))


def numbered(*numbers: int) -> list[bytes]:
    return [b"v%d" % number for number in numbers]


def test_nobody_holds_a_batch_that_was_handed_out(broker: Broker, make: Make) -> None:
    with oncelog.read_arrow(make(), bootstrap_servers=broker.bootstrap_servers) as reader:
        batch = weakref.ref(next(iter(reader)))
        assert batch() is None


def test_everything_is_read_once_in_the_order_of_each_partition(broker: Broker, make: Make) -> None:
    topic = make()
    frame = oncelog.read_arrow(topic, bootstrap_servers=broker.bootstrap_servers).to_pandas()
    assert sorted(frame["value"], key=lambda value: int(value[1:])) == numbered(*range(20))
    assert [list(rows["offset"]) for _, rows in frame.groupby("partition")] == [list(range(10))] * 2


def test_a_range_by_offset_by_time_and_by_name(broker: Broker, make: Make) -> None:
    topic = make()
    assert values(topic, broker, start={(topic, 0): 3}, end={(topic, 0): 6}) == numbered(3, 4, 10)
    assert values(topic, broker, start={(topic, 0): 9}) == numbered(*range(5, 10), 14, *range(15, 20))
    assert values(topic, broker, start={(topic, 0): 9}, partitions=[(topic, 0)]) == numbered(14)
    late = datetime.fromtimestamp(TIME / 1000 + 16.5, UTC)
    assert values(topic, broker, start=late) == numbered(17, 18, 19)
    assert values(topic, broker, end=late) == numbered(*range(17))
    assert values(topic, broker, start="latest") == []
    assert len(values(topic, broker, start=datetime(1969, 1, 1, tzinfo=UTC))) == 20
    assert values(topic, broker, start=datetime.fromtimestamp(TIME / 1000 + 99, UTC)) == []


def test_what_takes_arrow_streams_takes_the_reader(broker: Broker, make: Make) -> None:
    read = oncelog.read_arrow([make(), make(1)], bootstrap_servers=broker.bootstrap_servers, include_headers=True)
    stream = pa.RecordBatchReader.from_stream(read)
    assert stream.schema == read.schema
    assert stream.read_all().num_rows == 25


def test_polars_and_duckdb_take_it_with_every_column(broker: Broker, make: Make) -> None:
    import duckdb  # these two take a third of a second, which all workers would spend where they are at the top
    import polars

    topic = make()

    def read() -> oncelog.arrow.ArrowReader:
        return oncelog.read_arrow(topic, bootstrap_servers=broker.bootstrap_servers, include_headers=True)

    with read() as reader:
        frame = reader.to_polars()
        assert isinstance(frame, polars.DataFrame)
        assert frame.columns == reader.schema.names
    assert sorted(frame["value"].to_list()) == sorted(numbered(*range(20)))
    batches = read().to_reader()  # noqa: F841 - DuckDB finds it by its name
    sql = duckdb.sql("SELECT partition, count(*), epoch_ms(max(timestamp)) FROM batches GROUP BY ALL ORDER BY 1")
    assert sql is not None
    assert sql.fetchall() == [(0, 10, TIME + 14_000), (1, 10, TIME + 19_000)]


def test_following_hands_out_batches_as_they_come_and_says_where_to_go_on(
    broker: Broker, client: Client, make: Make
) -> None:
    topic = make(1, partitions=1)
    with oncelog.read_arrow(topic, bootstrap_servers=broker.bootstrap_servers, end=None) as read:
        batches = iter(read)
        assert next(batches)["value"].to_pylist() == numbered(*range(5))
        client.produce(partition(topic), build_batch([Record(-1, TIME, None, b"v5")]))
        assert next(batches)["value"].to_pylist() == [b"v5"]
        positions = read.positions
    assert positions == {(topic, 0): 6}
    client.produce(partition(topic), build_batch([Record(-1, TIME, None, b"v6")]))
    assert values(topic, broker, start=positions) == [b"v6"]


def test_following_ends_when_nothing_comes(broker: Broker, make: Make) -> None:
    config = {"fetch.max.wait.ms": "10"}
    assert len(values(make(), broker, end=None, idle_timeout_ms=40, config=config)) == 20


def test_aborted_records_are_left_out_if_asked(broker: Broker, client: Client, make: Make) -> None:
    topic = make(0, partitions=1)
    with TransactionalProducer(client, TransactionSettings(f"{topic}-id")) as producer:
        producer.initialize()
        for value, end in ((b"v1", producer.commit), (b"v2", producer.abort), (b"v3", producer.commit)):
            producer.begin()
            producer.send(topic, value, partition=0)
            producer.flush()  # what is not sent yet would be dropped by an abort
            end()
    assert values(topic, broker, read_committed=True) == numbered(1, 3)
    assert values(topic, broker) == numbered(1, 2, 3)


def test_what_retention_removed_is_an_error_or_skipped(broker: Broker, client: Client, make: Make) -> None:
    topic = make(partitions=1)
    delete_records(client, {partition(topic): 15})
    expected = {(topic, 0): 2}
    with pytest.raises(RecordsGone, match="has offsets 15 to 20, not the requested 2"):
        values(topic, broker, start=expected)
    assert values(topic, broker, start=expected, on_gone="skip") == numbered(*range(15, 20))


def test_positions_are_gone_on_from_with_the_partitions_that_were_added_meanwhile(
    broker: Broker, client: Client, make: Make
) -> None:
    topic = make(1, partitions=1)
    read = oncelog.read_arrow(topic, bootstrap_servers=broker.bootstrap_servers)
    assert read.to_table().num_rows == 5
    stands = Positions.from_json(read.positions.to_json())
    assert (stands, stands.topic_ids) == ({(topic, 0): 5}, read.positions.topic_ids)
    add_partitions(client, topic, 2)
    client.metadata([topic])
    client.produce(partition(topic, 1), build_batch([Record(-1, TIME, None, b"v7")]))
    assert values(topic, broker, start=stands) == [b"v7"]
    with pytest.raises(ConfigError, match="positions must be JSON such as"):
        Positions.from_json('{"t": 5}')


def test_positions_of_a_topic_that_was_created_anew_are_not_taken_for_the_new_ones(
    broker: Broker, client: Client, make: Make
) -> None:
    topic = make(1, partitions=1)
    read = oncelog.read_arrow(topic, bootstrap_servers=broker.bootstrap_servers)
    read.to_table()
    stands = read.positions
    delete_topics(client, [topic])
    make(0, partitions=1, name=topic)
    for batches in (0, 2):  # shorter, then longer than the old one
        for number in range(batches * 5):
            client.produce(partition(topic), build_batch([Record(-1, TIME, None, b"v%d" % number)]))
        with pytest.raises(
            RecordsGone, match=f"{topic}' cannot be resumed from these positions: the topic was deleted and created"
        ):
            values(topic, broker, start=stands, config=SOON)
        assert values(topic, broker, start=stands, config=SOON, on_gone="skip") == numbered(*range(batches * 5))


def test_a_start_behind_the_logs_end_is_an_error_or_its_end(broker: Broker, make: Make) -> None:
    topic = make(1, partitions=1)
    for end in ("latest", None):
        with pytest.raises(RecordsGone, match="ends at offset 5, before the requested 9"):
            values(topic, broker, start={(topic, 0): 9}, end=end, config=SOON)
    assert values(topic, broker, start={(topic, 0): 9}, on_gone="skip", config=SOON) == []
    with pytest.raises(ConfigError, match="starts at offset 4, after its end, 3"):
        values(topic, broker, start={(topic, 0): 4}, end={(topic, 0): 3})


def test_following_takes_new_partitions_and_notices_that_the_topic_is_another(
    broker: Broker, client: Client, make: Make
) -> None:
    topic = make(1, partitions=1)
    config = {**SOON, "fetch.max.wait.ms": "5", "metadata.max.age.ms": "5"}
    servers = broker.bootstrap_servers
    strict = oncelog.read_arrow(topic, bootstrap_servers=servers, end=None, config=config)
    lenient = oncelog.read_arrow(topic, bootstrap_servers=servers, end=None, config=config, on_gone="skip")
    for read in (strict, lenient):
        assert next(iter(read)).num_rows == 5
    add_partitions(client, topic, 2)
    client.metadata([topic])
    client.produce(partition(topic, 1), build_batch([Record(-1, TIME, None, b"v5")]))
    for read in (strict, lenient):
        assert next(iter(read))["value"].to_pylist() == [b"v5"]
    delete_topics(client, [topic])
    with pytest.raises(RecordsGone, match=r"the topic was deleted$"):
        next(iter(strict))
    make(1, partitions=1, name=topic)
    assert next(iter(lenient))["value"].to_pylist() == numbered(*range(5))
    assert lenient.positions == {(topic, 0): 5}
    delete_topics(client, [topic])
    assert list(lenient) == []


def test_wrong_questions_fail_at_once(broker: Broker, make: Make) -> None:
    topic = make(1)
    with pytest.raises(UnknownTopic):
        values("arrow-missing", broker, config={"unknown.topic.grace.ms": "1"})
    for given in (
        {"start": "noon"},
        {"start": {(topic, 7): 0}},
        {"end": {(topic, 0): -1}},
        {"on_gone": "cry"},
        {"partitions": [(topic, 2)]},
        {"start": -5},
        {"start": None},
        {"end": 7},
        {"start": {topic: 0}},
        {"start": {(topic, 0): "0"}},
        {"end": {(topic, "0"): 3}},
        {"partitions": [0]},
    ):
        with pytest.raises(ConfigError):
            values(topic, broker, **given)
    with pytest.raises(ConfigError, match="no topics"):
        values([], broker)
