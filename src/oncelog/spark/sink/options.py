"""The sink's options and columns, named as in Spark's Kafka connector and validated before any broker is contacted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from oncelog.base.units import INT32_MAX, KIB, MINUTE_MS
from oncelog.client.config import ClientConfig
from oncelog.client.machine.producer import ProducerSettings
from oncelog.records.compression import Codec
from oncelog.spark.session.errors import OptionError
from oncelog.spark.session.option_values import client_config, given_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


_REFUSED_CLIENT_KEYS: Final = {
    "key.serializer": "keys are string or binary columns",
    "value.serializer": "values are string or binary columns",
    "transactional.id": "the sink names its own transactions",
    "interceptor.classes": "there are no Java classes here",
}
_CODECS: Final = {"none": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
# Every option with its default.
OPTIONS: Final[Mapping[str, str | None]] = {
    "topic": None,
    "exactlyOnce": "auto",
    **dict.fromkeys(("jobId", "acceptLoss", "acceptDuplicates")),
}
DEFAULT_BATCH_BYTES: Final = 512 * KIB


class Mode(Enum):
    AUTO = "auto"
    TWO_PHASE = "2pc"
    LEDGER = "ledger"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Validated options. ``job_id`` names a batch write, so that running it again does not write again."""

    bootstrap_servers: str
    client: ClientConfig
    producer: ProducerSettings
    topic: str | None
    mode: Mode
    job_id: str | None
    accept_loss: int | None
    accept_duplicates: int | None
    # Time-out of the ledger's transactions, and of a batch write's that cannot be completed without its driver.
    transaction_timeout_ms: int | None
    # A directory of fault points, for tests (``fault_points``).
    points: str | None
    # Set by ``oncelog.spark.transaction``: a directory that receives a write's messages instead of a commit.
    gather: str | None
    # Set by ``oncelog.spark.transaction``: the attempt that this write belongs to, and its number in it.
    member: str | None


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Validate and parse options. Raises OptionError, and ConfigError for a wrong ``kafka.*`` value."""
    options, client_options, servers = given_options(given, "producer", OPTIONS, _REFUSED_CLIENT_KEYS)
    mode = _mode(options["exactlyonce"])
    job_id = options.get("jobid")
    if job_id is not None and (not job_id.strip() or len(job_id) > 200 or "/" in job_id):
        raise OptionError(f"jobId must be 1 to 200 characters without '/', got {job_id!r}")
    return SinkOptions(
        servers,
        client_config({"client.id": "oncelog-spark-sink", **client_options}),
        _producer_settings(client_options, mode),
        topic=options.get("topic"),
        mode=mode,
        job_id=job_id,
        accept_loss=_number(options, "acceptLoss", None, 0),
        accept_duplicates=_number(options, "acceptDuplicates", None, 0),
        transaction_timeout_ms=_number(client_options, "transaction.timeout.ms", None, 1),
        points=options.get("oncelog.testing.points"),
        gather=options.get("oncelog.transaction.gather"),
        member=options.get("oncelog.transaction.member"),
    )


def _mode(text: str) -> Mode:
    try:
        return Mode(text.strip().lower())
    except ValueError:
        raise OptionError(f"exactlyOnce must be 'auto', '2pc', 'ledger' or 'off', got {text!r}") from None


def _producer_settings(client_options: Mapping[str, str], mode: Mode) -> ProducerSettings:
    codec = client_options.get("compression.type", "none").lower()
    if codec not in _CODECS:
        raise OptionError(f"kafka.compression.type must be one of {', '.join(_CODECS)}, got {codec!r}")
    acks = {"all": -1, "-1": -1, "1": 1, "0": 0}.get(client_options.get("acks", "all"))
    if acks is None or (acks != -1 and mode is not Mode.OFF):
        raise OptionError("kafka.acks must be 'all'; '1' and '0' are allowed only with exactlyOnce=off")
    return ProducerSettings(
        batch_bytes=max(1, _number(client_options, "batch.size", DEFAULT_BATCH_BYTES, 0) or 0),
        linger_ms=0,
        codec=_CODECS[codec],
        level=_number(client_options, f"compression.{codec}.level", None, 0),
        acks=acks,
        delivery_timeout_ms=_number(client_options, "delivery.timeout.ms", 2 * MINUTE_MS, 1) or 2 * MINUTE_MS,
    )


def _number(options: Mapping[str, str], name: str, default: int | None, lowest: int) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return default
    if not text.strip().isdigit() or not lowest <= int(text) <= INT32_MAX:
        raise OptionError(f"{name} must be a whole number from {lowest} on, got {text!r}")
    return int(text)


_BYTES: Final = ("string", "binary")
_HEADER_TYPES: Final = ("array<struct<key:string,value:binary>>",)
_TYPES: Final = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": ("string",),
    "partition": ("int",),
    "headers": _HEADER_TYPES,
    "timestamp": ("timestamp",),
}


def check_schema(schema: StructType, topic: str | None) -> None:
    """Reject a schema that Spark's Kafka sink rejects; unknown columns are ignored as there. Raises OptionError."""
    types = {field.name.lower(): field.dataType.simpleString() for field in schema.fields}
    if "value" not in types:
        raise OptionError("Required attribute 'value' not found")
    if topic is None and "topic" not in types:
        raise OptionError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    for name, allowed in _TYPES.items():
        data_type = types.get(name)
        if data_type is None or (name == "topic" and topic is not None):
            continue
        if data_type.split(" collate ")[0] not in allowed:
            raise OptionError(
                f"{name} attribute unsupported type {data_type}. {name} must be a(n) {' or '.join(allowed)}"
            )
