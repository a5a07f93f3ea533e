"""Each abort step by step: what is asked, written down and sent, and what a refusal is told as."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncelog.admin.transactions.abort_marker import Aborted, abort, find_one, race_of, refusal
from oncelog.admin.transactions.audit_trail import audit_file
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.transaction_verdicts import ReasonCode
from oncelog.client.errors import ClientError
from oncelog.wire.messages import list_offsets, write_txn_markers
from tests.unit.admin.transactions.cluster import FakeCluster
from tests.unit.admin.transactions.samples import COMPLETING, HANGING, LIVE, SUSPECTED, TWO_PHASE

pytestmark = pytest.mark.usefixtures("driver")

T0 = TopicPartition(TopicName("t"), 0)


class Markers:
    """Takes markers, and answers with ``code``; the partition is free after one that was written."""

    def __init__(self, cluster: FakeCluster, code: int = 0) -> None:
        self.cluster, self.code = cluster, code
        self.taken: list[write_txn_markers.WritableTxnMarker] = []
        cluster.rules[write_txn_markers.WriteTxnMarkersRequest] = self.write
        cluster.rules[list_offsets.ListOffsetsRequest] = self.offsets

    def write(self, broker: int, message: Any) -> Any:
        (marker,) = message.markers
        self.taken.append(marker)
        if not self.code:
            self.cluster.transactions.clear()
        partition = write_txn_markers.WritableTxnMarkerPartitionResult(partition_index=0, error_code=self.code)
        topic = write_txn_markers.WritableTxnMarkerTopicResult(name="t", partitions=[partition])
        result = write_txn_markers.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=[topic])
        return write_txn_markers.WriteTxnMarkersResponse(markers=[result])

    def offsets(self, broker: int, message: Any) -> Any:
        response = list_offsets.ListOffsetsPartitionResponse(partition_index=0, offset=21)
        return list_offsets.ListOffsetsResponse(
            topics=[list_offsets.ListOffsetsTopicResponse(name="t", partitions=[response])]
        )


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made.open(T0, 7, producer_epoch=3, coordinator_epoch=-1)
    made.know("x", 7, state="CompleteCommit")
    made.ids["x"].producer_epoch = 3
    return made


def end(cluster: FakeCluster, **options: Any) -> Aborted:
    return abort(cluster, find_one(cluster, T0, 10), min_age_ms=0, **options)


def test_the_marker_names_start_and_epochs_and_the_audit_frames_it(cluster: FakeCluster, tmp_path: Path) -> None:
    markers = Markers(cluster)
    log = tmp_path / "new" / "audit.jsonl"
    result = end(cluster, audit=audit_file(log))
    assert (result.error, result.warning, result.stable_before, result.stable_after) == (None, None, 10, 21)
    (marker,) = markers.taken
    sent = (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.start_offset)
    assert sent == (7, 3, 0, 10)
    assert (marker.transaction_result, marker.transaction_version) == (False, 0)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["outcome"] for line in lines] == ["sending", "aborted"]
    assert lines[0]["reason"].startswith("The coordinator has committed 'x'")
    assert {"user", "host", "time", "forced", "by_start_offset", "verdict"} <= set(lines[0])


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (ErrorCode.INVALID_TXN_STATE, "nothing was written"),
        (ErrorCode.INVALID_PRODUCER_EPOCH, "newer epoch"),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, "newer coordinator"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "it needs Alter or ClusterAction on the cluster"),
    ],
)
def test_a_refusal_says_what_it_means(cluster: FakeCluster, code: ErrorCode, says: str) -> None:
    Markers(cluster, code)
    lines: list[Any] = []
    result = end(cluster, audit=lines.append)
    assert says in (result.error or "")
    assert [line["outcome"] for line in lines] == ["sending", "failed"]


def test_what_is_live_by_now_gets_no_marker(cluster: FakeCluster) -> None:
    markers = Markers(cluster)
    result = find_one(cluster, T0, 10)
    cluster.know("x", 7, T0)
    cluster.ids["x"].producer_epoch = 3
    lines: list[Any] = []
    refused = abort(cluster, result, min_age_ms=0, audit=lines.append)
    assert "it is live" in (refused.error or "")
    assert (markers.taken, [line["outcome"] for line in lines]) == ([], ["refused"])
    assert abort(cluster, result, min_age_ms=0, force=True).error is None
    assert len(markers.taken) == 1


def test_a_transaction_that_began_in_the_last_moment_is_told_about(cluster: FakeCluster) -> None:
    markers = Markers(cluster)
    write = markers.write

    def begins_before(broker: int, message: Any) -> Any:
        cluster.know("x", 7, T0)
        cluster.ids["x"].producer_epoch = 3
        return write(broker, message)

    cluster.rules[write_txn_markers.WriteTxnMarkersRequest] = begins_before
    result = end(cluster)
    assert result.error is None
    assert "oncelog txn force-terminate x" in (result.warning or "")


def test_without_an_answer_there_is_no_marker(cluster: FakeCluster) -> None:
    markers = Markers(cluster)
    result = find_one(cluster, T0, 10)
    cluster.down.add(1)
    assert "could not be checked again" in (abort(cluster, result, min_age_ms=0, force=True).error or "")
    assert markers.taken == []


def test_an_audit_that_cannot_be_written_stops_it(cluster: FakeCluster) -> None:
    markers = Markers(cluster)

    def full(entry: Any) -> None:
        raise ClientError("disk full")

    with pytest.raises(ClientError, match="disk full"):
        end(cluster, audit=full)
    assert markers.taken == []


def test_another_start_names_those_there_are(cluster: FakeCluster) -> None:
    with pytest.raises(ClientError, match="no transaction is open from offset 11 on; open there: 10"):
        find_one(cluster, T0, 11)


def test_what_a_marker_must_not_touch() -> None:
    assert refusal(HANGING) is None
    for item in (LIVE, SUSPECTED):
        assert refusal(item) is not None
        assert refusal(item, force=True) is None
    assert "force-terminate x" in (refusal(TWO_PHASE, force=True) or "")
    spaced = replace(LIVE, transactional_id="a b")
    assert "force-terminate -b k:1 'a b' (" in (refusal(spaced, options=" -b k:1") or ""), "as it can be pasted"
    assert "Wait" in (refusal(COMPLETING, force=True) or "")


def test_the_race_that_remains_is_stated() -> None:
    ours = replace(HANGING, producer=replace(HANGING.producer, transactional_id=""))
    assert "does not say that it takes a start offset" in (race_of(HANGING) or "")
    assert "same epoch" in (race_of(ours) or ""), "its coordinator is another broker"
    assert race_of(replace(ours, coordinator=ours.producer.leader)) is None, "who asks itself in the same step"
    assert race_of(replace(HANGING, code=ReasonCode.MOVED_ON)) is None
