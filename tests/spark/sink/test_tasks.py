"""What tasks and drivers leave on a real broker, without Spark around them: twins, restarts, rows of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from oncelog.client.blocking import Client, FetchSettings, read_fetched
from oncelog.client.machine.partitioner import partition_of_key
from oncelog.spark.sink import driver, ledger, modes, tasks
from oncelog.spark.sink.errors import SinkError
from oncelog.spark.sink.options import Mode, SinkOptions, parse_sink_options
from oncelog.spark.sink.register import Attempt, Listed
from oncelog.testing import Broker
from tests.spark.sink.queries import TWO_PHASE, committed_values

pytestmark = pytest.mark.slow

FIRST = tasks.TaskPlace("0", "0.0")
TWIN = tasks.TaskPlace("0", "0.1")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(TWO_PHASE) as running:
        yield running


@pytest.fixture
def options(broker: Broker, request: pytest.FixtureRequest) -> SinkOptions:
    name = request.node.originalname
    return parse_sink_options(
        {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": name, "exactlyOnce": "2pc"}
    )


def batch(*values: str) -> pa.RecordBatch:
    return pa.record_batch({"value": list(values)})


def write(options: SinkOptions, attempt: Attempt, place: tasks.TaskPlace, *values: str) -> list[Listed]:
    listed = tasks.write_two_phase(options, attempt, place, [batch(*values)])
    return [] if listed is None else [listed]


def committed(options: SinkOptions) -> list[bytes]:
    assert options.topic is not None
    return committed_values(options.bootstrap_servers, options.topic)


def test_a_twin_that_finishes_late_leaves_nothing(options: SinkOptions) -> None:
    attempt = Attempt("twins", 0, "run")
    listed = write(options, attempt, FIRST, "a", "b")

    def late() -> Iterator[pa.RecordBatch]:
        yield batch("a")
        driver.commit(options, attempt, tuple(listed))
        yield batch("b")

    assert tasks.write_two_phase(options, attempt, TWIN, late()) is None
    assert committed(options) == [b"a", b"b"]


def test_a_broker_that_restarts_between_write_and_commit_and_after_it(broker: Broker, options: SinkOptions) -> None:
    attempt = Attempt("restarts", 0, "run")
    listed = write(options, attempt, FIRST, "a")
    broker.restart()
    driver.commit(options, attempt, tuple(listed))
    broker.kill()
    broker.start()
    driver.commit(options, attempt, tuple(listed))
    again = Attempt("restarts", 0, "run2")
    assert write(options, again, FIRST, "a") == []
    driver.commit(options, again, ())
    assert committed(options) == [b"a"]


def test_names_are_used_again_in_the_next_epoch_and_jobs_do_not_run_twice(options: SinkOptions) -> None:
    names = set()
    for epoch in range(3):
        attempt = Attempt("names", epoch, f"run{epoch}")
        listed = write(options, attempt, FIRST, f"row {epoch}")
        names |= {one.stored.transactional_id for one in listed}
        driver.commit(options, attempt, tuple(listed))
    assert names == {"oncelog-sink/names/0/0.0"}
    assert write(options, Attempt("names", 2, "other"), FIRST, "row 2") == []
    assert committed(options) == [b"row 0", b"row 1", b"row 2"]


def test_a_run_that_was_given_up_leaves_nothing_open(options: SinkOptions) -> None:
    attempt = Attempt("aborts", 0, "run")
    write(options, attempt, FIRST, "a")
    driver.abort(options, attempt)
    assert committed(options) == []


def test_every_column_arrives_and_keys_go_where_java_would_put_them(options: SinkOptions) -> None:
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.record_batch(
        {
            "key": pa.array(["k1", None, "k3", "k4"], pa.string()),
            "value": pa.array([b"v1", b"v2", None, b"v4"], pa.binary()),
            "headers": pa.array([[{"key": "h", "value": b"x"}], None, [], [{"key": "n", "value": None}]], header),
            "partition": pa.array([None, 2, None, 0], pa.int32()),
            "topic": ["columns-a", "columns-a", "columns-b", "columns-a"],
            "timestamp": pa.array([1_700_000_000_123_000, None, 5_000, 7_000], pa.timestamp("us", "UTC")),
        }
    )
    with Client(options.bootstrap_servers) as client:
        from oncelog.admin.topics import NewTopic, create_topic

        for topic in ("columns-a", "columns-b"):
            create_topic(client, NewTopic(topic, 3, configs={"retention.ms": "-1"}))
        assert tasks.write_plain(replace(options, topic=None), [rows]) == 4
        found = {}
        for topic in ("columns-a", "columns-b"):
            from oncelog.base.ids import TopicName, TopicPartition

            partitions = [TopicPartition(TopicName(topic), number) for number in range(3)]
            ends = {
                partition: one.offset for partition, one in client.list_offsets(dict.fromkeys(partitions, -1)).items()
            }
            for fetched in client.fetch(
                dict.fromkeys(partitions, 0), until=ends, settings=FetchSettings(max_wait_ms=10)
            ):
                for one in read_fetched(fetched):
                    found[one.key] = one
    assert {key: (one.topic, one.value, one.headers) for key, one in found.items()} == {
        b"k1": ("columns-a", b"v1", (("h", b"x"),)),
        None: ("columns-a", b"v2", ()),
        b"k3": ("columns-b", None, ()),
        b"k4": ("columns-a", b"v4", (("n", None),)),
    }
    assert found[b"k1"].partition == partition_of_key(b"k1", 3)
    assert (found[None].partition, found[b"k4"].partition) == (2, 0)
    assert found[b"k1"].timestamp == 1_700_000_000_123
    assert found[b"k3"].timestamp == 5


def test_the_ledger_writes_once_and_notices_other_rows(options: SinkOptions) -> None:
    attempt = Attempt("ledger", 3, "run")
    assert ledger.write_with_ledger(options, attempt, "0", [batch("a", "b")]) == 2
    assert ledger.write_with_ledger(options, attempt, "0", [batch("b"), batch("a")]) == 0
    for other in (batch("a"), batch("a", "c"), batch("a", "b", "b")):
        with pytest.raises(SinkError, match=r"rows=2 checksum=.* were written before"):
            ledger.write_with_ledger(options, attempt, "0", [other])
    assert ledger.write_with_ledger(options, Attempt("ledger", 4, "run"), "0", [batch("c")]) == 1
    assert committed(options) == [b"a", b"b", b"c"]


def test_the_mode_follows_the_cluster(options: SinkOptions) -> None:
    with Client(options.bootstrap_servers) as client:
        assert modes.settle(client, Mode.AUTO) is Mode.TWO_PHASE
    with Broker() as without, Client(without.bootstrap_servers) as client:
        assert modes.settle(client, Mode.AUTO) is Mode.LEDGER
        with pytest.raises(SinkError, match=r"transaction\.two\.phase\.commit\.enable=true"):
            modes.settle(client, Mode.TWO_PHASE)
