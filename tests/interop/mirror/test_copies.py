"""The copies of a mirror: every committed record once, in order, whole."""

from __future__ import annotations

import pytest

from oncelog.admin.configs import ResourceType, describe_configs
from oncelog.admin.topics import add_partitions, delete_records, delete_topics, list_topics
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.mirror.errors import MirrorGap, SameCluster, TargetReplaced, TopicReplaced
from oncelog.mirror.settings import Naming, OnGap
from oncelog.records.compression import Codec
from tests.interop.mirror.conftest import Side, essence, mirror

pytestmark = pytest.mark.slow


def test_committed_records_are_copied_whole_and_in_order(source: Side, target: Side) -> None:
    source.create("t", 2)
    source.send("t", "1", "2", "3")
    source.transact("t", "4", "5")
    source.transact("t", "aborted", commit=False)
    for codec in Codec:
        source.send("t", codec.name, "x" * 20_000, codec=codec)
    source.send("t", "other", partition=1)
    mirror(source, target)
    assert target.values("a.t")[:5] == ["1", "2", "3", "4", "5"]
    assert "aborted" not in target.values("a.t")
    assert essence(target.records("a.t")) == essence(source.records("t"))
    assert target.values("a.t", 1) == ["other"]


def test_it_goes_on_where_it_was(source: Side, target: Side) -> None:
    source.create("t")
    for number in range(3):
        source.send("t", f"{number}")
        assert mirror(source, target).progress.records == 1
    assert target.values("a.t") == ["0", "1", "2"]
    assert mirror(source, target).progress.records == 0


def test_uncommitted_records_are_copied_if_told(source: Side, target: Side) -> None:
    source.create("t")
    source.transact("t", "aborted", commit=False)
    source.send("t", "1")
    mirror(source, target, read_committed=False)
    assert target.values("a.t") == ["aborted", "1"]


def test_names_may_stay(source: Side, target: Side) -> None:
    source.create("t")
    source.send("t", "1")
    mirror(source, target, naming=Naming.identity)
    assert target.values("t") == ["1"]


def test_a_cluster_is_not_mirrored_to_itself_under_the_same_names(source: Side) -> None:
    source.create("t")
    source.send("t", "1")
    with pytest.raises(
        SameCluster, match=r"--source a and --target are the same cluster \(.*\): with --naming identity"
    ):
        mirror(source, source, naming=Naming.identity)
    assert source.values("t") == ["1"]
    assert [topic.name for topic in list_topics(source.client, internal=True)] == ["t"]


def test_a_cluster_may_have_copies_of_its_own_topics_under_other_names(source: Side) -> None:
    source.create("t")
    source.send("t", "1")
    mirror(source, source)
    assert mirror(source, source).progress.cycles == ("a.t",)
    assert (source.values("t"), source.values("a.t")) == (["1"], ["1"])
    assert [name for topic in list_topics(source.client) if not (name := topic.name).startswith("__")] == ["a.t", "t"]


@pytest.mark.parametrize("naming", Naming)
def test_what_came_from_a_cluster_does_not_go_back(source: Side, target: Side, naming: Naming) -> None:
    source.create("t")
    source.send("t", "1")
    mirror(source, target, naming=naming)
    target.create("own")
    target.send("own", "2")
    engine = mirror(target, source, naming=naming)
    copy = "t" if naming is Naming.identity else "a.t"
    assert engine.progress.cycles == (copy,)
    assert source.values("t") == ["1"]
    assert source.values("own" if naming is Naming.identity else "a.own") == ["2"]


def test_configurations_and_partitions_follow(source: Side, target: Side) -> None:
    source.create("t", 2, {"retention.ms": "7200000", "cleanup.policy": "compact", "min.insync.replicas": "1"})
    source.send("t", "1")
    mirror(source, target)
    assert topic_configs(target) == {"retention.ms": "7200000", "cleanup.policy": "compact"}
    source.client.view.forget("t")
    from oncelog.admin.configs import alter_configs

    alter_configs(source.client, ResourceType.TOPIC, "t", change={"retention.ms": "3600000"}, delete=["cleanup.policy"])
    alter_configs(target.client, ResourceType.TOPIC, "a.t", change={"segment.ms": "1000000"})
    add_partitions(source.client, "t", 3)
    source.send("t", "2", partition=2)
    mirror(source, target)
    assert topic_configs(target) == {"retention.ms": "3600000", "segment.ms": "1000000"}
    assert target.values("a.t", 2) == ["2"]


def topic_configs(side: Side) -> dict[str, str | None]:
    rows = describe_configs(side.client, ResourceType.TOPIC, "a.t")
    return {row.name: row.value for row in rows if row.source == "topic"}


def test_timestamps_of_a_log_append_time_topic_become_the_records_own(source: Side, target: Side) -> None:
    source.create("t", configs={"message.timestamp.type": "LogAppendTime"})
    source.send("t", "1", "2")
    mirror(source, target)
    copies = target.records("a.t")
    assert essence(copies) == essence(source.records("t"))
    assert {record.timestamp_type for record in copies} == {"create"}


def test_a_position_that_retention_overtook_is_an_error_that_names_the_gap(source: Side, target: Side) -> None:
    source.create("t")
    source.send("t", "1", "2")
    mirror(source, target)
    source.send("t", "3", "4", "5")
    delete_records(source.client, {TopicPartition(TopicName("t"), 0): 4})
    with pytest.raises(MirrorGap, match=r"t-0 of a: offsets 2 to 3 were deleted .* begins at 4"):
        mirror(source, target)
    engine = mirror(source, target, on_gap=OnGap.record)
    assert target.values("a.t") == ["1", "2", "5"]
    assert [row.gaps for row in engine.progress.rows()] == [1]
    assert [row.gaps for row in mirror(source, target).progress.rows()] == [1], "it is remembered"


def test_a_topic_that_was_made_anew_is_noticed(source: Side, target: Side) -> None:
    source.create("t")
    source.send("t", "1", "2")
    mirror(source, target)
    delete_topics(source.client, ["t"])
    source.create("t")
    source.send("t", "3", "4", "5")
    with pytest.raises(TopicReplaced, match="topic 't' of a was deleted and created again"):
        mirror(source, target)
    mirror(source, target, on_gap=OnGap.record)
    source.send("t", "6")
    mirror(source, target)
    assert target.values("a.t") == ["1", "2", "3", "4", "5", "6"]


def test_topics_are_deleted_if_asked(source: Side, target: Side) -> None:
    source.create("t")
    source.create("other")
    source.send("t", "1")
    mirror(source, target)
    delete_topics(source.client, ["t"])
    mirror(source, target)
    assert target.values("a.t") == ["1"]
    mirror(source, target, delete_topics=True)
    target.client.metadata(None)
    assert sorted(name for name in target.client.metadata(None) if name.startswith("a.")) == ["a.other"]


def test_a_copy_that_was_deleted_is_made_again_if_told(source: Side, target: Side) -> None:
    source.create("t")
    source.send("t", "1", "2")
    mirror(source, target)
    delete_topics(target.client, ["a.t"])
    with pytest.raises(TargetReplaced, match=r"'a.t' at the target was deleted and created again: the 2 records"):
        mirror(source, target)
    mirror(source, target, on_gap=OnGap.record)
    source.send("t", "3")
    mirror(source, target)
    assert target.values("a.t") == ["1", "2", "3"]


def test_a_topic_that_was_deleted_with_its_copy_may_come_again(source: Side, target: Side) -> None:
    source.create("t")
    source.create("other")
    source.send("t", "1")
    mirror(source, target)
    delete_topics(source.client, ["t"])
    mirror(source, target, delete_topics=True)
    source.create("t")
    source.send("t", "2")
    mirror(source, target)
    assert target.values("a.t") == ["2"]
