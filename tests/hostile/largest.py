"""The largest requests that the limits allow, of every API and version, derived from the message classes.

The rule: one array of structs or strings is as long as fits into ``oncelog.request.max.bytes``, with every element as
small as can be; all else is minimal. Names are distinct, for equal ones are often merged; the outer names exist.
"""

from __future__ import annotations

import struct
import typing
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final, NamedTuple

from oncelog.base.units import MIB
from oncelog.handlers.registry import APIS
from oncelog.wire.chunks import join_chunks
from oncelog.wire.header import RequestHeader, encode_request
from oncelog.wire.message import Message
from tests.wire_structs import is_struct_class, types_of

LARGEST_BYTES: Final = MIB
KNOWN: Final = "known"
"""A topic, a group and a transactional id that exist where these requests are sent."""
_DIGITS: Final = "abcdefghijklmnopqrstuvwxyz0123456789"

Path = tuple[str, ...]


class Largest(NamedTuple):
    """One request, ready to be sent."""

    api: str
    version: int
    path: str
    count: int
    frame: bytes
    """With its size in front."""

    @property
    def title(self) -> str:
        return f"{self.api} v{self.version} {self.path} x {self.count}"


def short_name(number: int) -> str:
    """Distinct names, as short as can be."""
    name = _DIGITS[number % 36]
    while number >= 36:
        number //= 36
        name += _DIGITS[number % 36]
    return name


def all_largest(known_topic_id: bytes) -> Iterator[Largest]:
    """One request for every array of every API in its newest version, and in the last one without ids of topics."""
    for api in APIS:
        module = import_module(f"oncelog.wire.messages.{api.module}")
        cls: type[Message] = getattr(module, f"{api.name}Request")
        for path in _array_paths(cls):
            seen = set()
            for version in (api.max_version, *range(api.max_version - 1, api.min_version - 1, -1)):
                kind = (version >= cls.FIRST_FLEXIBLE_VERSION, _by_id(api.name, version))
                if kind not in seen:
                    seen.add(kind)
                    fitting = _fitting(cls, path, version, known_topic_id)
                    if fitting is not None:
                        yield Largest(api.name, version, ".".join(path), *fitting)


_ID_VERSIONS: Final = {"Metadata": 10, "Fetch": 13, "Produce": 13, "DeleteTopics": 6, "OffsetCommit": 10}


def _by_id(api: str, version: int) -> bool:
    return version >= _ID_VERSIONS.get(api, 99)


def array_paths(cls: type[Message]) -> list[Path]:
    """The arrays of a request, as names of fields from the outside in."""
    return list(_array_paths(cls))


def largest_of(cls: type[Message], path: Path, version: int, topic_id: bytes) -> bytes:
    """The largest frame with its elements at ``path``."""
    fitting = _fitting(cls, path, version, topic_id)
    if fitting is None:
        raise ValueError(f"{cls.__name__} v{version} has no {path}")
    return fitting[1]


def request_of(cls: type[Message], path: Path, count: int, version: int, topic_id: bytes) -> bytes | None:
    """A frame with ``count`` elements at ``path``; None when the version cannot say what is in it."""
    return _encoded(cls, path, count, version, topic_id)


def _element_of(hint: Any) -> Any:
    """Of an array the type of its elements, else None."""
    for part in (hint, *typing.get_args(hint)):
        if typing.get_origin(part) is list:
            return typing.get_args(part)[0]
    return None


def _array_paths(cls: type, before: Path = ()) -> Iterator[Path]:
    for name, hint in types_of(cls).items():
        element = _element_of(hint)
        if element is None:
            continue
        if is_struct_class(element):
            yield (*before, name)
            yield from _array_paths(element, (*before, name))
        else:
            yield (*before, name)


def _fitting(cls: Any, path: Path, version: int, topic_id: bytes) -> tuple[int, bytes] | None:
    """How many elements fit, within a hundredth, and the frame."""
    sizes = [len(_encoded(cls, path, count, version, topic_id) or b"") for count in (1, 2000, 3000)]
    if not sizes[0] or sizes[1] == sizes[0]:
        return None  # the version has no such array
    per_element = max(1.0, (sizes[2] - sizes[1]) / 1000)
    count = min(cls.MAX_ELEMENTS - 2 * len(path), int((LARGEST_BYTES - sizes[1]) / per_element) + 2000)
    while (frame := _encoded(cls, path, count, version, topic_id)) is not None:
        if len(frame) - 4 <= LARGEST_BYTES:
            return count, frame
        count = count * (LARGEST_BYTES - 1000) // len(frame)
    return None


def _encoded(cls: Any, path: Path, count: int, version: int, topic_id: bytes) -> bytes | None:
    request = _filled(cls, path, count, 0, topic_id)
    try:
        return join_chunks(encode_request(RequestHeader(cls.API_KEY, version, 1, "l"), request))
    except (ValueError, TypeError, AttributeError, struct.error):
        return None


def _filled(cls: Any, path: Path, count: int, number: int, topic_id: bytes) -> Any:
    """A struct whose array along ``path`` is long; ``number`` tells it from its neighbours."""
    values: dict[str, Any] = {}
    for name, hint in types_of(cls).items():
        element = _element_of(hint)
        if element is not None:
            if path and name == path[0]:
                values[name] = _elements(element, path[1:], count, topic_id)
            continue
        if hint is str or (str in typing.get_args(hint) and name in ("name", "transactional_id")):
            values[name] = KNOWN if path else short_name(number)
        elif name == "topic_id":
            values[name] = topic_id if path else number.to_bytes(16, "big")
        elif name in ("partition_index", "partition"):
            values[name] = 0 if path else number
        elif name in ("timeout_ms", "num_partitions", "replication_factor"):
            values[name] = 1
        elif name in ("resource_type", "config_resource_type"):
            values[name] = 2
        elif name == "acks":
            values[name] = -1  # else there is no answer
        elif name.startswith("include_"):
            values[name] = True
        elif name == "generation_id" or name == "group_generation_id":
            values[name] = -1
    return cls(**values)


def _elements(element: Any, rest: Path, count: int, topic_id: bytes) -> list[Any]:
    if rest:
        return [_filled(element, rest, count, 0, topic_id)]
    if is_struct_class(element):
        return [_filled(element, (), 0, number, topic_id) for number in range(count)]
    if element is str:
        return [short_name(number) for number in range(count)]
    if element is bytes:
        return [number.to_bytes(16, "big") for number in range(count)]
    return list(range(count))
