"""The source's options, named as in Spark's Kafka connector and validated once, before any broker is contacted.

Errors have the connector's words: the option's name, the permitted values, the value given. Option names are
case-insensitive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from oncelog.base.ids import NO_TOPIC_ID, TopicName, TopicPartition, uuid_bytes, uuid_text
from oncelog.base.units import INT64_MAX, MIB
from oncelog.client.config import ClientConfig
from oncelog.client.machine.positions import FetchSettings
from oncelog.spark.session.errors import OptionError
from oncelog.spark.session.option_values import (
    boolean,
    client_config,
    duration_ms,
    given_options,
    integer,
    json_object,
    optional,
    optional_positive,
    positive,
)
from oncelog.spark.source.offset_ranges import OffsetRange
from oncelog.spark.source.stream_position import NOTE_MARK

Named = Literal["earliest", "latest"]

EARLIEST: Final = -2
LATEST: Final = -1

# Every option with its default. The default start and end of a query depend on its kind.
OPTIONS: Final[Mapping[str, str | None]] = {
    **dict.fromkeys(("subscribe", "subscribePattern", "assign")),
    **dict.fromkeys(("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")),
    "startingOffsetsByTimestampStrategy": "error",
    **dict.fromkeys(("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")),
    "failOnDataLoss": "true",
    **dict.fromkeys(("minPartitions", "maxRecordsPerPartition", "maxOffsetsPerTrigger", "minOffsetsPerTrigger")),
    "maxTriggerDelay": "15m",
    "includeHeaders": "false",
    "kafkaConsumer.pollTimeoutMs": "120000",
    "fetchOffset.numRetries": "3",
    "fetchOffset.retryIntervalMs": "1000",
    "pushdown": "false",
    "value.format": "binary",
    "limitFirstBatch": "false",
    "heldAfter": "10s",
    "ranges": None,
    **dict.fromkeys(("valueSchema.registry", "valueSchema.subject", "keySchema.registry", "keySchema.subject")),
    **dict.fromkeys(("valueSchema.registry.url", "keySchema.registry.url")),
    **dict.fromkeys(("valueSchema.version", "keySchema.version"), "latest"),
    **dict.fromkeys(("valueSchema.message", "keySchema.message")),
    "badRecords": "keep",
}
SUBSCRIPTIONS: Final = ("assign", "subscribe", "subscribePattern")
_OFFSETS_EXAMPLE: Final = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_ASSIGN_EXAMPLE: Final = '{"topicA":[0,1],"topicB":[0,1]}'

_REFUSED_CLIENT_KEYS: Final = {
    "auto.offset.reset": "set the option 'startingOffsets' to 'earliest' or 'latest' instead",
    "key.deserializer": "keys are bytes; use DataFrame operations to deserialize them",
    "value.deserializer": "values are bytes; use DataFrame operations to deserialize them",
    "enable.auto.commit": "Spark keeps the offsets; nothing is committed to the cluster",
    "interceptor.classes": "there are no Java classes here",
}
_VALUE_FORMATS: Final = ("binary", "utf8")
# The source rejects these formats and names the function to use.
_DECODED_BY_SPARK: Final = ("json", "avro")


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """A position in each partition: a name for all, or offsets, with −1 for latest and −2 for earliest."""

    named: Named | None = None
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """The first record at or after a time, for all partitions or for each, in milliseconds."""

    everywhere_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] = field(default_factory=dict)


Bound = AtOffsets | AtTimestamps


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Validated options. oncelog adds ``ranges`` (exactly these offsets, a task each) and ``decode_json``
    (``JsonDecoding.option``)."""

    bootstrap_servers: str
    client: ClientConfig
    fetch: FetchSettings
    subscribe: tuple[str, ...]
    subscribe_pattern: str | None
    assign: tuple[TopicPartition, ...]
    starting: Bound | None
    ending: Bound | None
    latest_when_no_timestamp_matches: bool
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    # Before Spark 4.2: also limit the first batch after a start, because more batches follow.
    limit_first_batch: bool
    # Retries when a log seems to have shrunk: a new leader may briefly be behind.
    offset_retries: int
    offset_retry_interval_ms: int
    pushdown: bool
    value_as_text: bool
    # How long a last stable offset may stay below the log's end before the query names the blocking transaction.
    held_after_ms: int
    no_progress_timeout_ms: int
    ranges: tuple[OffsetRange, ...] | None
    decode_json: str | None
    # How tasks decode keys and values by a registry (``RegistryDecoding.option``).
    decode_registry: tuple[str, ...] = field(default=(), repr=False)  # with the registry's password

    @property
    def retry_window_ms(self) -> int:
        """How long a log may seem to have shrunk, over all retries."""
        return self.offset_retries * self.offset_retry_interval_ms

    @property
    def read_committed(self) -> bool:
        return self.fetch.read_committed

    def check_batch(self) -> SourceOptions:
        """Raise OptionError for options that only a streaming query may have."""
        match self.starting:
            case AtOffsets(named="latest"):
                raise OptionError("starting offset can't be latest for batch queries on Kafka")
            case AtOffsets(offsets=offsets):
                _refuse(offsets, LATEST, "startingOffsets for {} can't be latest for batch queries on Kafka")
        match self.ending:
            case AtOffsets(named="earliest"):
                raise OptionError("ending offset can't be earliest for batch queries on Kafka")
            case AtOffsets(offsets=offsets):
                _refuse(offsets, EARLIEST, "ending offset for {} can't be earliest for batch queries on Kafka")
        return self

    def check_stream(self) -> SourceOptions:
        """Raise OptionError for options that only a batch query may have."""
        if self.ending is not None:
            raise OptionError("ending offset not valid in streaming queries")
        if self.ranges is not None:
            raise OptionError("ranges not valid in streaming queries")
        if self.pushdown:
            raise OptionError("pushdown not valid in streaming queries: Spark pushes filters into batch readers only")
        lowest, highest = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if lowest is not None and highest is not None and lowest > highest:
            raise OptionError(
                f"The value of minOffsetsPerTrigger({lowest}) must be less than or equal to "
                f"maxOffsetsPerTrigger({highest})"
            )
        return self


def _refuse(offsets: Mapping[TopicPartition, int], refused: int, message: str) -> None:
    for partition, offset in offsets.items():
        if offset == refused:
            raise OptionError(message.format(partition))


def names_registry(given: Mapping[str, str]) -> bool:
    """True if keys or values are decoded by a registry."""
    names = {f"{part}schema.registry{ending}" for part in ("key", "value") for ending in ("", ".url")}
    return any(name.lower() in names for name in given)


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Validate and parse options. Raises OptionError, and ConfigError for a wrong ``kafka.*`` value."""
    options, client_options, servers = given_options(given, "consumer", OPTIONS, _REFUSED_CLIENT_KEYS)
    _check_one_subscription(options)
    strategy = options["startingoffsetsbytimestampstrategy"].lower()
    if strategy not in ("error", "latest"):
        raise OptionError(f"startingOffsetsByTimestampStrategy must be 'error' or 'latest', got {strategy!r}")
    return SourceOptions(
        bootstrap_servers=servers,
        client=client_config(client_options),
        fetch=_fetch_settings(client_options),
        subscribe=_subscribe(options),
        subscribe_pattern=optional(options, "subscribePattern", _pattern),
        assign=optional(options, "assign", _assign) or (),
        starting=_bound(options, "starting"),
        ending=_bound(options, "ending"),
        latest_when_no_timestamp_matches=strategy == "latest",
        fail_on_data_loss=boolean(options, "failOnDataLoss"),
        include_headers=boolean(options, "includeHeaders"),
        min_partitions=optional_positive(options, "minPartitions"),
        max_records_per_partition=optional_positive(options, "maxRecordsPerPartition"),
        max_offsets_per_trigger=optional_positive(options, "maxOffsetsPerTrigger"),
        min_offsets_per_trigger=optional_positive(options, "minOffsetsPerTrigger"),
        max_trigger_delay_ms=duration_ms(options, "maxTriggerDelay"),
        limit_first_batch=boolean(options, "limitFirstBatch"),
        offset_retries=positive(options, "fetchOffset.numRetries"),
        offset_retry_interval_ms=duration_ms(options, "fetchOffset.retryIntervalMs"),
        pushdown=boolean(options, "pushdown"),
        value_as_text=_value_format(options) == "utf8",
        held_after_ms=duration_ms(options, "heldAfter"),
        no_progress_timeout_ms=positive(options, "kafkaConsumer.pollTimeoutMs"),
        ranges=optional(options, "ranges", _ranges),
        decode_json=options.get("decodejson"),
        decode_registry=(options["decoderegistrysecret"],) if "decoderegistrysecret" in options else (),
    )


def _check_one_subscription(options: Mapping[str, str]) -> None:
    names = ", ".join(SUBSCRIPTIONS)
    subscriptions = [name for name in SUBSCRIPTIONS if name.lower() in options]
    if not subscriptions and "ranges" not in options:
        raise OptionError(
            f"One of the following options must be specified for Kafka source: {names}. See the docs for more details."
        )
    if len(subscriptions) > 1:
        raise OptionError(
            f"Only one of the following options can be specified for Kafka source: {names}. "
            "See the docs for more details."
        )


def _subscribe(options: Mapping[str, str]) -> tuple[str, ...]:
    if "subscribe" not in options:
        return ()
    topics = tuple(topic.strip() for topic in options["subscribe"].split(",") if topic.strip())
    if not topics:
        raise OptionError(
            f"No topics to subscribe to as specified value for option 'subscribe' is '{options['subscribe']}'"
        )
    return topics


def _value_format(options: Mapping[str, str]) -> str:
    value_format = options["value.format"].lower()
    if value_format in _DECODED_BY_SPARK:
        raise OptionError(
            f"value.format={value_format} is decoded by Spark's own functions, after the source: "
            f"oncelog.spark.decode_values(frame, {value_format!r}, schema)"
        )
    if value_format not in _VALUE_FORMATS:
        raise OptionError(f"value.format must be one of {', '.join(_VALUE_FORMATS)}, json, avro; got {value_format!r}")
    return value_format


def _pattern(text: str) -> str:
    if not text.strip():
        raise OptionError(f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is '{text}'")
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"subscribePattern {text!r} is not a regular expression: {error}") from None
    return text


def _assign(text: str) -> tuple[TopicPartition, ...]:
    parsed = json_object(text, _ASSIGN_EXAMPLE, "assign")
    partitions = [
        TopicPartition(TopicName(topic), integer(partition, text, _ASSIGN_EXAMPLE))
        for topic, numbers in parsed.items()
        for partition in (numbers if isinstance(numbers, list) else [numbers])
    ]
    if not partitions:
        raise OptionError(f"No topicpartitions to assign as specified value for option 'assign' is '{text}'")
    return tuple(sorted(partitions))


def _ranges(text: str) -> tuple[OffsetRange, ...]:
    try:
        ranges = tuple(
            OffsetRange(str(topic), int(number), int(start), int(end), *map(str, topic_id))
            for topic, number, start, end, *topic_id in json.loads(text)
        )
        for offset_range in ranges:
            uuid_bytes(offset_range.topic_id or uuid_text(NO_TOPIC_ID))
    except (ValueError, TypeError):
        raise OptionError(f"Expected e.g. [[\"topicA\",0,100,200]] for option 'ranges', got {text}") from None
    return ranges


def _bound(options: Mapping[str, str], side: Literal["starting", "ending"]) -> Bound | None:
    # The bound of one side. As in the connector, one time for all precedes times, and times precede offsets.
    timestamp = options.get(f"{side}timestamp")
    if timestamp is not None:
        if not timestamp.strip().isdigit() or int(timestamp) > INT64_MAX:
            raise OptionError(
                f"Expected a single long value of milliseconds for option '{side}Timestamp', got {timestamp}"
            )
        return AtTimestamps(everywhere_ms=int(timestamp))
    times = options.get(f"{side}offsetsbytimestamp")
    if times is not None:
        return AtTimestamps(timestamps_ms=_partition_values(times, f"{side}OffsetsByTimestamp", lowest=0))
    offsets = options.get(f"{side}offsets")
    if offsets is None:
        return None
    match offsets.strip().lower():
        case "earliest":
            return AtOffsets("earliest")
        case "latest":
            return AtOffsets("latest")
    return AtOffsets(offsets=_partition_values(offsets, f"{side}Offsets", lowest=EARLIEST))


def _partition_values(text: str, option: str, *, lowest: int) -> dict[TopicPartition, int]:
    # A number per partition. A value below ``lowest`` would mean something else to a broker (KIP-734).
    values: dict[TopicPartition, int] = {}
    for topic, partitions in json_object(text, _OFFSETS_EXAMPLE, option).items():
        if topic.startswith(NOTE_MARK):
            continue  # a note copied with the offsets from a query's progress or checkpoint
        if not isinstance(partitions, dict):
            raise OptionError(f"Expected e.g. {_OFFSETS_EXAMPLE} for option '{option}', got {text}")
        for partition, value in partitions.items():
            number = integer(partition, text, _OFFSETS_EXAMPLE)
            parsed = integer(value, text, _OFFSETS_EXAMPLE)
            if not lowest <= parsed <= INT64_MAX:
                raise OptionError(
                    f"The value for partition {topic}-{number} in option '{option}' is {parsed}; "
                    f"it cannot be {'negative' if lowest == 0 else f'below {lowest}'} or above {INT64_MAX}"
                )
            values[TopicPartition(TopicName(topic), number)] = parsed
    return values


def _fetch_settings(client_options: Mapping[str, str]) -> FetchSettings:
    # The fetch settings among Kafka's consumer keys. A task reads one partition, which may fill a whole response.
    isolation = client_options.get("isolation.level", "read_uncommitted").lower()
    if isolation not in ("read_uncommitted", "read_committed"):
        raise OptionError(f"kafka.isolation.level must be 'read_uncommitted' or 'read_committed', got {isolation!r}")

    def number(name: str, default: int) -> int:
        return optional_positive(client_options, name) or default

    return FetchSettings(
        max_wait_ms=number("fetch.max.wait.ms", 500),
        min_bytes=number("fetch.min.bytes", 1),
        max_bytes=number("fetch.max.bytes", 50 * MIB),
        partition_max_bytes=number("max.partition.fetch.bytes", 4 * MIB),
        read_committed=isolation == "read_committed",
    )
