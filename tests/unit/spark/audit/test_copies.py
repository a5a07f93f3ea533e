"""Incomplete copies of sound logs: what is missing must not be taken for what went wrong."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.records.batch import read_header
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.spark.audit.audit_context import Limits
from oncelog.spark.audit.directories import plan
from tests.unit.spark.audit.logs import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    STOPPED,
    TIME,
    Coordinator,
    Log,
    commit_offset,
    findings_in,
    run,
)

WRONG = {"torn", "hanging", "late-write", "stray-marker", "duplicate", "aborted-offsets", "offsets-beyond-log"}
"""Kinds that say that somebody did something wrong, not that bytes are missing or damaged."""
COPIED = Limits(transaction_partitions=1)


class Cluster:
    """Producers whose transactions overlap, on two partitions and with offsets; nothing is wrong with them."""

    def __init__(self, directory: Path, *, seed: int, version: int, transactions: int = 40) -> None:
        self.directory, self.version, self.random = directory, version, random.Random(seed)
        self.logs = [Log(directory, "t", 0), Log(directory, "t", 1)]
        self.offsets = Log(directory, "__consumer_offsets")
        self.coordinator = Coordinator(directory)
        for log in (*self.logs, self.offsets):
            log.now = self.now  # type: ignore[method-assign]  # one clock for all
        self.epochs = dict.fromkeys((7, 8, 9), 0)
        self.sequences: dict[tuple[int, int], int] = {}
        running: dict[int, list[int]] = {}
        for number in range(transactions):
            pid = self.random.choice(sorted(self.epochs))
            if pid in running:
                self.end(pid, running.pop(pid), committed=self.random.random() < 0.6)
            else:
                running[pid] = self.begin(pid, number)
            if number in (12, 25):
                for log in self.logs:
                    log.roll()
        for pid, places in running.items():
            self.end(pid, places, committed=True)
        for log in (*self.logs, self.offsets):
            log.write()
        self.coordinator.write()

    def now(self, offset: int | None = None) -> int:
        return TIME + 1000 * sum(log.end for log in (*self.logs, self.offsets))

    def begin(self, pid: int, number: int) -> list[int]:
        places = sorted(self.random.sample((0, 1), self.random.choice((1, 2))))
        self.state(pid, ONGOING, places)
        for place in places:
            at = self.sequences.get((pid, place), 0) if self.version < 2 else 0
            for _ in range(self.random.choice((1, 2))):
                self.logs[place].data(pid, self.epochs[pid], at)
                at += 2
            self.sequences[pid, place] = at
        commit_offset(self.offsets, f"g{number}", "t", places[0], 0, pid, self.epochs[pid])
        return places

    def end(self, pid: int, places: list[int], *, committed: bool) -> None:
        self.epochs[pid] += self.version == 2
        self.state(pid, PREPARE_COMMIT if committed else PREPARE_ABORT, places)
        for log in (*(self.logs[place] for place in places), self.offsets):
            log.marker(pid, self.epochs[pid], committed=committed)
        self.state(pid, COMPLETE_COMMIT if committed else COMPLETE_ABORT, [])

    def state(self, pid: int, status: int, places: list[int]) -> None:
        named = " ".join(("__consumer_offsets-0", *(f"t-{place}" for place in places))) if places else ""
        at = (self.now() - TIME) // 1000
        self.coordinator.state(f"app-{pid}", pid, self.epochs[pid], status, named, at, self.version)


def batches(path: Path) -> list[int]:
    """The positions at which a file's batches begin, and the end of the last."""
    data, places = path.read_bytes(), [0]
    while places[-1] < len(data):
        places.append(places[-1] + read_header(data, places[-1]).size_bytes)
    return places


def logs_of(directory: Path, partition: str = "t-*") -> list[Path]:
    return sorted(path for path in directory.glob(f"{partition}/*.log") if path.stat().st_size)


def forget_what_stands_beside(directory: Path) -> None:
    for path in (*directory.glob("*/*index"), *directory.glob("*/*.snapshot")):
        path.unlink()


def accused(directory: Path, limits: Limits) -> list[str]:
    findings = run(directory, limits=limits).findings
    return [
        f"{finding.kind} {finding.topic} {finding.partition} {finding.offset}: {finding.text}"
        for finding in findings
        if finding.kind in WRONG
    ]


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("seed", range(4))
def test_bytes_that_are_lost_in_the_middle_accuse_nobody(tmp_path: Path, seed: int, version: int) -> None:
    cluster = Cluster(tmp_path / "whole", seed=seed, version=version)
    assert accused(cluster.directory, STOPPED) == []
    for number in range(5):
        copy = tmp_path / str(number)
        shutil.copytree(cluster.directory, copy)
        forget_what_stands_beside(copy)
        inner = [log for log in logs_of(copy) if log != logs_of(copy, log.parent.name)[-1]]
        path = cluster.random.choice(inner)
        data, places = bytearray(path.read_bytes()), batches(path)
        text = ("cut", "zeros", "flip", "segment")[number % 4]
        first = cluster.random.randrange(len(places) - 2)
        last = cluster.random.randrange(first + 1, min(first + 6, len(places) - 1))
        if text == "cut":
            del data[places[first] : places[last]]
        elif text == "zeros":
            begin = places[first] + cluster.random.randrange(40)
            data[begin : places[last]] = bytes(places[last] - begin)
        elif text == "flip":
            data[places[first] + cluster.random.randrange(23, 60)] ^= 1 << cluster.random.randrange(8)
        path.write_bytes(data)
        if text == "segment":
            path.unlink()
        assert accused(copy, STOPPED) == [], f"seed {seed}, version {version}: {text} in {path.name} from batch {first}"


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("seed", range(4))
def test_logs_that_were_copied_one_after_the_other_accuse_nobody(tmp_path: Path, seed: int, version: int) -> None:
    cluster = Cluster(tmp_path / "whole", seed=seed, version=version)
    for number in range(4):
        copy = tmp_path / str(number)
        shutil.copytree(cluster.directory, copy)
        forget_what_stands_beside(copy)
        for path in (*logs_of(copy)[-1:], *copy.glob("__*/*.log")):
            if cluster.random.random() < 0.6:
                end = cluster.random.choice(batches(path)[1:])
                path.write_bytes(path.read_bytes()[:end])
        assert accused(copy, COPIED) == [], f"seed {seed}, version {version}, copy {number}"


def test_what_is_older_than_the_copies_may_be_apart_is_missing(tmp_path: Path) -> None:
    log, coordinator = Log(tmp_path, "t"), Coordinator(tmp_path)
    coordinator.ended("t-0", epoch=0)
    log.transaction(epoch=0)
    log.transaction(pid=55, epoch=0)
    hung = log.data(pid=56)
    log.now = lambda offset=None: TIME + 400_000  # type: ignore[method-assign]  # some seven minutes pass
    coordinator.ended("t-0", epoch=1, at=400)
    log.transaction(epoch=1)
    log.transaction(pid=57, epoch=0)
    log.write()
    coordinator.write()
    kinds = [(finding.kind, finding.producer_id) for finding in run(tmp_path, limits=COPIED).findings]
    assert kinds == [("hanging", 56), ("stray-marker", 55)]
    assert hung in [finding.offset for finding in run(tmp_path, limits=COPIED).findings]
    (tmp_path / ".kafka_cleanshutdown").touch()
    assert ("stray-marker", 57) in [
        (finding.kind, finding.producer_id) for finding in run(tmp_path, limits=COPIED).findings
    ]


def test_compaction_forgets_producer_ids_that_were_replaced(tmp_path: Path) -> None:
    """A transactional id has another producer id after 32,767 epochs, and its records one key."""
    log, coordinator = Log(tmp_path, "t"), Coordinator(tmp_path)
    log.transaction(pid=6, epoch=32_766)
    log.transaction(pid=7, epoch=0)
    coordinator.ended("t-0", pid=6, epoch=32_766)
    coordinator.log.segments[0].clear()  # as the cleaner does
    coordinator.ended("t-0", pid=7, epoch=0, at=5)
    log.write()
    coordinator.write()
    assert findings_in(tmp_path) == []


def test_a_coordinators_log_that_is_not_here_is_missed(tmp_path: Path) -> None:
    Log(tmp_path, "t").write()
    log = Log(tmp_path, "t")
    log.data(pid=99)
    log.write()
    for partition in (0, 1, 2):
        Coordinator(tmp_path, partition).write()
    unknown = replace(STOPPED, transaction_partitions=None)
    assert findings_in(tmp_path) == run(tmp_path, limits=unknown).findings == []
    with sqlite3.connect(tmp_path / "coordination.db") as tree:
        tree.execute("CREATE TABLE node (path TEXT PRIMARY KEY, value BLOB, version INTEGER, session INTEGER)")
        value = json.dumps({"partitions": {"0": [1], "1": [1], "2": [1]}})
        tree.execute("INSERT INTO node VALUES ('/brokers/topics/__transaction_state', ?, 0, NULL)", (value,))
    tree.close()
    assert [finding.kind for finding in run(tmp_path, limits=unknown).findings] == ["hanging"]


def test_the_number_of_coordinators_by_the_metadata_of_a_cluster(tmp_path: Path) -> None:
    """Records of KIP-631: frame version, type, version, body."""
    topic_id, name = bytes(range(16)), b"__transaction_state"
    values = [b"\1\2\0" + bytes((len(name) + 1,)) + name + topic_id + b"\0"]
    values += [b"\1\3\0" + number.to_bytes(4, "big") + topic_id + b"\0" * 9 for number in range(4)]
    values += [b"\1\3\0" + b"\0\0\0\7" + bytes(16) + b"\0" * 9, b"", b"\1"]
    batch = build_batch([Record(offset, TIME, None, value) for offset, value in enumerate(values)])
    (tmp_path / "__cluster_metadata-0").mkdir()
    (tmp_path / "__cluster_metadata-0" / f"{0:020d}.log").write_bytes(bytes(batch) + b"not a batch")
    Log(tmp_path, "t").write()
    assert plan([tmp_path]).transaction_partitions == 4


def test_the_replica_that_reaches_furthest_has_more_offsets_not_more_files(tmp_path: Path) -> None:
    one, other = Log(tmp_path / "broker-1", "t"), Log(tmp_path / "broker-2", "t")
    for epoch in range(3):
        one.transaction(epoch=epoch)
        if epoch < 2:
            other.transaction(epoch=epoch)
    other.roll()
    one.write()
    other.write()
    assert findings_in(tmp_path) == []
    assert sum(tally.parts for tally in run(tmp_path).tallies) == 3


def test_clients_clocks_are_not_the_time(tmp_path: Path) -> None:
    log, coordinator = Log(tmp_path, "t"), Coordinator(tmp_path)
    log.transaction(epoch=0)
    coordinator.ended("t-0", epoch=0)
    log.data(epoch=1)
    coordinator.state(epoch=1, places="t-0", at=log.end)
    ahead = Log(tmp_path, "u")
    ahead.append(build_batch([Record(0, TIME + 40 * 60_000, None, b"x")]))
    for item in (log, ahead, coordinator):
        item.write()
    assert findings_in(tmp_path) == []


def test_a_transaction_index_that_is_not_there_is_one_finding(tmp_path: Path) -> None:
    log = Log(tmp_path, "t")
    for epoch in range(10):
        log.transaction(epoch=epoch, committed=False)
        log.transaction(pid=8, epoch=epoch, committed=False)
    log.write()
    log.file(".txnindex").unlink()
    (finding,) = findings_in(tmp_path)
    assert (finding.kind, finding.offset, finding.path) == ("transaction-index", 0, str(log.file()))
