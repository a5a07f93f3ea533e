"""A writer's output becomes part of another's: copied when it is little, else as it is."""

from __future__ import annotations

import pytest

from oncelog.wire.chunks import join_chunks
from oncelog.wire.writer import KEEP_BYTES, Writer

RECORDS = b"r" * 2000


@pytest.mark.parametrize("size", [10, KEEP_BYTES - 10, KEEP_BYTES, 3 * KEEP_BYTES])
def test_what_another_has_written_stands_where_it_was_put(size: int) -> None:
    inner, outer = Writer(), Writer()
    inner.buffer += b"a" * (size - 1)
    inner.nullable_records(memoryview(RECORDS))
    inner.buffer += b"b"
    outer.buffer += b"before"
    outer.written(inner)
    outer.buffer += b"between"
    outer.written(inner)
    outer.nullable_records(memoryview(RECORDS))
    alone = join_chunks(inner.chunks())
    expected = b"before" + alone + b"between" + alone + len(RECORDS).to_bytes(4, "big") + RECORDS
    assert outer.size_bytes == len(expected)
    assert join_chunks(outer.chunks()) == expected
    assert (len(outer.buffer) > len(inner.buffer)) == (len(inner.buffer) < KEEP_BYTES), "copied when it is little"
