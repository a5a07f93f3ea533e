"""``oncelog audit`` in this process: what it prints, its exit codes, what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from oncelog.cli.main import invoke
from tests.unit.spark.audit.logs import Coordinator, Log


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    log, coordinator = Log(tmp_path / "data", "t"), Coordinator(tmp_path / "data")
    log.transaction(epoch=0)
    coordinator.ended("t-0", epoch=0, name="<b>\x1b[31m")
    coordinator.write()
    log.write()
    (tmp_path / "data" / ".kafka_cleanshutdown").touch()
    return tmp_path / "data"


def hang(directory: Path) -> None:
    log = Log(directory, "t")
    log.transaction(epoch=0)
    log.data(epoch=1)
    log.write()


def test_a_clean_directory(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["audit", str(directory), "--fail-on-findings"]) == 0
    assert "transactions by partition: 1 committed" in (out := capsys.readouterr().out)
    assert "nothing found that cannot be right" in out


def test_findings_in_a_table_json_and_a_page(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hang(directory)
    page = tmp_path / "page.html"
    assert invoke(["audit", str(directory), "--html", str(page)]) == 0
    out = capsys.readouterr().out
    assert "hanging" in out
    assert "\x1b" not in out
    text = page.read_text()
    assert "&lt;b&gt;" in text
    assert "http" not in text.replace("http-equiv", "")
    assert "<script" not in text
    assert invoke(["audit", str(directory), "--json", "--progress", "--fail-on-findings"]) == 2
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    told = [json.loads(line) for line in printed.err.splitlines()]
    assert told[0] == {"step": "reading segments", "done": 0, "total": 2}
    assert told[-1]["done"] == 2
    assert sum(item.get("hanging", 0) for item in report["over_time"]["transactions"]) == 1
    assert report["meanings"] == {"hanging": "an open transaction that no coordinator will end"}
    assert report["findings"] == {"hanging": 1}
    assert report["listed"][0]["offset"] == 3
    assert report["transactions"] == {"committed": 1, "hanging": 1}


def test_what_it_does_not_judge(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hang(directory)
    (directory / ".kafka_cleanshutdown").unlink()
    assert invoke(["audit", str(directory), "--fail-on-findings"]) == 0
    out = capsys.readouterr().out
    assert "nothing newer than 2023-11-14T22:08:22.000Z is said to be missing" in out
    assert "--transaction-partitions tells how many there are" in out
    assert invoke(["audit", str(directory), "--fail-on-findings", "--copied-within", "0"]) == 2


def test_what_it_refuses(directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert invoke(["audit", str(tmp_path / "empty")]) == 1
    assert invoke(["audit", str(tmp_path / "missing")]) == 1
    assert invoke(["audit", str(directory), "--to", str(directory / "report")]) == 2
    assert "is inside a directory that is audited" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["numpy", "pyarrow"])
def test_without_spark_no_more_is_asked_for_than_what_reads_segments(
    missing: str, directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    for options in ([], ["--no-spark"]):
        assert invoke(["audit", str(directory), *options]) == 1
        output = capsys.readouterr().err
        assert f"{missing} is not installed" in output
        assert "--no-spark needs pip install numpy pyarrow" in output
    assert invoke(["audit", str(directory), "--spark"]) == 1
    assert "install it with: pip install 'oncelog[spark]'" in capsys.readouterr().err
