"""Inspects the records of a batch without decoding them: lengths, counts, order of offsets, latest timestamp.

Records that pass are readable by every reader: each length is checked against its container, and no byte is left after
the last record. Record attributes, and the bytes of keys, values and header names, may be anything (KIP-98).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oncelog.base.units import INT64_MAX
from oncelog.records.errors import CorruptBatch
from oncelog.records.record_shapes import (
    TWO_BYTES,
    after_headers,
    count_from,
    offset_bytes,
    read_shape,
    read_timestamp,
    same_bytes_until,
    same_width,
)
from oncelog.records.varint import append_varint

_BYTES: Final = bytes(range(256))
_EVEN: Final = _BYTES[::2]
_ODD: Final = _BYTES[1::2]
_EQUAL_BEFORE_RUN: Final = 2
"""Neighbours of equal size before a run is tried."""
_LEAST_RUN: Final = 12
_BACK_OFF: Final = -16
"""More equal neighbours are required after a short run: attempts must not cost more than they gain."""
_FIRST_WINDOW: Final = 64
"""Records of the first attempt; after a success the window grows to the largest."""
_LARGEST_WINDOW: Final = 4096


# Reading every field would cost a multiple of all other work on a batch. So there are three ways with the same result,
# each for the records that the one before refuses: ``_take_run`` compares the same byte of many equally shaped
# neighbours at once; ``_take_usual`` reads a dozen bytes of a record with short integers; ``_take_any`` reads any
# record.
class Inspection:
    """Inspects ``count`` records, and can pause after any.

    ``effort`` bounds the records and headers without a shortcut, 5 µs each; ``advance`` raises TooMuchWork beyond it.
    """

    __slots__ = ("_at", "_count", "_data", "_earliest", "_effort", "_latest", "keyless", "misnumbered", "number")

    def __init__(self, data: bytes, count: int, effort: int = INT64_MAX) -> None:
        self._data = data
        self._effort = effort
        self._count = count
        self._at = 0
        self._latest = self._earliest = -1
        """The largest even and the largest odd timestamp delta, zigzag; −1 without one."""
        self.number = 0
        """Records inspected so far."""
        self.keyless = False
        """True if a record has no key."""
        self.misnumbered = False
        """True if the offset deltas are not 0, 1, 2 …"""

    @property
    def is_complete(self) -> bool:
        return self.number == self._count

    def latest_delta(self) -> int:
        """The largest timestamp delta of all records. Raises TooMuchWork."""
        if self._latest >= 0:
            return self._latest >> 1
        return -min(self._timestamps()) - 1 >> 1  # all are negative, which is rare

    def earliest_delta(self) -> int:
        """The smallest timestamp delta of all records, or 0 if none is negative."""
        return -(self._earliest >> 1) - 1 if self._earliest >= 0 else 0

    def _timestamps(self) -> Iterator[int]:
        at = 0
        while at < len(self._data):
            shape = read_shape(self._data, at, self._effort)
            self._effort -= 1
            yield shape.timestamp
            at = shape.end

    def advance(self, upto: int) -> None:
        """Inspect until ``upto`` records are done, or all. Raises CorruptBatch and TooMuchWork."""
        last = min(upto, self._count)
        same, window = _EQUAL_BEFORE_RUN * self._seems_even(), _FIRST_WINDOW
        while self.number < last:
            if last - self.number < _LEAST_RUN:
                self._take_singly(last, -_LEAST_RUN)
            elif same < _EQUAL_BEFORE_RUN:
                same = self._take_singly(last, same)
            elif self._take_run(min(window, last - self.number)) >= _LEAST_RUN:
                window = _LARGEST_WINDOW
            else:
                same, window = _BACK_OFF, _FIRST_WINDOW
        if self.number == self._count and self._at != len(self._data):
            raise CorruptBatch(f"{len(self._data) - self._at} bytes after the last of {self._count} records")

    def _seems_even(self) -> bool:
        left = self._count - self.number
        if left < _LEAST_RUN or self._at + 1 >= len(self._data):
            return False
        low, high = self._data[self._at : self._at + 2]
        size = (low >> 1) + 1 if low < 0x80 else (low & 0x7F | high << 7) // 2 + 2
        # All may be as long as the next one, apart from integers that grow by a byte or two: a run is tried at once.
        return abs(len(self._data) - self._at - left * size) <= 2 * left

    def _take_singly(self, last: int, same: int) -> int:
        """Inspect single records until ``last``, or until enough neighbours of one size for a run. Returns the number
        of these."""
        while self.number < last and same < _EQUAL_BEFORE_RUN:
            try:
                same = self._take_usual(last, same)
            except (IndexError, CorruptBatch):
                same = 0  # a truncated record, or an integer of more than two bytes
            if self.number < last and same < _EQUAL_BEFORE_RUN:
                self._take_any()
                same = 0
        return same

    def _take_usual(self, last: int, same: int) -> int:
        """Inspect records with integers of one or two bytes, as many as follow. This is the hot loop."""
        data, at, number, latest, size = self._data, self._at, self.number, self._latest, 0
        try:
            while number < last and same < _EQUAL_BEFORE_RUN:
                start = at
                length = data[at]
                at += 1
                if length > 127:
                    length = length & 127 | data[at] << 7
                    at += 1
                end = at + (length >> 1)
                timestamp = data[at + 1]
                at += 2
                if timestamp > 127:
                    timestamp = timestamp & 127 | data[at] << 7
                    at += 1
                    if timestamp >= TWO_BYTES:
                        timestamp, at = read_timestamp(data, at - 2)
                offset = data[at]
                at += 1
                if offset > 127:
                    offset = offset & 127 | data[at] << 7
                    at += 1
                    if offset >= TWO_BYTES:
                        if data[at] > 127:
                            break
                        offset, at = offset & TWO_BYTES - 1 | data[at] << 14, at + 1
                key = data[at]
                at += 1
                if key > 127:
                    key = key & 127 | data[at] << 7
                    at += 1
                if not key & 1:
                    at += key >> 1
                value = data[at]
                at += 1
                if value > 127:
                    value = value & 127 | data[at] << 7
                    at += 1
                if not value & 1:
                    at += value >> 1
                headers = data[at]
                at += 1
                if headers:
                    at = after_headers(data, at, headers)
                if at != end or offset != number + number or length & 1 or length | key | value >= TWO_BYTES:
                    break
                if timestamp & 1:
                    self._earliest = max(self._earliest, timestamp)
                elif timestamp > latest:
                    latest = timestamp
                if key & 1:
                    self.keyless = True
                number += 1
                self._at = at
                same, size = same + 1 if at - start == size else 0, at - start
        finally:
            self.number, self._latest = number, latest
        return same

    def _take_any(self) -> None:
        shape = read_shape(self._data, self._at, self._effort)
        # Headers count as records do: each is read in Python.
        self._effort -= 1 + len(shape.lengths) // 2
        self.misnumbered |= shape.offset_delta != self.number
        self._add_timestamp(shape.timestamp)
        self.keyless |= shape.keyless
        self._at = shape.end
        self.number += 1

    def _add_timestamp(self, timestamp: int) -> None:
        if timestamp & 1:
            self._earliest = max(self._earliest, timestamp)
        else:
            self._latest = max(self._latest, timestamp)

    def _take_run(self, window: int) -> int:
        """Inspect up to ``window`` records of the next one's shape. Returns how many there were."""
        data, start, number = self._data, self._at, self.number
        shape = read_shape(data, start, self._effort)
        size = shape.end - start
        width = offset_bytes(number)
        if shape.timestamp_bytes > 2 or shape.offset_bytes != width or width > 3:
            return 0
        count = min(window, same_bytes_until(number) - number, (len(data) - start) // size)
        for at in shape.lengths:
            column = data[start + at : start + at + (count - 1) * size + 1 : size]
            if column.count(column[:1]) != count:
                count -= len(column.lstrip(column[:1]))
        at = start + shape.timestamp_at
        columns = [data[at + byte : at + byte + (count - 1) * size + 1 : size] for byte in range(shape.timestamp_bytes)]
        count = same_width(columns)
        at = start + shape.offset_at
        deltas = [data[at + byte : at + byte + (count - 1) * size + 1 : size] for byte in range(width)]
        if not count_from(number, deltas):
            return 0
        self._add_columns([column[:count] for column in columns])
        self.keyless |= shape.keyless
        self.number += count
        self._at += count * size
        return count

    def _add_columns(self, columns: list[bytes]) -> None:
        """Record the largest timestamp delta of each sign from byte columns, the lowest byte first."""
        for parity, others in ((_EVEN, _ODD), (_ODD, _EVEN)):
            if len(columns) == 1:
                values = columns[0].translate(None, others)
                if values:
                    self._add_timestamp(max(values))
            elif columns[0].translate(None, others):
                pairs = set(zip(*columns, strict=True))
                self._add_timestamp(max(high << 7 | low & 0x7F for low, high in pairs if low in parity))


def renumbered(data: bytes) -> Iterator[bytes]:
    """The inspected records with offset deltas from 0."""
    at = number = 0
    while at < len(data):
        shape = read_shape(data, at)
        offset_at = at + shape.offset_at
        length_bytes = shape.timestamp_at - 1
        body = bytearray(data[at + length_bytes : offset_at])
        append_varint(body, number)
        body += data[offset_at + shape.offset_bytes : shape.end]
        record = bytearray()
        append_varint(record, len(body))
        yield bytes(record + body)
        at = shape.end
        number += 1
