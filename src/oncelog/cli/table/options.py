"""The options that ``load`` and ``stream`` share: the records to read, and the shape of the table's rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

import typer

from oncelog.cli.support.options import storage_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncelog.spark.jobs.shape import Shape
    from oncelog.spark.registry_values.decoding import RegistryDecoding


class PlaceArguments(TypedDict):
    """Arguments of the functions of ``spark.targets.entry``."""

    catalog: str | None
    storage_options: dict[str, str]


To = Annotated[
    str,
    typer.Option(
        "--to",
        "-o",
        metavar="TABLE",
        help="A directory of Parquet files, made if need be; delta:DIR, delta:s3://…, iceberg:DIR, or with --catalog "
        "iceberg:NAMESPACE.TABLE.",
    ),
]
TopicsOrLogs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TOPIC]…", help="Topics to load; with --from-logs its logs (default: all)."),
]
FromLogs = Annotated[
    Path | None,
    typer.Option(
        "--from-logs", metavar="DIR", help="Read this log directory of Kafka 0.7, or 0.8 to 0.10, instead of a cluster."
    ),
]
Remote = Annotated[
    str | None,
    typer.Option(
        "--remote",
        metavar="sc://HOST:PORT",
        envvar="ONCELOG_SPARK_REMOTE",
        help="A Spark Connect server that does the work, instead of a Spark on this machine.",
    ),
]
QuarantineTopic = Annotated[
    str | None,
    typer.Option(
        "--quarantine-topic",
        metavar="TOPIC",
        help="Write bad rows to this topic, each once, instead of beside the table.",
    ),
]
FromTime = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TIME",
        help="Load rows from this time on again, replacing those in the table: 2013-06-01, "
        "2013-06-01T12:00Z or @MILLISECONDS.",
    ),
]
RowsPerStep = Annotated[int, typer.Option(min=1, metavar="N", help="Rows after which a step is committed.")]
Backfill = Annotated[
    bool,
    typer.Option("--backfill", help="Load only records before the table's first rows, while a stream appends to it."),
]
Compact = Annotated[
    bool, typer.Option("--compact", help="Afterwards merge small files into larger ones, in one step for readers.")
]


@dataclass(frozen=True)
class ShapeOptions:
    partition_by: Annotated[
        str | None,
        typer.Option(
            "--partition-by", metavar="day|hour", help="Keep rows under the day or hour (UTC) of their event."
        ),
    ] = None
    event_time: Annotated[
        str,
        typer.Option(
            "--event-time",
            metavar="timestamp|$.PATH",
            help="When the event was: the record's timestamp, or a JSON path.",
        ),
    ] = "timestamp"
    value_format: Annotated[
        str,
        typer.Option(
            "--value-format",
            metavar="json|avro|protobuf|utf8|binary",
            help="Decode values; bad ones go to the quarantine.",
        ),
    ] = "binary"
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema", metavar="DDL|@FILE", help="Of values in JSON ('id BIGINT, at TIMESTAMP') or Avro (its JSON)."
        ),
    ] = None
    skip_bytes: Annotated[
        int,
        typer.Option(
            "--skip-bytes", min=0, metavar="N", help="Skip this many bytes before each value: 5 for Confluent's header."
        ),
    ] = 0

    registry: Annotated[
        str | None,
        typer.Option(
            "--registry", "-r", metavar="URL,…", help="Decode values by their schemas in this schema registry."
        ),
    ] = None
    subject: Annotated[
        str | None,
        typer.Option(
            "--subject",
            metavar="SUBJECT[@VERSION]",
            help="The schema whose fields become the table's columns; default: the latest of TOPIC-value.",
        ),
    ] = None
    message: Annotated[
        str | None, typer.Option("--message", metavar="NAME", help="The Protobuf message; default: the first one.")
    ] = None

    def registry_options(self) -> dict[str, object]:
        return {"--registry": self.registry, "--subject": self.subject, "--message": self.message}

    def shape(self, topics: list[str] | None = None, registry_settings: Mapping[str, str] | None = None) -> Shape:
        """Raises BadParameter, OptionError."""
        from oncelog.spark.jobs.shape import Shape

        partition_by = self.partition_by
        if partition_by not in (None, "day", "hour"):
            raise typer.BadParameter(f"{partition_by!r} is neither day nor hour", param_hint="--partition-by")
        text = self.schema
        if text is not None and text.startswith("@"):
            name = text[1:]
            try:
                text = Path(name).read_text(encoding="utf-8")
            except OSError as error:
                raise typer.BadParameter(f"{name}: {error.strerror}", param_hint="--schema") from None
        by: Literal["day", "hour"] | None = "day" if partition_by == "day" else "hour" if partition_by else None
        decoding = self._decoding(topics or [], registry_settings or {})
        return Shape(self.value_format, text, self.skip_bytes, by, self.event_time, decoding)

    def _decoding(self, topics: list[str], settings: Mapping[str, str]) -> RegistryDecoding | None:
        if self.registry is None:
            if self.subject or self.message:
                raise typer.BadParameter(
                    "name the schema registry: --registry http://HOST:PORT", param_hint="--registry"
                )
            return None
        from oncelog.schemas.values.decoding import subject_version
        from oncelog.spark.registry_values.decoding import RegistryDecoding

        if self.subject is None and len(topics) != 1:
            raise typer.BadParameter("name the subject of several topics: --subject SUBJECT", param_hint="--subject")
        subject, version = subject_version(self.subject or f"{topics[0]}-value")
        return RegistryDecoding.resolve(self.registry, settings, subject=subject, version=version, message=self.message)


@dataclass(frozen=True)
class PlaceOptions:
    catalog: Annotated[
        str | None,
        typer.Option(
            "--catalog", metavar="NAME", help="The catalog of an Iceberg table, of pyiceberg's configuration."
        ),
    ] = None
    storage_option: Annotated[
        list[str] | None,
        typer.Option(
            "--storage-option",
            metavar="KEY=VALUE",
            help="For delta-rs, or pyiceberg's catalog and files; may be repeated. Secrets are better in the "
            "environment.",
        ),
    ] = None

    def as_arguments(self) -> PlaceArguments:
        """Arguments for ``spark.targets.entry``. Raises BadParameter."""
        return {"catalog": self.catalog, "storage_options": storage_options(self.storage_option)}


@dataclass(frozen=True)
class ReadingOptions:
    headers: Annotated[bool, typer.Option("--headers", help="Load the column 'headers' too.")] = False
    read_uncommitted: Annotated[
        bool, typer.Option("--read-uncommitted", help="Load records of aborted and open transactions too.")
    ] = False
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="Go on where retention removed what was not loaded yet.")
    ] = False

    def source_options(self, settings: dict[str, str]) -> dict[str, str]:
        """The options of the Spark source, including the client's ``settings``."""
        options = {f"kafka.{name}": value for name, value in settings.items()}
        options["kafka.isolation.level"] = "read_uncommitted" if self.read_uncommitted else "read_committed"
        options["includeHeaders"] = str(self.headers).lower()
        options["failOnDataLoss"] = str(not self.allow_data_loss).lower()
        return options


@contextmanager
def spark_at(remote: str | None) -> Iterator[SparkSession | None]:
    """A session on the named Spark Connect server; None: the job starts its own Spark if it needs one."""
    if remote is None:
        yield None
        return
    from oncelog.spark.session.local_session import remote_session

    with remote_session(remote) as session:
        yield session
