"""Causes that need more than one broker, or an authorizer, made for real with Apache Kafka."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from oncelog.admin.acls import create_acls
from oncelog.admin.cluster_status import cluster_status
from oncelog.admin.explain.findings import Cause, Report, Severity
from oncelog.admin.explain.targets import explain_group, explain_topic
from oncelog.admin.quorum import describe_quorum
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.acls import AclBinding, AclEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from oncelog.client.blocking import Client
from oncelog.client.machine.offsets import Committed
from oncelog.client.programs.group import commit_offsets
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from tests.interop.admin.conftest import FAST
from tests.interop.admin.explain.test_explain import cause, write
from tests.interop.admin.lab import at
from tests.peers.apache_kafka import ApacheKafka
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.java]
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "1",
    # A broker that stands still stays in the in-sync sets; one that is ended says so itself.
    "broker.session.timeout.ms": "600000",
    "replica.lag.time.max.ms": "600000",
}
GROUP = "g"


@dataclass(frozen=True)
class Pair:
    """Broker 1, which is the controller and stays, and broker 2, which coordinates all groups."""

    first: ApacheKafka
    second: ApacheKafka

    @property
    def client(self) -> Client:
        """A client that gives up soon."""
        return Client(self.first.bootstrap_servers, config=replace(FAST, retry_timeout_ms=2_000))

    def topic_report(self, topic: str) -> Report:
        with self.client as client:
            return explain_topic(client, topic)

    def group_report(self, principal: str | None = None) -> Report:
        with self.client as client:
            return explain_group(client, GROUP, principal=principal)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Two brokers with topics in both and in the second alone, and a group."""
    with ApacheKafka(tmp_path / "1", heap_mb=256, properties=PROPERTIES) as first, first.another(2) as second:
        with Client(first.bootstrap_servers, config=FAST) as client:
            wait_until(lambda: [client.refresh_brokers()] and len(client.view.brokers) == 2, "both brokers")
            compacted = {"cleanup.policy": "compact"}
            create_topic(client, NewTopic("__consumer_offsets", assignment={0: [2]}, configs=compacted))
            create_topic(client, NewTopic("both", assignment={0: [1, 2]}, configs={"min.insync.replicas": "2"}))
            create_topic(client, NewTopic("spare", assignment={0: [1, 2]}))
            create_topic(client, NewTopic("alone", assignment={0: [2]}))
            for topic in ("both", "spare", "alone"):
                write(client, topic, 0, 10)
            commit_offsets(client, GROUP, {at("both"): Committed(3)})
        yield Pair(first, second)


def test_replicas_coordinators_and_permissions(pair: Pair) -> None:
    """One after the other: a broker that has left is registered for as long as its session, and cannot come back."""
    permission_that_is_missing(pair)
    replica_that_stands_still(pair)
    controller_is_that_of_the_quorum(pair)
    broker_that_is_down(pair)


def permission_that_is_missing(pair: Pair) -> None:
    [told] = [finding for finding in pair.group_report("User:app").findings if finding.cause is Cause.NOT_PERMITTED]
    assert told.severity is Severity.STUCK
    assert told.sentences[0] == f"User:app may not Read group '{GROUP}' (DefaultDeny)."
    assert told.commands[1] == f"oncelog acl allow --group {GROUP} app read"
    with pair.client as client:
        for kind, name in ((ResourceType.GROUP, GROUP), (ResourceType.TOPIC, "both")):
            allow(client, kind, name)
    wait_until(lambda: cause(pair.group_report("User:app"), Cause.NOT_PERMITTED) is None, "the entries")


def allow(client: Client, kind: ResourceType, name: str) -> None:
    entry = AclEntry("User:app", "*", Operation.READ, Permission.ALLOW)
    create_acls(client, [AclBinding(ResourcePattern(kind, PatternType.LITERAL, name), entry)])


def replica_that_stands_still(pair: Pair) -> None:
    os.kill(pair.second.process.pid, signal.SIGSTOP)
    try:
        with pair.client as client:
            client.produce(at("spare"), build_batch([Record(0, 0, None, b"waits")]), acks=1)
        report = pair.topic_report("spare")
    finally:
        os.kill(pair.second.process.pid, signal.SIGCONT)
    [told] = [finding for finding in report.findings if finding.cause is Cause.SLOW_FOLLOWER]
    assert (told.severity, told.evidence["waiting"]) == (Severity.RISK, 1)
    assert "2 does not answer" in " ".join(told.sentences)
    wait_until(lambda: not pair.topic_report("spare").findings, "the copy")


def controller_is_that_of_the_quorum(pair: Pair) -> None:
    with Client(pair.second.bootstrap_servers, config=FAST) as client:
        quorum = describe_quorum(client)
        assert quorum is not None
        assert (quorum.leader_id, [voter.node_id for voter in quorum.voters]) == (1, [1])
        assert [observer.node_id for observer in quorum.observers] == [2]
        status = cluster_status(client)
    assert (status.controller_id, [row.broker_id for row in status.brokers if row.is_controller]) == (1, [1])


def broker_that_is_down(pair: Pair) -> None:
    pair.second.stop()
    wait_until(lambda: cause(pair.topic_report("both"), Cause.UNDER_MIN_ISR) is Severity.STUCK, "the shrunken set")
    assert cause(pair.topic_report("spare"), Cause.UNDER_REPLICATED) is Severity.RISK
    [told] = pair.topic_report("alone").findings
    assert (told.cause, told.severity) == (Cause.NO_LEADER, Severity.STUCK)
    assert (told.evidence["replicas"], told.evidence["isr"], told.evidence["eligible"]) == ("2", "", "2")
    assert "broker 2 is back" in told.clears
    text = " ".join(told.sentences)
    assert "Only broker 2 may lead it without loss (an eligible leader, KIP-966" in text
    assert "records may be missing" not in text
    with pair.client as client:
        [alone] = [row for row in cluster_status(client).without_leader if row.topic == "alone"]
    assert (alone.isr, alone.eligible, alone.may_lead) == ((), (2,), (2,))
    report = pair.group_report()
    assert cause(report, Cause.COORDINATOR_UNAVAILABLE) is Severity.STUCK
    assert cause(report, Cause.NO_LEADER) is Severity.STUCK, "of the partition that has its offsets"
