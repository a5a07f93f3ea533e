"""An interrupt between two steps of a consumer loses no offset: what was printed and processed is committed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence

import pytest

from oncelog.admin.groups import committed_offsets
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.cli.records.consume import consume_group
from oncelog.cli.records.record_output import Sink
from oncelog.cli.support.offset_or_time import parse_start
from oncelog.client.aio import AsyncClient, AsyncGroupConsumer
from oncelog.client.blocking import Client, FetchSettings, GroupConsumer, Producer
from oncelog.client.blocking.stream import Stream
from oncelog.client.blocking.system import ThisMachine
from oncelog.client.config import Address, ClientConfig
from oncelog.client.programs.group_protocol import Subscription
from oncelog.runtime.stop_signals import interrupt_at_stop_signals
from oncelog.testing import Broker
from oncelog.wire.chunks import Buffer

PARTITION = TopicPartition(TopicName("t"), 0)
FETCH = FetchSettings(max_wait_ms=50)


@pytest.fixture
def client(oncelog_broker: Broker) -> Iterator[Client]:
    with Client(oncelog_broker.bootstrap_servers) as client:
        create_topic(client, NewTopic("t", partitions=1))
        with Producer(client) as producer:
            for number in range(3):
                producer.send("t", b"%d" % number)
        yield client


@pytest.fixture
def stopping() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    interrupt_at_stop_signals()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def committed(client: Client) -> dict[TopicPartition, int]:
    return {partition: offset.offset for partition, offset in committed_offsets(client, "g").items()}


class InterruptedSink(Sink):
    """A stop signal comes once records are printed."""

    def flush(self) -> None:
        super().flush()
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.usefixtures("stopping")
def test_records_printed_when_the_signal_comes_are_committed(
    client: Client, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    sink = InterruptedSink(lambda record: b"%s\n" % record.value, None, True)
    with pytest.raises(KeyboardInterrupt):
        consume_group(client, sink, Subscription("g", ["t"]), parse_start("stored"), FETCH, False, True, True)
    assert capfdbinary.readouterr().out == b"0\n1\n2\n"
    assert committed(client) == {PARTITION: 3}


class InterruptedStream:
    """A stream whose next ``send`` is interrupted half-way, once its system says so."""

    def __init__(self, stream: Stream, system: InterruptingSystem) -> None:
        self._stream = stream
        self._system = system
        self.receive_into, self.fileno, self.expect = stream.receive_into, stream.fileno, stream.expect
        self.pending, self.close = stream.pending, stream.close

    def send(self, chunks: Sequence[Buffer], timeout_ms: int) -> None:
        if self._system.interrupts_next:
            self._system.interrupts_next = False
            self._stream.send([bytes(chunks[0])[:3]], timeout_ms)
            raise KeyboardInterrupt
        self._stream.send(chunks, timeout_ms)


class InterruptingSystem(ThisMachine):
    """This machine, with one interrupt."""

    interrupts_next = False

    def connect(self, address: Address, config: ClientConfig, timeout_ms: int) -> Stream:
        return InterruptedStream(super().connect(address, config, timeout_ms), self)


def test_offsets_of_an_interrupted_commit_are_committed_at_the_end(oncelog_broker: Broker, client: Client) -> None:
    def run() -> None:
        system = InterruptingSystem()
        with (
            Client(oncelog_broker.bootstrap_servers, system=system) as client,
            GroupConsumer(client, "g", ["t"], fetch=FETCH) as consumer,
        ):
            while not (fetched := consumer.poll(100)):
                pass
            consumer.processed(fetched[0].partition, fetched[0].next_offset)
            system.interrupts_next = True
            consumer.commit()

    with pytest.raises(KeyboardInterrupt):
        run()
    assert committed(client) == {PARTITION: 3}


def test_offsets_of_a_cancelled_commit_are_committed_at_the_end(oncelog_broker: Broker, client: Client) -> None:
    async def run() -> None:
        async with (
            AsyncClient(oncelog_broker.bootstrap_servers) as client,
            AsyncGroupConsumer(client, "g", ["t"], fetch=FETCH) as consumer,
        ):
            while not (fetched := await consumer.poll(100)):
                pass
            consumer.processed(fetched[0].partition, fetched[0].next_offset)
            client.forget_coordinator("g")  # so that it is looked up before offsets are sent
            commit = asyncio.create_task(consumer.commit())
            await asyncio.sleep(0)
            commit.cancel()
            assert isinstance((await asyncio.gather(commit, return_exceptions=True))[0], asyncio.CancelledError)

    asyncio.run(run())
    assert committed(client) == {PARTITION: 3}
