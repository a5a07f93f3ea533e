"""Data that the driver sends to its tasks: the same on the other side, or refused in one line."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import EqualTo
from pyspark.sql.types import BinaryType, StructField, StructType

import oncelog
from oncelog.spark.session.errors import OncelogVersionMismatch
from oncelog.spark.session.pickling import VersionedPickle, unpickle, with_fields
from oncelog.spark.sink.data_writer import SinkWriter, batch_writer
from oncelog.spark.sink.options import Mode
from oncelog.spark.source.batch_reader import OncelogReader
from oncelog.spark.source.filtering_reader import FilteringReader
from oncelog.spark.source.options import SourceOptions, parse_options

CLUSTER = {"kafka.bootstrap.servers": "broker:1"}
OPTIONS = parse_options(
    {**CLUSTER, "subscribe": "t", "startingOffsets": '{"t":{"0":5}}', "kafka.security.protocol": "SSL"}
)


def sent(item: Any) -> Any:
    """As Spark sends it: pickled by its cloudpickle, read by pickle."""
    return pickle.loads(cloudpickle.dumps(item))


def test_a_reader_arrives_with_its_options_and_filters() -> None:
    reader = FilteringReader(OPTIONS)
    assert [*reader.pushFilters([EqualTo(("partition",), 1)])] == []
    copy = sent(reader)
    assert isinstance(copy, FilteringReader)
    assert copy._options == OPTIONS
    assert [copy._bounds.partition_tests[0](number) for number in (1, 2)] == [True, False]


def test_a_writer_arrives_with_its_run_and_the_mode_that_was_chosen() -> None:
    writer = batch_writer({**CLUSTER, "topic": "t"}, StructType([StructField("value", BinaryType())]), False)
    writer.mode = Mode.LEDGER
    copy = sent(writer)
    assert isinstance(copy, SinkWriter)
    assert (copy.options, copy.run, copy.mode) == (writer.options, writer.run, Mode.LEDGER)


def test_another_release_is_refused_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = cloudpickle.dumps(OncelogReader(OPTIONS))
    monkeypatch.setattr(oncelog, "__version__", "9.1")
    with pytest.raises(
        OncelogVersionMismatch, match=r"driver of this job has oncelog \S+, .* has oncelog 9.1: install"
    ):
        pickle.loads(pickled)
    with pytest.raises(OncelogVersionMismatch):
        unpickle("9.0", b"not even a pickle")


def test_options_with_other_fields_are_refused() -> None:
    """Builds between two releases have the same number."""
    values = {field.name: getattr(OPTIONS, field.name) for field in dataclasses.fields(OPTIONS)}
    assert with_fields(SourceOptions, values) == OPTIONS
    swapped = dict(reversed(values.items()))
    assert with_fields(SourceOptions, swapped) == OPTIONS  # the order says nothing
    for other in ({**values, "later": 1}, {name: value for name, value in values.items() if name != "fetch"}):
        with pytest.raises(OncelogVersionMismatch, match="another build"):
            with_fields(SourceOptions, other)


def test_the_error_is_sent_back_to_the_driver() -> None:
    decoded = pickle.loads(pickle.dumps(OncelogVersionMismatch("1.0", "2.0")))
    assert str(decoded) == str(OncelogVersionMismatch("1.0", "2.0"))


def test_an_object_without_fields_is_sent() -> None:
    assert isinstance(sent(Nothing()), Nothing)


class Nothing(VersionedPickle):
    """Has no state."""
