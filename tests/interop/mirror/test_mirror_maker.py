"""``oncelog mirror verify --mm2``: internal topics by hand with each fault, and a real MirrorMaker 2."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncelog.admin.topics import delete_records
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.cli.main import invoke
from oncelog.client.blocking.producer import Producer
from oncelog.client.blocking.transactions import TransactionalProducer, TransactionSettings
from oncelog.client.errors import UnknownTopic
from tests.interop.mirror.conftest import Side
from tests.peers.mirror_maker import MirrorMaker
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

Verify = Callable[..., tuple[int, Any]]
SYNCS, CHECKPOINTS = "mm2-offset-syncs.b.internal", "a.checkpoints.internal"


@pytest.fixture
def verify(source: Side, target: Side, capsys: pytest.CaptureFixture[str]) -> Verify:
    def run(*options: str, target_alias: str = "b") -> tuple[int, Any]:
        ends = ["--source", f"a={source.broker.bootstrap_servers}"]
        ends += ["--target", f"{target_alias}={target.broker.bootstrap_servers}"]
        code = invoke(["mirror", "verify", "--mm2", *ends, "--json", *options])
        captured = capsys.readouterr()
        return code, json.loads(captured.out)[0] if captured.out else captured.err

    return run


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def put(side: Side, topic: str, *records: tuple[bytes, bytes]) -> None:
    with Producer(side.client) as producer:
        for key, value in records:
            producer.send(topic, value, key=key, partition=0)


def sync(side: Side, upstream: int, downstream: int, topic: str = "t") -> None:
    put(side, SYNCS, (text(topic) + struct.pack(">i", 0), struct.pack(">qq", upstream, downstream)))


def checkpoint(side: Side, group: str, upstream: int, downstream: int, topic: str = "a.t") -> None:
    value = struct.pack(">hqq", 0, upstream, downstream) + text("")
    put(side, CHECKPOINTS, (text(group) + text(topic) + struct.pack(">i", 0), value))


@pytest.fixture
def copied(source: Side, target: Side) -> list[str]:
    """Six records and their copies as MirrorMaker makes them, with a hole at the source for an aborted transaction."""
    values = [f"v{index}" for index in range(6)]
    source.create("t")
    source.transact("t", "aborted", commit=False)
    source.send("t", *values)
    target.create("a.t")
    with Producer(target.client) as producer:
        for record in source.records("t"):
            producer.send(
                "a.t", record.value, key=record.key, partition=0, headers=record.headers, timestamp_ms=record.timestamp
            )
    source.create(SYNCS)
    target.create(CHECKPOINTS)
    return values


def test_a_right_translation_has_no_findings(source: Side, target: Side, copied: list[str], verify: Verify) -> None:
    sync(source, 2, 0)
    sync(source, 4, 2)
    source.commit("g", "t", 6)
    checkpoint(target, "g", 6, 3)
    code, report = verify()
    assert (code, report["findings"]) == (0, [])
    (row,) = report["groups"]
    assert (row["records_lost"], row["records_read_twice"], row["committed"]) == (0, 1, 6)
    assert report["copies"][0]["are_records_equal"] is True


def test_each_fault_is_named_worst_first(source: Side, target: Side, copied: list[str], verify: Verify) -> None:
    sync(source, 2, 0)
    sync(source, 4, 3)
    source.commit("late", "t", 8)
    source.commit("loser", "t", 3)
    checkpoint(target, "loser", 3, 4)
    checkpoint(target, "outside", 3, 50)
    checkpoint(target, "elsewhere", 3, 1, "a.gone")
    put(target, CHECKPOINTS, (b"\x00\x40short", b"\x00"))
    code, report = verify()
    assert code == 1
    kinds = [(finding["kind"], finding["group"]) for finding in report["findings"]]
    assert kinds == [
        ("skips-records", "outside"),
        ("skips-records", "loser"),
        ("beyond-end", "outside"),
        ("other-record", None),
        ("no-copy", "elsewhere"),
        ("no-checkpoint", "late"),
        ("unreadable", None),
    ]
    loser = report["findings"][1]
    assert (loser["records"], loser["upstream_offset"], loser["downstream_offset"]) == (3, 3, 4)
    assert "the first at offset 3 of the source" in loser["text"]


def test_offsets_that_retention_took_and_syncs_beyond_a_log(
    source: Side, target: Side, copied: list[str], verify: Verify
) -> None:
    sync(source, 2, 0)
    checkpoint(target, "g", 3, 1)
    delete_records(target.client, {TopicPartition(TopicName("a.t"), 0): 3})
    assert [finding["kind"] for finding in verify()[1]["findings"]] == ["before-start"]
    sync(source, 70, 60)
    kinds = [finding["kind"] for finding in verify("--topics", "t")[1]["findings"]]
    assert kinds == ["sync-beyond-end", "sync-beyond-end", "before-start"]
    assert verify("--topics", "other")[1]["findings"] == []


def test_a_transaction_that_mirror_maker_left_open_holds_nothing_up(
    source: Side, target: Side, copied: list[str], verify: Verify
) -> None:
    sync(source, 2, 0)
    checkpoint(target, "g", 3, 1)
    with TransactionalProducer(target.client, TransactionSettings("mm2")) as producer:
        producer.initialize()
        producer.begin()
        producer.send(CHECKPOINTS, b"", key=b"", partition=0)
        producer.send("a.t", b"", partition=0)
        producer.flush()
        code, report = verify()
        producer.abort()
    assert (code, len(report["groups"])) == (0, 1)


def test_clusters_without_mirror_maker_are_an_error(source: Side, target: Side, verify: Verify) -> None:
    code, error = verify()
    assert code == 1
    assert "no offset syncs of MirrorMaker: the source has no topic mm2-offset-syncs.b.internal" in error


@pytest.mark.java
@pytest.mark.parametrize("exactly_once", [True, False])
def test_beside_mirror_maker(source: Side, target: Side, verify: Verify, tmp_path: Path, exactly_once: bool) -> None:
    source.create("orders", 2)
    source.send("orders", *(f"v{index}" for index in range(250)))
    source.transact("orders", "x", "y", commit=False)
    source.transact("orders", "c1", "c2")
    source.send("orders", *(f"w{index}" for index in range(50)), partition=1)
    source.commit("billing", "orders", 40, partition=1)
    source.commit("billing", "orders", 256)
    every_second = ("emit.checkpoints", "refresh.groups", "emit.heartbeats")
    settings = {f"a->to.{name}.interval.seconds": "1" for name in every_second}
    settings |= {"emit.heartbeats.enabled": "true"}
    settings |= {} if exactly_once else {"exactly.once.source.support": "disabled"}
    servers = source.broker.bootstrap_servers, target.broker.bootstrap_servers
    maker = MirrorMaker("a", *servers, "orders", tmp_path, settings)

    def is_complete() -> bool:
        try:
            partitions = {record.key for record in target.records(CHECKPOINTS)}
            is_copied = len(partitions) == 2 and len(target.records("a.orders", 1)) == 50
            return is_copied and bool(target.records("heartbeats"))
        except UnknownTopic:
            return False

    try:
        wait_until(is_complete, maker.process.log_tail)
    finally:
        maker.kill()
    code, report = verify(target_alias="to")
    assert (code, report["findings"]) == (0, [])
    assert {(row["group"], row["partition"], row["records_lost"]) for row in report["groups"]} == {
        ("billing", 0, 0),
        ("billing", 1, 0),
    }
    assert all(copy["are_records_equal"] for copy in report["copies"])
    assert report["heartbeat_ms"] is not None
    end = len(target.records("a.orders", 1))
    checkpoint(target, "billing", 40, end, "a.orders")
    code, report = verify(target_alias="to")
    assert code == 1
    worst = report["findings"][0]
    assert (worst["kind"], worst["group"], worst["partition"]) == ("skips-records", "billing", 0)
