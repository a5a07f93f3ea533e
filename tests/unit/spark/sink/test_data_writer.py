"""A commit and the messages it gets: only two-phase commit has something to decide."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import StringType, StructField, StructType

from oncelog.spark.session.errors import WriteRefused
from oncelog.spark.sink import epoch_commit
from oncelog.spark.sink.data_writer import SinkMessage, stream_writer
from oncelog.spark.sink.two_phase.register import Attempt

SERVERS = {"kafka.bootstrap.servers": "localhost:1", "topic": "t"}
VALUE = StructType([StructField("value", StringType())])


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[Attempt]:
    results: list[Attempt] = []

    def commit(options: Any, attempt: Attempt, listed: Any, *, rows: int, forget: bool = False) -> None:
        results.append(attempt)

    monkeypatch.setattr(epoch_commit, "commit", commit)
    return results


def test_a_ledgers_or_plain_write_has_nothing_to_decide(decided: list[Attempt]) -> None:
    """``auto`` that came to the ledger must not write decisions to an Apache Kafka."""
    stream_writer(SERVERS, VALUE).commit([SinkMessage(None, None, 5), None], 0)
    stream_writer(SERVERS, VALUE).abort([None, None], 0)
    assert decided == []


def test_the_attempt_is_the_messages_not_the_writers(decided: list[Attempt]) -> None:
    attempt = Attempt("query", 4, "run")
    stream_writer(SERVERS, VALUE).commit([None, SinkMessage(attempt, None, 0)], 4)
    assert decided == [attempt]


def test_a_write_that_is_refused_while_it_is_pickled_is_not_taken_for_one_that_cannot_be() -> None:
    writer = stream_writer({**SERVERS, "kafka.bootstrap.timeout.ms": "1"}, VALUE)
    with pytest.raises(WriteRefused, match=r"^no broker at localhost:1"):
        CloudPickleSerializer().dumps(writer)
