"""`decode` and `encode`: one value of a record, with what they need kept for the next one of the same registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

from oncelog.schemas.client.registry import Registry
from oncelog.schemas.values.decoding import Decoder
from oncelog.schemas.values.encoding import Encoder
from oncelog.schemas.wire_format import VALUE

_decoders: Final[WeakKeyDictionary[Registry, dict[str, Decoder]]] = WeakKeyDictionary()
_encoders: Final[WeakKeyDictionary[Registry, dict[str, Encoder]]] = WeakKeyDictionary()
_MAX_ENCODERS: Final = 1000


def decode(
    registry: Registry, data: bytes, headers: Sequence[tuple[str, bytes | None]] = (), *, part: str = VALUE
) -> Any:
    """The value of a record, or its key with ``part="key"``, by the schema that it names. Raises NotReadable,
    RegistryError."""
    decoders = _decoders.setdefault(registry, {})
    decoder = decoders.get(part) or decoders.setdefault(part, Decoder(registry, part))
    return decoder.decode(data, headers).value


def encode(registry: Registry, subject: str, value: Any) -> bytes:
    """The bytes of a value by ``SUBJECT`` or ``SUBJECT@VERSION``; the latest version is asked for once. Raises
    NotWritable, RegistryError, SchemaError."""
    encoders = _encoders.setdefault(registry, {})
    if subject not in encoders:
        if len(encoders) >= _MAX_ENCODERS:
            encoders.clear()
        encoders[subject] = Encoder(registry, subject)
    return encoders[subject].encode(value).data
