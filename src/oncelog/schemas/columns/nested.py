"""Records and unions of Avro: fields one after another, and branches for the records that have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from oncelog.schemas.columns.cursor import Array, Cursor, Indexes, Mask, bitmap, nulls, taken, with_nulls
from oncelog.schemas.columns.nodes import Node

BAD_BRANCH = "a union has no such branch"


class Constant:
    """A field that the writer lacks, with the reader's default."""

    def __init__(self, value: Array) -> None:
        self.type = value.type
        self._value = value

    def repeated(self, count: int) -> Array:
        return taken(self._value, np.zeros(count, np.int32))


class Record:
    """Fields in the writer's order, each for a column of the reader or for none."""

    maskable = False

    def __init__(
        self, names: Sequence[str], steps: Sequence[tuple[Node, int | None]], constants: dict[int, Constant]
    ) -> None:
        self._steps, self._constants = steps, constants
        kinds = {column: node.type for node, column in steps if column is not None}
        kinds |= {column: constant.type for column, constant in constants.items()}
        self.fields = [pa.field(name, kinds[column]) for column, name in enumerate(names)]
        self.type: pa.DataType = pa.struct(self.fields)
        self.min_bytes = sum(node.min_bytes for node, _ in steps)
        widths = [node.width for node, _ in steps]
        self.width = None if None in widths else sum(width for width in widths if width is not None)

    def read(self, cursor: Cursor, valid: Mask | None = None) -> Array:
        columns: dict[int, Array] = {}
        for node, column in self._steps:
            if column is None:
                node.skip(cursor)
            else:
                columns[column] = node.read(cursor)
        for column, constant in self._constants.items():
            columns[column] = constant.repeated(len(cursor))
        return struct_of(self.type, [columns[column] for column in range(len(self.fields))], len(cursor))

    def skip(self, cursor: Cursor) -> None:
        for node, _ in self._steps:
            node.skip(cursor)


def struct_of(kind: pa.DataType, columns: Sequence[Array], count: int, valid: Mask | None = None) -> Array:
    return pa.Array.from_buffers(kind, count, [bitmap(valid)], children=list(columns))


class Nullable:
    """A union of null and a type that can be read by a mask."""

    maskable = False
    min_bytes = 1
    width: int | None = None

    def __init__(self, node: Node, null_branch: int) -> None:
        self._node, self._null = node, null_branch
        self.type = node.type

    def read(self, cursor: Cursor, valid: Mask | None = None) -> Array:
        branches = cursor.longs()
        if bool((branches == 1 - self._null).all()):
            return self._node.read(cursor)
        outside = (branches < 0) | (branches > 1)
        cursor.mark(outside, BAD_BRANCH)
        return self._node.read(cursor, branches == 1 - self._null)

    def skip(self, cursor: Cursor) -> None:
        self.read(cursor)


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch of the writer's union, and the member of the reader's that takes it; None: null."""

    node: Node
    member: int | None


@dataclass(frozen=True, slots=True)
class UnionShape:
    """The members of a union but null. One member is a nullable value, several are a struct with one field set."""

    members: tuple[pa.DataType, ...]

    @property
    def type(self) -> pa.DataType:
        if not self.members:
            return pa.null()
        if len(self.members) == 1:
            return self.members[0]
        return pa.struct([pa.field(f"member{number}", member) for number, member in enumerate(self.members)])

    def assemble(self, columns: Sequence[Array], count: int, valid: Mask) -> Array:
        if not columns:
            return nulls(count, pa.null())
        return columns[0] if len(columns) == 1 else struct_of(self.type, columns, count, valid)


class Union:
    """A union: its branches are read for the records that have them."""

    maskable = False
    min_bytes = 1
    width: int | None = None

    def __init__(self, branches: Sequence[Branch], shape: UnionShape) -> None:
        self._branches, self._shape = branches, shape
        self.type = shape.type

    def read(self, cursor: Cursor, valid: Mask | None = None) -> Array:
        count = len(cursor)
        pieces: list[list[tuple[Array, Indexes]]] = [[] for _ in self._shape.members]
        filled = np.zeros(count, np.bool_)
        for branch, index in self._split(cursor):
            part = cursor.subset(index)
            array = branch.node.read(part)
            cursor.at[index] = part.at
            if branch.member is not None:
                pieces[branch.member].append((array, index))
                filled[index] = True
        columns = [_spread(parts, count, member) for parts, member in zip(pieces, self._shape.members, strict=True)]
        return self._shape.assemble(columns, count, filled)

    def skip(self, cursor: Cursor) -> None:
        for branch, index in self._split(cursor):
            part = cursor.subset(index)
            branch.node.skip(part)
            cursor.at[index] = part.at

    def _split(self, cursor: Cursor) -> list[tuple[Branch, Indexes]]:
        numbers = cursor.longs()
        cursor.mark((numbers < 0) | (numbers >= len(self._branches)), BAD_BRANCH)
        split = ((branch, np.flatnonzero(numbers == number)) for number, branch in enumerate(self._branches))
        return [(branch, index) for branch, index in split if len(index)]


class Wrapped:
    """A value of another type than a union, as a member of the reader's union."""

    maskable = False

    def __init__(self, node: Node, member: int, shape: UnionShape) -> None:
        self._node, self._member, self._shape = node, member, shape
        self.type, self.min_bytes, self.width = shape.type, node.min_bytes, node.width

    def read(self, cursor: Cursor, valid: Mask | None = None) -> Array:
        array = self._node.read(cursor)
        columns = [
            array if member == self._member else nulls(len(cursor), kind)
            for member, kind in enumerate(self._shape.members)
        ]
        return self._shape.assemble(columns, len(cursor), np.ones(len(cursor), np.bool_))

    def skip(self, cursor: Cursor) -> None:
        self._node.skip(cursor)


def _spread(parts: list[tuple[Array, Indexes]], count: int, kind: pa.DataType) -> Array:
    """The pieces, each at its index; null elsewhere."""
    if not parts:
        return nulls(count, kind)
    if len(parts) == 1 and len(parts[0][1]) == count:
        return parts[0][0]
    return with_nulls(
        pa.concat_arrays([array for array, _ in parts]), np.concatenate([index for _, index in parts]), count
    )
