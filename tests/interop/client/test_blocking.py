"""The blocking client against a running broker: many partitions, a broker that goes away and comes back, groups."""

from __future__ import annotations

import threading

import pytest

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client, ClientConfig, FetchSettings, GroupSettings
from oncelog.client.blocking.group import GroupConsumer
from oncelog.client.blocking.producer import DeliveryFailed, Producer, ProducerSettings
from oncelog.client.errors import BrokerRefused, Closed, UnknownTopic
from oncelog.client.machine.consumed_records import read_fetched
from oncelog.records.builder import build_batch
from oncelog.records.compression import Codec
from oncelog.records.record import Record
from oncelog.testing import Broker
from oncelog.wire.messages.heartbeat import HeartbeatRequest
from oncelog.wire.messages.list_groups import ListGroupsRequest

FAST = ClientConfig(retry_backoff_ms=20, unknown_topic_grace_ms=0)


def partitions(client: Client, topic: str, count: int) -> list[TopicPartition]:
    create_topic(client, NewTopic(topic, partitions=count))
    return [TopicPartition(TopicName(topic), index) for index in range(count)]


def values(client: Client, expected: list[TopicPartition], settings: FetchSettings | None = None) -> list[bytes | None]:
    ends = {p: one.offset for p, one in client.list_offsets(dict.fromkeys(expected, -1)).items()}
    fetched = client.fetch(dict.fromkeys(expected, 0), until=ends, settings=settings)
    return [record.value for item in fetched for record in read_fetched(item)]


@pytest.mark.slow
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_all_that_is_sent_is_read_in_small_fetches_too(oncelog_broker: Broker, codec: Codec) -> None:
    with Client(oncelog_broker.bootstrap_servers, config=FAST) as client:
        expected = partitions(client, "t", 3)
        with Producer(client, ProducerSettings(batch_bytes=2000, codec=codec)) as producer:
            for number in range(2000):
                producer.send("t", b"%d" % number, key=b"%d" % (number % 50))
        result = values(client, expected, FetchSettings(max_bytes=3000, partition_max_bytes=1000))
    assert sorted(int(value or b"") for value in result) == list(range(2000))


@pytest.mark.slow
def test_records_sent_over_a_restart_of_the_broker_are_there_once(oncelog_broker: Broker) -> None:
    with Client(oncelog_broker.bootstrap_servers, config=FAST) as client:
        expected = partitions(client, "t", 2)
        with Producer(client, ProducerSettings(batch_bytes=200)) as producer:
            for number in range(300):
                producer.send("t", b"%d" % number)
                if number == 150:
                    oncelog_broker.restart()
        result = values(client, expected)
    assert sorted(int(value or b"") for value in result) == list(range(300))


def test_a_batch_the_broker_refuses_is_raised_with_its_records_and_the_next_is_written(oncelog_broker: Broker) -> None:
    with Client(oncelog_broker.bootstrap_servers, config=FAST) as client:
        create_topic(client, NewTopic("t", partitions=1, configs={"max.message.bytes": "500"}))
        expected = [TopicPartition(TopicName("t"), 0)]
        with Producer(client) as producer:
            producer.send("t", b"x" * 1000)
            with pytest.raises(DeliveryFailed) as caught:
                producer.flush()
            assert (caught.value.code, len(caught.value.records)) == (ErrorCode.MESSAGE_TOO_LARGE, 1)
            producer.send("t", b"fits")
        assert values(client, expected) == [b"fits"]


def test_one_batch_and_its_offset(oncelog_broker: Broker) -> None:
    batch = build_batch([Record(-1, 5, None, b"a"), Record(-1, 9, None, b"b")])
    with Client(oncelog_broker.bootstrap_servers, config=FAST) as client:
        (one,) = partitions(client, "t", 1)
        first, second = client.produce(one, batch), client.produce(one, batch)
        assert first is not None
        assert second is not None
        assert (first.base_offset, second.base_offset) == (0, 2)
        assert client.produce(one, batch, acks=0) is None
        assert client.list_offsets({one: 9})[one][:2] == (1, 9)
        assert client.list_offsets({one: 10})[one].offset == -1


def test_what_is_not_there(oncelog_broker: Broker) -> None:
    with Client(oncelog_broker.bootstrap_servers, config=FAST) as client:
        (one,) = partitions(client, "t", 1)
        with pytest.raises(UnknownTopic):
            client.list_offsets({TopicPartition(TopicName("missing"), 0): -1})
        with pytest.raises(UnknownTopic, match="partition 5"):
            client.list_offsets({TopicPartition(TopicName("t"), 5): -1})
        (fetched,) = client.fetch({one: 77})
        assert fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert client.metadata(["missing"])[TopicName("missing")].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_request_of_any_kind_to_any_broker(oncelog_broker: Broker) -> None:
    with Client(oncelog_broker.bootstrap_servers, config=FAST) as client:
        assert client.request(ListGroupsRequest(), broker="controller").groups == []
        coordinator = client.coordinator("g")
        answer = client.request(HeartbeatRequest(group_id="g", member_id="m"), broker=coordinator)
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.slow
def test_two_members_share_a_topic_and_one_takes_over(oncelog_broker: Broker) -> None:
    with Client(oncelog_broker.bootstrap_servers, config=FAST) as client:
        expected = partitions(client, "t", 4)
        with Producer(client) as producer:
            for number in range(400):
                producer.send("t", b"%d" % number, partition=number % 4)
        stop, seen, shared = threading.Event(), list[int](), threading.Event()

        def other() -> None:
            with (
                Client(oncelog_broker.bootstrap_servers, config=FAST) as mine,
                GroupConsumer(mine, "g", ["t"], reset="latest") as member,
            ):
                while not stop.is_set():
                    member.poll(20)
                    if len(member.assignment) == 2:
                        shared.set()

        with GroupConsumer(client, "g", ["t"], settings=GroupSettings(heartbeat_interval_ms=20)) as member:
            thread = threading.Thread(target=other)
            while len(seen) < 400 or not shared.is_set():
                for fetched in member.poll(20):
                    seen += [int(record.value or b"") for record in read_fetched(fetched)]
                    member.processed(fetched.partition, fetched.next_offset)
                if thread.ident is None:
                    thread.start()
            stop.set()
            while set(member.assignment) != set(expected):
                member.poll(20)
            thread.join()
        assert sorted(set(seen)) == list(range(400))


def test_a_committed_group_refuses_an_administrator_while_it_has_members(oncelog_broker: Broker) -> None:
    from oncelog.client.machine.offsets import Committed
    from oncelog.client.programs.group import commit_offsets, committed_offsets

    with Client(oncelog_broker.bootstrap_servers, config=FAST) as client:
        (one,) = partitions(client, "t", 1)
        commit_offsets(client, "g", {one: Committed(3, metadata="why")})
        assert committed_offsets(client, "g")[one] == Committed(3, -1, "why")
        with GroupConsumer(client, "g", ["t"]) as member:
            member.poll(0)
            with pytest.raises(BrokerRefused):
                commit_offsets(client, "g", {one: Committed(4)})


def test_records_of_a_partition_that_is_not_there_fail_and_the_others_are_written(oncelog_broker: Broker) -> None:
    with Client(oncelog_broker.bootstrap_servers, config=FAST) as client:
        (one,) = partitions(client, "t", 1)
        with Producer(client) as producer:
            producer.send("t", b"nowhere", partition=7)
            producer.send("t", b"somewhere")
            with pytest.raises(DeliveryFailed, match=r"partition 7 of topic 't' \(1 partition\)") as caught:
                producer.flush()
            assert [record.value for record in caught.value.records] == [b"nowhere"]
            producer.flush()
        assert values(client, [one]) == [b"somewhere"]


def test_a_value_that_is_no_bytes_is_refused_before_it_is_among_others(oncelog_broker: Broker) -> None:
    with Client(oncelog_broker.bootstrap_servers, config=FAST) as client:
        (one,) = partitions(client, "t", 1)
        with Producer(client) as producer:
            producer.send("t", b"before")
            with pytest.raises(TypeError, match="encode"):
                producer.send("t", "text")  # type: ignore[arg-type]  # as a program without a type checker does
            producer.send("t", b"after")
        assert values(client, [one]) == [b"before", b"after"]


def test_what_is_closed_stays_closed(oncelog_broker: Broker) -> None:
    client = Client(oncelog_broker.bootstrap_servers, config=FAST)
    partitions(client, "t", 1)
    consumer = GroupConsumer(client, "g", ["t"])
    consumer.poll(0)
    consumer.close()
    with pytest.raises(Closed, match="the consumer of group 'g' is closed"):
        consumer.poll(0)
    client.close()
    client.close()
    with pytest.raises(Closed, match="the client is closed"):
        client.metadata(["t"])
