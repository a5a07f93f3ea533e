"""``oncelog stream`` into Delta on S3 and Iceberg in a REST catalog: each row once, whenever its process is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from oncelog.spark.jobs.load_report import Event
from oncelog.spark.jobs.shape import Shape
from oncelog.spark.jobs.stream_query import StreamRequest
from oncelog.spark.targets.entry import load, stream
from tests.spark.conftest import Topic
from tests.spark.jobs.test_shaped_load import flight, send
from tests.unit.spark.targets.tables import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning"
    ),  # pyiceberg leaves its catalogs' connections to the collector
]
Lakes = Callable[[str], Lake]
SHAPE = Shape("json", "number INT")


def numbers(place: Lake) -> list[int]:
    return [row[0] for row in place.rows("number")]


class Died(Exception):
    """The stream, where the test wants it."""


def test_a_stream_a_backfill_and_a_replacement_into_delta(
    spark: SparkSession, topic_with: Callable[..., Topic], lake: Lakes
) -> None:
    check_continued(spark, topic_with(0, 1), lake("delta"))


@pytest.mark.long
def test_a_stream_a_backfill_and_a_replacement_into_iceberg(
    spark: SparkSession, topic_with: Callable[..., Topic], lake: Lakes
) -> None:
    check_continued(spark, topic_with(0, 1), lake("iceberg-rest"))


def check_continued(spark: SparkSession, topic: Topic, place: Lake) -> None:
    send(topic, *(flight(n) for n in range(5)))
    where = {"spark": spark, "catalog": place.catalog, "storage_options": place.options, "shape": SHAPE}

    def run(point: str = "", starting: str = "earliest") -> int:
        def die(event: Event) -> None:
            if event.kind == point:
                raise Died

        how = StreamRequest("available-now", starting, on_event=die)
        return stream(topic.name, topic.bootstrap_servers, place.to, how, **where).rows  # type: ignore[arg-type]

    assert run(starting="latest") == 0
    send(topic, flight(5), b"bad", flight(7))
    with pytest.raises(Died):
        run("publishing")  # the bad row is in the quarantine, the good ones are not in the table
    assert numbers(place) == []
    assert run() == 2
    assert numbers(place) == [5, 7]
    assert load(topic.name, topic.bootstrap_servers, place.to, backfill=True, **where).rows == 5  # type: ignore[arg-type]
    assert numbers(place) == [0, 1, 2, 3, 4, 5, 7]
    assert place.bad() == [(topic.name, 0, 6)]
    again = load(topic.name, topic.bootstrap_servers, place.to, from_ms=0, **where)  # type: ignore[arg-type]
    assert (again.rows, again.quarantined) == (7, 1)
    assert numbers(place) == [0, 1, 2, 3, 4, 5, 7]
    assert place.bad() == [(topic.name, 0, 6)]


@pytest.mark.long
def test_a_stream_into_delta_is_killed_and_started_again(
    spark: SparkSession, topic_with: Callable[..., Topic], lake: Lakes
) -> None:
    check_killed(spark, topic_with(0, 2), lake("delta"), "publishing")


@pytest.mark.long
def test_a_stream_into_iceberg_is_killed_and_started_again(
    spark: SparkSession, topic_with: Callable[..., Topic], lake: Lakes
) -> None:
    check_killed(spark, topic_with(0, 2), lake("iceberg-rest"), "committed")


def check_killed(spark: SparkSession, topic: Topic, place: Lake, point: str) -> None:
    """A process with a JVM of its own dies; the one that goes on is this one."""

    def send_five(first: int) -> None:
        send(topic, *(flight(n) for n in range(first, first + 4)), b"bad")
        send(topic, flight(first + 4), partition=1)

    send_five(0)
    message = {"topic": topic.name, "servers": topic.bootstrap_servers, "to": place.to}
    arguments = json.dumps({**message, "catalog": place.catalog, "options": place.options})
    command = [sys.executable, "-m", "tests.spark.jobs.killed_stream", point, arguments]
    done = subprocess.run(command, capture_output=True, text=True, start_new_session=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    send_five(5)
    stream(
        topic.name,
        topic.bootstrap_servers,
        place.to,
        StreamRequest("available-now"),
        spark=spark,
        catalog=place.catalog,
        storage_options=place.options,
        shape=SHAPE,
    )
    assert numbers(place) == list(range(10))
    assert len(place.bad()) == len(set(place.bad())) == 2
