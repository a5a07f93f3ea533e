"""Seeded messages of the versions that kio lacks: those that Apache Kafka 4 removed, and those of 4.4."""

from __future__ import annotations

import base64
import importlib
import random
import re
import types
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from codegen.newer_versions import NEWER_VERSIONS
from codegen.old_versions import OLD_VERSIONS

from oncelog.wire.chunks import join_chunks
from oncelog.wire.message import Message
from tests.wire_structs import is_struct, is_struct_class, types_of

GOLDEN: Final = Path(__file__).with_name("golden.json")
PER_VERSION: Final = 4
_INTEGERS: Final = (0, 1, -1, 7, 1000)
_MODULES: Final = (*OLD_VERSIONS, *NEWER_VERSIONS)
_KAFKA_NAMES: Final = {"generation_id": "generationIdOrMemberEpoch"}
"""Fields that Apache Kafka 4.4 renamed."""
_NULLABLE: Final = ("records", "cluster_id", "group_instance_id", "committed_metadata", "error_message")
"""Fields that are said to be null, and not left out."""


class Sample(typing.NamedTuple):
    """A message and the version it is encoded in."""

    name: str
    version: int
    message: Message


def message_class(name: str) -> type[Message]:
    """Our class by its name."""
    for module in _MODULES:
        result = getattr(importlib.import_module(f"oncelog.wire.messages.{module}"), name, None)
        if result is not None:
            return typing.cast("type[Message]", result)
    raise LookupError(name)


@cache
def samples() -> tuple[Sample, ...]:
    """The same messages each time; a field that a version lacks has its default."""
    return tuple(_samples())


def _samples() -> Iterator[Sample]:
    for module in _MODULES:
        namespace = importlib.import_module(f"oncelog.wire.messages.{module}")
        for name, kind in sorted(vars(namespace).items()):
            if not (isinstance(kind, type) and issubclass(kind, Message) and kind.__module__ == namespace.__name__):
                continue
            newer = [kind.MAX_VERSION] if module in NEWER_VERSIONS else []
            for version in [*range(kind.MIN_VERSION, kind.BASELINE_VERSION), *newer]:
                rng = random.Random(f"{name} {version}")
                for _ in range(PER_VERSION):
                    filled = _filled(kind, rng)
                    yield Sample(name, version, kind.decode(join_chunks(filled.encode(version)), version))


def _filled(kind: Any, rng: random.Random) -> Any:
    return kind(**{name: _value(name, hint, rng) for name, hint in types_of(kind).items()})


def _value(name: str, hint: Any, rng: random.Random) -> Any:
    if name == "records":
        return rng.choice((b"", b"\x01" * 40))
    if isinstance(hint, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
    if typing.get_origin(hint) is list:
        return [_value(name, typing.get_args(hint)[0], rng) for _ in range(rng.choice((0, 1, 3)))]
    if is_struct_class(hint):
        return _filled(hint, rng)
    if hint is str:
        return rng.choice(("", "t", "topic-ä"))
    if hint is bool:
        return rng.choice((False, True))
    if hint is bytes:
        return bytes(16)
    return rng.choice(_INTEGERS)


def as_json(value: Any) -> Any:
    """A message with Apache Kafka's own names of the fields, as its JSON converters take it; defaults left in."""
    if is_struct(value):
        return {
            _kafka_name(name): as_json(getattr(value, name))
            for name in value.__slots__
            if name in _NULLABLE or getattr(value, name) is not None
        }
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return value


def _kafka_name(name: str) -> str:
    return _KAFKA_NAMES.get(name) or re.sub(r"_([a-z])", lambda match: match[1].upper(), name)
