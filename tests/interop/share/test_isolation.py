"""The isolation level of a share group: records of transactions that are open, aborted and committed."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from tests.interop.share.servers import Queue, Server, values

pytestmark = [pytest.mark.slow, pytest.mark.integration]
_TIMEOUT_S = 60


def _producer(server: Server, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(_TIMEOUT_S)
    return producer


def _send(producer: Producer, topic: str, value: str) -> None:
    producer.begin_transaction()
    producer.produce(topic, value.encode(), partition=0)
    producer.flush(_TIMEOUT_S)


def test_read_committed_leaves_out_what_is_aborted_and_waits_for_what_is_open(kind: str, server: Server) -> None:
    queue = Queue(server, share_isolation_level="read_committed")
    first, second = (_producer(server, f"{queue.topic}-{number}") for number in range(2))
    _send(first, queue.topic, "aborted")
    first.abort_transaction(_TIMEOUT_S)
    _send(first, queue.topic, "committed")
    first.commit_transaction(_TIMEOUT_S)
    _send(second, queue.topic, "open")
    queue.put("behind")
    with queue.member(kind) as member:
        before = member.take(1)
        assert values(before) == ["committed"]
        member.acknowledge("accept", *before)
        member.commit()
        assert member.poll() == []
        second.commit_transaction(_TIMEOUT_S)
        assert values(member.take(2)) == ["open", "behind"]


def test_read_uncommitted_has_all(kind: str, server: Server) -> None:
    queue = Queue(server)
    producer = _producer(server, queue.topic)
    _send(producer, queue.topic, "aborted")
    producer.abort_transaction(_TIMEOUT_S)
    _send(producer, queue.topic, "open")
    with queue.member(kind) as member:
        assert values(member.take(2)) == ["aborted", "open"]
    producer.abort_transaction(_TIMEOUT_S)
