"""The schema that each record of a batch names: by its header or the first bytes of its value, for all at once."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from oncelog.schemas.columns.cursor import Array, Indexes, Longs
from oncelog.schemas.columns.nodes import content_of, offsets_of
from oncelog.schemas.wire_format import header_schema_id

_PREFIX_BYTES = 5


class Named(NamedTuple):
    """A schema's id or GUID, and the bytes after it in a header (the path of a Protobuf message); None: the value
    begins with the id, and with that path."""

    schema_id: str
    rest: bytes | None


Groups: TypeAlias = "list[tuple[Named, Indexes]]"


class Framing(NamedTuple):
    """Records by the schema that they name, where each payload starts, and the records that name none."""

    groups: Groups
    starts: Longs
    unnamed: Indexes


def read_framing(values: Array, part: str, headers: Array | None = None) -> Framing:
    """``values``: a binary array; null ones name no schema, and are in no group."""
    groups: Groups = []
    by_value = np.asarray(values.is_valid()) if values.null_count else np.ones(len(values), np.bool_)
    present = by_value.copy()
    for name, rows in _in_headers(headers, part):
        groups.append((name, rows[present[rows]]))
        by_value[rows] = False
    offsets = offsets_of(values).astype(np.int64)
    starts = np.zeros(len(values), np.int64)
    content = content_of(values)
    begins = offsets[:-1]
    is_framed = by_value & (np.diff(offsets) >= _PREFIX_BYTES)
    rows = np.flatnonzero(is_framed)
    rows = rows[content[begins[rows]] == 0]
    starts[rows] = _PREFIX_BYTES
    groups += [(Named(str(number), None), index) for number, index in _by_number(_ids(content, begins[rows]), rows)]
    by_value[rows] = False
    return Framing([group for group in groups if len(group[1])], starts, np.flatnonzero(by_value))


def _ids(content: npt.NDArray[np.uint8], begins: Longs) -> Longs:
    ids = np.zeros(len(begins), np.int64)
    for byte in range(1, _PREFIX_BYTES):
        ids = ids << 8 | content[begins + byte]
    return ids


def _by_number(numbers: Longs, rows: Indexes) -> list[tuple[int, Indexes]]:
    if not len(numbers):
        return []
    if bool((numbers == numbers[0]).all()):
        return [(int(numbers[0]), rows)]
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    bounds = np.flatnonzero(np.diff(ordered)) + 1
    return [(int(numbers[index[0]]), rows[index]) for index in np.split(order, bounds)]


def _in_headers(headers: Any, part: str) -> Groups:
    """The records that name a schema in a header, which comes before their first bytes."""
    if headers is None or headers.null_count == len(headers):
        return []
    entries = headers.flatten()
    keys = entries.field("key")
    name = f"__{part}_schema_id"
    # Headers are few kinds of short texts: compared by Arrow, decoded only if they are ours.
    from pyarrow import compute

    equal: Any = compute.equal
    matches = np.flatnonzero(np.asarray(equal(keys, name).fill_null(False)))
    if not len(matches):
        return []
    counts = np.asarray(compute.list_value_length(headers).fill_null(0)).astype(np.int64)
    owners = np.repeat(np.arange(len(headers)), counts)[matches]
    contents = entries.field("value").take(pa.array(matches)).to_pylist()
    groups: dict[Named, list[int]] = {}
    seen: set[int] = set()
    for row, header in zip(owners.tolist(), contents, strict=True):
        framed = None if header is None or row in seen else header_schema_id(header)
        if framed is not None:
            seen.add(row)
            groups.setdefault(Named(*framed), []).append(row)
    return [(name, np.array(rows)) for name, rows in groups.items()]
