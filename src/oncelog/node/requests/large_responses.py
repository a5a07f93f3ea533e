"""Encodes large responses in slices: the metadata of ten thousand topics takes longer than other requests should wait.

A large array, also within an element, is encoded by itself, a slice of bytes at a time with other connections' turns in
between; then a single element that knows their number replaces its elements in the response. An element with such an
array is copied first, because other responses may share it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, Any, Final

from oncelog.base.units import KIB
from oncelog.handlers.broker.waits import NextSlice, Steps

if TYPE_CHECKING:
    from oncelog.wire.message import Message
    from oncelog.wire.writer import Writer

FEW: Final = 500
"""Elements, nested ones included, up to which an array is encoded with the rest."""
SLICE_BYTES: Final = 64 * KIB
# Fields that are arrays of structs, each with the arrays of its structs.
_Arrays = tuple[tuple[str, Any], ...]
_ARRAYS: Final[dict[type, _Arrays]] = {}
_ARRAY: Final = re.compile(r"list\[(\w+)\]")


class EncodedArray:
    """Stands for the elements of an array that were encoded in advance."""

    __slots__ = ("_count", "_encoded")

    def __init__(self, count: int, encoded: Writer) -> None:
        self._count = count
        self._encoded = encoded

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[EncodedArray]:
        yield self

    def write(self, writer: Writer, version: int) -> None:
        writer.written(self._encoded)  # including file ranges


def is_large(response: Message) -> bool:
    arrays = _ARRAYS.get(type(response))
    if arrays is None:
        arrays = _arrays_of(type(response))
    return bool(arrays) and _weight(response, arrays) > FEW


def _weight(struct: Any, arrays: _Arrays) -> int:
    """The number of nested structs; counting stops once there are many."""
    weight = 0
    for name, inner in arrays:
        elements = getattr(struct, name)
        if elements and type(elements) is list:
            weight += len(elements)
            if inner:
                for element in elements:
                    if weight > FEW:
                        break
                    weight += _weight(element, inner)
    return weight


def _arrays_of(cls: type) -> _Arrays:
    arrays = _ARRAYS.get(cls)
    if arrays is None:
        arrays = _ARRAYS[cls] = tuple(
            (name, _arrays_of(element))
            for name, annotation in getattr(cls, "__init__").__annotations__.items()  # noqa: B009 - mypy
            if (element := _element(cls, str(annotation))) is not None
        )
    return arrays


def _element(cls: type, annotation: str) -> type | None:
    """The struct type of an array, by its annotation; None for other arrays."""
    named = _ARRAY.match(annotation)
    if named is not None:
        for base in cls.__mro__:
            element = getattr(sys.modules[base.__module__], named[1], None)
            if isinstance(element, type) and hasattr(element, "write"):
                return element
    return None


def encoded_in_slices(response: Message, version: int) -> Steps[Message]:
    """The response with its arrays encoded. The response is modified, its elements are not."""
    yield from _encode_arrays(response, _arrays_of(type(response)), response, version)
    return response


def _encode_arrays(struct: Any, arrays: _Arrays, response: Message, version: int) -> Steps[None]:
    for name, inner in arrays:
        elements = getattr(struct, name)
        if not elements or type(elements) is not list:
            continue
        writer = response.writer(version)
        buffer, turn_ends = writer.buffer, SLICE_BYTES
        for element in elements:
            if len(buffer) >= turn_ends:
                yield NextSlice()
                turn_ends = len(buffer) + SLICE_BYTES
            if inner and _weight(element, inner) > FEW:
                element = copy(element)
                yield from _encode_arrays(element, inner, response, version)
                turn_ends = len(buffer) + SLICE_BYTES
            element.write(writer, version)
        setattr(struct, name, EncodedArray(len(elements), writer))
