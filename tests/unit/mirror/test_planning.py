"""The topics that are copied, their names, and the configurations that go with them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from oncelog.admin.configs import ConfigRow
from oncelog.base.acls import AclBinding, AclEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from oncelog.base.ids import TopicId, TopicName, TopicPartition
from oncelog.client.errors import ConfigError
from oncelog.client.machine.metadata import PartitionInfo, TopicInfo
from oncelog.mirror.acl_sync import wanted_acls
from oncelog.mirror.provenance import Copy, read_copies, tombstone
from oncelog.mirror.settings import Cluster, MirrorSettings, Naming
from oncelog.mirror.topic_plan import change_of, partitions_of, plan_topics, wanted_configs

SOURCE, TARGET = "source-id", "target-id"


def settings(**changes: Any) -> MirrorSettings:
    given = {"target": Cluster("", "h:1"), "topics": re.compile(".*"), **changes}
    return MirrorSettings(Cluster("a", "h:2"), **given)


def topics(*names: str) -> dict[TopicName, TopicInfo]:
    partitions = {n: PartitionInfo(n, 1, 0) for n in range(2)}  # type: ignore[arg-type]  # ids are numbers
    return {
        TopicName(name): TopicInfo(
            TopicName(name), TopicId(bytes(15) + b"\x01"), partitions, name == "__consumer_offsets"
        )
        for name in names
    }


def planned(given: dict[TopicName, TopicInfo], copies: list[Copy] | None = None, **changes: Any) -> dict[str, str]:
    known = {(copy.topic, copy.alias): copy for copy in copies or []}
    plan = plan_topics(settings(**changes), given, known, SOURCE, TARGET)
    return {name: topic.target for name, topic in plan.topics.items()}


def test_topics_by_their_whole_names_and_no_internal_ones() -> None:
    given = topics("orders", "orders-2", "__consumer_offsets", "__oncelog_mirror_b")
    assert planned(given) == {"orders": "a.orders", "orders-2": "a.orders-2"}
    assert planned(given, topics=re.compile("orders")) == {"orders": "a.orders"}
    assert planned(given, naming=Naming.identity)["orders"] == "orders"


def test_a_topic_that_has_come_through_the_target_is_a_cycle() -> None:
    copies = [Copy("b.orders", "b", "orders", (TARGET,)), Copy("c.x", "c", "x", ("other", TARGET, "third"))]
    assert planned(topics("b.orders", "c.x", "own"), copies) == {"own": "a.own"}
    assert planned(topics("b.orders"), [Copy("b.orders", "b", "orders", ("other",))]) == {"b.orders": "a.b.orders"}


def test_the_targets_alias_marks_what_came_from_there() -> None:
    assert planned(topics("b.orders", "bee"), target=Cluster("b", "h:1")) == {"bee": "a.bee"}


def test_a_path_has_all_clusters() -> None:
    copy = Copy("b.orders", "b", "orders", ("first",))
    plan = plan_topics(settings(), topics("b.orders"), {("b.orders", "b"): copy}, SOURCE, TARGET)
    assert plan.topics[TopicName("b.orders")].path == ("first", SOURCE)


def test_provenance_goes_round() -> None:
    copy = Copy("a.t", "a", "t", ("x",), ("retention.ms",))
    assert read_copies([copy.record(), (b"nonsense", b"1")]) == {("a.t", "a"): copy}
    assert read_copies([copy.record(), (tombstone("a.t", "a"), None)]) == {}


def config(value: str, source: str) -> ConfigRow:
    return ConfigRow("", value, source, source == "default", read_only=False, is_sensitive=False)


def test_configurations_of_the_topic_go_over_but_for_those_of_the_cluster() -> None:
    source = {
        "retention.ms": config("1", "topic"),
        "segment.bytes": config("2", "default"),
        "message.timestamp.type": config("LogAppendTime", "topic"),
        "remote.storage.enable": config("true", "topic"),
        "max.message.bytes": config("9000000", "static broker"),
    }
    assert wanted_configs(source, 1_000_000) == {"retention.ms": "1", "max.message.bytes": "9000000"}
    target = {
        "retention.ms": config("1", "topic"),
        "cleanup.policy": config("compact", "topic"),
        "x": config("1", "topic"),
    }
    change = change_of({"retention.ms": "1", "max.message.bytes": "5"}, target, ("cleanup.policy", "retention.ms"))
    assert change == ({"max.message.bytes": "5"}, ("cleanup.policy",))


def test_partitions_fall_to_the_owners_of_their_slots() -> None:
    plan = plan_topics(settings(), topics("t"), {}, SOURCE, TARGET)
    halves = [partitions_of(plan, tuple(range(*half)), 16) for half in ((8,), (8, 16))]
    assert sorted(halves[0] + halves[1]) == [TopicPartition(TopicName("t"), n) for n in range(2)]


@pytest.mark.parametrize("alias", ["", "a.b", "a b", "topics"])
def test_aliases_that_would_not_do_are_refused(alias: str) -> None:
    with pytest.raises(ConfigError, match="--source"):
        MirrorSettings(Cluster(alias, "h:1"), Cluster("", "h:2"), re.compile("."))


def test_who_may_read_a_topic_may_read_its_copy() -> None:
    def acl(name: str, operation: Operation, pattern: int = 3, permission: int = 3) -> AclBinding:
        resources = ResourcePattern(ResourceType.TOPIC, PatternType(pattern), name)
        return AclBinding(resources, AclEntry("User:u", "*", operation, Permission(permission)))

    acls = [
        acl("orders", Operation.READ),
        acl("orders", Operation.WRITE),
        acl("orders", Operation.WRITE, permission=2),
        acl("other", Operation.READ),
        acl("ord", Operation.ALL, pattern=4),
        acl("*", Operation.DESCRIBE),
        acl("orders", Operation.NONE, permission=2),
    ]
    assert wanted_acls(settings(), acls, ["orders"]) == {
        acl("a.orders", Operation.READ),
        acl("a.orders", Operation.WRITE, permission=2),
        acl("a.ord", Operation.READ, pattern=4),
        acl("a.", Operation.DESCRIBE, pattern=4),
    }
    kept = wanted_acls(settings(naming=Naming.identity), acls, ["orders"])
    assert {acl.pattern.name for acl in kept} == {"orders", "ord"}
