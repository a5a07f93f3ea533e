"""A partition that stands still while its member's others advance: paused by its consumer, or in front of a record that
is larger than the consumer takes. Made with librdkafka; the commands of the reports are run as they are printed."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from oncelog.admin.explain.findings import Cause, Finding, Severity
from oncelog.admin.explain.targets import explain_group
from oncelog.admin.groups import describe_group
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client
from oncelog.client.blocking.system import ThisMachine
from oncelog.client.programs.group import committed_offsets
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from tests.interop.admin.conftest import FAST
from tests.interop.admin.explain.test_explain import causes, write
from tests.interop.admin.explain.test_explain import topic as topic
from tests.interop.admin.lab import at
from tests.interop.cli.conftest import Run
from tests.interop.cli.conftest import run_at as run_at
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
LARGE = 2_000_000
SMALL_LIMITS = {
    "message.max.bytes": 10_000,
    "fetch.max.bytes": 10_000,
    "max.partition.fetch.bytes": 10_000,
    "receive.message.max.bytes": 100_000,
    "fetch.error.backoff.ms": 10,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
}
"""The least that librdkafka lets one give, but for the size of an answer, which has to hold metadata, too."""


class At(ThisMachine):
    """A machine whose wall clock stands at a moment."""

    def __init__(self, moment_ms: int) -> None:
        self.moment_ms = moment_ms

    def wall_ms(self) -> int:
        return self.moment_ms


def now_ms() -> int:
    return int(time.time() * 1000)


def later_than(moment_ms: int) -> int:
    """A moment after another, come."""
    wait_until(lambda: now_ms() > moment_ms, "the next millisecond")
    return now_ms()


def member(servers: str, group: str, topic: str, **settings: object) -> Consumer:
    """A consumer that has all partitions of the topic, and commits when it is told to."""
    config = {"bootstrap.servers": servers, "group.id": group, "client.id": "reader", "auto.offset.reset": "earliest"}
    opened = Consumer(config | {"enable.auto.commit": False} | settings)
    opened.subscribe([topic])
    wait_until(lambda: [opened.poll(0.01)] and len(opened.assignment()) == 2, "its partitions")
    return opened


def leave(client: Client, group: str, consumer: Consumer) -> None:
    """End a group's only consumer; librdkafka does not wait for the answer to its LeaveGroup."""
    consumer.close()
    wait_until(lambda: not describe_group(client, group).members, "a group without members")


def commit(consumer: Consumer, topic: str, partition: int, offset: int) -> None:
    consumer.commit(offsets=[Place(topic, partition, offset)], asynchronous=False)


def explained(servers: str, group: str, since_ms: int) -> dict[tuple[Cause, str], Finding]:
    """The findings about the time since a moment, by cause and subject."""
    moment_ms = later_than(since_ms)
    with Client(servers, config=FAST, system=At(moment_ms)) as client:
        findings = explain_group(client, group, window_ms=moment_ms - since_ms).findings
    return {(finding.cause, finding.about): finding for finding in findings}


def command(finding: Finding, number: int) -> list[str]:
    """The arguments of a command that a finding names."""
    return shlex.split(finding.commands[number])[1:]


def test_a_partition_that_its_consumer_has_paused(
    client: Client, servers: str, topic: str, run_at: Callable[[str], Run]
) -> None:
    group, run = f"g-{topic}", run_at(servers)
    consumer = member(servers, group, topic)
    consumer.pause([Place(topic, 0)])
    commit(consumer, topic, 0, 5)
    since_ms = later_than(now_ms())
    for offset in (3, 10):
        commit(consumer, topic, 1, offset)
    result = explained(servers, group, since_ms)
    stands = result[Cause.PARTITION_DOES_NOT_ADVANCE, f"{topic}-0"]
    assert stands.severity is Severity.STUCK
    assert stands.evidence["next_record"] == 5
    assert "15 offsets to read" in stands.sentences[0]
    assert (Cause.BUSY, f"{topic}-1") in result
    whole = explain_group(client, group)
    assert Cause.PARTITION_DOES_NOT_ADVANCE not in causes(whole), "it has moved a moment ago"
    shown = run(*command(stands, 0), "--format", "%p/%o\n")
    assert (shown.code, shown.out) == (0, "0/5\n")
    assert run(*command(stands, 1)).code != 0, "while the group has members nobody moves its offsets"
    leave(client, group, consumer)
    assert run(*command(stands, 1)).code == 0
    assert committed_offsets(client, group)[at(topic)].offset == 6


def test_a_record_larger_than_its_consumer_takes(servers: str, run_at: Callable[[str], Run]) -> None:
    topic, group, run = "large-records", "g-large", run_at(servers)
    messages: list[str] = []
    with Client(servers, config=FAST) as client:
        create_topic(client, NewTopic(topic, partitions=2, configs={"max.message.bytes": str(2 * LARGE)}))
        for partition in range(2):
            write(client, topic, partition, 20)
        consumer = member(servers, group, topic, error_cb=lambda error: messages.append(error.str()), **SMALL_LIMITS)
        read = {0: 0, 1: 0}

        def poll() -> None:
            message = consumer.poll(0.01)
            if message is not None and message.error() is None:
                read[message.partition() or 0] = (message.offset() or 0) + 1

        wait_until(lambda: [poll()] and read == {0: 20, 1: 20}, "what comes before the large record")
        client.produce(at(topic), build_batch([Record(0, 0, None, bytes(LARGE))]))
        write(client, topic, 0, 5)
        commit(consumer, topic, 0, 20)
        wait_until(
            lambda: [poll()] and any("receive.message.max.bytes" in message for message in messages), "its complaint"
        )
        since_ms = later_than(now_ms())
        for offset in (10, 20):
            commit(consumer, topic, 1, offset)
        result = explained(servers, group, since_ms)
        large = result[Cause.LARGE_BATCH, f"{topic}-0"]
        assert large.severity is Severity.STUCK
        assert large.evidence["next_record"] == 20
        assert int(large.evidence["batch_bytes"] or 0) > LARGE
        alone = explained(servers, group, later_than(now_ms()))
        assert alone[Cause.LARGE_BATCH, f"{topic}-0"].severity is Severity.RISK
        assert (Cause.MEMBER_DOES_NOT_COMMIT, "member reader") in alone, "nothing of it moves: it may be the member"
        assert read[0] == 20
        leave(client, group, consumer)
        shown = run(*command(large, 0), "--format", "%o %S\n")
        assert (shown.code, shown.out) == (0, f"20 {LARGE}\n")
        assert run(*command(large, 1)).code == 0
        consumer = member(servers, group, topic, **SMALL_LIMITS)
        wait_until(lambda: [poll()] and read[0] == 26, "what comes behind it")
        consumer.close()
