"""Streams that arrive in small pieces, with pauses: requests and responses of all sizes, plain and over TLS, between
clients and a broker, between brokers, and between clusters. `tests/interop` does the same on request (CONTRIBUTING)."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import TopicName
from oncelog.base.ids import TopicPartition as Partition
from oncelog.base.units import KIB, MIB
from oncelog.client.aio import AsyncClient, AsyncConsumer, AsyncProducer, ProducerSettings
from oncelog.client.blocking import Client, ClientConfig, FetchSettings
from oncelog.client.blocking.fetcher import Fetcher
from oncelog.client.blocking.producer import Producer as OwnProducer
from oncelog.client.errors import RebootstrapRequired
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.client.machine.metadata import ClusterView
from oncelog.client.machine.positions import Fetched
from oncelog.client.programs.cluster import Cluster as ClientsCluster
from oncelog.client.programs.steps import Program
from oncelog.mirror.engine import Engine
from oncelog.mirror.settings import Cluster as MirroredCluster
from oncelog.mirror.settings import MirrorSettings, Naming
from oncelog.testing import Broker, Cluster
from oncelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.peers.cut_network import CutNetwork, cut_network
from tests.waiting import HANG_S

TOPIC = "t"
WHERE = Partition(TopicName(TOPIC), 0)
SIZES = (1, 15_000, 16_384, 17_000, 40_000, 200_000)
LARGEST = 10 * MIB
CONFIG = {"message.max.bytes": str(2 * LARGEST), "replica.fetch.max.bytes": str(2 * LARGEST)}

pytestmark = pytest.mark.slow
securities = pytest.mark.parametrize("security", [None, "tls"])


@pytest.fixture(autouse=True)
def network() -> Iterator[None]:
    """Every broker of a test is behind proxies that cut."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    with cut_network(CutNetwork(seed)):
        yield


def values(*sizes: int) -> list[bytes]:
    """Values of these sizes that do not repeat."""
    return [random.Random(size).randbytes(size) for size in sizes]


def settings_of(host: Broker | Cluster, security: str | None) -> dict[str, Any]:
    return host.client_config() if security else {"bootstrap.servers": host.bootstrap_servers}


@contextmanager
def own_client(host: Broker | Cluster, security: str | None) -> Iterator[Client]:
    given = settings_of(host, security)
    with Client(given["bootstrap.servers"], config=ClientConfig.from_properties(given)) as client:
        yield client


def written_and_read(host: Broker | Cluster, security: str | None, sent: list[bytes]) -> list[bytes]:
    """Send each value in a request of its own, with our client, and read them all."""
    with own_client(host, security) as client:
        create_topic(client, NewTopic(TOPIC, 1, configs={"max.message.bytes": str(2 * LARGEST)}))
        with OwnProducer(client, ProducerSettings(batch_bytes=1)) as producer:
            for value in sent:
                producer.send(TOPIC, value, partition=0)
                producer.flush()
        return read(client, len(sent))


def read(client: Client, count: int, partition: Partition = WHERE) -> list[bytes]:
    fetched = client.fetch(
        {partition: 0}, until={partition: count}, settings=FetchSettings(partition_max_bytes=300 * KIB)
    )
    return [record.value or b"" for item in fetched for record in read_fetched(item)]


@securities
def test_librdkafka_writes_and_reads_records_of_all_sizes(security: str | None) -> None:
    sent = values(*SIZES)
    errors: list[object] = []
    with Broker(security=security) as broker:
        given = {**settings_of(broker, security), "log_level": 0}
        producer = Producer({**given, "linger.ms": 0})
        for value in sent:
            producer.produce(TOPIC, value, on_delivery=lambda error, _: errors.append(error))
            producer.flush(HANG_S)
        assert errors == [None] * len(sent)
        consumer = Consumer({**given, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe([TOPIC])
        received = [cast("Any", consumer.poll(HANG_S)).value() for _ in sent]
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, len(sent))], asynchronous=False)
        consumer.close()
    assert received == sent


@securities
def test_our_client_writes_and_reads_records_of_all_sizes(security: str | None) -> None:
    sent = values(*SIZES, 900_000, *([LARGEST] if security else []))
    with Broker(CONFIG, security=security) as broker:
        assert written_and_read(broker, security, sent) == sent


@securities
def test_an_answer_that_has_begun_to_come_is_waited_for(security: str | None) -> None:
    """As the console reads: nothing of one answer is in memory while another is worked on."""
    sent = values(200_000)
    with Broker(security=security) as broker:
        assert written_and_read(broker, security, sent) == sent
        with own_client(broker, security) as client:
            fetcher = Fetcher(client, FetchSettings())
            for _ in range(4):
                fetcher.assign({WHERE: 0}, {WHERE: 1})
                fetched: list[Fetched] = []
                while not fetched:
                    fetcher.wait(1000)
                    fetched = fetcher.arrived(1000 * HANG_S)
                    assert fetched or not any(sent.link.missing for sent in fetcher._sent.values())
            fetcher.close()


@securities
def test_our_client_over_asyncio_writes_and_reads_records_of_all_sizes(security: str | None) -> None:
    sent = values(*SIZES)

    async def scenario(given: dict[str, Any]) -> list[bytes]:
        received: list[bytes] = []
        async with AsyncClient(given["bootstrap.servers"], config=ClientConfig.from_properties(given)) as client:
            async with AsyncProducer(client, ProducerSettings(batch_bytes=1)) as producer:
                for value in sent:
                    await producer.send(TOPIC, value, partition=0)
                    await producer.flush()
            async with AsyncConsumer(client) as consumer:
                await consumer.assign({WHERE: 0})
                while len(received) < len(sent):
                    for item in await consumer.poll():
                        received += [record.value or b"" for record in read_fetched(item)]
        return received

    with Broker(security=security) as broker:
        with own_client(broker, security) as client:
            create_topic(client, NewTopic(TOPIC, 1))
        assert asyncio.run(scenario(settings_of(broker, security))) == sent


@pytest.mark.parametrize("security", [None, "scram"])
@pytest.mark.parametrize("blocking", [True, False])
def test_a_client_at_the_wrong_broker_bootstraps_again(security: str | None, blocking: bool) -> None:
    """Each of two brokers is looked up at the address of the other (KIP-1242); with a login it is compared after it."""

    def swap(view: ClusterView) -> None:
        one, other = view.brokers.values()
        view.brokers = {one.broker_id: replace(one, address=other.address)}

    def ask(cluster: ClientsCluster, broker: int) -> Program[ListGroupsResponse]:
        return cluster.retrying(lambda: cluster.request(ListGroupsRequest(), broker=broker))

    async def over_asyncio(given: dict[str, Any]) -> None:
        async with AsyncClient(given["bootstrap.servers"], config=ClientConfig.from_properties(given)) as client:
            await client.refresh_brokers()
            swap(client.view)
            wrong = next(iter(client.view.brokers))
            with pytest.raises(RebootstrapRequired):
                await client.request(ListGroupsRequest(), broker=wrong)
            await client.run(ask(client.cluster, wrong))
            assert len(client.view.brokers) == 2

    with Cluster(2, security=security) as cluster:
        given = {"bootstrap.servers": cluster.bootstrap_servers}
        if security:
            cluster.add_user("alice")
            given = cluster.client_config("alice")
        if not blocking:
            asyncio.run(over_asyncio(given))
            return
        with Client(given["bootstrap.servers"], config=ClientConfig.from_properties(given)) as client:
            client.refresh_brokers()
            swap(client.view)
            wrong = next(iter(client.view.brokers))
            with pytest.raises(RebootstrapRequired):
                client.request(ListGroupsRequest(), broker=wrong)
            client.run(ask(client.cluster, wrong))
            assert len(client.view.brokers) == 2


@securities
def test_followers_copy_records_of_all_sizes(security: str | None) -> None:
    """All in-sync replicas have each record before it is acknowledged."""
    sent = values(*SIZES)
    with Cluster(2, {**CONFIG, "min.insync.replicas": "2"}, security=security) as cluster:
        assert written_and_read(cluster, security, sent) == sent


@securities
def test_a_mirror_copies_records_of_all_sizes(security: str | None) -> None:
    sent = values(*SIZES)
    with Broker(security=security) as source, Broker(security=security) as target:
        assert written_and_read(source, security, sent) == sent
        at, to = (settings_of(item, security) for item in (source, target))
        settings = MirrorSettings(
            MirroredCluster("a", at["bootstrap.servers"], ClientConfig.from_properties(at)),
            MirroredCluster("", to["bootstrap.servers"], ClientConfig.from_properties(to)),
            re.compile(TOPIC),
            naming=Naming.identity,
            commit_interval_ms=20,
            refresh_interval_ms=50,
        )
        asyncio.run(Engine(settings, until_caught_up=True).run())
        with own_client(target, security) as client:
            assert read(client, len(sent)) == sent
