"""Causes of share groups (KIP-932), made by hand on oncelog and on Apache Kafka."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from oncelog.admin.configs import ResourceType, alter_configs
from oncelog.admin.explain.findings import Cause, Severity
from oncelog.admin.explain.targets import explain_group
from oncelog.admin.explain.whole_cluster import explain_cluster
from oncelog.admin.groups import delete_groups, describe_group, share_offsets
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.testing import Broker
from oncelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.interop.admin.conftest import FAST
from tests.interop.admin.explain.conftest import the
from tests.interop.admin.explain.test_explain import MINUTE_MS, causes
from tests.interop.admin.lab import ByHand, at
from tests.interop.admin.share_members import ACCEPT, REJECT, RELEASE, ShareMember
from tests.interop.cli.conftest import Run
from tests.interop.cli.conftest import run_at as run_at
from tests.peers.apache_kafka import ApacheKafka, KafkaTools
from tests.unit.console.visits import token_of, visiting
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
QUICK_LOCKS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "1500",
    "errors.deadletterqueue.auto.create.topics.enable": "false",
}
WINDOW_MS = 15 * MINUTE_MS


@pytest.fixture(scope="module")
def quick_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Apache Kafka with locks of a second and a half."""
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), properties=QUICK_LOCKS) as kafka:
        yield kafka


@pytest.fixture(params=["oncelog", pytest.param("kafka", marks=pytest.mark.java)])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """The bootstrap servers of one, then the other."""
    if request.param == "kafka":
        yield request.getfixturevalue("quick_kafka").bootstrap_servers
        return
    with Broker(QUICK_LOCKS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def tells_locks(request: pytest.FixtureRequest) -> bool:
    """True if leaders tell who holds what."""
    return "kafka" not in request.node.callspec.id


@pytest.fixture
def client(servers: str) -> Iterator[Client]:
    with Client(servers, config=FAST) as opened:
        yield opened


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> str:
    """A topic of this test with 20 records in its only partition."""
    name = f"s-{abs(hash(request.node.nodeid)) % 10**9}"
    create_topic(client, NewTopic(name, partitions=1))
    write(client, name, 20)
    return name


def write(client: Client, topic: str, count: int) -> None:
    now_ms = client.system.wall_ms()
    client.produce(at(topic, 0), build_batch([Record(i, now_ms, None, b"job") for i in range(count)]))


def settings(client: Client, group: str, **values: str) -> None:
    change = {"share.auto.offset.reset": "earliest"} | {key.replace("_", "."): value for key, value in values.items()}
    alter_configs(client, ResourceType.GROUP, group, change=change)


def joined(client: Client, group: str, topic: str) -> ShareMember:
    member = ShareMember(client, group, topic)
    member.join()
    return member


def test_a_record_that_comes_again_and_again(client: Client, named: Callable[[str], Client], topic: str) -> None:
    group = f"g-{topic}"
    settings(client, group, share_delivery_count_limit="3")
    member = joined(named("worker"), group, topic)
    [acquired] = member.acquires()
    member.acknowledge(0, 6, ACCEPT)
    member.acknowledge(8, acquired.last, ACCEPT)
    member.acknowledge(7, 7, RELEASE)
    assert Cause.REDELIVERED_REPEATEDLY not in causes(explain_group(client, group))
    assert member.acquires() == [(7, 7, 2)]
    member.acknowledge(7, 7, RELEASE)

    told = the(explain_group(client, group), Cause.REDELIVERED_REPEATEDLY)
    assert (told.severity, told.about, told.partitions) == (Severity.RISK, f"{topic}-0", (at(topic, 0),))
    assert (told.evidence["offset"], told.evidence["deliveries"], told.evidence["limit"]) == (7, 2, 3)
    assert "offset 7 was delivered 2 times of 3" in told.sentences[0]
    assert "After one more delivery it is archived" in told.sentences[1]
    assert told.affected == ["worker"]
    assert told.since_ms is not None

    assert member.acquires() == [(7, 7, 3)]
    member.acknowledge(7, 7, RELEASE)
    report = explain_group(client, group)
    archived = the(report, Cause.RECORDS_ARCHIVED)
    assert Cause.REDELIVERED_REPEATEDLY not in causes(report)
    assert (archived.evidence["rejected"], archived.evidence["delivered_too_often"]) == (0, 1)
    assert "1 delivered 3 times without being accepted (offset 7)" in archived.sentences[0]
    assert "No copy was made" in archived.sentences[1]
    member.leave()


def test_locks_that_nobody_gives_back(client: Client, named: Callable[[str], Client], topic: str) -> None:
    group = f"g-{topic}"
    settings(client, group)
    member = joined(named("worker"), group, topic)
    member.acquires()
    assert Cause.LOCKS_EXPIRE not in causes(explain_group(client, group))
    wait_until(lambda: any(batch.delivery_count == 2 for batch in member.fetch()), "the locks to end", poll_s=0.1)
    wait_until(lambda: any(batch.delivery_count == 3 for batch in member.fetch()), "the locks to end", poll_s=0.1)

    told = the(explain_group(client, group), Cause.LOCKS_EXPIRE)
    assert (told.severity, told.about, told.evidence["lock_duration_ms"]) == (Severity.RISK, f"{topic}-0", 1500)
    assert "came back within 15 min only when their locks had ended, 1 s after each delivery" in told.sentences[0]
    assert told.commands[1].endswith(f"{group} -c share.record.lock.duration.ms=3000")
    member.leave()


def test_records_that_are_rejected_and_where_they_go(client: Client, topic: str) -> None:
    group, letters = f"g-{topic}", f"dlq.{topic}"
    settings(client, group)
    member = joined(client, group, topic)
    member.acquires()
    member.acknowledge(2, 3, REJECT)
    member.acknowledge(5, 5, REJECT)
    told = the(explain_group(client, group), Cause.RECORDS_ARCHIVED)
    assert (told.severity, told.evidence["rejected"]) == (Severity.RISK, 3)
    assert "3 rejected by a member (offset 5, offsets 2 to 3)" in told.sentences[0]
    assert told.commands[0].startswith("oncelog consume")

    key = "errors.deadletterqueue.topic.name"
    alter_configs(client, ResourceType.GROUP, group, change={key: letters})
    lost = the(explain_group(client, group), Cause.DEAD_LETTERS_LOST)
    assert "does not exist" in str(lost.evidence["obstacle"])
    create_topic(client, NewTopic(letters, partitions=1))
    lost = the(explain_group(client, group), Cause.DEAD_LETTERS_LOST)
    assert "errors.deadletterqueue.group.enable is false" in str(lost.evidence["obstacle"])
    enabled = {"errors.deadletterqueue.group.enable": "true"}
    alter_configs(client, ResourceType.TOPIC, letters, change=enabled)
    report = explain_group(client, group)
    assert Cause.DEAD_LETTERS_LOST not in causes(report)
    assert the(report, Cause.RECORDS_ARCHIVED).severity is Severity.NOTE
    member.leave()


def test_rejected_records_of_transactions(client: Client, topic: str) -> None:
    """Records of committed transactions are records, those of aborted ones and markers are none."""
    group = f"g-{topic}"
    settings(client, group, share_isolation_level="read_committed")
    producer = ByHand(client, f"id-{topic}")
    for is_committed in (True, False, True):
        [last] = producer.begin(at(topic))
        producer.end(commit=is_committed)
    member = joined(client, group, topic)
    acquired = member.acquires()
    while acquired[-1].last < last:
        acquired += member.acquires()
    member.acknowledge(0, 19, ACCEPT)
    for batch in acquired:
        if batch.last >= 20:
            member.acknowledge(max(batch.first, 20), batch.last, REJECT)
    told = the(explain_group(client, group), Cause.RECORDS_ARCHIVED)
    assert told.evidence["rejected"] == 2
    member.leave()


def test_a_queue_that_waits_for_its_first_record(client: Client, later: Client, topic: str, tells_locks: bool) -> None:
    group = f"g-{topic}"
    settings(client, group)
    member = joined(client, group, topic)
    [acquired] = member.acquires()
    member.acknowledge(0, 2, ACCEPT)
    member.acknowledge(4, acquired.last, ACCEPT)
    assert Cause.WAITS_FOR_RECORD not in causes(explain_group(client, group))
    told = the(explain_group(later, group), Cause.WAITS_FOR_RECORD)
    assert (told.evidence["offset"], told.evidence["done_after"]) == (3, 16)
    assert f"In {topic}-0 offset 3 has been the first that is not dealt with for" in told.sentences[0]
    assert (told.evidence.get("member_id") == member.member_id) is tells_locks
    member.leave()


def test_too_many_records_in_flight(client: Client, topic: str) -> None:
    group = f"g-{topic}"
    settings(client, group, share_partition_max_record_locks="100")
    write(client, topic, 150)
    member = joined(client, group, topic)
    acquired = member.acquires()
    last = acquired[-1].last
    member.acknowledge(last, last, RELEASE)
    told = the(explain_group(client, group), Cause.TOO_MANY_IN_FLIGHT)
    assert (told.severity, told.evidence["limit"], told.evidence["first_offset"]) == (Severity.STUCK, 100, 0)
    assert f"{last + 1} offsets are in flight" in told.sentences[0]
    member.leave()


def test_members_that_do_not_fetch_and_groups_without_any(client: Client, later: Client, topic: str) -> None:
    group = f"g-{topic}"
    settings(client, group)
    member = joined(client, group, topic)
    report = explain_group(client, group)
    assert the(report, Cause.NOTHING_ACQUIRED).evidence == {"offset_reset": "earliest"}
    [acquired] = member.acquires()
    member.acknowledge(0, acquired.last, ACCEPT)
    write(client, topic, 5)
    told = the(explain_group(later, group), Cause.NOTHING_ACQUIRED)
    assert (told.severity, told.evidence["to_deliver"]) == (Severity.STUCK, 5)
    assert "the members do not fetch" in told.sentences[1]
    member.leave()
    left = explain_group(client, group)
    alone = the(left, Cause.NO_MEMBERS)
    assert (alone.severity, alone.evidence["partitions_behind"]) == (Severity.STUCK, 1)
    assert "It has 5 offsets to deliver in 1 partition" in alone.sentences[1]
    assert left.summary.startswith(f"Share group '{group}' is Empty with 0 members")
    assert [outcome.error for outcome in delete_groups(client, [group])] == [None]


def test_the_command_line(
    servers: str, client: Client, topic: str, run_at: Callable[[str], Run], tells_locks: bool
) -> None:
    group, run = f"g-{topic}", run_at(servers)
    altered = run("group", "alter", group, "-c", "share.auto.offset.reset=earliest", "--json").out
    assert json.loads(altered)["set"] == {"share.auto.offset.reset": "earliest"}
    member = joined(client, group, topic)
    member.acquires()
    member.acknowledge(0, 3, ACCEPT)
    member.acknowledge(4, 4, RELEASE)
    [shown] = json.loads(run("group", "describe", group, "--json").out)
    assert shown["group"]["group_type"] == "share"
    assert [(row["start_offset"], row["log_end"], row["lag"]) for row in shown["partitions"]] == [(4, 20, 16)]
    [row] = shown["deliveries"]
    assert row["source"] == ("leader" if tells_locks else "log")
    assert (row["in_flight_records"] == 16) is tells_locks
    assert {"first_offset": 4, "state": "available", "delivery_count": 1}.items() <= row["batches"][0].items()
    assert shown["configs"]["share.auto.offset.reset"] == "earliest"
    assert "available" in run("group", "describe", group, "--deliveries").out
    assert member.member_id in run("group", "describe", group, "--members").out
    refused = run("group", "reset-offsets", group, "--to-earliest", "--execute")
    assert (refused.code, "has members ('oncelog' on 127.0.0.1)" in refused.err) == (1, True)
    member.leave()
    run("group", "reset-offsets", group, "--to-offset", "7", "--execute")
    [shown] = json.loads(run("group", "describe", group, "--json").out)
    assert [row["start_offset"] for row in shown["partitions"]] == [7]
    run("group", "delete", group, "--topic", topic)
    [shown] = json.loads(run("group", "describe", group, "--json").out)
    assert shown["partitions"] == []
    run("group", "delete", group)
    assert "no such group" in run("group", "describe", group).err


def test_locks_of_a_member_that_is_gone(
    servers: str, client: Client, topic: str, tells_locks: bool, run_at: Callable[[str], Run]
) -> None:
    group = f"g-{topic}"
    settings(client, group, share_record_lock_duration_ms="60000")
    member = joined(client, group, topic)
    member.acquires()
    member.leave()
    report = explain_group(client, group)
    assert (Cause.HOLDS_RECORDS in causes(report)) is tells_locks
    if not tells_locks:
        assert any("a leader does not tell" in question for question in report.unknown)
        return
    told = the(report, Cause.HOLDS_RECORDS)
    assert (told.evidence["is_gone"], told.evidence["records"]) == (True, 20)
    assert told.about == f"member {member.member_id}"
    assert "(gone)" in run_at(servers)("group", "describe", group, "--deliveries").out


def feature(client: Client, level: int) -> None:
    """Set the level of share.version, down as well."""
    unsafe_downgrade, upgrade = 3, 1
    update = FeatureUpdateKey(
        feature="share.version", max_version_level=level, upgrade_type=upgrade if level else unsafe_downgrade
    )
    message = UpdateFeaturesRequest(feature_updates=[update])
    answer = client.run(client.cluster.request(message, broker="controller"))
    assert not answer.error_code, (answer.error_code, answer.error_message)


def test_share_groups_that_are_off(
    client: Client, servers: str, topic: str, run_at: Callable[[str], Run], request: pytest.FixtureRequest
) -> None:
    group, run = f"g-{topic}", run_at(servers)
    settings(client, group)
    member = joined(client, group, topic)
    member.acquires()
    member.acknowledge(0, 3, ACCEPT)
    member.leave()
    feature(client, 0)
    request.addfinalizer(lambda: feature(client, 2))
    with Client(servers, config=FAST) as after:
        report = explain_group(after, group)
        told = the(report, Cause.SHARE_GROUPS_OFF)
        assert (told.severity, report.is_stuck) == (Severity.STUCK, True)
        assert "share groups are off in this cluster" in report.summary
        problems = {problem.name: problem.cause for problem in explain_cluster(after).problems}
        assert problems[group] is Cause.SHARE_GROUPS_OFF
    assert "share groups are off" in run("group", "describe", group).out
    assert "share groups are off" in run("group", "reset-offsets", group, "--to-earliest").err
    with visiting(servers) as visitor:
        assert "Share groups are off in this cluster" in visitor.get(f"/groups/one?name={group}").text


def test_a_transaction_that_holds_a_group_of_committed_records(client: Client, later: Client, topic: str) -> None:
    group = f"g-{topic}"
    settings(client, group, share_isolation_level="read_committed")
    producer = ByHand(client, f"id-{topic}", timeout_ms=900_000)
    producer.begin(at(topic))
    member = joined(client, group, topic)
    member.acquires()
    member.acknowledge(0, 19, ACCEPT)
    assert member.fetch() == []
    report = explain_group(later, group)
    told = the(report, Cause.HELD_BY_TRANSACTION)
    assert (told.about, told.evidence["verdict"]) == (f"{topic}-0", "live")
    assert Cause.NOTHING_ACQUIRED not in causes(report)
    assert [row.transactional_id for row in report.transactions] == [f"id-{topic}"]
    alter_configs(client, ResourceType.GROUP, group, change={"share.isolation.level": "read_uncommitted"})
    assert Cause.HELD_BY_TRANSACTION not in causes(explain_group(later, group))
    producer.end()
    member.leave()


def test_the_whole_cluster(client: Client, topic: str, tells_locks: bool) -> None:
    group = f"g-{topic}"
    settings(client, group)
    member = joined(client, group, topic)
    member.acquires()
    member.acknowledge(0, 3, ACCEPT)
    member.acknowledge(4, 4, REJECT)
    member.leave()
    report = explain_cluster(client)
    [problem] = [problem for problem in report.problems if problem.name == group]
    assert (problem.kind, problem.cause, problem.severity) == ("group", Cause.NO_MEMBERS, Severity.STUCK)
    # The records that it left without giving them back are a cause where leaders tell it.
    assert (problem.unread, problem.more) == (15, 1 + tells_locks)
    assert problem.explain == f"oncelog explain group {group}"
    [summary] = [summary for summary in report.groups if summary.group == group]
    assert (summary.group_type, summary.members, summary.lag, summary.unknown) == ("share", 0, 15, 0)
    assert not [line for line in report.unknown if "share" in line], report.unknown


def test_the_console(servers: str, client: Client, topic: str, tmp_path: Path, tells_locks: bool) -> None:
    group = f"g-{topic}"
    settings(client, group, share_record_lock_duration_ms="60000")  # none may end while the pages are read
    member = joined(client, group, topic)
    member.acquires()
    member.acknowledge(0, 3, ACCEPT)
    member.acknowledge(4, 4, RELEASE)
    with visiting(servers, audit_log=tmp_path / "audit") as visitor:
        page = visitor.get(f"/groups/one?name={group}").text
        shown = visitor.get(f"/groups/one.json?name={group}").json()
        [row] = shown["partitions"]["rows"]
        assert (row["start_offset"], row["log_end"], row["lag"], row["most_deliveries"]) == (4, 20, 16, 1)
        assert (shown["from_log"], shown["members"]) == (not tells_locks, 1)
        assert (shown["in_flight"], shown["acquired"]) == ((16, 15) if tells_locks else (None, None))
        assert shown["records"]["rows"][0]["state"] == "available"
        assert ("Locks are not recorded" in page) is not tells_locks
        assert "share.record.lock.duration.ms" in page
        assert "earliest" in page
        wait_until(lambda: lag_in_list(visitor, group) == 16, "the lag in the list")
        assert visitor.get(f"/explain?kind=group&name={group}").status_code == 200
        assert "stop them first" in visitor.get(f"/groups/delete?name={group}&topic={topic}").text
        member.leave()
        path = f"/groups/reset?name={group}&to=earliest"
        [step] = visitor.get(path.replace("/reset", "/reset.json")).json()["plan"]
        assert (step["current"], step["target"]) == (4, 0)
        form = {"token": token_of(visitor, path), "typed": group, "plan": plan_in(visitor, path)}
        done = visitor.post(f"/groups/apply?name={group}", data=form)
        assert f"{topic}-0: 4 → 0" in done.text
        [row] = visitor.get(f"/groups/one.json?name={group}").json()["partitions"]["rows"]
        assert (row["start_offset"], row["lag"]) == (0, 20)
        path = f"/groups/delete?name={group}&topic={topic}"
        form = {"token": token_of(visitor, path), "typed": group, "plan": plan_in(visitor, path)}
        assert "1 offset deleted" in visitor.post(f"/groups/remove?name={group}&topic={topic}", data=form).text
        path = f"/groups/delete?name={group}"
        form = {"token": token_of(visitor, path), "typed": group, "plan": plan_in(visitor, path)}
        assert "The group is deleted" in visitor.post(f"/groups/remove?name={group}", data=form).text
        assert visitor.get(f"/groups/one?name={group}").status_code == 404


def plan_in(visitor: TestClient, path: str) -> str:
    """The plan that the form of a page sends."""
    match = re.search(r'name="plan" value="([^"]*)"', visitor.get(path).text)
    assert match is not None, f"no form in {path}"
    return html.unescape(match[1])


def lag_in_list(visitor: TestClient, group: str) -> int | None:
    rows = visitor.get("/groups.json?type=share").json()["groups"]["rows"]
    return next((row["lag"] for row in rows if row["group"] == group), None)


@pytest.mark.java
def test_kafkas_tool_agrees(servers: str, client: Client, topic: str) -> None:
    group = f"g-{topic}"
    settings(client, group)
    member = joined(client, group, topic)
    member.acquires()
    member.acknowledge(0, 3, ACCEPT)
    member.acknowledge(6, 6, ACCEPT)  # The start offset is recorded with the write after the one that moves it.
    described = describe_group(client, group)
    [offset] = share_offsets(client, group)
    command = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
    tool = KafkaTools(servers).run(command, "--describe", "--group", group)
    [line] = [line.split() for line in tool.stdout.splitlines() if topic in line]
    assert line == [group, topic, "0", str(offset.start_offset), str(offset.lag)]
    assert (offset.start_offset, offset.lag) == (4, 15)
    assert [row.partitions for row in described.members] == [(at(topic, 0),)]
    member.leave()
