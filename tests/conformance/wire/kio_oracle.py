"""kio as the outside oracle: seeded random kio messages, and what ours must then hold.

The mapping between the two is written here once more, on its own, so that a mistake of codegen is not repeated.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import importlib.util
import io
import random
import types
import typing
import uuid
from typing import Any

from codegen.newer_versions import NEWER_VERSIONS
from codegen.old_versions import OLD_VERSIONS
from codegen.tables import RESPONSE_NAMES
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from oncelog.wire.apis import WireApi
from oncelog.wire.message import Message

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)
INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "timedelta_i32": 32}
POISON = object()
OUR_OWN = {
    "WritableTxnMarker": {"start_offset", "ends_live"},
    "ListTransactionsRequest": {"led_partitions", "leader_epochs"},
    "PartitionData": {"transactional_ids"},
    "ProducerState": {"transactional_id", "verdict"},
    "TransactionState": {"client_id", "client_host"},
    "DescribeClusterBroker": {"suspected_by", "suspected_since_ms"},
    "DescribedGroup": {"pending_member_ids", "pending_until_ms", "pending_hosts", "awaited_member_ids"},
    "DescribeAclsRequest": {"with_settings"},
    "DescribeAclsResponse": {"super_users", "allow_everyone"},
    "DescribeShareGroupOffsetsRequest": {"led_here"},
    "DescribeShareGroupOffsetsResponsePartition": {
        *("first_offsets", "last_offsets", "delivery_states", "delivery_counts", "member_ids"),
        *("locked_since_ms", "locked_until_ms", "batches_left_off", "in_flight_records", "most_in_flight"),
    },
}
"""Tagged fields that kio does not know; left at their defaults."""
ERROR_CODES = list(ErrorCode)
ALPHABET = "abcxyz.-_ 09äßλ→𝄞"


def kio_root(module: str, version: int, direction: str) -> Any:
    """kio's class of a whole request or response."""
    namespace = importlib.import_module(f"kio.schema.{module}.v{version}.{direction}")
    return next(
        value
        for value in vars(namespace).values()
        if dataclasses.is_dataclass(value) and getattr(value, "__type__").name == direction  # noqa: B009 - kio's name
    )


def kio_versions(api: WireApi) -> range:
    """The versions that kio has: without those of ``codegen.old_versions`` and ``codegen.newer_versions``."""
    first, last = api.min_version, api.max_version
    while api.module in OLD_VERSIONS and not _has_kio(api, first):
        first += 1
    while api.module in NEWER_VERSIONS and not _has_kio(api, last):
        last -= 1
    return range(first, last + 1)


def _has_kio(api: WireApi, version: int) -> bool:
    return importlib.util.find_spec(f"kio.schema.{api.module}.v{version}") is not None


def our_class(module: str, name: str) -> Any:
    """Our class of kio's name, from the module of the API."""
    return getattr(importlib.import_module(f"oncelog.wire.messages.{module}"), name)


def kio_bytes(entity: Any) -> bytes:
    """The bytes that kio sends."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def random_entity(kio_class: Any, rng: random.Random) -> Any:
    """An instance with every kind of value: boundary integers, nulls, empty and longer arrays, defaults."""
    return kio_class(**{item.name: _random_field(item, rng) for item in dataclasses.fields(kio_class)})


def _random_field(item: Any, rng: random.Random) -> Any:
    if item.default is not dataclasses.MISSING and rng.random() < 0.25:
        return item.default
    annotation = item.type
    if isinstance(annotation, types.UnionType):
        if rng.random() < 0.25:
            return None
        (annotation,) = (part for part in typing.get_args(annotation) if part is not types.NoneType)
    kafka_type = item.metadata.get("kafka_type")
    if typing.get_origin(annotation) is not tuple:
        return _random_value(annotation, kafka_type, rng)
    inner = typing.get_args(annotation)[0]
    if isinstance(inner, types.UnionType):
        (inner,) = (part for part in typing.get_args(inner) if part is not types.NoneType)
    count = rng.choice((0, 1, 1, 2, 3)) if dataclasses.is_dataclass(inner) else rng.choice((0, 1, 2, 200))
    return tuple(_random_value(inner, kafka_type, rng) for _ in range(count))


def _random_value(annotation: Any, kafka_type: str | None, rng: random.Random) -> Any:
    if dataclasses.is_dataclass(annotation):
        return random_entity(annotation, rng)
    match kafka_type:
        case "bool":
            return rng.random() < 0.5
        case "error_code":
            return rng.choice(ERROR_CODES)
        case "uint16":
            return rng.choice((0, 1, 2**16 - 1, rng.getrandbits(16)))
        case "float64":
            return rng.choice((0.0, -1.5, rng.random()))
        case "timedelta_i64":
            return rng.randrange(-(2**40), 2**40) * MILLISECOND
        case "datetime_i64":
            return EPOCH + rng.randrange(2**41) * MILLISECOND
        case "uuid":
            return uuid.UUID(int=rng.getrandbits(127) + 1)
        case "string":
            return "".join(rng.choices(ALPHABET, k=rng.choice((0, 1, 5, 126, 127, 300))))
        case "bytes" | "records":
            return rng.randbytes(rng.choice((0, 1, 30, 127, 128, 2000)))
    half = 1 << (INTEGER_BITS[str(kafka_type)] - 1)
    value = rng.choice((0, -1, 1, -half, half - 1, rng.randrange(-half, half)))
    return value * MILLISECOND if kafka_type == "timedelta_i32" else value


def ours(entity: Any, module: str, *, decoded: bool) -> Any:
    """Our message with the same values.

    ``decoded``: as decoding has it: a tagged struct of defaults is None, and a field that the version lacks has its
    default. Otherwise such a field holds what cannot be written, so that writing it would be noticed.
    """
    values: dict[str, Any] = {}
    for item in dataclasses.fields(entity):
        value = getattr(entity, item.name)
        kafka_type = item.metadata.get("kafka_type", "")
        name = item.name + "_ms" if kafka_type.startswith(("timedelta", "datetime")) else item.name
        if decoded and "tag" in item.metadata and dataclasses.is_dataclass(value) and value == item.default:
            values[name] = None
        elif value is None and isinstance(getattr(our_class(module, _our_name(entity))(), name), bytes | int):
            values[name] = -1 if kafka_type == "datetime_i64" else bytes(16) if kafka_type == "uuid" else None
        else:
            values[name] = _our_value(value, module, decoded=decoded)
    cls = our_class(module, _our_name(entity))
    if not decoded:
        left_out = {*values, *OUR_OWN.get(cls.__name__, ())}
        values |= {name: POISON for name in cls.__slots__ if name not in left_out}
    return cls(**values)


def _our_name(entity: Any) -> str:
    """Our name of kio's class: others where request and response have a class of the same name each."""
    cls = type(entity)
    *_, module, _, kind = cls.__module__.split(".")
    return RESPONSE_NAMES.get((module, cls.__name__), cls.__name__) if kind == "response" else str(cls.__name__)


def _our_value(value: Any, module: str, *, decoded: bool) -> Any:
    match value:
        case tuple():
            return [_our_value(element, module, decoded=decoded) for element in value]
        case datetime.timedelta():
            return value // MILLISECOND
        case datetime.datetime():
            return (value - EPOCH) // MILLISECOND
        case uuid.UUID():
            return value.bytes
        case ErrorCode():
            return value.value
        case _ if dataclasses.is_dataclass(value):
            return ours(value, module, decoded=decoded)
    return value


def encoded(message: Message, version: int) -> bytes:
    """Our bytes in one piece."""
    return b"".join(chunk for chunk in message.encode(version) if isinstance(chunk, bytes | bytearray | memoryview))
