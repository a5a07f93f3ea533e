"""Processes of one cluster that log in to each other by SASL, with an authorizer: the broker's user is trusted because
it is in ``super.users``, and nobody else is."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.peers.process import Process
from tests.waiting import HANG_S, wait_until

pytestmark = pytest.mark.slow
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
PROPERTIES = {
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} required username="broker" password="b" '
    'user_broker="b" user_admin="x" user_alice="a";',
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:broker",
    "default.replication.factor": "2",
}
READY = re.compile(r"ready on (\S+) ")
Brokers = dict[int, Process]


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[Brokers, str]]:
    """Two brokers by id, and their addresses."""
    program = str(Path(sys.executable).with_name("oncelog"))
    result, addresses = {}, []
    with ExitStack() as stack:
        for broker_id in (1, 2):
            values = {
                **PROPERTIES,
                "node.id": str(broker_id),
                "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
                "oncelog.tree.path": str(tmp_path / "tree.db"),
            }
            path = tmp_path / f"{broker_id}.properties"
            path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
            command = [program, "serve", "--config", str(path), "--data-dir", str(tmp_path / f"data-{broker_id}")]
            log = tmp_path / f"{broker_id}.log"
            result[broker_id] = Process(command, log, {})
            stack.callback(result[broker_id].stop)
            wait_until(lambda log=log: READY.search(log.read_text()), f"broker {broker_id}")
            addresses.append(READY.search(log.read_text())[1])
        yield result, ",".join(addresses)


def settings(servers: str, user: str, password: str) -> dict[str, str | int]:
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


def write(producer: Producer) -> None:
    """One record, until it is acknowledged."""
    producer.produce("t", b"x")
    assert producer.flush(HANG_S) == 0


def test_they_copy_from_each_other_and_one_takes_over(brokers: tuple[Brokers, str]) -> None:
    processes, servers = brokers
    admin = AdminClient(settings(servers, "admin", "x"))
    for made in admin.create_topics([NewTopic("t", 1)]).values():
        made.result(HANG_S)

    def partition():
        return admin.list_topics("t", timeout=HANG_S).topics["t"].partitions[0]

    wait_until(lambda: sorted(partition().isrs) == [1, 2], "both to be in sync")
    producer = Producer({**settings(servers, "admin", "x"), "enable.idempotence": True})
    write(producer)
    leader = partition().leader
    processes[leader].kill()
    write(producer)
    assert partition().leader == 3 - leader
    assert "t" not in AdminClient(settings(servers, "alice", "a")).list_topics(timeout=HANG_S).topics
