"""Planted damage to files is found and named, and nothing that stands in a file stops the audit."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.records.batch import HEADER_SIZE, read_header
from oncelog.spark.audit.directories import NothingToAudit, plan
from oncelog.spark.audit.model import Finding
from oncelog.spark.audit.segments import batch_headers
from oncelog.storage.file_names import CLEANER_OFFSETS
from tests.unit.spark.audit.logs import TIME, Coordinator, Log, damaged, findings_in, run


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Two segments of committed and aborted transactions, of two producers at once."""
    log, coordinator = Log(tmp_path, "t"), Coordinator(tmp_path)
    for epoch in range(12):
        committed = epoch % 3 != 1
        log.data(7, epoch)
        log.data(8, epoch)
        for pid in (7, 8):
            log.marker(pid, epoch + 1, committed=committed)
            coordinator.ended("t-0", pid=pid, epoch=epoch, committed=committed, name=f"app-{pid}", at=6 * epoch)
        if epoch == 5:
            log.roll()
    coordinator.write()
    return log.write()


def batches(log: Log, base: int = 0) -> list[tuple[int, int]]:
    """Position and base offset of the batches of a segment."""
    data, at, places = log.file(base=base).read_bytes(), 0, []
    while at < len(data):
        header = read_header(data, at)
        places.append((at, header.base_offset))
        at += header.size_bytes
    return places


def only(findings: list[Finding]) -> tuple[str, int, str]:
    (one,) = findings
    assert (one.topic, one.partition) == ("t", 0)
    return one.kind, one.offset, one.text


def test_a_flipped_bit_in_a_record_is_a_wrong_checksum_and_nothing_else(log: Log, tmp_path: Path) -> None:
    position, offset = batches(log)[4]
    with damaged(log.file()) as data:
        data[position + HEADER_SIZE + 8] ^= 1
    kind, place, text = only(findings_in(tmp_path))
    assert (kind, place) == ("crc", offset)
    assert f"at byte {position}" in text
    assert findings_in(tmp_path, crc=False) == []


def test_a_damaged_marker_makes_no_transaction_hang(log: Log, tmp_path: Path) -> None:
    position, offset = batches(log)[2]
    with damaged(log.file()) as data:
        data[position + HEADER_SIZE + 8] ^= 1
    assert only(findings_in(tmp_path))[:2] == ("crc", offset)
    assert run(tmp_path).transactions[0].fate == "unknown"


def test_garbage_in_the_middle_hides_neither_what_follows_nor_itself(log: Log, tmp_path: Path) -> None:
    position, offset = batches(log)[5]
    following, _ = batches(log)[6]
    with damaged(log.file()) as data:
        data[position : position + 40] = random.Random(1).randbytes(40)
    kind, place, text = only([item for item in findings_in(tmp_path) if item.kind != "producer-snapshot"])
    assert (kind, place) == ("garbage", offset)
    assert f"{following - position} bytes are no batch (at byte {position})" in text


@pytest.mark.parametrize(
    ("tail", "text"),
    [
        (b"\0" * 4096, "4096 zero bytes"),
        (b"\0" * 30, "30 zero bytes"),
        (b"\1" * 30, "fewer than a header"),
        (random.Random(2).randbytes(3000), "no batch at"),
    ],
)
def test_what_stands_after_the_last_batch(log: Log, tmp_path: Path, tail: bytes, text: str) -> None:
    with log.file(base=36).open("ab") as file:
        file.write(tail)
    kind, place, message = only(findings_in(tmp_path))
    assert (kind, place) == ("tail", log.end)
    assert text in message


def test_a_torn_write_at_the_end(log: Log, tmp_path: Path) -> None:
    size = log.file(base=36).stat().st_size
    with log.file(base=36).open("r+b") as file:
        file.truncate(size - 10)
    kind, place, text = only(findings_in(tmp_path))
    assert (kind, place) == ("tail", log.end - 1)
    assert "a batch of 78 bytes is cut off" in text


def test_a_segment_that_is_gone(log: Log, tmp_path: Path) -> None:
    log.roll()
    log.transaction(epoch=12)
    log.write()
    for file in log.path.glob("00000000000000000036.*"):
        if file.suffix != ".snapshot":
            file.unlink()
    kind, place, text = only([item for item in findings_in(tmp_path) if item.topic == "t" and item.kind == "gap"])
    assert (kind, place) == ("gap", 36)
    assert "36 offsets are missing" in text


def test_a_batch_whose_header_contradicts_its_place(log: Log, tmp_path: Path) -> None:
    position, offset = batches(log)[3]
    with damaged(log.file()) as data:
        struct.pack_into(">q", data, position, offset - 2)
    assert ("batch", offset) in [(record.kind, record.offset) for record in findings_in(tmp_path)]


def _entry(at: int, layout: str, *values: int) -> Callable[[bytearray], None]:
    def plant(data: bytearray) -> None:
        struct.pack_into(layout, data, at, *values)

    return plant


@pytest.mark.parametrize(
    ("extension", "kind", "plant", "text"),
    [
        (".index", "offset-index", _entry(12, ">i", 300), "no batch begins at position 300"),
        (".index", "offset-index", _entry(8, ">i", 5), "stands before position"),
        (".index", "offset-index", lambda data: data.extend(b"\1\1\1"), "offset index of"),
        (".timeindex", "time-index", _entry(0, ">q", TIME + 3000), "says"),
        (".timeindex", "time-index", _entry(8, ">i", 7), "later than"),
        (".txnindex", "transaction-index", _entry(2, ">q", 99), "the log no marker"),
        (".txnindex", "transaction-index", _entry(10, ">q", 7), "the index says it began at offset 7, the log says 6"),
        (".txnindex", "transaction-index", _entry(26, ">q", 30), "the index says the last stable offset was 30"),
        (".txnindex", "transaction-index", lambda data: data.__delitem__(slice(0, 34)), "is not in the index"),
    ],
)
def test_index_entries_that_lie(
    log: Log, tmp_path: Path, extension: str, kind: str, plant: Callable[[bytearray], None], text: str
) -> None:
    with damaged(log.file(extension)) as data:
        plant(data)
    findings = findings_in(tmp_path)
    assert {finding.kind for finding in findings} == {kind}
    assert text in " ".join(finding.text for finding in findings)


def test_zeros_that_a_killed_broker_leaves_in_its_indexes_are_no_lie(log: Log, tmp_path: Path) -> None:
    for extension, size in ((".index", 8), (".timeindex", 12)):
        with log.file(extension, 36).open("ab") as file:
            file.write(bytes(size * 100))
    assert findings_in(tmp_path) == []


@pytest.mark.parametrize(
    ("at", "layout", "value", "text"),
    [
        (18, ">h", 3, "epoch 3, the log says 6"),
        (48, ">q", 30, "open transaction from offset 30, the log says none"),
        (20, ">i", 5, None),
    ],
)
def test_a_producer_snapshot_that_disagrees(
    log: Log, tmp_path: Path, at: int, layout: str, value: int, text: str | None
) -> None:
    from crc32c import crc32c

    with damaged(log.file(".snapshot", 36)) as data:
        struct.pack_into(layout, data, at, value)
        if text is not None:
            struct.pack_into(">I", data, 2, crc32c(bytes(data[6:])))
    kind, place, message = only(findings_in(tmp_path))
    assert (kind, place) == ("producer-snapshot", 36)
    assert (text or "does not match its checksum") in message


@pytest.mark.parametrize("removed", [1, 2])
def test_a_snapshot_amid_a_transaction_whose_records_were_compacted_is_no_lie(tmp_path: Path, removed: int) -> None:
    log = Log(tmp_path, "t")
    log.transaction()
    log.data(epoch=1)
    log.data(epoch=1, sequence=2)
    log.roll()
    log.marker(epoch=2)
    # Compaction took one or both batches of the transaction away; the first transaction stays.
    segment = log.segments[0]
    del segment[2 : 2 + removed]
    log.write()
    (tmp_path / CLEANER_OFFSETS).write_text("0\n1\nt 0 7\n")
    assert findings_in(tmp_path) == []


def test_a_replica_that_is_damaged_is_named_and_the_history_told_by_the_other(log: Log, tmp_path: Path) -> None:
    import shutil

    brokers = tmp_path / "cluster"
    for number in (1, 2):
        shutil.copytree(tmp_path, brokers / f"broker-{number}", ignore=shutil.ignore_patterns("cluster"))
    for text in ("t-0", "__transaction_state-0"):
        shutil.rmtree(tmp_path / text)
    assert findings_in(brokers) == []
    with (brokers / "broker-2" / "t-0" / log.file(base=36).name).open("r+b") as file:
        file.truncate(300)
    (finding,) = findings_in(brokers)
    assert finding.kind == "tail"
    assert "broker-2" in finding.path
    tallies = run(brokers).tallies
    assert sum(tally.parts for tally in tallies) == 24


def test_damage_to_the_coordinators_log_accuses_nobody(log: Log, tmp_path: Path) -> None:
    path = tmp_path / "__transaction_state-0" / log.file().name
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size // 2 + 7)
    assert [item.kind for item in findings_in(tmp_path)] == ["tail"]


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(NothingToAudit, match="no log segments in"):
        plan([tmp_path])
    with pytest.raises(FileNotFoundError):
        plan([tmp_path / "missing"])


def test_hostile_files_are_findings_never_a_crash(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes changed, cut, doubled and zeroed in all files at once; pieces so small that everything straddles them."""
    monkeypatch.setattr(batch_headers, "PIECE_BYTES", 400)
    original = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    draw = random.Random(3)
    for _ in range(12):
        for path, data in original.items():
            changed = bytearray(data)
            for _ in range(draw.randrange(1, 6)):
                at = draw.randrange(len(changed) or 1)
                kind = draw.randrange(4)
                if kind == 0 and changed:
                    changed[at] = draw.randrange(256)
                elif kind == 1:
                    changed[at : at + 20] = draw.randbytes(draw.randrange(40))
                elif kind == 2:
                    del changed[at:]
                else:
                    changed[at : at + 8] = b"\x7f\xff\xff\xff\xff\xff\xff\xff"
            path.write_bytes(changed)
        run(tmp_path, crc=draw.random() < 0.5)
    for path, data in original.items():
        path.write_bytes(data)
    assert findings_in(tmp_path) == []
