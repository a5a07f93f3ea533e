"""Options are understood, and refused, as Spark's Kafka connector does."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import ConfigError
from oncelog.spark.format.data_source import OncelogSource
from oncelog.spark.session.errors import OptionError
from oncelog.spark.source.options import AtOffsets, AtTimestamps, parse_options

BASE = {"kafka.bootstrap.servers": "localhost:9092"}


def partition(topic: str, number: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), number)


def test_names_are_case_insensitive() -> None:
    options = parse_options({"KAFKA.Bootstrap.SERVERS": "a:1", "SUBSCRIBE": "x, y", "includeheaders": "TRUE"})
    assert options.bootstrap_servers == "a:1"
    assert options.subscribe == ("x", "y")
    assert options.include_headers


def test_defaults_are_the_connectors() -> None:
    options = parse_options({**BASE, "subscribe": "t"})
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert not options.read_committed
    assert options.starting is None


def test_offsets_for_all_and_one_by_one() -> None:
    assert parse_options({**BASE, "subscribe": "t", "startingOffsets": " Earliest "}).starting == AtOffsets("earliest")
    one_by_one = parse_options({**BASE, "subscribe": "t", "endingOffsets": '{"t":{"0":23,"1":-1}}'}).ending
    assert one_by_one == AtOffsets(offsets={partition("t", 0): 23, partition("t", 1): -1})


def test_a_time_for_all_goes_before_times_and_times_before_offsets() -> None:
    given = {**BASE, "subscribe": "t", "startingOffsets": "earliest"}
    times = {**given, "startingOffsetsByTimestamp": '{"t":{"0":1000}}'}
    assert parse_options(times).starting == AtTimestamps(timestamps_ms={partition("t", 0): 1000})
    assert parse_options({**times, "startingTimestamp": "7"}).starting == AtTimestamps(everywhere_ms=7)


def test_assign_names_partitions() -> None:
    options = parse_options({**BASE, "assign": '{"b":[1,0],"a":[2]}'})
    assert options.assign == (partition("a", 2), partition("b", 0), partition("b", 1))


def test_kafka_options_configure_the_client_and_the_fetch() -> None:
    options = parse_options(
        {
            **BASE,
            "subscribe": "t",
            "kafka.isolation.level": "read_committed",
            "kafka.request.timeout.ms": "5000",
            "kafka.max.partition.fetch.bytes": "1000",
        }
    )
    assert options.read_committed
    assert options.client.request_timeout_ms == 5000
    assert options.fetch.partition_max_bytes == 1000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "t"}, "'kafka.bootstrap.servers' must be specified"),
        ({**BASE}, "One of the following options must be specified for Kafka source: assign, subscribe"),
        ({**BASE, "subscribe": "t", "assign": '{"t":[0]}'}, "Only one of the following options can be specified"),
        ({**BASE, "subscribe": " , "}, "No topics to subscribe to as specified value for option 'subscribe' is ' , '"),
        ({**BASE, "subscribePattern": " "}, "Pattern to subscribe is empty"),
        ({**BASE, "subscribePattern": "("}, "is not a regular expression"),
        ({**BASE, "assign": "t"}, r'Expected e.g. {"topicA":\[0,1\]'),
        ({**BASE, "subscribe": "t", "startingOffsets": "soon"}, 'Expected e.g. {"topicA":{"0":23,"1":-1}'),
        ({**BASE, "subscribe": "t", "startingTimestamp": "noon"}, "Expected a single long value"),
        ({**BASE, "subscribe": "t", "startingTimestamp": str(2**63)}, "Expected a single long value"),
        ({**BASE, "subscribe": "t", "startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "cannot be negative"),
        ({**BASE, "subscribe": "t", "endingOffsetsByTimestamp": '{"t":{"0":-3}}'}, "t-0 in option 'endingOffsetsBy"),
        ({**BASE, "subscribe": "t", "startingOffsets": '{"t":{"0":-3}}'}, "cannot be below -2"),
        ({**BASE, "ranges": '[["t",0,1,2,"no id"]]'}, "Expected e.g."),
        ({**BASE, "subscribe": "t", "startingOffsetsByTimestampStrategy": "x"}, "'error' or 'latest'"),
        ({**BASE, "subscribe": "t", "minPartitions": "0"}, "minPartitions must be positive"),
        ({**BASE, "subscribe": "t", "failOnDataLoss": "maybe"}, "failOnDataLoss must be 'true' or 'false'"),
        ({**BASE, "subscribe": "t", "kafka.auto.offset.reset": "latest"}, "Kafka option 'auto.offset.reset' is not"),
        ({**BASE, "subscribe": "t", "kafka.isolation.level": "all"}, "kafka.isolation.level must be"),
        ({**BASE, "subscribe": "t", "minOffsetsPerTrigger": "-5"}, "minOffsetsPerTrigger must be positive"),
        ({**BASE, "subscribe": "t", "maxTriggerDelay": "soon"}, "maxTriggerDelay must be a duration such as"),
        ({**BASE, "subscribe": "t", "value.format": "xml"}, "value.format must be one of"),
        ({**BASE, "subscribe": "t", "value.format": "json"}, "oncelog.spark.decode_values"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_options(given)


def test_a_task_that_begins_while_the_broker_is_started_anew_waits_for_it() -> None:
    assert parse_options({**BASE, "subscribe": "t"}).client.bootstrap_timeout_ms == 10_000
    assert (
        parse_options({**BASE, "subscribe": "t", "kafka.bootstrap.timeout.ms": "500"}).client.bootstrap_timeout_ms
        == 500
    )


def test_a_wrong_client_setting_is_named() -> None:
    with pytest.raises(ConfigError, match=r"request.timeout.ms='soon'"):
        parse_options({**BASE, "subscribe": "t", "kafka.request.timeout.ms": "soon"})


def test_a_batch_cannot_begin_at_the_end_or_end_at_the_beginning() -> None:
    for name, value, message in (
        ("startingOffsets", "latest", "starting offset can't be latest"),
        ("startingOffsets", '{"t":{"0":-1}}', "startingOffsets for t-0 can't be latest"),
        ("endingOffsets", "earliest", "ending offset can't be earliest"),
        ("endingOffsets", '{"t":{"0":-2}}', "ending offset for t-0 can't be earliest"),
    ):
        with pytest.raises(OptionError, match=message):
            parse_options({**BASE, "subscribe": "t", name: value}).check_batch()


def test_a_stream_has_no_end() -> None:
    for name, value in (("endingOffsets", "latest"), ("endingTimestamp", "5")):
        with pytest.raises(OptionError, match="ending offset not valid in streaming queries"):
            parse_options({**BASE, "subscribe": "t", name: value}).check_stream()


def test_a_stream_that_is_refused_has_a_reader_that_says_so() -> None:
    source = OncelogSource({**BASE, "subscribe": "t", "endingOffsets": "latest"})
    reader = source.streamReader(source.schema())
    requests: tuple[Any, ...] = (
        reader.initialOffset,
        reader.latestOffset,
        lambda: reader.partitions({}, {}),
        lambda: reader.read(InputPartition(0)),
    )
    for ask in requests:
        with pytest.raises(OptionError, match="ending offset not valid in streaming queries"):
            ask()
    reader.stop()
