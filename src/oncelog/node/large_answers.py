"""Large answers, encoded in slices: the metadata of ten thousand topics takes longer than others should wait.

The rule: an array of a response that has many elements is encoded by itself, a slice of bytes at a time with other
connections' turns in between; then it stands in the response as one element that knows how many it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from oncelog.base.units import KIB
from oncelog.handlers.waits import NextTurn, Steps

if TYPE_CHECKING:
    from oncelog.wire.message import Message
    from oncelog.wire.writer import Writer

FEW: Final = 500
"""Elements of an array that are encoded with the rest."""
SLICE_BYTES: Final = 64 * KIB


class EncodedArray:
    """What stands for the structs of an array."""

    __slots__ = ("_count", "_encoded")

    def __init__(self, count: int, encoded: Writer) -> None:
        self._count = count
        self._encoded = encoded

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[EncodedArray]:
        yield self

    def write(self, writer: Writer, version: int) -> None:
        """As a generated struct does, for all of them."""
        writer.written(self._encoded)  # with the records that are still in their files


def is_large(response: Message) -> bool:
    """Whether a response should be encoded in turns."""
    return bool(_large_arrays(response))


def _large_arrays(response: Message) -> list[str]:
    found: list[str] = []
    for name in cast("Any", response).__dataclass_fields__:
        value = getattr(response, name, None)
        if type(value) is list and len(value) > FEW and hasattr(value[0], "write"):
            found.append(name)
    return found


def encoded_in_turns(response: Message, version: int) -> Steps[Message]:
    """The same response with its large arrays encoded. The response is changed; its elements are not."""
    for name in _large_arrays(response):
        elements: list[Any] = getattr(response, name)
        writer = response.writer(version)
        buffer, turn_ends = writer.buffer, SLICE_BYTES
        for element in elements:
            if len(buffer) >= turn_ends:
                yield NextTurn()
                turn_ends = len(buffer) + SLICE_BYTES
            element.write(writer, version)
        setattr(response, name, EncodedArray(len(elements), writer))
    return response
