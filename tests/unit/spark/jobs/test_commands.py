"""The commands of the jobs, as far as they need no Spark: options, signals, words."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from oncelog.cli.main import invoke
from oncelog.cli.table.stream import _stopped_by_signals
from oncelog.spark.export import merge_spans, subtract_spans
from oncelog.spark.jobs.shape import Shape
from oncelog.spark.jobs.stream_query import StreamRequest, batch_end
from oncelog.spark.session.errors import OptionError


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_next_does_what_it_always_does(number: signal.Signals) -> None:
    stop, before = threading.Event(), signal.getsignal(number)
    with _stopped_by_signals(stop):
        os.kill(os.getpid(), number)
        assert stop.is_set()
        assert signal.getsignal(number) is before
    assert signal.getsignal(number) is before


def test_wrong_options_are_told_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, output in (
        (["--value-format", "json"], "value format json needs a schema"),
        (["--value-format", "xml"], "must be one of json, avro, utf8, binary"),
        (["--event-time", "at"], "a JSON path such as $.at"),
        (["--partition-by", "month"], "'month' is neither day nor hour"),
        (["--schema", "@/nowhere"], "No such file"),
    ):
        assert invoke(["load", "t", "--to", str(tmp_path / "t"), *arguments]) in (1, 2)
        assert output in capsys.readouterr().err
    for command in (["load", "t", "--to"], ["stream", "t", "--to"], ["compact"], ["export"]):
        assert invoke([*command, "s3://lake/flights", *(["t"] if command == ["export"] else [])]) == 1
        output = capsys.readouterr().err
        assert "s3:// is an object store: load into delta:ADDRESS or iceberg:NAMESPACE.TABLE" in output
    assert invoke(["load", "t", "--to", "delta:t", "--storage-option", "secret"]) == 2
    assert "expected KEY=VALUE" in capsys.readouterr().err
    assert invoke(["compact", str(tmp_path)]) == 1
    assert f"is not a table created by a load: run `oncelog load TOPIC --to {tmp_path}`" in capsys.readouterr().err
    assert invoke(["export", str(tmp_path), "t"]) == 1
    assert not (tmp_path / "t").exists()


def test_shapes_refuse_what_contradicts_itself() -> None:
    with pytest.raises(OptionError, match="have no schema"):
        Shape("utf8", "a INT")
    with pytest.raises(OptionError, match="'earliest' or 'latest'"):
        StreamRequest(starting="now")
    assert Shape().is_plain
    assert not Shape(partition_by="day").is_plain


def test_spans_without_what_was_sent() -> None:
    assert merge_spans([(5, 9), (0, 5), (20, 30), (9, 9)]) == [(0, 9), (20, 30)]
    assert subtract_spans([(0, 100)], [(10, 20), (50, 60)]) == [(0, 10), (20, 50), (60, 100)]
    assert subtract_spans([(0, 10), (20, 30)], [(5, 25)]) == [(0, 5), (25, 30)]
    assert subtract_spans([(0, 10)], [(0, 10)]) == []
    assert subtract_spans([(0, 10)], []) == [(0, 10)]


def test_where_a_batch_ends_is_read_from_sparks_log(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    line = '{"t": {"0": 5, "1": 7}, "@topicIds": {"t": "AAAAAAAAAAAAAAAAAAAAAQ"}}'
    (tmp_path / "offsets" / "3").write_text("v1\n{}\n" + line)
    end = batch_end(tmp_path, 3)
    assert sorted(end.offsets.values()) == [5, 7]
    assert end.topic_ids == {"t": "AAAAAAAAAAAAAAAAAAAAAQ"}
