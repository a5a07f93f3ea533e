"""The fields of a single Protobuf message, found one by one without reading them."""

from __future__ import annotations

from typing import Final, NamedTuple

_MAX_DEPTH: Final = 64
_CUT: Final = "the bytes end within a value"
_NOT_A_FIELD: Final = "the bytes are not a field of a message"


class Field(NamedTuple):
    """A field's tag, and its value's place."""

    tag: int
    at: int
    end: int


class _Damaged(ValueError):
    pass


def walk_message(data: bytes, tag: int, *, only_first: bool = False) -> tuple[list[Field], str | None]:
    """The fields of a message whose first ``tag`` is already read, or only that field; and a reason if the bytes are
    damaged."""
    fields = []
    at = 0
    try:
        while True:
            end = _value_end(data, at, tag, 0)
            fields.append(Field(tag, at, end))
            if only_first or end == len(data):
                return fields, None
            tag, at = _tag(data, end)
    except _Damaged as error:
        return fields, str(error)


def _value_end(data: bytes, at: int, tag: int, depth: int) -> int:
    match tag & 7:
        case 0:
            return _varint(data, at)[1]
        case 1:
            end = at + 8
        case 2:
            length, at = _varint(data, at)
            end = at + length
        case 3:
            return _group_end(data, at, tag, depth)
        case 5:
            end = at + 4
        case _:
            raise _Damaged(_NOT_A_FIELD)
    if end > len(data):
        raise _Damaged(_CUT)
    return end


def _group_end(data: bytes, at: int, tag: int, depth: int) -> int:
    if depth > _MAX_DEPTH:
        raise _Damaged(f"groups are nested more than {_MAX_DEPTH} deep")
    while True:
        inner, at = _tag(data, at)
        if inner & 7 == 4:
            if inner >> 3 != tag >> 3:
                raise _Damaged(_NOT_A_FIELD)
            return at
        at = _value_end(data, at, inner, depth + 1)


def _tag(data: bytes, at: int) -> tuple[int, int]:
    tag, at = _varint(data, at)
    if not 8 <= tag <= 0xFFFFFFFF:
        raise _Damaged(_NOT_A_FIELD)
    return tag, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise _Damaged(_CUT)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << 64) - 1), at
    raise _Damaged("a variable-length integer has more than ten bytes")
