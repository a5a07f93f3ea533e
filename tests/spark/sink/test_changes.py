"""A query whose mode, checkpoint or topic is changed between two runs: nothing twice, nothing dropped in silence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from oncelog.admin.configs import ResourceType, alter_configs
from oncelog.admin.topics import NewTopic, add_partitions, create_topic, delete_records, delete_topics
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client
from oncelog.client.blocking.transaction_admin import open_transactions
from oncelog.client.errors import ClientError
from oncelog.spark.format.foreach_batch import transaction
from oncelog.spark.session.errors import SinkError
from oncelog.spark.sink import epoch_commit, ledger, task_writer
from oncelog.spark.sink.options import Mode, SinkOptions, parse_sink_options
from oncelog.spark.sink.two_phase import operations, protocol
from oncelog.spark.sink.two_phase.cluster_operations import ClusterOperations
from oncelog.spark.sink.two_phase.errors import Behind, LostRows, NotOpen
from oncelog.spark.sink.two_phase.register import Attempt, Listed
from oncelog.spark.sink.two_phase.register_topic import REGISTERS
from oncelog.testing import Broker
from oncelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.spark.sink.queries import TWO_PHASE, committed_values

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(TWO_PHASE) as running:
        yield running


@pytest.fixture
def options(broker: Broker, request: pytest.FixtureRequest) -> SinkOptions:
    name = request.node.originalname
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": name, "exactlyOnce": "2pc"}
    return parse_sink_options(given)


def rows(*values: str) -> list[pa.RecordBatch]:
    return [pa.record_batch({"value": list(values)})]


def write(options: SinkOptions, attempt: Attempt, task: int, *values: str) -> tuple[tuple[Listed, ...], int]:
    done = task_writer.write_two_phase(options, attempt, task_writer.TaskPlace(str(task), 0), rows(*values))
    return (() if done.listed is None else (done.listed,)), done.rows


def committed(options: SinkOptions) -> list[bytes]:
    assert options.topic is not None
    return committed_values(options.bootstrap_servers, options.topic)


def test_an_epoch_that_the_ledger_wrote_by_half_is_completed_in_two_phases(options: SinkOptions) -> None:
    attempt = Attempt("upgraded", 5, "run")
    assert ledger.write_with_ledger(replace(options, mode=Mode.AUTO), attempt, "0", rows("a", "b")) == 2
    again = Attempt("upgraded", 5, "again")
    first, second = write(options, again, 0, "a", "b"), write(options, again, 1, "c")
    epoch_commit.commit(options, again, first[0] + second[0], rows=first[1] + second[1])
    assert committed(options) == [b"a", b"b", b"c"]
    epoch_commit.commit(options, again, (), rows=3)
    other = Attempt("upgraded", 5, "other")
    assert write(options, other, 0, "a", "b") == ((), 2)
    different = Attempt("upgraded-2", 5, "run")
    ledger.write_with_ledger(options, different, "0", rows("a"))
    with pytest.raises(SinkError, match="were written before"):
        write(options, different, 0, "other")


def test_a_query_in_two_phases_does_not_go_on_with_the_ledger_by_itself(options: SinkOptions) -> None:
    first, second = Attempt("downgraded", 0, "run"), Attempt("downgraded", 1, "run")
    listed, _ = write(options, first, 0, "a")
    by_itself, requests = replace(options, mode=Mode.AUTO), replace(options, mode=Mode.LEDGER)
    for mode in (by_itself, requests):
        with pytest.raises(SinkError, match="two phases"):
            ledger.write_with_ledger(mode, first, "0", rows("a"))
    epoch_commit.commit(options, first, listed)
    assert ledger.write_with_ledger(requests, first, "0", rows("a")) == 0
    with pytest.raises(SinkError, match=r"transaction\.two\.phase\.commit\.enable=true .*or exactlyOnce=ledger"):
        ledger.write_with_ledger(by_itself, second, "0", rows("b"))
    assert ledger.write_with_ledger(requests, second, "0", rows("b")) == 1
    assert committed(options) == [b"a", b"b"]


def test_a_checkpoint_from_before_is_noticed_in_both_modes(options: SinkOptions) -> None:
    for epoch in range(2):
        attempt = Attempt("rewound", epoch, "run")
        epoch_commit.commit(options, attempt, write(options, attempt, 0, f"row {epoch}")[0])
        ledger.write_with_ledger(options, Attempt("rewound-ledger", epoch, "run"), "0", rows(f"row {epoch}"))
    with pytest.raises(Behind, match="restored, rewound or copied"):
        write(options, Attempt("rewound", 0, "again"), 0, "new")
    with pytest.raises(Behind, match="restored, rewound or copied"):
        ledger.write_with_ledger(options, Attempt("rewound-ledger", 0, "again"), "0", rows("new"))
    skipping = replace(options, accept_loss=1)
    assert write(skipping, Attempt("rewound", 0, "again"), 0, "new") == ((), 1)
    assert ledger.write_with_ledger(skipping, Attempt("rewound-ledger", 0, "again"), "0", rows("new")) == 0


@pytest.mark.parametrize("version", [1, 2])
def test_nothing_is_opened_behind_the_sweep(version: int) -> None:
    """A twin that has its identity and has not written yet when the epoch is decided."""
    with (
        Broker(TWO_PHASE) as own,
        Client(own.bootstrap_servers) as client,
        ClusterOperations(client, "behind") as cluster,
    ):
        key = FeatureUpdateKey(feature="transaction.version", max_version_level=version, upgrade_type=2)
        client.request(UpdateFeaturesRequest(feature_updates=[key], timeout_ms=5000), broker="controller")
        given = {"kafka.bootstrap.servers": own.bootstrap_servers, "topic": "out", "exactlyOnce": "2pc"}
        options, attempt = parse_sink_options(given), Attempt("behind", 0, "run")
        listed, _ = write(options, attempt, 0, "a")
        twin = cluster.run(protocol.claim(attempt, 0))
        assert not isinstance(twin, protocol.TaskAction)
        epoch_commit.commit(options, attempt, listed)
        producer = cluster.claimed_producer(twin)
        producer.begin()
        with pytest.raises(ClientError, match=r"(?i)fenced|epoch"):  # noqa: PT012 - whichever of them is told
            producer.send("out", b"late", partition=0)
            producer.flush()
        assert open_transactions(client, "oncelog-sink/behind/") == []
        assert committed(options) == [b"a"]


def test_decided_rows_that_retention_took_before_they_were_readable(options: SinkOptions) -> None:
    attempt = Attempt("retained", 0, "run")
    listed, _ = write(options, attempt, 0, "a", "b")
    dying = protocol.commit(attempt, listed)
    with Client(options.bootstrap_servers) as client:
        with ClusterOperations(client, "retained") as cluster:

            def die(operation: operations.Operation) -> None:
                if isinstance(operation, operations.End):
                    raise SystemExit

            with pytest.raises(SystemExit):
                cluster.run(dying, die)
        delete_records(client, {TopicPartition(TopicName(options.topic or ""), 0): 2})
    again = Attempt("retained", 0, "again")
    with pytest.raises(LostRows, match=r"2 rows of .*-0 at offsets 0–1 "):
        epoch_commit.commit(options, again, (), rows=2)
    epoch_commit.commit(replace(options, accept_loss=0), again, (), rows=2)
    assert committed(options) == []


@pytest.mark.parametrize("name", ["a/b", "job:x", "run:x", "probe:", "x" * 201])
def test_a_transaction_cannot_have_anothers_name(options: SinkOptions, name: str) -> None:
    given = {"kafka.bootstrap.servers": options.bootstrap_servers}
    with pytest.raises(SinkError), transaction(None, 0, given, query=name):  # type: ignore[arg-type]  # no frame: named
        pass


def test_what_would_forget_registers_is_refused_and_more_partitions_do_no_harm() -> None:
    with Broker(TWO_PHASE) as own, Client(own.bootstrap_servers) as client:
        given = {"kafka.bootstrap.servers": own.bootstrap_servers, "topic": "out", "exactlyOnce": "2pc"}
        options = parse_sink_options(given)
        create_topic(client, NewTopic(REGISTERS, 1))
        attempt = Attempt("query", 0, "run")
        with pytest.raises(SinkError, match="has 1 partitions, the sink needs 8"):
            write(options, attempt, 0, "a")
        delete_topics(client, [REGISTERS])
        epoch_commit.commit(options, attempt, write(options, attempt, 0, "a")[0])
        add_partitions(client, REGISTERS, 16)
        assert write(options, Attempt("query", 0, "again"), 0, "a") == ((), 1)
        delete_topics(client, [REGISTERS])
        forgotten = Attempt("query", 1, "run")
        with pytest.raises(SinkError, match="no entry in __oncelog_sink, but this is its epoch 1"):
            write(options, forgotten, 0, "b")
        epoch_commit.commit(options, forgotten, write(replace(options, accept_duplicates=1), forgotten, 0, "b")[0])
        alter_configs(client, ResourceType.TOPIC, REGISTERS, change={"cleanup.policy": "delete"})
        with pytest.raises(SinkError, match=r"cleanup\.policy=delete, which loses registers"):
            write(options, Attempt("query", 2, "run"), 0, "c")
        assert committed_values(own.bootstrap_servers, "out") == [b"a", b"b"]


def test_a_write_that_nobody_can_finish_ends_by_itself_if_it_has_a_time_out(options: SinkOptions) -> None:
    once = replace(options, transaction_timeout_ms=100)
    attempt = Attempt("run:1", 0, "1")
    epoch_commit.commit(options, attempt, write(once, attempt, 0, "a")[0], forget=True)
    killed = Attempt("run:2", 0, "2")
    listed, _ = write(once, killed, 0, "b")
    with Client(options.bootstrap_servers) as client:
        for number in range(40):
            if not open_transactions(client, "oncelog-sink/run:2/"):
                break
            client.pause(number)
    with pytest.raises(NotOpen):
        epoch_commit.commit(options, killed, listed)
    assert committed(options) == [b"a"]
