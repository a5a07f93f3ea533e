"""``oncelog produce``: records from stdin or files to a topic.

The rule: the exit code is 0 only when every record was acknowledged; records are sent when the input pauses, not only
when a batch is full.
"""

from __future__ import annotations

import base64
import binascii
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from oncelog.cli.option_groups import grouped
from oncelog.cli.options import ClusterOptions

if TYPE_CHECKING:
    from oncelog.cli.records.refused_records import RefusedRecords
    from oncelog.client.blocking.producer import Producer, ProducerSettings

_IDLE_MS: Final = 20


class Compression(StrEnum):
    """Codecs by Apache Kafka's names."""

    none = "none"
    gzip = "gzip"
    snappy = "snappy"
    lz4 = "lz4"
    zstd = "zstd"


class Acks(StrEnum):
    """Acknowledgements after which a record counts as written."""

    none = "0"
    leader = "1"
    all = "all"


class Parsing(NamedTuple):
    """The way from a piece of input to a record."""

    key_delimiter: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    null: bytes | None
    is_json: bool
    is_base64: bool
    partition: int | None
    timestamp_ms: int | None


class Parsed(NamedTuple):
    """A record to send."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    timestamp_ms: int | None


class InputError(ValueError):
    """A piece of input that is no record."""


@dataclass(frozen=True)
class RecordOptions:
    """The way from input to records: a group of options (``option_groups``)."""

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

    def parsing(self, *, is_json: bool, is_base64: bool) -> Parsing:
        """The way from a piece of input to a record. Raises BadParameter."""
        parsing = Parsing(
            None if self.key_delimiter is None else _unescaped(self.key_delimiter),
            None if self.key is None else _unescaped(self.key),
            tuple(_header(one) for one in self.header or ()),
            None if self.null is None else self.null.encode(),
            is_json,
            is_base64,
            self.partition,
            None if self.timestamp is None else _time_ms(self.timestamp),
        )
        if not _unescaped(self.delimiter) or parsing.key_delimiter == b"":
            raise typer.BadParameter("a delimiter cannot be empty; --whole makes a file one record")
        return parsing

    def pieces(self, files: list[Path]) -> Iterator[bytes | None]:
        """The input cut into records; None where it pauses."""
        from oncelog.cli.records.delimited_input import split_stream

        delimiter = _unescaped(self.delimiter)
        if self.whole:
            yield from (path.read_bytes() for path in files) if files else iter([sys.stdin.buffer.read()])
            return
        if not files:
            yield from split_stream(sys.stdin.fileno(), delimiter, _IDLE_MS)
        for path in files:
            with path.open("rb", buffering=0) as file:
                yield from split_stream(file.fileno(), delimiter, _IDLE_MS)


@grouped
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
    encode_base64: Annotated[bool, typer.Option("--base64", help="Keys and values in the input are base64.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no count on stderr.")] = False,
    cluster: ClusterOptions = ClusterOptions(),
) -> None:
    """Write records to a topic: lines of stdin, or files.

    \b
    Examples:
      seq 10 | oncelog produce numbers
      echo 'N14228:UA 1545' | oncelog produce flights -K : -H source=demo -z lz4
      oncelog produce pictures --whole a.png b.png
      oncelog consume flights -e --json | oncelog produce copy --json
    """
    from oncelog.cli.records.refused_records import RefusedRecords
    from oncelog.client.blocking.producer import Producer

    refused = RefusedRecords()
    parsing = records.parsing(is_json=as_json, is_base64=encode_base64)
    with (
        cluster.open_client() as client,
        Producer(client, _settings(compression, acks), create_topics=True, on_outcome=refused.note) as producer,
    ):
        if parsing.partition is not None:
            _require_partition(client, topic, parsing.partition)
        else:
            client.topic(topic, create=True)
        _send_all(producer, topic, records.pieces(files or []), parsing, refused, quiet)


def _settings(compression: Compression, acks: Acks) -> ProducerSettings:
    from oncelog.client.blocking.producer import ProducerSettings
    from oncelog.records.compression import Codec

    return ProducerSettings(
        codec=Codec[compression.name.upper()], acks={"0": 0, "1": 1, "all": -1}[acks.value], linger_ms=_IDLE_MS
    )


def _send_all(
    producer: Producer,
    topic: str,
    pieces: Iterator[bytes | None],
    parsing: Parsing,
    refused: RefusedRecords,
    quiet: bool,
) -> None:
    from oncelog.cli.output import progress
    from oncelog.client.errors import ClientError

    sent = 0
    with progress("records sent" if not quiet and not sys.stdin.isatty() else None) as report:
        for number, piece in enumerate(pieces, 1):
            refused.raise_failure()
            if piece is None:
                producer.flush()
                continue
            try:
                record = parse(piece, parsing)
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


def parse(piece: bytes, parsing: Parsing) -> Parsed:
    """The record in a piece of input. Raises InputError."""
    if parsing.is_json:
        return _parse_json(piece, parsing)
    key, value = parsing.key, piece
    if parsing.key_delimiter is not None:
        key, found, value = piece.partition(parsing.key_delimiter)
        if not found:
            raise InputError(f"no key delimiter {parsing.key_delimiter!r} in {piece[:40]!r}")
    return Parsed(
        None if parsing.null is not None and key == parsing.null else _decoded(key, parsing.is_base64),
        None if parsing.null is not None and value == parsing.null else _decoded(value, parsing.is_base64),
        parsing.headers,
        parsing.partition,
        parsing.timestamp_ms,
    )


def _parse_json(piece: bytes, parsing: Parsing) -> Parsed:
    """A line of ``consume --json``; topic, partition and offset in it are ignored, the timestamp is kept."""
    try:
        document: Any = json.loads(piece)
    except ValueError as error:
        raise InputError(f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InputError("not a JSON object")
    if "payload" not in document:
        names = ", ".join(map(repr, document)) or "nothing"
        raise InputError(f"no 'payload' in it, which is the record's value, but {names:.80}")
    flat = document.get("headers") or []
    if not isinstance(flat, list) or len(flat) % 2 or not all(isinstance(name, str) for name in flat[::2]):
        raise InputError("headers are not a list of names and values in turn")
    headers = tuple((name, _json_bytes(value, False)) for name, value in zip(flat[::2], flat[1::2], strict=True))
    timestamp = document.get("ts")
    if timestamp is not None and not isinstance(timestamp, int):
        raise InputError("ts is not a whole number of milliseconds")
    return Parsed(
        _json_bytes(document.get("key"), parsing.is_base64 or document.get("key_encoding") == "base64"),
        _json_bytes(document.get("payload"), parsing.is_base64 or document.get("payload_encoding") == "base64"),
        headers + parsing.headers,
        parsing.partition,
        parsing.timestamp_ms if parsing.timestamp_ms is not None else timestamp,
    )


def _json_bytes(value: object, is_base64: bool) -> bytes | None:
    """A string as it is, null as null, anything else as JSON again."""
    if value is None:
        return None
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return _decoded(value.encode("utf-8", "surrogatepass"), is_base64)


def _decoded(data: bytes | None, is_base64: bool) -> bytes | None:
    if data is None or not is_base64:
        return data
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise InputError(f"not base64: {error}") from None


def _unescaped(text: str) -> bytes:
    from oncelog.cli.records.format import FormatError, unescape

    try:
        return unescape(text)
    except FormatError as error:
        raise typer.BadParameter(str(error)) from None


def _time_ms(text: str) -> int:
    from oncelog.cli.moments import MomentError, parse_time_ms

    try:
        return parse_time_ms(text)
    except MomentError as error:
        raise typer.BadParameter(str(error)) from None


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
    return name, value.encode() if equals else None


def _require_partition(client: Any, topic: str, partition: int) -> None:
    from oncelog.base.ids import TopicName, TopicPartition

    client.topic(topic, create=True)
    client.leader(TopicPartition(TopicName(topic), partition))
