"""Our transactional producer against Apache Kafka, read back with librdkafka at read_committed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.aio import AsyncClient, AsyncGroupConsumer, AsyncTransactionalProducer
from oncelog.client.blocking import Client, ClientConfig
from oncelog.client.blocking.group import GroupConsumer
from oncelog.client.blocking.producer import ProducerSettings
from oncelog.client.blocking.transactions import Committed, GroupMetadata, TransactionalProducer, TransactionSettings
from oncelog.client.errors import ProducerFenced, TransactionFailed, UnsupportedRequest
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.group import GroupSettings
from oncelog.client.machine.positions import FetchSettings
from oncelog.client.machine.transaction_states import State
from oncelog.client.programs.group import committed_offsets
from oncelog.client.programs.group import committed_offsets as async_offsets
from oncelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.peers.apache_kafka import ApacheKafka
from tests.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.slow]
FAST = ClientConfig(retry_backoff_ms=20)
COMMITTED = FetchSettings(read_committed=True, max_wait_ms=100)


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    few = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
    with ApacheKafka(heap_mb=320, properties=few) as running:
        yield running


@pytest.fixture
def client(kafka: ApacheKafka) -> Iterator[Client]:
    with Client(kafka.bootstrap_servers, config=FAST) as opened:
        yield opened


def topic(client: Client, name: str, partitions: int = 2) -> list[TopicPartition]:
    create_topic(client, NewTopic(name, partitions=partitions))
    return [TopicPartition(TopicName(name), index) for index in range(partitions)]


def committed_values(kafka: ApacheKafka, name: str, expected: int) -> list[bytes]:
    """Everything librdkafka sees at read_committed; it has to come to the end of what is committed."""
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": f"reader-{name}",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe([name])
    values: list[bytes] = []

    def read() -> bool:
        values.extend(item.value() or b"" for item in consumer.consume(100, timeout=0.5) if item.error() is None)
        return len(values) >= expected

    wait_until(read, lambda: f"{expected} values: {len(values)} came", poll_s=0)
    values += [item.value() or b"" for item in consumer.consume(100, timeout=0.5) if item.error() is None]
    consumer.close()
    return sorted(values)


def switch(kafka: ApacheKafka, version: int) -> None:
    """Finalise a transaction version, and wait until the broker says so."""
    upgrade, safe_downgrade = 1, 2
    kind = upgrade if version == 2 else safe_downgrade
    update = FeatureUpdateKey(feature="transaction.version", max_version_level=version, upgrade_type=kind)
    with Client(kafka.bootstrap_servers, config=FAST) as client:
        client.request(UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update]), broker="controller")
    for _ in range(200):
        with Client(kafka.bootstrap_servers, config=FAST) as client:
            if client.link().versions.features.get("transaction.version", 0) == version:
                return
    raise AssertionError("the feature does not change")


@pytest.mark.parametrize("version", [2, 1])
def test_committed_whole_and_aborted_not_at_all(kafka: ApacheKafka, version: int) -> None:
    if version == 1:
        switch(kafka, 1)
    name = f"atomic-{version}"
    try:
        with Client(kafka.bootstrap_servers, config=FAST) as fresh:
            t0, _ = topic(fresh, name)
            with TransactionalProducer(fresh, TransactionSettings(name), ProducerSettings(batch_bytes=100)) as producer:
                producer.initialize()
                assert producer.transactions.version == version
                expected = []
                for number in range(10):
                    values = [b"%d-%d" % (number, index) for index in range(6)]
                    producer.begin()
                    for index, value in enumerate(values):
                        producer.send(name, value, partition=index % 2)
                    producer.send_offsets({t0: Committed(number)}, GroupMetadata("g"))
                    if number % 3 == 2:
                        producer.abort()
                    else:
                        producer.commit()
                        expected += values
                epoch = producer.machine.producer_epoch
                assert epoch >= 10 if version == 2 else epoch < 10
            assert committed_values(kafka, name, len(expected)) == sorted(expected)
            assert committed_offsets(fresh, "g", [t0], require_stable=True)[t0].offset == 9
    finally:
        if version == 1:
            switch(kafka, 2)


def test_a_newer_instance_fences_the_older_and_aborts_what_it_left_open(kafka: ApacheKafka, client: Client) -> None:
    topic(client, "fenced")
    settings = TransactionSettings("fenced")
    with Client(kafka.bootstrap_servers, config=FAST) as another:
        old, new = TransactionalProducer(another, settings), TransactionalProducer(client, settings)
        old.initialize()
        old.begin()
        old.send("fenced", b"left open", partition=0)
        old.flush()
        new.initialize()
        with new.transaction():
            new.send("fenced", b"new", partition=0)
        with pytest.raises(ProducerFenced):
            old.commit()
        with pytest.raises(ProducerFenced):
            old.begin()
        assert old.state is State.FATAL_ERROR
        old.close()
        new.close()
    assert committed_values(kafka, "fenced", 1) == [b"new"]


def test_a_client_that_dies_in_the_middle_and_begins_anew(kafka: ApacheKafka, client: Client) -> None:
    topic(client, "restarted")
    settings = TransactionSettings("restarted")
    for attempt in range(3):
        dying = Client(kafka.bootstrap_servers, config=FAST)
        producer = TransactionalProducer(dying, settings)
        producer.initialize()
        with producer.transaction():
            producer.send("restarted", b"kept %d" % attempt, partition=0)
        producer.begin()
        producer.send("restarted", b"lost %d" % attempt, partition=1)
        producer.flush()
        producer.close()
        dying.close()
    with TransactionalProducer(client, settings) as last:
        last.initialize()
    assert committed_values(kafka, "restarted", 3) == [b"kept 0", b"kept 1", b"kept 2"]


def test_what_a_broker_refuses_costs_the_transaction_and_the_next_is_good(kafka: ApacheKafka, client: Client) -> None:
    create_topic(client, NewTopic("refusing", partitions=1, configs={"max.message.bytes": "500"}))
    with TransactionalProducer(client, TransactionSettings("refusing")) as producer:
        producer.initialize()
        producer.begin()
        producer.send("refusing", b"fits")
        producer.flush()
        producer.send("refusing", b"x" * 1000)
        with pytest.raises(TransactionFailed):
            producer.commit()
        producer.abort()
        assert producer.state is State.READY
        with producer.transaction():
            producer.send("refusing", b"good")
    assert committed_values(kafka, "refusing", 1) == [b"good"]


def test_offsets_of_a_member_are_fenced_with_its_generation(kafka: ApacheKafka, client: Client) -> None:
    expected = topic(client, "source", 1)
    with (
        Client(kafka.bootstrap_servers, config=FAST) as another,
        GroupConsumer(another, "members", ["source"]) as member,
    ):
        while not member.has_joined:
            member.poll(100)
        with TransactionalProducer(client, TransactionSettings("offsets")) as producer:
            producer.initialize()
            stale = member.group_metadata._replace(generation=member.group_metadata.generation + 5)
            with pytest.raises(TransactionFailed), producer.transaction():
                producer.send_offsets({expected[0]: Committed(5)}, stale)
            assert committed_offsets(client, "members", expected, require_stable=True) == {}
            with producer.transaction():
                producer.send_offsets({expected[0]: Committed(7)}, member.group_metadata)
        assert committed_offsets(client, "members", expected, require_stable=True)[expected[0]].offset == 7


def test_two_phase_commit_is_refused_where_the_cluster_does_not_have_it(client: Client) -> None:
    producer = TransactionalProducer(client, TransactionSettings("two-phase", two_phase=True))
    with pytest.raises(UnsupportedRequest, match="InitProducerId 6"):
        producer.initialize()


def share(consumer: AsyncGroupConsumer) -> int:
    return len(consumer.assignment)


def test_two_members_over_asyncio_rebalance_and_the_older_generation_is_fenced(kafka: ApacheKafka) -> None:
    async def run() -> None:
        settings = GroupSettings(heartbeat_interval_ms=50)
        async with (
            AsyncClient(kafka.bootstrap_servers, config=FAST) as client,
            AsyncGroupConsumer(client, "async", ["async-in"], settings=settings, fetch=COMMITTED) as first,
            AsyncGroupConsumer(client, "async", ["async-in"], settings=settings, fetch=COMMITTED) as second,
            AsyncTransactionalProducer(client, TransactionSettings("async")) as producer,
        ):
            await producer.initialize()
            async with producer.transaction():
                for number in range(40):
                    await producer.send("async-in", b"%d" % number, partition=number % 4)
            while not await first.poll():
                pass
            assert share(first) == 4
            stale = first.group_metadata
            while not (share(first) == share(second) == 2):
                await asyncio.gather(first.poll(50), second.poll(50))
            mine = {item: Committed(10) for item in first.assignment}
            with pytest.raises(TransactionFailed):
                async with producer.transaction():
                    await producer.send_offsets(mine, stale)
            async with producer.transaction():
                await producer.send_offsets(mine, first.group_metadata)
            # Apache Kafka looks for pending offsets in its newest state and for offsets in its committed one: between a
            # marker's append and its commit they are neither
            while await async_offsets(client, "async", require_stable=True) != mine:
                await first.poll(10)
            theirs = {batch.partition for batch in second.assignment}
            left = {b"%d" % number for number in range(40) if number % 4 in theirs}
            await second.close()
            while share(first) != 4 or left:  # what the second had, and nobody committed, is read by the first
                for one in await first.poll():
                    left -= {record.value for record in read_fetched(one, read_committed=True)}

    with Client(kafka.bootstrap_servers, config=FAST) as client:
        topic(client, "async-in", 4)
    asyncio.run(asyncio.wait_for(run(), 60))
