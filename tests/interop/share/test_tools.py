"""Apache Kafka's tools for share groups, unchanged: kafka-share-groups, kafka-groups, kafka-console-share-consumer."""

from __future__ import annotations

import pytest

from tests.interop.share.servers import Queue, Server
from tests.peers.apache_kafka import KafkaTools

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.java]


def _run(tools: KafkaTools, tool: str, *arguments: str) -> str:
    run = tools.run(tool, *arguments)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout + run.stderr


def test_the_console_consumer_and_the_life_of_a_group(server: Server) -> None:
    queue = Queue(server)
    queue.put("one", "two", "three")
    tools = KafkaTools(server.bootstrap_servers)
    group = ("--group", queue.group)
    consumed = _run(tools, "kafka-console-share-consumer", "--topic", queue.topic, *group, "--max-messages", "2")
    assert consumed.splitlines()[:2] == ["one", "two"]
    assert queue.group in _run(tools, "kafka-share-groups", "--list")
    assert queue.group in _run(tools, "kafka-groups", "--list", "--share")
    described = _run(tools, "kafka-share-groups", "--describe", *group)
    assert queue.topic in described
    assert "Empty" in _run(tools, "kafka-share-groups", "--describe", "--state", *group)
    moved = ("--topic", queue.topic, "--to-earliest", "--execute")
    assert queue.topic in _run(tools, "kafka-share-groups", "--reset-offsets", *moved, *group)
    again = _run(tools, "kafka-console-share-consumer", "--topic", queue.topic, *group, "--max-messages", "3")
    assert again.splitlines()[:3] == ["one", "two", "three"]
    deleted = _run(tools, "kafka-share-groups", "--delete-offsets", "--topic", queue.topic, *group)
    assert "Successful" in deleted
    assert "was successful" in _run(tools, "kafka-share-groups", "--delete", *group)
    assert queue.group not in _run(tools, "kafka-share-groups", "--list")


def test_the_members_are_shown(server: Server) -> None:
    queue = Queue(server)
    queue.put("one")
    with queue.member("confluent") as member:
        member.take(1)
        shown = _run(
            KafkaTools(server.bootstrap_servers),
            "kafka-share-groups",
            "--describe",
            "--members",
            "--group",
            queue.group,
        )
        assert queue.topic in shown
        assert "rdkafka" in shown
