"""topic and group, and the rows behind them."""

from __future__ import annotations

import json

import pytest

from oncelog.admin.cluster import describe_cluster, describe_log_dirs
from oncelog.admin.configs import ResourceType, describe_configs
from oncelog.admin.topics import delete_records
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client, GroupConsumer
from oncelog.testing import Broker
from tests.interop.cli.conftest import Run


@pytest.mark.slow
def test_a_topic_from_creation_to_deletion(run: Run) -> None:
    assert run("topic", "create", "t", "-p", "3", "-c", "retention.ms=5000").out.startswith("topic t created: 3 part")
    assert run("topic", "create", "t").err == "oncelog: topic 't': Topic 't' already exists. (TOPIC_ALREADY_EXISTS)\n"
    assert run("topic", "create", "t", "--if-not-exists").code == 0
    assert [row["name"] for row in json.loads(run("topic", "list", "--json").out)] == ["t"]
    assert (
        run("topic", "alter", "t", "-p", "4", "-c", "segment.bytes=1048576", "--delete-config", "retention.ms").code
        == 0
    )
    (described,) = json.loads(run("topic", "describe", "t", "--sizes", "--json").out)
    assert described["topic"]["partitions"] == 4
    assert {row["name"]: row["value"] for row in described["configs"]} == {"segment.bytes": "1048576"}
    assert len(described["replicas"]) == 4
    assert "settings segment.bytes=1048576" in run("topic", "describe", "t").out
    assert run("topic", "delete", "t").out == "topic t deleted\n"
    assert run("topic", "delete", "t").code == 1
    assert run("topic", "delete", "t", "--if-exists").code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["topic", "create", "x", "-c", "nonsense=1"], "INVALID_CONFIG"),
        (["topic", "create", "x", "-r", "3"], "INVALID_REPLICATION_FACTOR"),
        (["topic", "create", "a/b"], "INVALID_TOPIC_EXCEPTION"),
        (["topic", "describe", "missing"], "missing"),
        (["topic", "alter", "missing", "-p", "2"], "missing"),
        (["topic", "delete", "missing"], "missing"),
        (["group", "describe", "missing"], "GROUP_ID_NOT_FOUND"),
        (["group", "delete", "missing"], "no such group"),
        (["topic", "list", "-b", "127.0.0.1:1", "-X", "bootstrap.timeout.ms=0"], "no broker at 127.0.0.1:1"),
    ],
)
def test_failures_are_one_line_and_exit_code_1(run: Run, arguments: list[str], says: str) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.err.count("\n")) == (1, 1), ran
    assert says in ran.err


def test_a_dry_run_creates_nothing(run: Run) -> None:
    assert run("topic", "create", "t", "--dry-run").code == 0
    assert json.loads(run("topic", "list", "--json").out) == []


@pytest.mark.slow
def test_a_group_from_its_first_commit_to_its_deletion(run: Run) -> None:
    run("topic", "create", "t", "-p", "2")
    run("produce", "t", "-p", "1", stdin=b"a\nb\nc\n")
    run("consume", "t", "-G", "g", "-c", "2")
    assert [row["group"] for row in json.loads(run("group", "list", "--json").out)] == ["g"]
    (described,) = json.loads(run("group", "describe", "g", "--json").out)
    assert described["group"]["state"] == "Empty"
    assert {row["partition"]: (row["committed"], row["lag"]) for row in described["partitions"]}[1] == (2, 1)

    def target(*options: str) -> dict[int, int]:
        rows = json.loads(run("group", "reset-offsets", "g", "-t", "t:1", *options, "--json").out)["offsets"]
        return {row["partition"]: row["target"] for row in rows}

    assert target("--to-earliest") == {1: 0}
    assert target("--to-latest") == {1: 3}
    assert target("--shift-by", "-1") == {1: 1}
    assert target("--shift-by", "50") == {1: 3}
    assert target("--to-datetime", "2001-01-01") == {1: 0}
    assert target("--to-datetime", "2101-01-01") == {1: 3}
    assert target("--to-current") == {1: 2}, "none of them was carried out"
    assert target("--to-offset", "1", "--execute") == {1: 1}
    assert run("consume", "t", "-G", "g", "-e").out == "b\nc\n"
    assert run("group", "delete", "g", "-t", "t:1").out == "offsets of t-1 deleted\n"
    assert run("group", "delete", "g").out == "group g deleted\n"
    assert run("group", "describe", "g").code == 1


@pytest.mark.slow
def test_a_group_of_the_consumer_protocol(run: Run, oncelog_broker: Broker) -> None:
    run("topic", "create", "t", "-p", "2")
    run("produce", "t", "-p", "1", stdin=b"a\nb\nc\n")
    run("consume", "t", "-G", "old", "-c", "1")
    with (
        Client(oncelog_broker.bootstrap_servers) as client,
        GroupConsumer(client, "g", ["t"], protocol="consumer") as member,
    ):
        while len(member.assignment) != 2:
            member.poll(50)
        for types, names in (("consumer", ["g"]), ("CLASSIC", ["old"]), ("share", [])):
            assert [row["group"] for row in json.loads(run("group", "list", "--type", types, "--json").out)] == names
        epoch = member.group_metadata.generation
        heading, columns, *rows = run("group", "describe", "g").out.splitlines()
        assert heading.split("  ") == [
            *("group g", "state Stable", "type consumer", "assignor uniform"),
            *(f"epoch {epoch}", f"target epoch {epoch}", "coordinator 1", "members 1"),
        ]
        assert "MOVES TO" not in columns
        assert [row.split()[5] for row in rows] == [member.group_metadata.member_id] * 2
        _, columns, row = run("group", "describe", "g", "--members").out.splitlines()
        assert row.split()[-6:] == ["t:0-1", "-", "-", str(epoch), "consumer", "t"]
        for refused in (
            run("group", "delete", "g"),
            run("group", "reset-offsets", "g", "--to-latest", "-t", "t:1", "--execute"),
        ):
            assert (refused.code, "still has members" in refused.err) == (1, True)
    assert run("group", "delete", "g").out == "group g deleted\n"
    refused = run("group", "list", "--type", "none")
    assert (refused.code, "'none' is not one of classic, consumer, share, streams" in refused.err) == (2, True)
    assert run("group", "list", "--type", "share", "--zookeeper", "localhost:1").code == 2


def test_rows_of_the_cluster(oncelog_broker: Broker) -> None:
    with Client(oncelog_broker.bootstrap_servers) as client:
        cluster = describe_cluster(client)
        assert [(broker.broker_id, broker.is_controller) for broker in cluster.brokers] == [
            (cluster.brokers[0].broker_id, True)
        ]
        rows = describe_configs(client, ResourceType.BROKER, str(cluster.brokers[0].broker_id), ["num.partitions"])
        assert [row.name for row in rows] == ["num.partitions"]
        assert describe_log_dirs(client) == []


def test_records_before_an_offset_can_be_deleted(run: Run, oncelog_broker: Broker) -> None:
    run("topic", "create", "t", "-p", "1")
    run("produce", "t", stdin=b"a\nb\nc\n")
    partition = TopicPartition(TopicName("t"), 0)
    with Client(oncelog_broker.bootstrap_servers) as client:
        assert delete_records(client, {partition: 2}) == {partition: 2}
    assert run("consume", "t", "-e").out == "c\n"


def test_a_setting_to_delete_that_topics_do_not_have_is_refused(run: Run) -> None:
    run("topic", "create", "t", "-c", "retention.ms=5000")
    refused = run("topic", "alter", "t", "--delete-config", "retention.s")
    assert (refused.code, refused.err) == (
        1,
        "oncelog: topic 't': no setting is called 'retention.s'; did you mean retention.ms?\n",
    )
    assert run("topic", "alter", "t", "--delete-config", "retention.ms").code == 0


@pytest.mark.parametrize("command", ["create", "alter"])
def test_a_mistyped_setting_is_answered_with_the_one_that_was_meant(run: Run, command: str) -> None:
    if command == "alter":
        run("topic", "create", "t")
    refused = run("topic", command, "t", "-c", "segment.bytes=2000000", "-c", "retention.m=5")
    assert (refused.code, refused.err) == (
        1,
        "oncelog: topic 't': Unknown topic config name: retention.m; did you mean retention.ms? (INVALID_CONFIG)\n",
    )
    refused = run("topic", command, "t", "-c", "colour=red")
    assert refused.err == "oncelog: topic 't': Unknown topic config name: colour (INVALID_CONFIG)\n"
