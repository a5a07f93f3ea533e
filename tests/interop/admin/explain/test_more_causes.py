"""Causes that concern a group's subscription, its position, its quota and its coordinator, made for real."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka import Consumer

from oncelog.admin.explain.findings import Cause, Finding, Severity
from oncelog.admin.explain.targets import explain_group, explain_topic
from oncelog.admin.topics import NewTopic, create_topic, delete_topics
from oncelog.base.ids import TopicName
from oncelog.client.blocking import Client, GroupConsumer, GroupSettings, TransactionalProducer
from oncelog.client.machine.offsets import Committed, GroupMetadata
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.client.programs.group import commit_offsets
from oncelog.node.coordinators import log_batches as loading
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from oncelog.testing import Broker, Cluster
from oncelog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from tests.interop.admin.conftest import FAST
from tests.interop.admin.explain.test_explain import cause, causes, joined, write
from tests.interop.admin.explain.test_explain import topic as topic
from tests.interop.admin.lab import ByHand, at
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def test_a_topic_that_no_member_subscribes_to_any_more(client: Client, topic: str) -> None:
    given_up, group = f"{topic}-given-up", f"g-{topic}"
    create_topic(client, NewTopic(given_up))
    write(client, given_up, 0, 7)
    commit_offsets(client, group, {at(given_up): Committed(2)})
    with joined(client, group, topic):
        result = explain_group(client, group)
    [told] = [finding for finding in result.findings if finding.cause is Cause.NOT_ASSIGNED]
    assert (told.about, told.severity) == (f"{given_up}-0", Severity.STUCK)
    assert "5 offsets to read" in told.sentences[0]
    [silent] = [finding for finding in result.findings if finding.cause is Cause.NOTHING_COMMITTED]
    assert (silent.severity, set(silent.partitions)) == (Severity.NOTE, {at(topic, 0), at(topic, 1)})
    assert "at least 5 offsets that it can read: in 2 more partitions it has committed nothing" in result.summary


def test_a_group_that_reads_uncommitted_records_is_not_held(client: Client, topic: str) -> None:
    producer = ByHand(client, f"x-{topic}")
    producer.begin(at(topic, 0))
    commit_offsets(client, f"g-{topic}", {at(topic, 0): Committed(21)})
    group = explain_group(client, f"g-{topic}")
    producer.end()
    assert cause(group, Cause.READS_UNCOMMITTED) is Severity.NOTE
    assert Cause.HELD_BY_TRANSACTION not in causes(group)


def test_offsets_without_records_are_no_loss(client: Client, topic: str) -> None:
    producer = ByHand(client, f"x-{topic}")
    producer.begin(at(topic, 0))
    producer.end()
    wait_until(lambda: not explain_topic(client, topic).findings, "the marker")
    write(client, topic, 0, 1)
    commit_offsets(client, f"g-{topic}", {at(topic, 0): Committed(21)})
    [told] = [
        finding for finding in explain_group(client, f"g-{topic}").findings if finding.cause is Cause.COMPACTED_HOLE
    ]
    assert told.severity is Severity.NOTE
    assert told.evidence == {"position": 21, "next_record": 22}


def test_what_compaction_has_removed_is_no_loss(client: Client) -> None:
    name = "compacted-away"
    configs = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.01"}
    create_topic(client, NewTopic(name, configs=configs))
    for moment_ms in range(0, 1000, 100):  # Segments are rolled by the time of records.
        client.produce(at(name), build_batch([Record(number, moment_ms, b"k", b"v") for number in range(10)]))
    commit_offsets(client, "g-compacted-away", {at(name): Committed(5)})

    def holes() -> list[Finding]:
        findings = explain_group(client, "g-compacted-away").findings
        return [finding for finding in findings if finding.cause is Cause.COMPACTED_HOLE]

    wait_until(holes, "compaction")
    [told] = holes()
    assert (told.severity, told.evidence["position"]) == (Severity.NOTE, 5)
    assert int(told.evidence["next_record"] or 0) > 5


def test_a_topic_that_was_deleted_while_a_member_has_it(client: Client, topic: str) -> None:
    with joined(client, f"g-{topic}", topic) as consumer:
        consumer.processed(at(topic, 0), 5)
        consumer.commit()
        delete_topics(client, [topic])
        wait_until(lambda: not client.metadata({TopicName(topic)})[TopicName(topic)].exists, "its end")
        result = [
            finding for finding in explain_group(client, f"g-{topic}").findings if finding.cause is Cause.TOPIC_GONE
        ]
    [gone] = result
    assert (set(gone.partitions), gone.severity) == ({at(topic, 0), at(topic, 1)}, Severity.STUCK)


def test_a_member_that_is_dead_is_missed_after_its_session(client: Client, topic: str) -> None:
    group = f"g-{topic}"
    commit_offsets(client, group, {at(topic, 0): Committed(5)})
    settings = GroupSettings(session_timeout_ms=6_000)
    dead = GroupConsumer(client, group, [topic], settings=settings)
    wait_until(lambda: bool(dead.poll(50)) or len(dead.assignment) == 2, "the assignment")
    assert Cause.NO_MEMBERS not in causes(explain_group(client, group))
    wait_until(lambda: Cause.NO_MEMBERS in causes(explain_group(client, group)), "the end of its session", poll_s=0.2)
    [told] = [finding for finding in explain_group(client, group).findings if finding.cause is Cause.NO_MEMBERS]
    assert told.severity is Severity.STUCK
    assert told.since_ms is not None
    assert "Its last member left at" in told.sentences[1]
    dead.close()


def test_offsets_that_wait_for_their_transaction(client: Client, topic: str) -> None:
    group = f"g-{topic}"
    commit_offsets(client, group, {at(topic, 0): Committed(3)})
    with TransactionalProducer(client, TransactionSettings(f"x-{topic}")) as producer:
        producer.initialize()
        producer.begin()
        producer.send_offsets({at(topic, 0): Committed(9)}, GroupMetadata(group))
        producer.flush()
        [told] = [
            finding for finding in explain_group(client, group).findings if finding.cause is Cause.PENDING_OFFSETS
        ]
        assert told.severity is Severity.STUCK
        producer.commit()
    wait_until(lambda: Cause.PENDING_OFFSETS not in causes(explain_group(client, group)), "the marker")


def test_a_rebalance_that_waits_for_a_member(client: Client, servers: str, topic: str) -> None:
    group = f"g-{topic}"

    def consumer(client_id: str) -> Consumer:
        opened = Consumer({"bootstrap.servers": servers, "group.id": group, "client.id": client_id})
        opened.subscribe([topic])
        return opened

    busy = consumer("busy")
    wait_until(lambda: [busy.poll(0.01)] and len(busy.assignment()) == 2, "its partitions")
    new = consumer("new")  # the first does not poll, and so does not join again
    wait_until(lambda: [new.poll(0.01)] and Cause.REBALANCING in causes(explain_group(client, group)), "the rebalance")
    [told] = [finding for finding in explain_group(client, group).findings if finding.cause is Cause.REBALANCING]
    assert told.severity is Severity.STUCK
    assert "busy" in told.affected
    wait_until(lambda: [busy.poll(0.01), new.poll(0.01)] and len(new.assignment()) == 1, "its end")
    new.close()
    busy.close()


def test_a_quota_that_holds_a_member_back(client: Client, servers: str, topic: str) -> None:
    group, client_id = f"g-{topic}", f"limited-{topic}"
    entity = [EntityData(entity_type="client-id", entity_name=client_id)]
    with (
        Client(servers, config=replace(FAST, client_id=client_id)) as limited,
        joined(limited, group, topic) as consumer,
    ):
        for position in (1, 15):
            consumer.processed(at(topic, 0), position)
            consumer.commit()
        rate = OpData(key="consumer_byte_rate", value=1.0)
        client.request(AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[rate])]))
        wait_until(lambda: Cause.QUOTA in causes(explain_group(client, group)), "the quota")
        [told] = [finding for finding in explain_group(client, group).findings if finding.cause is Cause.QUOTA]
    assert told.about == f"{topic}-0"
    assert told.evidence["consumer_byte_rate"] == 1.0


def test_a_coordinator_whose_broker_is_down_and_a_copy_that_is_missing() -> None:
    settings = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"}
    with Cluster(3, settings) as cluster:
        with Client(cluster.bootstrap_servers, config=FAST) as client:
            create_topic(client, NewTopic("t", assignment={0: [1, 2, 3]}))
            write(client, "t", 0, 5)
            commit_offsets(client, "g", {at("t"): Committed(1)})
            coordinator = client.topic("__consumer_offsets").partitions[0].leader
        cluster.kill(coordinator)
        with Client(cluster.bootstrap_servers, config=replace(FAST, retry_timeout_ms=500)) as client:
            group = explain_group(client, "g")
            assert cause(group, Cause.COORDINATOR_UNAVAILABLE) is Severity.STUCK
            assert cause(group, Cause.NO_LEADER) is Severity.STUCK
            wait_until(lambda: cause(explain_topic(client, "t"), Cause.UNDER_REPLICATED) is Severity.RISK, "the set")


def test_a_coordinator_that_is_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads its log slice by slice, and gets no further while the test looks."""
    with Broker({"offsets.topic.num.partitions": "1"}) as broker:
        with Client(broker.bootstrap_servers, config=FAST) as client:
            create_topic(client, NewTopic("t", partitions=1, replication_factor=1))
            write(client, "t", 0, 5)
            commit_offsets(client, "g", {at("t"): Committed(1)})
        with monkeypatch.context() as patch:
            patch.setattr(loading, "apply_slice", lambda _apply, _log, offset: offset)
            broker.restart()
            with Client(broker.bootstrap_servers, config=replace(FAST, retry_timeout_ms=500)) as client:
                group = explain_group(client, "g")
        assert cause(group, Cause.COORDINATOR_LOADING) is Severity.STUCK
        assert Cause.COORDINATOR_UNAVAILABLE not in causes(group)
        [told] = [finding for finding in group.findings if finding.cause is Cause.COORDINATOR_LOADING]
        assert told.evidence["offsets_partition"] == "__consumer_offsets-0"
        assert int(told.evidence["offsets"] or 0) >= 1
        assert told.since_ms is None
        assert "no request tells" in told.no_since
        with Client(broker.bootstrap_servers, config=FAST) as client:
            assert Cause.COORDINATOR_LOADING not in causes(explain_group(client, "g")), "it has loaded it"
