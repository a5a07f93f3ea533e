"""Tasks and drivers on a real broker, without Spark around them: twins, restarts, rows of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client, FetchSettings, read_fetched
from oncelog.client.blocking.transaction_admin import end_transaction, open_transactions
from oncelog.client.machine.partitioner import partition_of_key
from oncelog.spark.session.errors import SinkError
from oncelog.spark.sink import epoch_commit, ledger, modes, task_writer
from oncelog.spark.sink.options import Mode, SinkOptions, parse_sink_options
from oncelog.spark.sink.two_phase import protocol, register_records
from oncelog.spark.sink.two_phase.cluster_operations import ClusterOperations, was_aborted
from oncelog.spark.sink.two_phase.register import Attempt, Listed, Register, RegisterState
from oncelog.testing import Broker
from tests.spark.sink.queries import TWO_PHASE, committed_values

pytestmark = pytest.mark.slow

FIRST = task_writer.TaskPlace("0", 0)
TWIN = task_writer.TaskPlace("0", 1)


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


def write(options: SinkOptions, attempt: Attempt, place: task_writer.TaskPlace, *values: str) -> list[Listed]:
    listed = task_writer.write_two_phase(options, attempt, place, [batch(*values)]).listed
    return [] if listed is None else [listed]


def committed(options: SinkOptions) -> list[bytes]:
    assert options.topic is not None
    return committed_values(options.bootstrap_servers, options.topic)


def test_a_twin_that_finishes_late_leaves_nothing(options: SinkOptions) -> None:
    attempt = Attempt("twins", 0, "run")
    listed = write(options, attempt, FIRST, "a", "b")

    def late() -> Iterator[pa.RecordBatch]:
        yield batch("a")
        epoch_commit.commit(options, attempt, tuple(listed))
        yield batch("b")

    assert task_writer.write_two_phase(options, attempt, TWIN, late()) == (None, 2)
    assert committed(options) == [b"a", b"b"]


def test_a_broker_that_restarts_between_write_and_commit_and_after_it(broker: Broker, options: SinkOptions) -> None:
    attempt = Attempt("restarts", 0, "run")
    listed = write(options, attempt, FIRST, "a")
    broker.restart()
    epoch_commit.commit(options, attempt, tuple(listed))
    broker.kill()
    broker.start()
    epoch_commit.commit(options, attempt, tuple(listed))
    again = Attempt("restarts", 0, "run2")
    assert write(options, again, FIRST, "a") == []
    epoch_commit.commit(options, again, ())
    assert committed(options) == [b"a"]


def test_names_are_used_again_in_later_epochs_and_jobs_do_not_run_twice(
    options: SinkOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "TASK_ID_COUNT", 3)
    names = []
    for epoch in range(5):
        attempt = Attempt("names", epoch, f"run{epoch}")
        listed = write(options, attempt, FIRST, f"row {epoch}")
        names += [item.stored.transactional_id for item in listed]
        epoch_commit.commit(options, attempt, tuple(listed))
    assert names == [f"oncelog-sink/names/0/{number}" for number in (0, 1, 2, 0, 1)]
    assert write(options, Attempt("names", 4, "other"), FIRST, "row 4") == []
    assert committed(options) == [b"row %d" % number for number in range(5)]


def test_two_attempts_of_one_number_are_two(options: SinkOptions) -> None:
    """A stage attempt that goes on after the stage was begun again: Python tasks know no stage attempt."""
    attempt = Attempt("stages", 0, "run")
    before = write(options, attempt, FIRST, "a")

    def during() -> Iterator[pa.RecordBatch]:
        yield batch("a")
        write(options, attempt, FIRST, "a")

    assert task_writer.write_two_phase(options, attempt, FIRST, during()).listed is not None
    epoch_commit.commit(options, attempt, tuple(before))
    assert committed(options) == [b"a"]


def test_what_a_dead_run_left_is_ended_when_the_query_starts_again(options: SinkOptions) -> None:
    first, again = Attempt("leftovers", 0, "run"), Attempt("leftovers", 0, "again")
    left = [*write(options, first, FIRST, "a"), *write(options, first, task_writer.TaskPlace("1", 0), "b")]
    assert len(left) == 2
    with Client(options.bootstrap_servers) as client:
        assert len(open_transactions(client, "oncelog-sink/leftovers/")) == 2
        listed = write(options, again, FIRST, "a")
        assert open_transactions(client, "oncelog-sink/leftovers/") == [item.stored for item in listed]
    epoch_commit.commit(options, again, tuple(listed))
    assert committed(options) == [b"a"]


def test_a_decision_that_is_longer_than_a_record(options: SinkOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_records, "PART_BYTES", 200)
    attempt = Attempt("long", 0, "run")
    listed = [item for n in range(5) for item in write(options, attempt, task_writer.TaskPlace(str(n), 0), f"row {n}")]
    epoch_commit.commit(options, attempt, tuple(listed))
    assert committed(options) == [b"row %d" % number for number in range(5)]
    with Client(options.bootstrap_servers) as client, ClusterOperations(client, "long") as cluster:
        assert cluster.register() == Register(0, "run", RegisterState.DONE)
        assert cluster._topic._reader.parts == 0


def test_a_run_that_was_given_up_leaves_nothing_open(options: SinkOptions) -> None:
    attempt = Attempt("aborts", 0, "run")
    write(options, attempt, FIRST, "a")
    epoch_commit.abort(options, attempt)
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
        for topic in ("columns-a", "columns-b"):
            create_topic(client, NewTopic(topic, 3, configs={"retention.ms": "-1"}))
        assert task_writer.write_plain(replace(options, topic=None), [rows]) == 4
        results = {}
        for topic in ("columns-a", "columns-b"):
            from oncelog.base.ids import TopicName, TopicPartition

            partitions = [TopicPartition(TopicName(topic), number) for number in range(3)]
            ends = {
                partition: one.offset for partition, one in client.list_offsets(dict.fromkeys(partitions, -1)).items()
            }
            for fetched in client.fetch(
                dict.fromkeys(partitions, 0), until=ends, settings=FetchSettings(max_wait_ms=10)
            ):
                for entry in read_fetched(fetched):
                    results[entry.key] = entry
    assert {key: (one.topic, one.value, one.headers) for key, one in results.items()} == {
        b"k1": ("columns-a", b"v1", (("h", b"x"),)),
        None: ("columns-a", b"v2", ()),
        b"k3": ("columns-b", None, ()),
        b"k4": ("columns-a", b"v4", (("n", None),)),
    }
    assert results[b"k1"].partition == partition_of_key(b"k1", 3)
    assert (results[None].partition, results[b"k4"].partition) == (2, 0)
    assert results[b"k1"].timestamp == 1_700_000_000_123
    assert results[b"k3"].timestamp == 5


def test_batches_are_as_small_as_the_topic_wants_them_with_their_headers(options: SinkOptions) -> None:
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "h", "value": b"x" * 700}]] * 400, header)
    rows = pa.record_batch({"value": [f"{number:0300}" for number in range(400)], "headers": headers})
    with Client(options.bootstrap_servers) as client:
        create_topic(client, NewTopic(options.topic or "", 1, configs={"max.message.bytes": "20000"}))
    assert task_writer.write_plain(options, [rows]) == 400
    assert len(committed(options)) == 400
    for wrong in ([None], [{"key": None, "value": b""}]):
        unnamed = pa.record_batch({"value": ["v"], "headers": pa.array([wrong], header)})
        with pytest.raises(SinkError, match="a record's headers must have names"):
            task_writer.write_plain(options, [unnamed])


def test_the_log_tells_whether_a_transaction_that_nobody_knows_was_aborted(options: SinkOptions) -> None:
    attempt = Attempt("forgotten", 0, "run")
    listed = write(options, attempt, FIRST, "a")
    with Client(options.bootstrap_servers) as client:
        end_transaction(client, listed[0].stored, commit=False)
        committed(options)
        assert was_aborted(client, listed[0].written[0], listed[0].stored)
        good = write(options, attempt, TWIN, "b")
        epoch_commit.commit(options, attempt, tuple(good))
        assert committed(options) == [b"b"]
        assert not was_aborted(client, good[0].written[0], good[0].stored)


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
        assert modes.choose(client, Mode.AUTO) is Mode.TWO_PHASE
    with Broker() as without, Client(without.bootstrap_servers) as client:
        assert modes.choose(client, Mode.AUTO) is Mode.LEDGER
        with pytest.raises(SinkError, match=r"transaction\.two\.phase\.commit\.enable=true"):
            modes.choose(client, Mode.TWO_PHASE)
