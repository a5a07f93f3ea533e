"""Names of 0.7's directories and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.legacy.logs.directories import OldLogError, file_start, files_of, log_and_partition, logs_in


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("00000000000000000000.kafka", 0),
        ("00000000000.kafka", 0),
        ("00000001073.kafka", 1073),
        ("09223372036854775807.kafka", 2**63 - 1),
        ("09223372036854775808.kafka", None),
        ("00000000000000000000.log", None),
        ("00000000000000000000.kafka.deleted", None),
        (".kafka", None),
        ("-0000000001.kafka", None),
    ],
)
def test_file_names(name: str, start: int | None) -> None:
    assert file_start(name) == start


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("clicks-0", ("clicks", 0)),
        ("my_topic_1", ("my_topic", 1)),
        ("my-topic-12", ("my-topic", 12)),
        ("a_1-2", ("a_1", 2)),
        ("clicks", None),
        ("-3", None),
        ("clicks-", None),
        ("clicks-99999999999", None),
        ("clicks-2147483648", None),
    ],
)
def test_directory_names(name: str, found: tuple[str, int] | None) -> None:
    assert log_and_partition(name) == found


def test_logs_of_a_directory(tmp_path: Path) -> None:
    for name in ("clicks-0", "clicks-10", "my_topic_1", "kafka10-3"):
        (tmp_path / name).mkdir()
    (tmp_path / "clicks-0" / "00000000000000000000.kafka").touch()
    (tmp_path / "kafka10-3" / "00000000000000000000.log").touch()
    (tmp_path / "clicks-7").touch()
    assert {log: sorted(found) for log, found in logs_in(tmp_path).items()} == {"clicks": [0, 10], "my_topic": [1]}
    assert logs_in(tmp_path / "clicks-0") == {"clicks": {0: tmp_path / "clicks-0"}}


def test_a_partition_may_be_there_once(tmp_path: Path) -> None:
    (tmp_path / "clicks-0").mkdir()
    (tmp_path / "clicks_0").mkdir()
    with pytest.raises(OldLogError, match="both partition 0 of clicks"):
        logs_in(tmp_path)


def test_files_are_in_the_order_of_their_offsets_whatever_their_width(tmp_path: Path) -> None:
    for name in ("00000000500.kafka", "00000000000000000100.kafka", "00000000000.kafka", "x.kafka"):
        (tmp_path / name).touch()
    assert [file.start for file in files_of(tmp_path)] == [0, 100, 500]
    (tmp_path / "00000000100.kafka").touch()
    with pytest.raises(OldLogError, match="same offset"):
        files_of(tmp_path)
