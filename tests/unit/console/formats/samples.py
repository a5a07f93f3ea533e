"""Schemas and values in the formats that need a library; descriptor sets as protoc would write them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": "string"},
        {"name": "raw", "type": "bytes"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}
CHAIN = {"type": "record", "name": "Chain", "fields": [{"name": "next", "type": ["null", "Chain"]}]}
NOTHINGS = {"type": "array", "items": "null"}


def avro(schema: dict[str, Any], value: Any) -> bytes:
    """A value without a header."""
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(schema), value)
    return target.getvalue()


def avro_file(directory: Path, name: str, schema: dict[str, Any]) -> Path:
    """A schema file."""
    path = directory / name
    path.write_text(json.dumps(schema))
    return path


def shop() -> descriptor_pb2.FileDescriptorSet:
    """Two files: ``Money`` in one; ``Payment``, with ``Payment.Line`` inside, and ``Refund`` in the last."""
    result = descriptor_pb2.FileDescriptorSet()
    money = result.file.add(name="money.proto", package="shop", syntax="proto3")
    money.message_type.add(name="Money").field.add(name="cents", number=1, type=3, label=1)
    pay = result.file.add(name="pay.proto", package="shop", syntax="proto3", dependency=["money.proto"])
    payment = pay.message_type.add(name="Payment")
    payment.field.add(name="who", number=1, type=9, label=1)
    payment.field.add(name="sum", number=2, type=11, label=1, type_name=".shop.Money")
    payment.nested_type.add(name="Line").field.add(name="text", number=1, type=9, label=1)
    refund = pay.message_type.add(name="Refund")
    refund.field.add(name="inner", number=1, type=11, label=1, type_name=".shop.Refund")
    refund.field.add(name="why", number=2, type=9, label=1)
    return result


def shop_file(directory: Path) -> Path:
    """The descriptor set of ``shop``."""
    path = directory / "shop.desc"
    path.write_bytes(shop().SerializeToString())
    return path


def message(name: str) -> Any:
    """An empty message of ``shop``."""
    pool = descriptor_pool.DescriptorPool()
    for item in shop().file:
        pool.Add(item)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()
