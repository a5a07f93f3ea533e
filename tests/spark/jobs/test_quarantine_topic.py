"""Bad rows in a quarantine topic: as they were, or in a form that the topic takes, all of them in one transaction."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client, FetchSettings
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.machine.consumed_records import ConsumedRecord, read_fetched
from oncelog.spark.jobs.quarantine_topic import bad_row_producer, send_bad_rows
from oncelog.spark.table.directory import QuarantineRejected
from oncelog.testing import Broker
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

NOW_MS: Final = time.time_ns() // 1_000_000
YEAR_2100_MS: Final = 4_102_444_800_000
Row = tuple[int | None, bytes | None, bytes | None]
"""Timestamp, key and value."""


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        yield client


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    count = len(rows)
    header = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    columns: dict[str, Any] = {
        "topic": pa.array(["source"] * count),
        "partition": pa.array([3] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.array([at if at is None else at * 1000 for at, _, _ in rows], pa.timestamp("us", "UTC")),
        "key": pa.array([key for _, key, _ in rows], pa.binary()),
        "value": pa.array([value for _, _, value in rows], pa.binary()),
        "headers": pa.array([[{"key": "own", "value": b"x"}]] * count, header),
        "reason": pa.array(["not JSON"] * count),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def send(client: Client, topic: str, rows: list[Row], **configs: str) -> list[ConsumedRecord]:
    """The records of a topic with ``configs`` after ``rows`` were sent to it."""
    create_topic(client, NewTopic(topic, 1, configs={name.replace("_", "."): text for name, text in configs.items()}))
    with bad_row_producer(client, f"table-of-{topic}", topic) as producer:
        send_bad_rows(client, producer, topic, lambda: [batch_of(rows)], lambda: None)
    fetcher = Fetcher(client, FetchSettings(read_committed=True))
    fetcher.assign({TopicPartition(TopicName(topic), 0): 0})
    records: list[ConsumedRecord] = []

    def has_all() -> bool:
        for fetched in fetcher.poll():
            records.extend(read_fetched(fetched))
        return len(records) >= len(rows)

    wait_until(has_all, "all bad rows")
    fetcher.close()
    assert len(records) == len(rows)
    return records


def headers_of(record: ConsumedRecord) -> dict[str, bytes | None]:
    return dict(record.headers)


def test_rows_that_the_topic_takes_are_there_as_they_were(client: Client) -> None:
    rows: list[Row] = [(NOW_MS, b"k", b"v"), (0, None, b""), (-1, b"", None)]
    records = send(client, "as-they-were", rows, retention_ms="-1")
    assert [(record.timestamp, record.key, record.value) for record in records] == rows
    assert headers_of(records[1]) == {
        "own": b"x",
        "oncelog.topic": b"source",
        "oncelog.partition": b"3",
        "oncelog.offset": b"1",
        "oncelog.reason": b"not JSON",
    }


@pytest.mark.parametrize(
    ("row_ms", "configs", "told"),
    [
        (-5, {}, b"-5"),
        (-(2**52), {}, b"-4503599627370496"),
        (None, {}, b"unknown"),
        (YEAR_2100_MS, {"message_timestamp_after_max_ms": "3600000"}, b"4102444800000"),
        (1, {"message_timestamp_before_max_ms": "3600000"}, b"1"),
    ],
)
def test_a_time_that_the_topic_refuses_is_in_a_header(
    client: Client, row_ms: int | None, configs: dict[str, str], told: bytes
) -> None:
    (record,) = send(client, f"times-{told.decode()}-{len(configs)}", [(row_ms, b"k", b"v")], **configs)
    assert record.timestamp >= NOW_MS
    assert (record.key, record.value, headers_of(record)["oncelog.timestamp"]) == (b"k", b"v", told)


def test_small_rows_fit_into_batches_of_the_topic_and_large_ones_are_cut(client: Client) -> None:
    large = bytes(range(256)) * 100
    rows: list[Row] = [*[(NOW_MS, b"k", b"v" * 100)] * 300, (NOW_MS, b"k", large), (NOW_MS, large, None)]
    *small, cut_value, cut_key = send(client, "sizes", rows, max_message_bytes="10000")
    assert {item.value for item in small} == {b"v" * 100}
    assert cut_value.value is not None
    assert large.startswith(cut_value.value)
    assert len(cut_value.value) > 9000
    headers = headers_of(cut_value)
    assert (headers["own"], headers["oncelog.cut"]) == (b"x", b"value")
    assert headers["oncelog.value.bytes"] == b"%d" % len(large)
    assert headers["oncelog.value.sha256"] == hashlib.sha256(large).hexdigest().encode()
    assert cut_key.key is not None
    assert large.startswith(cut_key.key)
    assert (headers_of(cut_key)["oncelog.cut"], headers_of(cut_key)["oncelog.offset"]) == (b"value,headers,key", b"301")


def test_a_compacted_topic_gets_a_key(client: Client) -> None:
    rows: list[Row] = [(NOW_MS, None, b"v"), (NOW_MS, b"k", b"v")]
    without, with_key = send(client, "compacted", rows, cleanup_policy="compact")
    assert (without.key, headers_of(without)["oncelog.key"]) == (b"source-3-0", b"null")
    assert with_key.key == b"k"


def test_a_topic_that_takes_no_form_is_named(client: Client) -> None:
    with pytest.raises(QuarantineRejected, match="quarantine topic 'tiny' rejects bad rows in every form"):
        send(client, "tiny", [(NOW_MS, b"k", b"v")], max_message_bytes="100")
