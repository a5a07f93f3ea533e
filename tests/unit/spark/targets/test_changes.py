"""Replacement, backfill, compaction, new columns and refusals, in Delta and Iceberg tables of a directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client
from oncelog.client.errors import ClientError
from oncelog.spark.jobs.load_report import Event
from oncelog.spark.source.offset_ranges import OffsetRange
from oncelog.spark.source.options import parse_options
from oncelog.spark.table.directory import TableError
from oncelog.spark.targets.format_table import lock
from oncelog.spark.targets.quarantine import QuarantineTopic
from oncelog.spark.targets.table_target import Change, Move, NewFile, Span, TableMoved
from oncelog.testing import Broker
from tests.peers.s3 import Lossy
from tests.unit.spark.targets.tables import BAD_SCHEMA, Lake, TaskWriter, good_and_bad, log_of, values

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning"
    ),  # pyiceberg leaves its catalogs' connections to the collector
]
T0 = TopicPartition(TopicName("t"), 0)


@pytest.fixture(params=["delta", "iceberg"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(f"{request.param}:{tmp_path / 'table'}", None, {}, Lossy("none"), "")


def values_in(place: Lake) -> list[bytes]:
    return [value for _, value in place.rows("offset", "value")]


def test_rows_from_a_time_on_are_replaced_and_what_is_before_is_filled(place: Lake) -> None:
    log = log_of(30, bad=True)
    log.from_ms = 10
    place.load(log, rows_per_step=8)
    assert place.spans(log) == {("t", 0): Span(10, 30)}
    place.open().compact(1 << 20)  # one file: what is replaced is a part of it
    log.from_ms = 22
    log.partitions["t", 0] += values(30, 33, bad=True)
    log.partitions["t", 0][25] = b"bad"
    place.load(log, rows_per_step=4, suffix=b"!")
    good, bad = ([row for row in rows if row[2] >= 10] for rows in good_and_bad(log))
    assert place.rows() == good
    assert place.bad() == bad
    assert [value.endswith(b"!") for value in values_in(place)] == [offset >= 22 for _, _, offset in good]
    log.from_ms = None
    place.load(log, backfill=True, rows_per_step=4)
    assert (place.rows(), place.bad()) == good_and_bad(log)
    assert place.load(log, backfill=True).rows == 0


def test_a_backfill_and_a_load_go_on_beside_each_other(place: Lake) -> None:
    log = log_of(20)
    log.from_ms = 15
    place.load(log)
    log.from_ms = None
    more = log_of(26)

    def append_meanwhile(event: Event) -> None:
        if event.kind == "publishing" and event.step == 0:
            place.load(more)

    place.load(log, backfill=True, rows_per_step=10, on_event=append_meanwhile)
    assert place.rows() == more.rows()
    assert place.spans(more) == {("t", 0): Span(0, 26)}


def test_days_are_kept_apart_and_compaction_keeps_every_row(place: Lake) -> None:
    log = log_of(60, 60)
    place.load(log, rows_per_step=20, partition_by="day")
    before, after = place.open().compact(1 << 20)
    assert before > after >= 3  # a day each
    assert place.rows() == log.rows()
    log.partitions["t", 1] += values(60, 70)
    place.load(log, partition_by="day")
    assert place.rows() == log.rows()
    with pytest.raises(TableError, match="is partitioned by"):
        place.open().prepare(TaskWriter(log).schema, None, {})


def test_columns_are_added_and_settings_stay(place: Lake) -> None:
    log = log_of(5)
    place.load(log)
    log.partitions["t", 0] += values(5, 9)
    assert place.load(log, column="speed").new_columns == ["speed"]
    assert place.rows("offset", "speed")[-1] == (8, 8)
    assert place.rows("offset", "speed")[0] == (0, None)
    log.ids["t"] = "another"
    with pytest.raises(TableError, match="was recreated"):
        place.load(log)


def test_a_second_writer_of_a_directory_is_refused_at_its_start(place: Lake) -> None:
    with lock(place.address), lock(place.address, "fill"), pytest.raises(TableError, match="another load is writing"):  # noqa: SIM117
        with lock(place.address):
            pass


def test_a_change_for_other_offsets_is_refused(place: Lake) -> None:
    log = log_of(5)
    place.load(log)
    with pytest.raises(TableMoved, match=r"t-0 to .* meanwhile; nothing was written"):
        place.open().commit(Change((), {T0: Move(Span(0, 3), Span(0, 9))}))
    with pytest.raises(TableMoved):
        place.open().commit(Change((), {T0: Move(None, Span(0, 9))}))
    place.open().commit(Change((), {T0: Move(Span(0, 5), Span(0, 9))}, [OffsetRange("t", 0, 1, 2)]))
    assert [offset for _, _, offset in place.rows()] == [0, 2, 4]


def test_rows_of_iceberg_are_continued_when_their_snapshots_were_expired(tmp_path: Path) -> None:
    place, log = Lake(f"iceberg:{tmp_path / 'table'}", None, {}, Lossy("none"), ""), log_of(5)
    place.load(log)
    log.partitions["t", 0] += values(5, 9)
    place.load(log)
    target: Any = place.open()
    assert target.compact(1 << 20) == (2, 1)  # its snapshot does not say offsets
    table = target.existing_table()
    old = [snapshot.snapshot_id for snapshot in table.snapshots() if snapshot != table.current_snapshot()]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    log.partitions["t", 0] += values(9, 12)
    place.load(log)
    assert place.rows() == log.rows()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def test_a_quarantine_topic_has_each_bad_row_once(broker: Broker, tmp_path: Path) -> None:
    place, log = Lake(f"delta:{tmp_path / 'table'}", None, {}, Lossy("none"), ""), log_of(12, bad=True)
    place.load(log)
    with closing(Client(broker.bootstrap_servers)) as client:
        create_topic(client, NewTopic("t", 1))  # a group has offsets of topics that are there
    target = place.open()
    options = parse_options({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "t"})
    topic = QuarantineTopic("bad", "id", options, target)
    store = topic.store(BAD_SCHEMA)
    assert store is not None
    rows = [{"topic": "t", "partition": 0, "offset": n, "timestamp": n, "value": b"v", "reason": "r"} for n in (1, 6)]
    path, stream = store.create("bad.parquet", "")
    pq.write_table(pa.Table.from_pylist(rows, BAD_SCHEMA), stream)
    stream.close()
    file = NewFile(path, store.size(path), "t", 0, 2, 1, 6, {})
    assert topic.has([T0]) == {}
    topic.commit([file], {T0: Span(0, 12)}, {}, ())
    assert topic.has([T0]) == {T0: Span(0, 12)}
    with pytest.raises((TableMoved, ClientError)):
        topic.commit([file], {T0: Span(0, 12)}, {}, ())
    with closing(Client(broker.bootstrap_servers)) as client:
        end = client.list_offsets({TopicPartition(TopicName("bad"), 0): -1})
    assert end[TopicPartition(TopicName("bad"), 0)].offset == 3  # two rows and the transaction's marker
    assert not (tmp_path / "table" / path).exists()
