"""Transactions of our client on our broker, with two-phase commit over the death of either side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client, ClientConfig, FetchSettings
from oncelog.client.blocking.transactions import (
    Committed,
    Ended,
    GroupMetadata,
    StoredTransaction,
    TransactionalProducer,
    TransactionSettings,
)
from oncelog.client.errors import OutOfTurn, ProducerFenced
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.transaction_states import State
from oncelog.client.programs.group import committed_offsets
from oncelog.testing import Broker

FAST = ClientConfig(retry_backoff_ms=20)
T0, T1 = (TopicPartition(TopicName("t"), index) for index in range(2))


@pytest.fixture
def two_phase() -> Iterator[Broker]:
    with Broker({"node.id": "1", "transaction.two.phase.commit.enable": "true"}) as running:
        yield running


@pytest.fixture
def client(two_phase: Broker) -> Iterator[Client]:
    with Client(two_phase.bootstrap_servers, config=FAST) as opened:
        create_topic(opened, NewTopic("t", partitions=2))
        yield opened


def committed(client: Client) -> list[bytes]:
    """The values that a reader at read_committed sees."""
    ends = client.list_offsets({T0: -1, T1: -1}, read_committed=True)
    until = {partition: one.offset for partition, one in ends.items()}
    fetched = client.fetch({T0: 0, T1: 0}, until=until, settings=FetchSettings(read_committed=True))
    return sorted(r.value or b"" for item in fetched for r in read_fetched(item, read_committed=True))


def two_phase_producer(client: Client) -> TransactionalProducer:
    return TransactionalProducer(client, TransactionSettings("x", two_phase=True))


def prepared(client: Client, value: bytes) -> StoredTransaction:
    """A transaction that is prepared when its producer dies."""
    producer = two_phase_producer(client)
    producer.initialize()
    producer.begin()
    producer.send("t", value, partition=0)
    producer.send_offsets({T1: Committed(5)}, GroupMetadata("g"))
    stored = producer.prepare()
    producer.close()
    return stored


@pytest.mark.slow
def test_committed_aborted_and_fenced(client: Client) -> None:
    producer = TransactionalProducer(client, TransactionSettings("x"))
    producer.initialize()
    for number in range(4):
        producer.begin()
        for partition in range(2):
            producer.send("t", b"%d" % number, partition=partition)
        producer.abort() if number % 2 else producer.commit()
    assert committed(client) == [b"0", b"0", b"2", b"2"]
    newer = TransactionalProducer(client, TransactionSettings("x"))
    newer.initialize()
    producer.begin()
    producer.send_offsets({}, GroupMetadata("g"))
    with pytest.raises(ProducerFenced):
        producer.send_offsets({T0: Committed(1)}, GroupMetadata("g"))
    producer.close()
    newer.close()


@pytest.mark.slow
@pytest.mark.parametrize("decided", [True, False])
def test_what_was_prepared_ends_as_was_decided_after_both_sides_died(
    two_phase: Broker, client: Client, decided: bool
) -> None:
    stored = StoredTransaction.parse(str(prepared(client, b"prepared")))
    two_phase.restart()
    assert committed(client) == []
    producer = two_phase_producer(client)
    assert producer.initialize(keep_prepared=True) == stored
    producer.close()
    again = two_phase_producer(client)
    assert again.initialize(keep_prepared=True) == stored, "the name of a transaction outlives its instances"
    assert again.complete(stored if decided else None) is (Ended.COMMITTED if decided else Ended.ABORTED)
    with again.transaction():
        again.send("t", b"and on", partition=1)
    again.close()
    assert committed(client) == ([b"and on", b"prepared"] if decided else [b"and on"])
    assert bool(committed_offsets(client, "g", [T1], require_stable=True)) is decided


@pytest.mark.slow
def test_another_transaction_than_the_stored_one_is_aborted_and_none_is_nothing(client: Client) -> None:
    stored = prepared(client, b"first")
    producer = two_phase_producer(client)
    assert producer.initialize(keep_prepared=True) == stored
    assert producer.complete(stored._replace(producer_epoch=stored.producer_epoch + 1)) is Ended.ABORTED
    producer.close()
    after = two_phase_producer(client)
    assert after.initialize(keep_prepared=True) is None
    assert (after.complete(stored), after.state) == (Ended.NOTHING_PREPARED, State.READY)
    after.close()
    assert committed(client) == []


def test_a_call_out_of_turn_says_what_comes_first(oncelog_broker: Broker) -> None:
    with (
        Client(oncelog_broker.bootstrap_servers) as client,
        TransactionalProducer(client, TransactionSettings("x")) as producer,
    ):
        with pytest.raises(OutOfTurn, match=r"'x' is uninitialized; call initialize\(\) first$"):
            producer.begin()
        producer.initialize()
        with pytest.raises(OutOfTurn, match=r"'x' is ready; begin\(\) or transaction\(\) begins a transaction$"):
            producer.send("t", b"v")
