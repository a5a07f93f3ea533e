"""Reads all partitions of topics as Arrow record batches, as records arrive.

Rows of a partition come in offset order, each once. A record batch belongs to one partition and has about 4 MB. The
next fetch is in flight while a batch is decoded and used. Memory is bounded by a few fetches (8 MB each unless
``fetch.max.bytes`` differs), whatever the number of partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from oncelog.arrow.decoded_columns import DecodedColumns
from oncelog.arrow.offset_ranges import OffsetRanges, OnGone, Place, Positions, ReadRequest, RecordsGone, resolve_ranges
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, TopicName, TopicPartition, uuid_text
from oncelog.base.units import INT64_MAX, MIB
from oncelog.client.blocking import Client, ClientConfig, Fetched, Fetcher, FetchSettings
from oncelog.client.blocking.link import now_ms
from oncelog.client.blocking.topic_identity import ReplacedTopic, TopicWatch
from oncelog.client.errors import BrokerRefused, ClientError, ConfigError
from oncelog.client.machine.metadata import TopicInfo
from oncelog.records.columns.decode import Decoded, Selection, column_schema, decode
from oncelog.records.errors import CorruptBatch

if TYPE_CHECKING:
    import pandas as pd

    from oncelog.schemas import Registry

# Fetches of this size decode fastest: larger ones leave the CPU caches, smaller ones cost calls.
FETCH_BYTES: Final = 8 * MIB


def read_arrow(
    topics: str | Sequence[str],
    *,
    bootstrap_servers: str | Sequence[str] = "localhost:9092",
    start: Place = "earliest",
    end: Place | None = "latest",
    partitions: Collection[tuple[str, int]] | None = None,
    read_committed: bool = False,
    include_headers: bool = False,
    on_gone: OnGone = "raise",
    idle_timeout_ms: int | None = None,
    config: ClientConfig | Mapping[str, str] | None = None,
    registry: Registry | str | None = None,
    key_schema: str | None = None,
    value_schema: str | None = None,
) -> ArrowReader:
    """Read topics as Arrow, with the columns of Spark's Kafka connector: ``key, value, topic, partition, offset,
    timestamp, timestampType``, and ``headers`` with ``include_headers``.

    ``start`` and ``end`` are ``"earliest"``, ``"latest"``, a datetime, or offsets by (topic, partition). A ``start`` by
    partition resumes there: pass a reader's ``positions``, which identify topics by id. Partitions it does not name are
    read from their beginning. ``end`` is exclusive and fixed when reading begins; the reader waits for offsets beyond
    the log. An ``end`` by partition selects the partitions. ``end=None`` follows the topics and their new partitions
    for ever, or until nothing arrives for ``idle_timeout_ms``. ``partitions`` restricts the read. ``on_gone="skip"``
    continues with the available records where requested ones are missing. ``config`` takes Apache Kafka's client keys,
    including security.

    ``registry`` (a URL, or a Registry of ``oncelog.schemas``) with ``value_schema`` or ``key_schema`` (``SUBJECT`` or
    ``SUBJECT@VERSION``) makes ``value`` or ``key`` a typed column of that schema, whatever version wrote a record. One
    that cannot be read is null, with the reason in ``value_error`` or ``key_error``.

    Iterate over the result for ``pyarrow.RecordBatch``, or pass it to any consumer of Arrow streams::

        oncelog.read_arrow("flights").to_pandas()
        oncelog.read_arrow("flights").to_polars()
        oncelog.read_arrow("orders", registry="http://localhost:8081", value_schema="orders-value").to_table()
        batches = oncelog.read_arrow("flights").to_reader()
        duckdb.sql("select partition, count(*) from batches group by all")

    Raises UnknownTopic, ConfigError, NoBrokerReachable, and RecordsGone for a ``start`` that is not in the log. Reading
    raises RecordsGone and other ClientErrors, and RegistryError.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names:
        raise ConfigError("no topics to read; name at least one")
    if on_gone not in ("raise", "skip"):
        raise ConfigError(f"on_gone must be 'raise' or 'skip', got {on_gone!r}")
    columns = DecodedColumns(registry, {"key": key_schema, "value": value_schema})
    client = Client(bootstrap_servers, config=config)
    try:
        watch = TopicWatch(client)
        ranges = resolve_ranges(client, watch, ReadRequest(names, start, end, partitions, read_committed, on_gone))
        settings = replace(_fetch_settings(config), read_committed=read_committed)
        return ArrowReader(client, watch, ranges, _How(settings, include_headers, on_gone, idle_timeout_ms, columns))
    except BaseException:
        client.close()
        columns.close()
        raise


@dataclass(frozen=True, slots=True)
class _How:
    settings: FetchSettings
    include_headers: bool
    on_gone: OnGone
    idle_timeout_ms: int | None
    columns: DecodedColumns


class ArrowReader:
    """Record batches of some partitions, iterable once, from one thread. Close a reader that is not read to its end, or
    use it as a context manager."""

    def __init__(self, client: Client, watch: TopicWatch, ranges: OffsetRanges, how: _How) -> None:
        self._client = client
        self._watch = watch
        self._next = dict(ranges.begin)
        self._until = ranges.until
        self._growing = ranges.growing
        self._how = how
        self._topic_ids: dict[str, str] = {
            topic: uuid_text(watch.id_of(topic)) for topic in {partition.topic for partition in ranges.begin}
        }
        self._seen_topics: dict[str, TopicInfo] = {}
        self._batches = self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The Arrow PyCapsule interface, which Polars, DuckDB, DataFusion and pandas accept."""
        reader: Any = self.to_reader()
        return reader.__arrow_c_stream__(requested_schema)

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch; ``timestamp`` is in milliseconds, UTC."""
        return self._how.columns.schema(column_schema(include_headers=self._how.include_headers))

    @property
    def positions(self) -> Positions:
        """The next offset of each partition after all batches returned, with the topics' ids. Pass it as ``start`` to
        resume later; ``to_json`` serializes it."""
        offsets = {(str(topic), number): offset for (topic, number), offset in self._next.items()}
        no_id = uuid_text(NO_TOPIC_ID)
        return Positions(offsets, {topic: topic_id for topic, topic_id in self._topic_ids.items() if topic_id != no_id})

    def to_reader(self) -> pa.RecordBatchReader:
        """The remaining batches as a pyarrow stream."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches)

    def to_table(self) -> pa.Table:
        """The remaining batches in memory."""
        return self.to_reader().read_all()

    def to_pandas(self) -> pd.DataFrame:
        """The remaining batches as a pandas DataFrame; keys and values are ``bytes``."""
        frame: pd.DataFrame = self.to_table().to_pandas()
        return frame

    def to_polars(self) -> Any:
        """The remaining batches as a Polars DataFrame. Needs polars."""
        import polars  # type: ignore[import-not-found,unused-ignore]  # optional

        return polars.from_arrow(self.to_table())

    def close(self) -> None:
        """Close the connections. Batches already returned stay valid."""
        self._batches.close()
        self._client.close()
        self._how.columns.close()

    def _read(self) -> Generator[pa.RecordBatch, None, None]:
        fetcher = Fetcher(self._client, self._how.settings)
        last_ms = now_ms()
        try:
            fetcher.assign(self._next, self._until)
            while len(fetcher):
                polled, others = fetcher.poll(), self._watch.replaced()
                refused = []
                while polled:
                    fetched = polled.pop(0)
                    if any(fetched.partition.topic == other.topic for other in others):
                        continue  # records of the topic's successor
                    if fetched.error_code:
                        refused.append(fetched)
                        continue
                    yield from self._decode(fetched)
                    self._set_position(fetched.partition, fetched.next_offset)
                    if fetched.next_offset > fetched.position:
                        last_ms = now_ms()
                    del fetched  # frees its memory for the next fetch
                for fetch in refused:  # positions are now those of the delivered batches
                    self._handle_error(fetch)
                for other in others:
                    self._handle_replaced(other)
                if refused or others or self._add_new_partitions():
                    fetcher.positions.assign(self._next, self._until)
                if self._how.idle_timeout_ms is not None and now_ms() - last_ms >= self._how.idle_timeout_ms:
                    return
        finally:
            fetcher.close()
            self._client.close()
            self._how.columns.close()

    def _decode(self, fetched: Fetched) -> Iterator[pa.RecordBatch]:
        topic, number = fetched.partition
        until = INT64_MAX if self._until is None else self._until.get(fetched.partition, INT64_MAX)
        selection = Selection(
            *(topic, number, fetched.position, until, self._how.settings.read_committed),
            include_headers=self._how.include_headers or self._how.columns.needs_headers,
        )
        decoded = decode(fetched.records, selection, fetched.aborted)
        try:  # a loop variable would keep one batch alive while the next is decoded
            yield from filter(attrgetter("num_rows"), map(partial(self._deliver, fetched.partition), decoded))
        except CorruptBatch as error:
            raise ClientError(f"{fetched.partition}, from offset {fetched.position}: {error}") from error

    def _deliver(self, partition: TopicPartition, decoded: Decoded) -> pa.RecordBatch:
        rows = self._how.columns.decode(decoded.rows, self.schema)
        self._set_position(partition, decoded.next_offset)
        return rows

    def _set_position(self, partition: TopicPartition, offset: int) -> None:
        """Set a partition's next offset, at most its end: a fetch may return more than requested."""
        self._next[partition] = offset if self._until is None else min(offset, self._until.get(partition, offset))

    def _handle_error(self, fetched: Fetched) -> None:
        """After an out-of-range offset, continue at the nearest offset in the log, or raise RecordsGone."""
        partition = fetched.partition
        if fetched.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise BrokerRefused(fetched.error_code, f"fetch from {partition} at offset {fetched.position}")
        first = self._client.list_offsets({partition: -2})[partition].offset
        end = self._client.list_offsets({partition: -1})[partition].offset
        if self._how.on_gone == "raise":
            raise RecordsGone(f"{partition} has offsets {first} to {end}, not the requested {fetched.position}")
        self._set_position(partition, max(first, min(fetched.position, end)))

    def _handle_replaced(self, other: ReplacedTopic) -> None:
        """Drop the partitions of a deleted or replaced topic. Raises RecordsGone if records are missing."""
        self._watch.end(other.topic)
        own = [partition for partition in self._next if partition.topic == other.topic]
        if self._until is not None:
            own = [partition for partition in own if self._next[partition] < self._until[partition]]
        if own and self._how.on_gone == "raise":
            raise RecordsGone(f"topic {other.topic!r}, at offset {self._next[own[0]]} of {own[0]}: {other.description}")
        for partition in own:
            del self._next[partition]
        if self._until is not None:
            return
        del self._topic_ids[other.topic]
        if other.topic_id is not None and self._watch.begin(other.topic) is None:
            existing = self._client.topic(other.topic).partitions
            self._next |= dict.fromkeys([partition for partition in own if partition.partition in existing], 0)
            self._topic_ids[other.topic] = uuid_text(self._watch.id_of(other.topic))

    def _add_new_partitions(self) -> bool:
        """Add new partitions of growing topics from their beginning. Returns True if there are any."""
        new: list[TopicPartition] = []
        for topic in self._growing:
            age = self._client.view.age_ms(topic, now_ms())
            if age is not None and age > self._client.config.metadata_max_age_ms:
                with suppress(ClientError):  # the fetcher raises it
                    self._client.metadata([topic])
            info = self._client.view.topics.get(topic)
            if info is None or info is self._seen_topics.get(topic) or topic not in self._topic_ids:
                continue
            self._seen_topics[topic] = info
            listed = (TopicPartition(TopicName(topic), number) for number in info.partitions)
            new += [partition for partition in listed if partition not in self._next]
        self._next |= dict.fromkeys(new, 0)
        return bool(new)


def _fetch_settings(config: ClientConfig | Mapping[str, str] | None) -> FetchSettings:
    values = config if isinstance(config, Mapping) else {}
    sizes = {"max_bytes": "fetch.max.bytes", "partition_max_bytes": "max.partition.fetch.bytes"}
    numbers = {"max_wait_ms": "fetch.max.wait.ms", "min_bytes": "fetch.min.bytes", **sizes}
    chosen: dict[str, int] = dict.fromkeys(sizes, FETCH_BYTES)
    for field, key in numbers.items():
        with suppress(KeyError):
            text = values[key]
            if not text.strip().isdigit():
                raise ConfigError(f"{key} must be a whole number, got {text!r}")
            chosen[field] = int(text)
    return FetchSettings(**chosen)  # type: ignore[arg-type]  # field names of FetchSettings
