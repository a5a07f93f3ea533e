"""``log dump`` of each kind of file, whole and damaged."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, Final

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from oncelog.base.ids import Offset, TopicId, TopicName, uuid_text
from oncelog.cli.log.dump.internal import decode_internal
from oncelog.cli.main import invoke
from oncelog.records.builder import build_batch, end_transaction_marker
from oncelog.records.compression import Codec
from oncelog.records.internal import consumer_group_records as cg
from oncelog.records.internal import consumer_protocol
from oncelog.records.internal import share_group_records as sg
from oncelog.records.internal.group_records import (
    OffsetCommitValue,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from oncelog.records.internal.share_state_records import (
    SnapshotKey,
    SnapshotValue,
    StateBatch,
    UpdateKey,
    UpdateValue,
    encode_key,
    encode_value,
)
from oncelog.records.record import Record

BASE = "00000000000000000010"


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    directory = tmp_path / "t-0"
    directory.mkdir()
    return directory


def rows(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> list[dict[str, Any]]:
    assert invoke(["log", "dump", "--json", *map(str, arguments)]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def three_batches() -> list[bytes]:
    first = build_batch([Record(-1, 1000, b"k", b"v", (("h", b"1"),)), Record(-1, 1001, None, None)], base_offset=10)
    second = build_batch([Record(-1, 1002, None, b"\xff")], base_offset=12, codec=Codec.ZSTD, producer_id=9)
    marker = end_transaction_marker(
        producer_id=9, producer_epoch=0, committed=False, coordinator_epoch=4, timestamp=1003, base_offset=13
    )
    return [bytes(item) for item in (first, second, marker)]


def test_batches_and_records_of_a_segment(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (partition / f"{BASE}.log").write_bytes(b"".join(three_batches()))
    result = rows(capsys, "-r", partition)
    assert [row["type"] for row in result] == ["batch", "record", "record", "batch", "record", "batch", "record"]
    assert [(row["base_offset"], row["valid"]) for row in result if row["type"] == "batch"] == [
        (10, True),
        (12, True),
        (13, True),
    ]
    assert (result[1]["key"], result[1]["value"], result[1]["headers"]) == ("k", "v", [{"key": "h", "value": "1"}])
    assert (result[2]["value"], result[2]["value_bytes"]) == (None, -1)
    assert (result[3]["codec"], result[4]["value"]) == ("zstd", "/w==")
    assert (result[6]["control"], result[6]["coordinator_epoch"]) == ("abort", 4)


def test_all_headers_of_a_name_are_shown_in_their_order(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    headers = (("x", b"1"), ("y", None), ("x", b"2"), ("x", b"1"), ("", b"\xff"))
    (partition / f"{BASE}.log").write_bytes(build_batch([Record(-1, 1000, None, b"v", headers)]))
    pairs = [(header["key"], header["value"]) for header in rows(capsys, "-r", partition)[1]["headers"]]
    assert pairs == [("x", "1"), ("y", None), ("x", "2"), ("x", "1"), ("", "/w==")]
    assert invoke(["log", "dump", "-r", str(partition)]) == 0
    assert "headers=['x': '1', 'y': null, 'x': '2', 'x': '1', '': 0xff]" in capsys.readouterr().out


def test_a_range_of_offsets(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (partition / f"{BASE}.log").write_bytes(b"".join(three_batches()))
    assert [r["base_offset"] for r in rows(capsys, partition, "--from-offset", 11, "--to-offset", 13)] == [10, 12]


def test_a_wrong_checksum_is_shown_and_the_rest_goes_on(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = three_batches()
    data[0] = data[0][:-1] + b"\x7f"
    (partition / f"{BASE}.log").write_bytes(b"".join(data))
    result = rows(capsys, "-r", partition, code=1)
    assert [(row["type"], row.get("valid")) for row in result[:2]] == [("batch", False), ("batch", True)]


def test_a_torn_batch_is_an_error_with_its_position(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = three_batches()
    (partition / f"{BASE}.log").write_bytes(data[0] + data[1][:-1])
    assert f"at position {len(data[0])}" in rows(capsys, partition, code=1)[-1]["error"]


def test_indexes_stop_at_what_is_preallocated(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (partition / f"{BASE}.index").write_bytes(struct.pack(">iiiiii", 5, 100, 9, 200, 0, 0))
    (partition / f"{BASE}.timeindex").write_bytes(struct.pack(">qi", 1000, 5) + bytes(24))
    (partition / f"{BASE}.txnindex").write_bytes(struct.pack(">hqqqq", 0, 9, 11, 13, 11))
    result = rows(capsys, partition)
    assert [(row["offset"], row["position"]) for row in result if row["type"] == "offset_index"] == [
        (15, 100),
        (19, 200),
    ]
    assert [row["entries"] for row in result if row["type"] == "preallocated"] == [1, 2]
    (aborted,) = [row for row in result if row["type"] == "aborted_transaction"]
    assert (aborted["producer_id"], aborted["first_offset"], aborted["last_offset"]) == (9, 11, 13)


def test_a_producer_snapshot(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 9, 1, 7, 42, 2, 1000, 3, -1)
    path = partition / f"{BASE}.snapshot"
    path.write_bytes(struct.pack(">hI", 1, crc32c(body)) + body)
    head, producer = rows(capsys, path)
    assert (head["offset"], head["producers"]) == (10, 1)
    assert (producer["producer_id"], producer["last_sequence"], producer["transaction_first_offset"]) == (9, 7, None)
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    assert [row["type"] for row in rows(capsys, path, code=1)] == ["producer_snapshot", "error", "producer"]


def test_checkpoints_and_properties(tmp_path: Path, partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (partition / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 17\n")
    (partition / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 20\n")
    (tmp_path / "meta.properties").write_text("#comment\nversion=1\nnode.id=1\n")
    (tmp_path / ".lock").write_text("")
    result = {Path(row.pop("file")).name: row for row in rows(capsys, tmp_path)}
    assert result["leader-epoch-checkpoint"] == {"type": "leader_epoch", "leader_epoch": 3, "start_offset": 17}
    assert result["partition.metadata"]["topic_id"] == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert result["recovery-point-offset-checkpoint"]["offset"] == 20
    assert result["meta.properties"] == {"type": "properties", "version": "1", "node.id": "1"}


def test_only_some_kinds_of_files(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (partition / f"{BASE}.log").write_bytes(b"".join(three_batches()))
    (partition / "leader-epoch-checkpoint").write_text("0\n0\n")
    (partition / f"{BASE}.index").write_bytes(struct.pack(">ii", 5, 100))
    assert {row["type"] for row in rows(capsys, partition, "--only", "index")} == {"offset_index"}


def test_committed_offsets_are_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "__consumer_offsets-3"
    directory.mkdir()
    key = encode_offset_commit_key("g", "t", 1)
    records = [
        Record(-1, 0, key, encode_offset_commit_value(OffsetCommitValue(offset=7, metadata="m"))),
        Record(-1, 0, key, None),
        Record(-1, 0, b"\x00\x63", b"new"),
    ]
    (directory / f"{BASE}.log").write_bytes(build_batch(records, base_offset=10))
    _, committed, deleted, unknown = rows(capsys, "-r", directory)
    assert (committed["kind"], committed["group"], committed["committed"]) == ("offset", "g", 7)
    assert deleted["deleted"] is True
    assert "99" in unknown["unknown"]


def test_states_of_share_groups_are_shown() -> None:
    topic = TopicId(bytes(range(16)))
    batches = tuple(StateBatch(Offset(5 * state), Offset(5 * state + 4), state, 1) for state in (2, 9))
    snapshot = SnapshotValue(1, 2, 3, 10, 5, 1000, 2000, batches)
    row = decode_internal("__share_group_state", encode_key(SnapshotKey("g", topic, 7)), encode_value(snapshot))
    about = {"group": "g", "topic_id": "AAECAwQFBgcICQoLDA0ODw", "partition": 7}
    assert row == {
        "kind": "share_snapshot",
        **about,
        "snapshot_epoch": 1,
        "state_epoch": 2,
        "leader_epoch": 3,
        "start_offset": 10,
        "delivery_complete_count": 5,
        "create_timestamp": 1000,
        "write_timestamp": 2000,
        "batches": [
            {"first_offset": 10, "last_offset": 14, "state": "ACKNOWLEDGED", "delivery_count": 1},
            {"first_offset": 45, "last_offset": 49, "state": "UNKNOWN (9)", "delivery_count": 1},
        ],
    }
    update = encode_key(UpdateKey("g", topic, 7))
    row = decode_internal("__share_group_state", update, encode_value(UpdateValue(1, 3)))
    changed = {"snapshot_epoch": 1, "leader_epoch": 3, "start_offset": -1, "batches": []}
    assert row == {"kind": "share_update", **about, **changed}
    deleted = decode_internal("__share_group_state", encode_key(SnapshotKey("g", topic, 7)), None)
    assert deleted == {"kind": "share_snapshot", **about, "deleted": True}
    damaged = decode_internal("__share_group_state", update, b"\x00\x03")
    assert damaged == {"kind": "share_update", **about, "value_bytes": 2, "unknown": "value of version 3"}
    unknown = decode_internal("__share_group_state", b"\x00\x07", b"")
    assert unknown == {"kind": "unknown", "unknown": "key of version 7"}


def test_groups_of_newer_protocols_are_named() -> None:
    group, member = b"\x00\x01g", b"\x00\x02m1"
    assert decode_internal("__consumer_offsets", b"\x00\x16" + group + member, b"abc") == {
        "kind": "streams_group_current_assignment",
        "group": "g",
        "member_id": "m1",
        "value_bytes": 3,
    }
    deleted = decode_internal("__consumer_offsets", b"\x00\x11" + group, None)
    assert deleted == {"kind": "streams_group", "group": "g", "deleted": True}
    cut = decode_internal("__consumer_offsets", b"\x00\x05" + group + member[:2], b"")
    assert cut is not None
    assert (cut["kind"], "unknown" in cut) == ("consumer_group_member", True)
    cut = decode_internal("__consumer_offsets", b"\x00\x08" + group + member, b"\x00\x00\x00")
    assert cut is not None
    assert (cut["kind"], cut["member_id"], cut["value_bytes"], "unknown" in cut) == (
        *("consumer_group_current_assignment", "m1", 3),
        True,
    )


T: Final = TopicId(b"t" * 16)
T_TEXT: Final = uuid_text(T)
SUBSCRIPTION: Final = consumer_protocol.encode_subscription(consumer_protocol.Subscription((TopicName("t"),)))
CONSUMER_GROUP_RECORDS: Final = [
    (cg.ConsumerGroupKey("g"), cg.ConsumerGroupValue(7, -5), "consumer_group", {"epoch": 7, "metadata_hash": -5}),
    (
        cg.MemberKey("g", "m"),
        cg.MemberValue("i", "r", "app", "/h", ("t",), "t.*", 60_000, "uniform"),
        "consumer_group_member",
        {
            "member_id": "m",
            "instance_id": "i",
            "host": "/h",
            "topics": ["t"],
            "regex": "t.*",
            "assignor": "uniform",
            "classic": None,
        },
    ),
    (
        cg.MemberKey("g", "m"),
        cg.MemberValue(
            *(None, None, "app", "/h", ("t",), None, 60_000, None),
            cg.ClassicMemberValue(
                45_000, (cg.ClassicProtocolValue("range", SUBSCRIPTION), cg.ClassicProtocolValue("own", b"?"))
            ),
        ),
        "consumer_group_member",
        {
            "classic": {
                "session_timeout_ms": 45_000,
                "protocols": [{"name": "range", "topics": ["t"]}, {"name": "own", "topics": None}],
            }
        },
    ),
    (
        cg.TargetEpochKey("g"),
        cg.TargetEpochValue(7, 99),
        "consumer_group_target_assignment",
        {"epoch": 7, "timestamp_ms": 99},
    ),
    (
        cg.TargetMemberKey("g", "m"),
        cg.TargetMemberValue({T: (0, 2)}),
        "consumer_group_target_assignment_member",
        {"member_id": "m", "partitions": [{"topic_id": T_TEXT, "partitions": [0, 2]}]},
    ),
    (
        cg.CurrentMemberKey("g", "m"),
        cg.CurrentMemberValue(7, 6, 1, {T: {0: 5, 1: 7}}, {T: {2: 5}}),
        "consumer_group_current_assignment",
        {
            "epoch": 7,
            "previous_epoch": 6,
            "state": "UNREVOKED_PARTITIONS",
            "assigned": [{"topic_id": T_TEXT, "partitions": {"0": 5, "1": 7}}],
            "pending_revocation": [{"topic_id": T_TEXT, "partitions": {"2": 5}}],
        },
    ),
    (
        cg.CurrentMemberKey("g", "m"),
        cg.CurrentMemberValue(7, 6, 9, {}, {}),
        "consumer_group_current_assignment",
        {"state": "UNKNOWN (9)"},
    ),
    (
        cg.RegexKey("g", "t.*"),
        cg.RegexValue(("t", "t2"), 12, 99),
        "consumer_group_regular_expression",
        {"regular_expression": "t.*", "topics": ["t", "t2"], "version": 12, "timestamp_ms": 99},
    ),
]


SHARE_GROUP_RECORDS: Final = [
    (sg.ShareGroupKey("g"), sg.ShareGroupValue(7, -5), "share_group", {"epoch": 7, "metadata_hash": -5}),
    (
        sg.ShareMemberKey("g", "m"),
        sg.ShareMemberValue("r", "app", "/h", ("t",)),
        "share_group_member",
        {"member_id": "m", "rack_id": "r", "host": "/h", "topics": ["t"]},
    ),
    (
        sg.ShareTargetEpochKey("g"),
        sg.ShareTargetEpochValue(7, 99),
        "share_group_target_assignment",
        {"epoch": 7, "timestamp_ms": 99},
    ),
    (
        sg.ShareTargetMemberKey("g", "m"),
        sg.ShareTargetMemberValue({T: (0, 2)}),
        "share_group_target_assignment_member",
        {"partitions": [{"topic_id": T_TEXT, "partitions": [0, 2]}]},
    ),
    (
        sg.ShareCurrentMemberKey("g", "m"),
        sg.ShareCurrentMemberValue(7, 6, 0, {T: (0, 1)}),
        "share_group_current_assignment",
        {"epoch": 7, "state": "STABLE", "assigned": [{"topic_id": T_TEXT, "partitions": [0, 1]}]},
    ),
    (
        sg.ShareStateTopicsKey("g"),
        sg.ShareStateTopicsValue({T: sg.NamedPartitions("t", (1,))}, {T: sg.NamedPartitions("t", (0,))}, {T: "t"}),
        "share_group_partitions",
        {
            "initializing": [{"topic_id": T_TEXT, "topic": "t", "partitions": [1]}],
            "initialized": [{"topic_id": T_TEXT, "topic": "t", "partitions": [0]}],
            "deleting": [{"topic_id": T_TEXT, "topic": "t"}],
        },
    ),
]


@pytest.mark.parametrize(("key", "value", "kind", "fields"), SHARE_GROUP_RECORDS)
def test_records_of_share_groups_are_decoded(
    key: sg.ShareKey, value: sg.ShareValue, kind: str, fields: dict[str, object]
) -> None:
    row = decode_internal("__consumer_offsets", sg.encode_key(key), sg.encode_value(value))
    assert row is not None
    assert json.loads(json.dumps(row)) == row
    assert {name: row.get(name) for name in ("kind", "group", *fields)} == {"kind": kind, "group": "g", **fields}
    broken = decode_internal("__consumer_offsets", sg.encode_key(key), b"\0\0")
    assert broken is not None
    assert "unknown" in broken


@pytest.mark.parametrize(("key", "value", "kind", "fields"), CONSUMER_GROUP_RECORDS)
def test_records_of_consumer_groups_are_decoded(
    key: cg.Key, value: cg.Value, kind: str, fields: dict[str, object]
) -> None:
    data = cg.encode_key(key)
    row = decode_internal("__consumer_offsets", data, cg.encode_value(value))
    assert row is not None
    assert json.loads(json.dumps(row)) == row
    assert {name: row.get(name) for name in ("kind", "group", *fields)} == {"kind": kind, "group": "g", **fields}
    deleted = decode_internal("__consumer_offsets", data, None)
    assert deleted is not None
    assert (deleted["kind"], deleted["deleted"]) == (kind, True)


def test_a_transaction_is_decoded() -> None:
    key = struct.pack(">hh", 0, 2) + b"id"
    value = struct.pack(">hqhib", 1, 9, 3, 60_000, 1) + b"\x02\x02t\x02\x00\x00\x00\x05\x00"
    value += struct.pack(">qq", 2000, 1000) + b"\x01\x02\x02\x00\x02"
    row = decode_internal("__transaction_state", key, value)
    assert row is not None
    assert (row["transactional_id"], row["state"], row["partitions"]) == ("id", "Ongoing", ["t-5"])
    assert (row["client_transaction_version"], row["start_timestamp"]) == (2, 1000)


@given(st.sampled_from(["__consumer_offsets", "__transaction_state"]), st.none() | st.binary(), st.none() | st.binary())
def test_nothing_in_an_internal_record_breaks_the_dump(topic: str, key: bytes | None, value: bytes | None) -> None:
    assert isinstance(decode_internal(topic, key, value), dict)


@pytest.mark.slow
@given(st.sampled_from(["log", "index", "timeindex", "txnindex", "snapshot"]), st.binary(max_size=200))
def test_no_file_breaks_the_dump(kind: str, data: bytes) -> None:
    import tempfile

    from oncelog.cli.log.commands import _rows
    from oncelog.cli.log.dump.files import Wanted

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"{BASE}.{kind}"
        path.write_bytes(data)
        assert all("type" in row for row in _rows(path, Wanted(records=True)))


def test_a_path_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert invoke(["log", "dump", str(tmp_path / "no")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert invoke(["log", "dump", str(tmp_path)]) == 1
    assert "has no log files" in capsys.readouterr().err
