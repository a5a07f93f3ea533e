"""Requests of every API in every version that are well-formed and mean nothing good.

Fields are at the edges of their types, names exist, or may not, or are as long as can be, elements are named twice,
records are damaged. The rule: everything is drawn from ``random.Random``, so the same seed makes the same requests, for
a broker whose topics have the same ids.
"""

from __future__ import annotations

import random
import struct
import types
import typing
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

from oncelog.handlers.api import Api
from oncelog.handlers.registry import APIS
from oncelog.records.builder import build_batch
from oncelog.records.compression import Codec
from oncelog.records.record import Record
from oncelog.wire.chunks import join_chunks
from oncelog.wire.header import RequestHeader, encode_request
from oncelog.wire.message import Request
from tests.wire_structs import is_struct_class, types_of

COMMON: Final = (0, 0, 0, 0, 1, 1, 2, 3, 5, -1, -2, 127)
EDGES: Final = (128, 255, 32_767, -32_768, 65_536, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
TIMES_MS: Final = (0, 1, 5, 10, 50, -1)
"""Values of fields that say how long to wait: short, so that every answer comes soon."""
NAMES: Final = (
    *("t", "t", "t", "u", "g", "g", "__consumer_offsets", "__transaction_state"),
    *("", ".", "..", "a b", "a/b", "ä", "t\n", "\0", "x" * 249, "x" * 250),
)
CONTENTS: Final = (b"", b"\0", bytes(100), b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff")
_UNENCODABLE: Final = (struct.error, ValueError, OverflowError)


class Asked(NamedTuple):
    """A request, and its frame with the size in front."""

    request: Request[Any]
    version: int
    frame: bytes

    @property
    def is_answered(self) -> bool:
        """False for Produce with acks=0."""
        return getattr(self.request, "acks", 1) != 0

    def __str__(self) -> str:
        return f"version {self.version} of {self.request!r:.2000}"


class EdgeValues:
    """Draws requests of ``apis``. ``topic_ids`` are of topics that are there."""

    def __init__(self, seed: int, topic_ids: Sequence[bytes], apis: Sequence[Api] = APIS) -> None:
        self._apis = apis
        self._random = random.Random(seed)
        self._ids = [*topic_ids, *topic_ids, bytes(16), b"\1" * 16]
        self._drawn: dict[Any, Callable[[str], object]] = {
            bool: lambda name: self._chance(50),
            int: self._number,
            float: lambda name: self._random.choice((0.0, 1.0, -1.0, float("nan"), float("inf"))),
            str: lambda name: self._random.choice(NAMES),
        }

    def request(self) -> Asked:
        """The next request that can be encoded: a drawn number may be none of its field's type."""
        while True:
            api = self._random.choice(self._apis)
            cls = getattr(import_module(f"oncelog.wire.messages.{api.module}"), f"{api.name}Request")
            version = self._random.randint(api.min_version, api.max_version)
            request = self._struct(cls)
            header = RequestHeader(cls.API_KEY, version, 7, self._random.choice(("edges", "", None)))
            try:
                frame = join_chunks(encode_request(header, request))
            except _UNENCODABLE:
                continue
            return Asked(request, version, frame)

    def _chance(self, percent: int) -> bool:
        return self._random.randrange(100) < percent

    def _struct(self, cls: Any) -> Any:
        made = cls()
        for name, hint in types_of(cls).items():
            if self._chance(80):
                setattr(made, name, self._value(hint, name))
        return made

    def _value(self, hint: Any, name: str) -> object:
        arguments = typing.get_args(hint)
        if typing.get_origin(hint) in (types.UnionType, typing.Union) and type(None) in arguments:
            if self._chance(25):
                return None
            hint = next(argument for argument in arguments if argument is not type(None))
            arguments = typing.get_args(hint)
        if typing.get_origin(hint) is list:
            made = [self._value(arguments[0], name) for _ in range(self._random.choice((0, 1, 1, 1, 2, 3)))]
            return made + made[:1] if self._chance(20) else made
        if is_struct_class(hint):
            return self._struct(hint)
        return self._drawn.get(hint, self._bytes)(name)

    def _number(self, name: str) -> int:
        if name.endswith("_ms") and "timestamp" not in name:
            return self._random.choice(TIMES_MS)
        return self._random.choice(COMMON if self._chance(85) else EDGES)

    def _bytes(self, name: str) -> bytes:
        if name.endswith("_id"):
            return self._random.choice(self._ids)
        return self._records() if "record" in name else self._random.choice(CONTENTS)

    def _records(self) -> bytes:
        draw = self._random.choice
        records = [
            Record(index, draw((0, -1, 2**62, -(2**40))), draw((None, b"", b"k")), draw((None, b"", b"v" * 50)))
            for index in range(draw((1, 1, 2, 3)))
        ]
        batch = build_batch(
            records,
            codec=draw(list(Codec)),
            producer_id=draw((-1, 0, 1, 5, -2)),
            producer_epoch=draw((-1, 0, 1, 32_767)),
            base_sequence=draw((-1, 0, 1, 2**31 - 1)),
            transactional=self._chance(30),
            control=self._chance(15),
        )
        if self._chance(25):
            batch[self._random.randrange(len(batch))] = self._random.randrange(256)
        return bytes(batch[: self._random.randrange(len(batch))] if self._chance(10) else batch)
