"""Schemas of keys and values: Confluent's wire format, the three formats, registries, and how values are decoded.

Public: ``Registry``, ``Decoder``, ``Encoder``, ``decode`` and ``encode``, with the errors below (docs/schemas.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from oncelog.schemas.client.errors import NotRegistered as NotRegistered
    from oncelog.schemas.client.errors import RegistryConfigError as RegistryConfigError
    from oncelog.schemas.client.errors import RegistryError as RegistryError
    from oncelog.schemas.client.errors import RegistryRefused as RegistryRefused
    from oncelog.schemas.client.errors import RegistryUnavailable as RegistryUnavailable
    from oncelog.schemas.client.registry import Registry as Registry
    from oncelog.schemas.schema import Reference as Reference
    from oncelog.schemas.schema import RegisteredSchema as RegisteredSchema
    from oncelog.schemas.schema import Schema as Schema
    from oncelog.schemas.schema import SchemaError as SchemaError
    from oncelog.schemas.schema import SchemaType as SchemaType
    from oncelog.schemas.values.decoding import Decoded as Decoded
    from oncelog.schemas.values.decoding import Decoder as Decoder
    from oncelog.schemas.values.encoding import Encoded as Encoded
    from oncelog.schemas.values.encoding import Encoder as Encoder
    from oncelog.schemas.values.errors import NotReadable as NotReadable
    from oncelog.schemas.values.errors import NotWritable as NotWritable
    from oncelog.schemas.values.shortcuts import decode as decode
    from oncelog.schemas.values.shortcuts import encode as encode

_PLACES = {
    **dict.fromkeys(("Registry",), ".client.registry"),
    **dict.fromkeys(
        ("NotRegistered", "RegistryConfigError", "RegistryError", "RegistryRefused", "RegistryUnavailable"),
        ".client.errors",
    ),
    **dict.fromkeys(("Reference", "RegisteredSchema", "Schema", "SchemaError", "SchemaType"), ".schema"),
    **dict.fromkeys(("Decoded", "Decoder"), ".values.decoding"),
    **dict.fromkeys(("Encoded", "Encoder"), ".values.encoding"),
    **dict.fromkeys(("NotReadable", "NotWritable"), ".values.errors"),
    **dict.fromkeys(("decode", "encode"), ".values.shortcuts"),
}
__all__ = [
    "Decoded",
    "Decoder",
    "Encoded",
    "Encoder",
    "NotReadable",
    "NotRegistered",
    "NotWritable",
    "Reference",
    "RegisteredSchema",
    "Registry",
    "RegistryConfigError",
    "RegistryError",
    "RegistryRefused",
    "RegistryUnavailable",
    "Schema",
    "SchemaError",
    "SchemaType",
    "decode",
    "encode",
]

__getattr__ = lazy_names(__name__, _PLACES)
