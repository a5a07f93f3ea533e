"""Fetched batches → Arrow record batches, as they come, over all partitions of some topics.

Rules: the rows of a partition come in offset order, each once; a record batch is of one partition and about 4 MB. The
next fetch is on its way while a batch is decoded and used. Memory is bounded by a few fetches (8 MB each unless
``fetch.max.bytes`` says otherwise), whatever the number of partitions. Records that are asked for and not there any
more are an error that names them, unless ``on_gone="skip"``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import pyarrow as pa

from oncelog.arrow.places import Place, partitions_of, resolve
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.base.units import INT64_MAX, MIB
from oncelog.client.blocking import Client, ClientConfig, Fetched, Fetcher, FetchSettings
from oncelog.client.blocking.link import now_ms
from oncelog.client.errors import BrokerRefused, ClientError, ConfigError
from oncelog.records.columns import Selection, column_schema, decode
from oncelog.records.errors import CorruptBatch

if TYPE_CHECKING:
    import pandas as pd

FETCH_BYTES: Final = 8 * MIB
"""One answer of a broker: what decodes fastest (larger ones leave the caches, smaller ones cost calls)."""
OnGone = Literal["raise", "skip"]


class RecordsGone(ClientError):
    """Offsets that were asked for are below the log's start: retention or a deletion was faster."""


def read_arrow(
    topics: str | Sequence[str],
    *,
    bootstrap_servers: str | Sequence[str] = "localhost:9092",
    start: Place = "earliest",
    end: Place | None = "latest",
    read_committed: bool = False,
    include_headers: bool = False,
    on_gone: OnGone = "raise",
    idle_timeout_ms: int | None = None,
    config: ClientConfig | Mapping[str, str] | None = None,
) -> ArrowReader:
    """Read topics as Arrow, with the columns of Spark's Kafka connector (``key, value, topic, partition, offset,
    timestamp, timestampType``, and ``headers`` if asked for).

    ``start`` and ``end`` are ``"earliest"``, ``"latest"``, a datetime, or an offset for each (topic, partition);
    ``end`` is exclusive, and fixed when reading begins; one beyond the log is waited for. ``end=None`` follows the
    topics for ever, or until nothing came for ``idle_timeout_ms``. ``config`` takes Apache Kafka's client keys
    (security among them).

    The result is iterated for ``pyarrow.RecordBatch``, or handed to whatever takes Arrow streams::

        oncelog.read_arrow("flights").to_pandas()
        oncelog.read_arrow("flights").to_polars()
        batches = oncelog.read_arrow("flights").to_reader()
        duckdb.sql("select partition, count(*) from batches group by all")

    Raises UnknownTopic, ConfigError and NoBrokerReachable here; RecordsGone and other ClientErrors while it is read.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names:
        raise ConfigError("no topics to read")
    if on_gone not in ("raise", "skip"):
        raise ConfigError(f"on_gone is 'raise' or 'skip', not {on_gone!r}")
    client = Client(bootstrap_servers, config=config)
    try:
        partitions = partitions_of(client, names)
        until = None if end is None else resolve(client, end, partitions, read_committed=read_committed)
        if until is not None:  # a mapping chooses partitions
            partitions = [partition for partition in partitions if partition in until]
        begin = resolve(client, start, partitions, read_committed=read_committed)
        settings = replace(_fetch_settings(config), read_committed=read_committed)
        return ArrowReader(client, begin, until, settings, include_headers, on_gone, idle_timeout_ms)
    except BaseException:
        client.close()
        raise


class ArrowReader:
    """Record batches of some partitions, once through. From one thread; close it, or use it as a context manager, if it
    is not read to its end."""

    def __init__(
        self,
        client: Client,
        begin: Mapping[TopicPartition, int],
        until: Mapping[TopicPartition, int] | None,
        settings: FetchSettings,
        include_headers: bool,
        on_gone: OnGone,
        idle_timeout_ms: int | None,
    ) -> None:
        self._client = client
        self._next = dict(begin)
        self._until = until
        self._settings = settings
        self._include_headers = include_headers
        self._on_gone = on_gone
        self._idle_timeout_ms = idle_timeout_ms
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
        """The Arrow PyCapsule interface: what Polars, DuckDB, DataFusion and pandas take."""
        reader: Any = self.to_reader()
        return reader.__arrow_c_stream__(requested_schema)

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch; ``timestamp`` in milliseconds, UTC."""
        return column_schema(include_headers=self._include_headers)

    @property
    def positions(self) -> dict[tuple[str, int], int]:
        """The next offset of each partition, after all batches handed out: a ``start`` for going on later."""
        return {(str(topic), number): offset for (topic, number), offset in self._next.items()}

    def to_reader(self) -> pa.RecordBatchReader:
        """What is still to be read, as pyarrow's stream of batches."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches)

    def to_table(self) -> pa.Table:
        """All of it in memory."""
        return self.to_reader().read_all()

    def to_pandas(self) -> pd.DataFrame:
        """All of it as a pandas DataFrame; keys and values are ``bytes``."""
        frame: pd.DataFrame = self.to_table().to_pandas()
        return frame

    def to_polars(self) -> Any:
        """All of it as a Polars DataFrame. Needs polars."""
        import polars  # type: ignore[import-not-found,unused-ignore]  # optional

        return polars.from_arrow(self.to_table())

    def close(self) -> None:
        """Close the connections; batches handed out stay valid."""
        self._batches.close()
        self._client.close()

    def _read(self) -> Generator[pa.RecordBatch, None, None]:
        fetcher = Fetcher(self._client, self._settings)
        last_ms = now_ms()
        try:
            fetcher.assign(self._next, self._until)
            while len(fetcher):
                refused = []
                for fetched in fetcher.poll():
                    if fetched.error_code:
                        refused.append(fetched)
                        continue
                    yield from self._decoded(fetched)
                    self._move(fetched.partition, fetched.next_offset)
                    if fetched.next_offset > fetched.position:
                        last_ms = now_ms()
                if refused:  # only now do the positions say what was handed out
                    for one in refused:
                        self._after_refusal(one)
                    fetcher.assign(self._next, self._until)
                if self._idle_timeout_ms is not None and now_ms() - last_ms >= self._idle_timeout_ms:
                    return
        finally:
            fetcher.close()
            self._client.close()

    def _decoded(self, fetched: Fetched) -> Iterator[pa.RecordBatch]:
        topic, number = fetched.partition
        until = INT64_MAX if self._until is None else self._until.get(fetched.partition, INT64_MAX)
        selection = Selection(
            topic, number, fetched.position, until, self._settings.read_committed, self._include_headers
        )
        try:
            for decoded in decode(fetched.records, selection, fetched.aborted):
                if decoded.rows.num_rows:
                    self._move(fetched.partition, decoded.next_offset)
                    yield decoded.rows
        except CorruptBatch as error:
            raise ClientError(f"{fetched.partition}, from offset {fetched.position}: {error}") from error

    def _move(self, partition: TopicPartition, offset: int) -> None:
        """A fetch may bring more than is wanted."""
        self._next[partition] = offset if self._until is None else min(offset, self._until.get(partition, offset))

    def _after_refusal(self, fetched: Fetched) -> None:
        """Go on at the log's start where what was wanted is gone, or raise."""
        partition = fetched.partition
        if fetched.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise BrokerRefused(fetched.error_code, f"fetch from {partition} at offset {fetched.position}")
        first = self._client.list_offsets({partition: -2})[partition].offset
        if self._on_gone == "raise" or first <= fetched.position:
            end = self._client.list_offsets({partition: -1})[partition].offset
            raise RecordsGone(f"{partition} has offsets {first} to {end}; {fetched.position} was asked for")
        self._move(partition, first)


def _fetch_settings(config: ClientConfig | Mapping[str, str] | None) -> FetchSettings:
    """Apache Kafka's consumer keys, where they are given."""
    given = config if isinstance(config, Mapping) else {}
    sizes = {"max_bytes": "fetch.max.bytes", "partition_max_bytes": "max.partition.fetch.bytes"}
    numbers = {"max_wait_ms": "fetch.max.wait.ms", "min_bytes": "fetch.min.bytes", **sizes}
    chosen: dict[str, int] = dict.fromkeys(sizes, FETCH_BYTES)
    for field, key in numbers.items():
        with suppress(KeyError):
            text = given[key]
            if not text.strip().isdigit():
                raise ConfigError(f"{key}={text!r} is not a whole number")
            chosen[field] = int(text)
    return FetchSettings(**chosen)  # type: ignore[arg-type]  # field names of FetchSettings
