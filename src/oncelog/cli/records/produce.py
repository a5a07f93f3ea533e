"""``oncelog produce``: writes records from stdin or files to a topic.

The exit code is 0 only if every record was acknowledged. A pause of the input sends the current batch.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.cli.records.input_records import InputError, Parsed, Parsing, parse, split_stream
from oncelog.cli.records.registry_options import EncodingOptions, encode_text
from oncelog.cli.support.options import ClusterOptions, time_option
from oncelog.cli.support.output import progress
from oncelog.client.errors import ClientError
from oncelog.records.compression import Codec

if TYPE_CHECKING:
    from oncelog.cli.records.refused_records import RefusedRecords
    from oncelog.client.blocking.producer import Producer, ProducerSettings
    from oncelog.schemas import Encoder

_IDLE_MS: Final = 20


class Compression(StrEnum):
    none = "none"
    gzip = "gzip"
    snappy = "snappy"
    lz4 = "lz4"
    zstd = "zstd"


class Acks(StrEnum):
    none = "0"
    leader = "1"
    all = "all"


@dataclass(frozen=True)
class RecordOptions:
    key_delimiter: Annotated[
        str | None, typer.Option("--key-delimiter", "-K", metavar="TEXT", help="Separates key and value.")
    ] = None
    delimiter: Annotated[str, typer.Option("--delimiter", "-D", metavar="TEXT", help="Separates records.")] = "\\n"
    whole: Annotated[bool, typer.Option("--whole", help="Each file (or all of stdin) is one record.")] = False
    key: Annotated[str | None, typer.Option("--key", "-k", metavar="TEXT", help="A key for all records.")] = None
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; may be repeated.")
    ] = None
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", metavar="NUMBER", min=0, help="Write to this partition. Default: by key."),
    ] = None
    timestamp: Annotated[
        str | None, typer.Option("--timestamp", "-T", metavar="TIME", help="Time of the records. Default: now.")
    ] = None
    null: Annotated[
        str | None, typer.Option("--null", "-Z", metavar="TEXT", help="Input that stands for null (a tombstone).")
    ] = None

    def parsing(self, *, is_json: bool, is_base64: bool, encoded: Collection[str] = ()) -> Parsing:
        """``encoded`` are the parts given as JSON for a schema. Raises BadParameter."""
        parsing = Parsing(
            None if self.key_delimiter is None else _unescaped(self.key_delimiter),
            None if self.key is None else _unescaped(self.key),
            tuple(_header(text) for text in self.header or ()),
            None if self.null is None else self.null.encode(),
            is_json,
            is_base64,
            self.partition,
            _time_ms(self.timestamp),
            frozenset(encoded),
        )
        if encoded and is_base64:
            raise typer.BadParameter("give --base64 or a schema, not both: values for a schema are JSON")
        if not _unescaped(self.delimiter) or parsing.key_delimiter == b"":
            raise typer.BadParameter("a delimiter cannot be empty; --whole makes a file one record")
        return parsing

    def pieces(self, files: list[Path]) -> Iterator[bytes | None]:
        """The input in pieces, and None for a pause."""
        delimiter = _unescaped(self.delimiter)
        if self.whole:
            yield from (path.read_bytes() for path in files) if files else iter([sys.stdin.buffer.read()])
            return
        if not files:
            yield from split_stream(sys.stdin.fileno(), delimiter, _IDLE_MS)
        for path in files:
            with path.open("rb", buffering=0) as file:
                yield from split_stream(file.fileno(), delimiter, _IDLE_MS)


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to.")],
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]…", help="Files to read instead of stdin.")
    ] = None,
    records: RecordOptions = RecordOptions(),
    compression: Annotated[Compression, typer.Option("--compression", "-z", help="Codec.")] = Compression.none,
    acks: Annotated[Acks, typer.Option("--acks", "-a", help="Whose acknowledgement to wait for.")] = Acks.all,
    as_json: Annotated[
        bool, typer.Option("--json", "-J", help="Input is JSON lines, as `consume --json` prints them.")
    ] = False,
    encode_base64: Annotated[
        bool,
        typer.Option("--base64", help="Keys and values in the input are base64."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no count on stderr.")] = False,
    encoding: EncodingOptions = EncodingOptions(),
    cluster: ClusterOptions = ClusterOptions(),
) -> None:
    """Write records to a topic: lines of stdin, or files.

    \b
    Examples:
      seq 10 | oncelog produce numbers
      echo 'N14228:UA 1545' | oncelog produce flights -K : -H source=demo -z lz4
      oncelog produce pictures --whole a.png b.png
      oncelog consume flights -e --json | oncelog produce copy --json
      echo '{"id": 7}' | oncelog produce orders --value-schema orders-value --registry http://localhost:8081
    """
    from oncelog.cli.records.refused_records import RefusedRecords
    from oncelog.client.blocking.producer import Producer

    refused = RefusedRecords()
    encoders = encoding.encoders(topic, cluster.registry_settings())
    parsing = records.parsing(is_json=as_json, is_base64=encode_base64, encoded=encoders)
    with (
        cluster.open_client() as client,
        Producer(client, _settings(compression, acks), create_topics=True, on_outcome=refused.note) as producer,
    ):
        if parsing.partition is not None:
            _require_partition(client, topic, parsing.partition)
        else:
            client.topic(topic, create=True)
        _send_all(producer, topic, records.pieces(files or []), parsing, encoders, refused, quiet)


def _settings(compression: Compression, acks: Acks) -> ProducerSettings:
    from oncelog.client.blocking.producer import ProducerSettings

    return ProducerSettings(
        codec=Codec[compression.name.upper()], acks={"0": 0, "1": 1, "all": -1}[acks.value], linger_ms=_IDLE_MS
    )


def _send_all(
    producer: Producer,
    topic: str,
    pieces: Iterator[bytes | None],
    parsing: Parsing,
    encoders: Mapping[str, Encoder],
    refused: RefusedRecords,
    quiet: bool,
) -> None:
    sent = 0
    with progress("records sent" if not quiet and not sys.stdin.isatty() else None) as report:
        for number, piece in enumerate(pieces, 1):
            refused.raise_failure()
            if piece is None:
                producer.flush()
                continue
            try:
                record = _encoded(parse(piece, parsing), encoders)
            except InputError as error:
                producer.flush()
                raise ClientError(f"record {number} of the input: {error}; the {sent} before it are written") from None
            producer.send(
                topic,
                record.value,
                key=record.key,
                partition=record.partition,
                headers=record.headers,
                timestamp_ms=record.timestamp_ms,
            )
            sent += 1
            if sent % 10_000 == 0:
                report(sent, None)
        producer.flush()
    refused.finish()


def _encoded(record: Parsed, encoders: Mapping[str, Encoder]) -> Parsed:
    """A record whose JSON parts are encoded by their schemas. Raises InputError."""
    for part, encoder in encoders.items():
        is_key = part == "key"
        data, headers = encode_text(encoder, record.key if is_key else record.value, part)
        record = record._replace(headers=record.headers + headers)
        record = record._replace(key=data) if is_key else record._replace(value=data)
    return record


def _unescaped(text: str) -> bytes:
    from oncelog.cli.records.format import FormatError, unescape

    try:
        return unescape(text)
    except FormatError as error:
        raise typer.BadParameter(str(error)) from None


def _time_ms(text: str | None) -> int | None:
    time_ms = time_option(text, "--timestamp")
    if time_ms is not None and time_ms < 0:
        raise typer.BadParameter(
            f"{text!r} is before 1970; a producer sends times from 1970 on", param_hint="--timestamp"
        )
    return time_ms


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
    return name, value.encode() if equals else None


def _require_partition(client: Any, topic: str, partition: int) -> None:
    client.topic(topic, create=True)
    client.leader(TopicPartition(TopicName(topic), partition))
