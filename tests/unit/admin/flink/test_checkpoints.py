"""Checkpoints of Flink 2.2, recorded; others as Flink of older versions writes them; and damaged and hostile ones."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from oncelog.admin.flink import checkpoint_directory
from oncelog.admin.flink.checkpoint_directory import read_checkpoint
from oncelog.admin.flink.data_input import DataInput, FlinkStateError
from oncelog.client.machine.transaction_values import StoredTransaction
from tests.unit.admin.flink import written
from tests.unit.admin.flink.written import int32, int64, text

RECORDED = Path(__file__).parent / "recorded"
STORED = StoredTransaction("job-0-3", 4711, 2)
COMMITTER = "streaming_committer_raw_states"
WRITER = "writer_raw_states"


def make(directory: Path, *operators: bytes, version: int = 6) -> Path:
    path = directory / "chk-7"
    path.mkdir(exist_ok=True)
    (path / "_metadata").write_bytes(written.metadata(*operators, version=version))
    return path


def committing(*requests: bytes, name: str = COMMITTER, compressed: bool = False) -> bytes:
    data, offsets = written.stream(written.committer([*requests]), compressed=compressed)
    return written.operator_state(name, offsets, written.inline(data))


def of_sink(state: bytes, version: int = 6, keyed: bytes = b"\x00") -> bytes:
    return written.operator(written.subtask(state, keyed), version=version)


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("files", StoredTransaction("saved-job-0-2", 1, 0)),
        ("inline", StoredTransaction("saved-job-0-1", 0, 3)),
    ],
)
def test_checkpoints_of_a_real_job(name: str, stored: StoredTransaction) -> None:
    checkpoint = read_checkpoint(RECORDED / name / "chk-2")
    assert (checkpoint.checkpoint_id, checkpoint.newer) == (2, [])
    assert checkpoint.sink.committables == {stored: 2}
    assert (checkpoint.sink.prefixes, checkpoint.sink.prepared) == ({"saved-job"}, {stored.transactional_id})
    assert read_checkpoint(RECORDED / name / "chk-2" / "_metadata") == checkpoint, "Flink takes the file as well"
    assert checkpoint.sink.owns("saved-job-0-12")
    for other in ("saved-job", "saved-job-0", "saved-jobs-0-1", "saved-job-0-1-2", "saved-job-0-x", "other-0-1"):
        assert not checkpoint.sink.owns(other)


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_each_version_of_the_metadata(version: int, tmp_path: Path) -> None:
    state = committing(written.request(written.committable(STORED)))
    checkpoint = read_checkpoint(make(tmp_path, of_sink(state, version), version=version))
    assert checkpoint.sink.committables == {STORED: 7}


def test_committables_of_old_connectors_and_of_other_sinks(tmp_path: Path) -> None:
    data, offsets = written.stream(written.old_committer([written.committable(STORED), b"a file of another sink"]))
    state = written.operator_state(COMMITTER, offsets, written.inline(data))
    sink = read_checkpoint(make(tmp_path, of_sink(state))).sink
    assert (sink.committables, sink.foreign) == ({STORED: None}, 1)


def test_requests_that_are_over_do_not_count(tmp_path: Path) -> None:
    other = STORED._replace(transactional_id="job-0-4")
    requests = [written.request(written.committable(STORED), 3), written.request(written.committable(other), 1)]
    assert read_checkpoint(make(tmp_path, of_sink(committing(*requests)))).sink.committables == {other: 7}


def test_writers_of_other_sinks_are_left_out(tmp_path: Path) -> None:
    elements = [
        written.writer("job", "job-0-3"),
        int32(1) + written.blob(text("old")),
        int32(1) + written.blob(b"\xff"),
    ]
    data, offsets = written.stream(*elements)
    state = written.operator_state(WRITER, offsets, written.inline(data))
    sink = read_checkpoint(make(tmp_path, of_sink(state))).sink
    assert (sink.prefixes, sink.prepared) == ({"job", "old"}, {"job-0-3"})


def keyed_states() -> list[bytes]:
    """One of each type that is skipped."""
    handle = written.in_file("file:/c/chk-7/x", 3)
    groups = int32(0) + int32(2) + int64(0) + int64(9)
    incremental = int64(7) + text("backend") + int32(0) + int32(2)
    files = int32(1) + text("000001.sst") + handle
    small = b"\x03" + groups + handle
    return [
        small,
        b"\x07" + groups + handle,
        b"\x0c" + groups + handle + text("id"),
        b"\x05" + incremental + handle + files + int32(0),
        b"\x0b" + incremental + int64(5) + handle + files + files + text("id"),
        b"\x08" + int32(0) + int32(2) + int64(5) + int32(1) + small + int32(0) + int64(1) + text("id"),
        b"\x0e" + int32(0) + int32(2) + int64(5) + int32(0) + int32(1) + small + int64(1) + int64(7) + text("id"),
        b"\x09" + bytes(24) + int32(1) + int32(-1) + written.blob(b"change") + text("id"),
        b"\x0a" + int32(0) + int32(2) + int32(1) + int64(0) + handle + int64(3) + int64(3) + text("id"),
        b"\x0d" + int32(0) + int32(2) + int32(0) + int64(3) + int64(3) + text("id") + text("filesystem"),
        b"\x03" + groups + b"\x03" + groups + written.inline(b"nested"),
    ]


@pytest.mark.parametrize("keyed", keyed_states(), ids=lambda keyed: f"type {keyed[0]}")
def test_keyed_states_before_the_sink_are_skipped(keyed: bytes, tmp_path: Path) -> None:
    first = written.operator(written.subtask(None, keyed))
    state = committing(written.request(written.committable(STORED)))
    assert read_checkpoint(make(tmp_path, first, of_sink(state))).sink.committables == {STORED: 7}


def test_channel_states_and_finished_subtasks_are_skipped(tmp_path: Path) -> None:
    handle = written.inline(b"")
    plain = b"\x01" + bytes(12) + int32(1) + int64(5) + int64(3) + handle
    merged = b"\x03" + bytes(12) + handle + written.blob(b"offsets")
    channels = int32(0) + int32(0) + int32(0) + b"\x00\x00" + int32(2) + plain + merged + int32(0)
    finished = written.operator()[:-4] + int32(-1)
    state = committing(written.request(written.committable(STORED)))
    operators = (written.operator(channels, int32(-2)), finished, of_sink(state))
    assert read_checkpoint(make(tmp_path, *operators)).sink.committables == {STORED: 7}


def test_states_in_files_beside_the_checkpoint(tmp_path: Path) -> None:
    data, offsets = written.stream(written.committer([written.request(written.committable(STORED))]))
    for place, handle in (
        ("chk-7/state", written.in_file("s3://bucket/elsewhere/chk-7/state", len(data))),
        ("chk-7/state", b"\x06" + text("state") + int64(len(data))),
        ("shared/a/state", written.in_file("hdfs://name/c/shared/a/state", len(data))),
        ("taskowned/job/state", written.in_segment("file:/c/taskowned/job/state", 5, len(data))),
    ):
        path = make(tmp_path, of_sink(written.operator_state(COMMITTER, offsets, handle)))
        file = tmp_path / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes((b"12345" if handle[0] == 15 else b"") + data)
        assert read_checkpoint(path).sink.committables == {STORED: 7}, place
        file.unlink()
        with pytest.raises(FlinkStateError, match="cannot be read"):
            read_checkpoint(path)


def test_newer_checkpoints_are_named(tmp_path: Path) -> None:
    path = make(tmp_path, of_sink(committing(written.request(written.committable(STORED)))))
    for name, is_complete in (("chk-8", True), ("chk-10", True), ("chk-9", False), ("chk-6", True)):
        (tmp_path / name).mkdir()
        if is_complete:
            (tmp_path / name / "_metadata").touch()
    assert read_checkpoint(path).newer == ["chk-8", "chk-10"]


def test_paths_lead_nowhere_else(tmp_path: Path) -> None:
    data, offsets = written.stream(written.committer([written.request(written.committable(STORED))]))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(data)
    checkpoints = tmp_path / "c"
    checkpoints.mkdir()

    def read(path: str) -> None:
        state = written.operator_state(COMMITTER, offsets, written.in_file(path, len(data)))
        read_checkpoint(make(checkpoints, of_sink(state)))

    for path in (f"{outside}/secret", "/c/shared/../../outside/secret", "..", "", "/c/shared/x\0y"):
        with pytest.raises(FlinkStateError):
            read(path)
    (checkpoints / "chk-7" / "link").symlink_to(outside / "secret")
    with pytest.raises(FlinkStateError, match="it is a symbolic link"):
        read("link")
    (checkpoints / "shared").mkdir()
    (checkpoints / "shared" / "a").symlink_to(outside)
    with pytest.raises(FlinkStateError, match="leads out of"):
        read("/c/shared/a/secret")
    os.mkfifo(checkpoints / "chk-7" / "pipe")
    with pytest.raises(FlinkStateError, match="is not a file"):
        read("pipe")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "4 bytes are announced, and 0 are left"),
        (b"PK\x03\x04 a zip", "it does not begin as the _metadata file"),
        (written.metadata(version=2), "metadata version 2 is not supported; 3 to 6 are"),
        (written.metadata(version=7), "metadata version 7 is not supported"),
        (written.metadata(checkpoint_id=-1), "checkpoint id -1 is negative"),
        (int32(0x4960672D) + int32(6) + int64(7) + int32(2**31 - 1), "2147483647 master states are announced"),
        (int32(0x4960672D) + int32(6) + int64(7) + int32(-1), "-1 master states are announced"),
        (written.metadata(of_sink(b"\x63")), "operator state of type 99 is unknown"),
        (written.metadata(of_sink(committing(), keyed=b"\x63")), "keyed state of type 99 is unknown"),
        (written.metadata(of_sink(committing(), keyed=(b"\x08" + bytes(16) + int32(1)) * 20)), "nested more than 8"),
        (written.metadata(of_sink(written.operator_state(COMMITTER, [0], b"\x1f"))), "stream state of type 31"),
        (written.metadata(of_sink(written.operator_state(COMMITTER, [999], written.inline(b"")))), "at byte 999"),
        (written.metadata(of_sink(committing(compressed=True))), "is compressed"),
        (written.metadata(of_sink(committing())) [:-30], "bytes are announced"),
    ],
)  # fmt: skip
def test_damage_is_named(content: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "_metadata").write_bytes(content)
    with pytest.raises(FlinkStateError) as error:
        read_checkpoint(tmp_path)
    assert problem in str(error.value)
    assert str(tmp_path / "_metadata") in str(error.value)


def test_damage_of_a_committer_s_state_is_named(tmp_path: Path) -> None:
    for element, problem in (
        (int32(2) + written.blob(int32(1)), "wrong magic number"),
        (int32(3) + written.blob(int32(written.MAGIC)), "version 3; 1 and 2 are supported"),
        (written.committer([b"short"]), "bytes are announced"),
        (int32(2) + written.blob(int32(written.MAGIC) + written.listed(1, []) + b"x"), "1 bytes follow the end"),
    ):
        data, offsets = written.stream(element)
        state = written.operator_state(COMMITTER, offsets, written.inline(data))
        with pytest.raises(FlinkStateError) as error:
            read_checkpoint(make(tmp_path, of_sink(state)))
        assert problem in str(error.value)
        assert "state of subtask 0 of 'sink'" in str(error.value)


def test_large_files_and_long_lists_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path, of_sink(committing(written.request(written.committable(STORED)))))
    monkeypatch.setattr(checkpoint_directory, "MAX_METADATA_BYTES", 100)
    with pytest.raises(FlinkStateError, match="at most 100 are read"):
        read_checkpoint(path)
    monkeypatch.undo()
    monkeypatch.setattr(checkpoint_directory, "MAX_TOTAL_BYTES", 10)
    with pytest.raises(FlinkStateError, match="the states of"):
        read_checkpoint(path)
    monkeypatch.undo()
    large = written.operator_state(COMMITTER, [0], written.in_file("state", 1 << 40))
    with pytest.raises(FlinkStateError, match="a state of 1099511627776 bytes"):
        read_checkpoint(make(tmp_path, of_sink(large)))
    lists = DataInput(memoryview(int32(1_500_000) * 2 + bytes(2_000_000)), "lists")
    lists.count("elements")
    with pytest.raises(FlinkStateError, match="1500000 elements are announced"):
        lists.count("elements")


def test_any_damage_ends_as_an_error_or_a_result(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    whole = (RECORDED / "inline" / "chk-2" / "_metadata").read_bytes()
    errors = []
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        if chance.random() < 0.3:
            del damaged[chance.randrange(len(damaged)) :]
        (tmp_path / "_metadata").write_bytes(damaged)
        try:
            read_checkpoint(tmp_path)
        except FlinkStateError as error:
            errors.append(str(error))
    assert all(str(tmp_path) in error for error in errors)


def test_strings_of_java() -> None:
    data = b"\x00\x09a\xc0\x80\xed\xa0\xbd\xed\xb8\x80"
    assert DataInput(memoryview(data), "text").text() == "a\0\U0001f600"
    for bad in (b"\x00\x01\xff", b"\x00\x03\xed\xa0\xbd"):
        with pytest.raises(FlinkStateError, match="a string is not UTF-8"):
            DataInput(memoryview(bad), "text").text()
