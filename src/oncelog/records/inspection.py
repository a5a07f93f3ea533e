"""Inspects the records of a batch without making them: lengths, counts, order of offsets, and the latest timestamp.

The rule: records that pass are records that every reader can read. Each length is checked against what it holds, and
no byte is left after the last record. Attributes of a record, and the bytes of keys, values and header names, are not
looked at: they may be anything. KIP-98 has the layout.

Reading every field of every record would take a multiple of everything else that a broker does with a batch. So there
are three ways, each for what the one before does not take, and all with the same outcome:
:func:`_inspect_run` compares the same byte of many records at once where neighbours have the same shape;
:meth:`Inspection.advance` looks up a dozen bytes of a record whose integers are short; :func:`_read_shape` reads any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from oncelog.records.errors import CorruptBatch
from oncelog.records.varint import append_varint, read_varint, read_varlong

_TWO_BYTES: Final = 1 << 14
"""Integers of one or two bytes are below, as they are encoded: zigzag, so twice their size."""
_SEGMENT: Final = 1 << 13
"""Offset deltas have the same third byte as long as they have the same multiple of this."""
_ONE_BYTE_DELTAS: Final = 64
_FIRST_BYTES: Final = bytes(delta << 1 & 0x7F | 0x80 for delta in range(_SEGMENT))
_SECOND_BYTES: Final = bytes(delta >> 6 for delta in range(_SEGMENT))
_SECOND_OF_THREE: Final = bytes(byte | 0x80 for byte in _SECOND_BYTES)
_ONLY_BYTES: Final = bytes(range(0, 2 * _ONE_BYTE_DELTAS, 2))
_BYTES: Final = bytes(range(256))
_ENDS: Final = _BYTES[:0x80]
"""Last bytes of an integer."""
_CONTINUES: Final = _BYTES[0x80:]
_EVEN: Final = _BYTES[::2]
_ODD: Final = _BYTES[1::2]
_EQUAL_BEFORE_RUN: Final = 2
"""Neighbours of equal size that are seen before a run is tried."""
_LEAST_RUN: Final = 8
_FIRST_WINDOW: Final = 64
"""Records of the first attempt at a run: what does not match costs no more than what does."""
_BACK_OFF: Final = -16


class Inspection:
    """Inspects ``count`` records, and may stop after any to go on later."""

    __slots__ = ("_at", "_count", "_data", "_earliest", "_latest", "keyless", "misnumbered", "number")

    def __init__(self, data: bytes, count: int) -> None:
        self._data = data
        self._count = count
        self._at = 0
        self._latest = self._earliest = -1
        """The largest even and the largest odd timestamp delta, zigzag; −1 before there is one."""
        self.number = 0
        """Records inspected so far."""
        self.keyless = False
        """True if a record has no key."""
        self.misnumbered = False
        """True if the offset deltas are not 0, 1, 2 and so on."""

    @property
    def is_complete(self) -> bool:
        """True after the last record."""
        return self.number == self._count

    def latest_delta(self) -> int:
        """The largest timestamp delta of all records."""
        if self._latest >= 0:
            return self._latest >> 1
        return -min(self._timestamps()) - 1 >> 1  # all are before the base, which is rare

    def earliest_delta(self) -> int:
        """The smallest timestamp delta of all records, or 0 where all are larger."""
        return -(self._earliest >> 1) - 1 if self._earliest >= 0 else 0

    def _timestamps(self) -> Iterator[int]:
        at = 0
        while at < len(self._data):
            shape = _read_shape(self._data, at)
            yield shape.timestamp
            at = shape.end

    def advance(self, upto: int) -> None:
        """Inspect until ``upto`` records are done, or all. Raises CorruptBatch."""
        last = min(upto, self._count)
        same, window = 0 if last - self.number > 2 * _LEAST_RUN else _BACK_OFF, 0
        while self.number < last:
            if same >= _EQUAL_BEFORE_RUN:
                window = min(max(4 * window, _FIRST_WINDOW), last - self.number)
                done = self._take_run(window)
                window = window if done == window else 0
                same = _EQUAL_BEFORE_RUN if window else 0 if done >= _LEAST_RUN else _BACK_OFF
            else:
                same = self._take_singly(last, same)
        if self.number == self._count and self._at != len(self._data):
            raise CorruptBatch(f"{len(self._data) - self._at} bytes after the last of {self._count} records")

    def _take_singly(self, last: int, same: int) -> int:
        """Inspect one record after the other until there are ``last``, or so many of one size that a run may begin.
        Returns how many of one size there were."""
        while self.number < last and same < _EQUAL_BEFORE_RUN:
            try:
                same = self._take_usual(last, same)
            except (IndexError, CorruptBatch):
                same = 0  # a record that is cut, or an integer of more bytes than were looked for
            if self.number < last and same < _EQUAL_BEFORE_RUN:
                self._take_any()
                same = 0
        return same

    def _take_usual(self, last: int, same: int) -> int:
        """Inspect records whose integers have one or two bytes, as far as they do. Every line costs all records."""
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
                    if timestamp >= _TWO_BYTES:
                        timestamp, at = _read_timestamp(data, at - 2)
                offset = data[at]
                at += 1
                if offset > 127:
                    offset = offset & 127 | data[at] << 7
                    at += 1
                    if offset >= _TWO_BYTES:
                        offset = offset & _TWO_BYTES - 1 | data[at] << 14
                        at += 1
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
                    at = _after_headers(data, at, headers)
                if at != end or offset != number + number or length & 1 or length | key | value >= _TWO_BYTES:
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
        """Inspect one record, whatever it looks like."""
        shape = _read_shape(self._data, self._at)
        self.misnumbered |= shape.offset_delta != self.number
        self._note_timestamp(shape.timestamp)
        self.keyless |= shape.keyless
        self._at = shape.end
        self.number += 1

    def _note_timestamp(self, timestamp: int) -> None:
        if timestamp & 1:
            self._earliest = max(self._earliest, timestamp)
        else:
            self._latest = max(self._latest, timestamp)

    def _take_run(self, window: int) -> int:
        """Inspect up to ``window`` records of the shape of the next one; how many those were."""
        data, start, number = self._data, self._at, self.number
        shape = _read_shape(data, start)
        size = shape.end - start
        width = 1 if number < _ONE_BYTE_DELTAS else 2 if number < _SEGMENT else 3
        if shape.timestamp_bytes > 2 or shape.offset_bytes != width:
            return 0
        bound = _ONE_BYTE_DELTAS if width == 1 else number - number % _SEGMENT + _SEGMENT
        count = min(window, bound - number, (len(data) - start) // size)
        for at in shape.lengths:
            column = data[start + at : start + at + (count - 1) * size + 1 : size]
            if column.count(column[:1]) != count:
                count -= len(column.lstrip(column[:1]))
        at = start + shape.timestamp_at
        columns = [data[at + byte : at + byte + (count - 1) * size + 1 : size] for byte in range(shape.timestamp_bytes)]
        count = _same_width(columns)
        at = start + shape.offset_at
        deltas = [data[at + byte : at + byte + (count - 1) * size + 1 : size] for byte in range(width)]
        if not _count_from(number, deltas):
            return 0
        self._note_columns([column[:count] for column in columns])
        self.keyless |= shape.keyless
        self.number += count
        self._at += count * size
        return count

    def _note_columns(self, columns: list[bytes]) -> None:
        """Take the largest timestamp delta of each sign from columns of their bytes, the lowest first."""
        for parity, others in ((_EVEN, _ODD), (_ODD, _EVEN)):
            if len(columns) == 1:
                values = columns[0].translate(None, others)
                if values:
                    self._note_timestamp(max(values))
            elif columns[0].translate(None, others):
                pairs = set(zip(*columns, strict=True))
                self._note_timestamp(max(high << 7 | low & 0x7F for low, high in pairs if low in parity))


def _same_width(columns: list[bytes]) -> int:
    """The number of integers, from the first on, that have as many bytes as there are columns."""
    count = len(columns[0])
    for column in columns[:-1]:
        count = min(count, len(column) - len(column.lstrip(_CONTINUES)))
    if not columns[-1].isascii():
        count = min(count, len(columns[-1]) - len(columns[-1].lstrip(_ENDS)))
    return count


def _count_from(number: int, columns: list[bytes]) -> bool:
    """True if the offset deltas in columns of their bytes are ``number`` and those that follow it."""
    count = len(columns[0])
    if len(columns) == 1:
        return columns[0] == _ONLY_BYTES[number : number + count]
    within = number % _SEGMENT
    if columns[0] != _FIRST_BYTES[within : within + count]:
        return False
    if len(columns) == 2:
        return columns[1] == _SECOND_BYTES[within : within + count]
    third = number // _SEGMENT
    return columns[1] == _SECOND_OF_THREE[within : within + count] and columns[2] == bytes((third,)) * count


def _after_headers(data: bytes, at: int, count: int) -> int:
    """The position after the headers of a record; any other where their integers have more bytes than usual."""
    if count & 1 or count > 127:
        return -1
    for _ in range(count >> 1):
        name = data[at]
        if name & 1 or name > 127:
            return -1
        at += 1 + (name >> 1)
        value = data[at]
        at += 1
        if value > 127:
            value = value & 127 | data[at] << 7
            at += 1
            if value >= _TWO_BYTES:
                return -1
        if not value & 1:
            at += value >> 1
    return at


def renumbered(data: bytes) -> Iterator[bytes]:
    """The records that passed an inspection, with offset deltas that count from 0."""
    at = number = 0
    while at < len(data):
        shape = _read_shape(data, at)
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


class _Shape(NamedTuple):
    """Facts of one record; positions are counted from its first byte."""

    end: int
    """The position after the record, from the beginning of the data."""
    timestamp: int
    """Zigzag, as encoded."""
    timestamp_at: int
    timestamp_bytes: int
    offset_delta: int
    offset_at: int
    offset_bytes: int
    keyless: bool
    lengths: list[int]
    """Positions of the bytes that say how long something is."""


def _read_shape(data: bytes, start: int) -> _Shape:
    """Read one record to its end, but for the bytes of its keys, values and headers. Raises CorruptBatch."""
    length, at = read_varint(data, start)
    end = at + length
    if length < 0 or end > len(data):
        raise CorruptBatch(f"record of {length} bytes at {at}, {len(data) - at} left")
    lengths = list(range(at - start))
    timestamp_at = at + 1
    timestamp, offset_at = _read_timestamp(data, timestamp_at)
    offset_delta, key_at = read_varint(data, offset_at)
    key, at = _skip(data, key_at, end, lengths, start)
    _, at = _skip(data, at, end, lengths, start)
    count, after = read_varint(data, at)
    lengths += range(at - start, after - start)
    at = after
    if count < 0 or 2 * count > end - at:
        raise CorruptBatch(f"{count} record headers declared, {end - at} bytes left")
    for _ in range(count):
        name, at = _skip(data, at, end, lengths, start)
        if name < 0:
            raise CorruptBatch("record header without a name")
        _, at = _skip(data, at, end, lengths, start)
    if at != end:
        raise CorruptBatch(f"record ends at {at}, its length says {end}")
    return _Shape(
        end,
        timestamp,
        timestamp_at - start,
        offset_at - timestamp_at,
        offset_delta,
        offset_at - start,
        key_at - offset_at,
        key < 0,
        lengths,
    )


def _read_timestamp(data: bytes, at: int) -> tuple[int, int]:
    """A timestamp delta, zigzag as it is encoded, and the position after it."""
    delta, after = read_varlong(data, at)
    return (delta << 1 if delta >= 0 else (-delta << 1) - 1), after


def _skip(data: bytes, at: int, end: int, lengths: list[int], start: int) -> tuple[int, int]:
    """The length of a field, negative for none, and the position after it."""
    size, after = read_varint(data, at)
    lengths += range(at - start, after - start)
    following = after + size if size > 0 else after
    if following > end:
        raise CorruptBatch(f"field of {size} bytes at {after}, record ends at {end}")
    return size, following
