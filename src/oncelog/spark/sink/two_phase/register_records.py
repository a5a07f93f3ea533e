"""The register as records: one with the query id as its key, and where a decision is long, its list in parts before it.

All records of one register are written in one transaction, to one partition, the head last: whoever has read the head
has read its parts. A part's key is the query id, a NUL and the part's number; parts that the next register does not
have are deleted with it. JSON, so that an operator can read them with any consumer.

Rules: no record is larger than a batch of the smallest usual ``max.message.bytes`` (``PART_BYTES`` and a bit), and a
decision has a bound, checked before anything is written: most of the rows' places, which only make errors more
telling, are left out first; ``MOST_PARTS`` is the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from oncelog.base.units import KIB
from oncelog.client.machine.transaction_values import StoredTransaction
from oncelog.spark.session.errors import SinkError
from oncelog.spark.sink.two_phase.register import UNKNOWN, Listed, Register, State, Written

VERSION: Final = 2
"""Version of a head with parts; a head without parts has version 1 and the whole list."""
PART_BYTES: Final = 256 * KIB
MOST_PLACES_BYTES: Final = PART_BYTES // 2
"""A list that is longer is written with few of the rows' places: every task reads it."""
MOST_PARTS: Final = 128
"""32 MiB: about 250,000 transactions in one epoch."""


class RegisterRecord(NamedTuple):
    """A record of the register; a value of None deletes a part of an earlier one."""

    key: bytes
    value: bytes | None


def to_records(query: str, register: Register, parts_before: int = 0) -> list[RegisterRecord]:
    """The records of a register in the order to write them; ``parts_before``: number of parts of the register before
    it.

    Raises SinkError when the list is too long to be written.
    """
    key = query.encode()
    register = replace(register, listed=_bounded(register.listed))
    lists = [] if sum(map(_size, register.listed)) <= PART_BYTES else [*_lists(register)]
    records = [
        RegisterRecord(part_key(key, number), _dump({**_head(register, VERSION), "part": number, "listed": entries}))
        for number, entries in enumerate(lists)
    ]
    records += [RegisterRecord(part_key(key, number), None) for number in range(len(lists), parts_before)]
    if lists:
        value = _dump({**_head(register, VERSION), "superseded": register.superseded, "parts": len(lists)})
    else:
        value = encode(register)
    return [*records, RegisterRecord(key, value)]


def part_key(key: bytes, number: int) -> bytes:
    """The key of a part of the register with ``key``; no query id contains a NUL."""
    return b"%b\x00%d" % (key, number)


class RegisterReader:
    """Assembles a query's register from records in the log's order; records of other queries are passed over."""

    def __init__(self, query: str) -> None:
        self._key = query.encode()
        self._prefix = self._key + b"\x00"
        self._head: bytes | None = None
        self._values: dict[bytes, bytes] = {}
        self._known: Register | None = None
        self._is_read = True

    @property
    def parts(self) -> int:
        """Number of parts read so far, with those of an earlier register that are not deleted."""
        return len(self._values)

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Take one record, in the log's order."""
        if key is None:
            return
        if key == self._key:
            self._head, self._is_read = value, False
        elif key.startswith(self._prefix):
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value

    def register(self) -> Register | None:
        """The register by the records so far. Raises SinkError for a record that is no register, or of a later
        version."""
        if not self._is_read:
            self._known = None if self._head is None else self._read(self._head)
            self._is_read = True
        return self._known

    def _read(self, value: bytes) -> Register:
        head = _load(value)
        count = head.get("parts", 0)
        if not count:
            return _register(head, head["listed"])
        listed: list[dict[str, Any]] = []
        for number in range(count):
            part = _load(self._values.get(part_key(self._key, number), b"null"))
            if (part["epoch"], part["run"], part["part"]) != (head["epoch"], head["run"], number):
                raise SinkError(
                    f"part {number} of the decision about epoch {head['epoch']} belongs to another decision"
                )
            listed += part["listed"]
        return _register(head, listed)


def encode(register: Register) -> bytes:
    """A register in one piece."""
    listed = [_entry(one) for one in register.listed]
    return _dump({**_head(register, 1), "superseded": register.superseded, "listed": listed})


def decode(value: bytes) -> Register:
    """The reverse of ``encode``. Raises SinkError."""
    found = _load(value)
    return _register(found, found["listed"])


def _head(register: Register, version: int) -> dict[str, Any]:
    return {
        "version": version,
        "epoch": register.epoch,
        "run": register.run,
        "state": register.state.value,
        "rows": register.rows,
    }


def _bounded(listed: tuple[Listed, ...]) -> tuple[Listed, ...]:
    """``listed``, in a long list with one place of each transaction and the first of all in each partition only: enough
    to see that a transaction was aborted, or removed by retention."""
    if sum(map(_size, listed)) <= MOST_PLACES_BYTES:
        return listed
    first: dict[tuple[str, int], int] = {}
    for place in (place for one in listed for place in one.written if place.first_offset >= 0):
        first[place[:2]] = min(first.get(place[:2], place.first_offset), place.first_offset)
    return tuple(
        one._replace(
            written=(*one.written[:1], *(at for at in one.written[1:] if first.get(at[:2]) == at.first_offset))
        )
        for one in listed
    )


def _lists(register: Register) -> Iterator[list[Any]]:
    """The list's entries, as many together as a part holds. Raises SinkError."""
    listed = register.listed
    sizes = [*map(_size, listed)]
    if sum(sizes) > (MOST_PARTS - 1) * PART_BYTES:
        raise SinkError(
            f"epoch {register.epoch} has {len(listed)} transactions, more than one decision holds: nothing was "
            "decided. Write with fewer tasks (coalesce)"
        )
    part: list[Any] = []
    filled = 0
    for one, size in zip(listed, sizes, strict=True):
        if part and filled + size > PART_BYTES:
            yield part
            part, filled = [], 0
        part.append(_entry(one))
        filled += size
    yield part


def _entry(one: Listed) -> dict[str, Any]:
    return {"transaction": str(one.stored), "rows": one.rows, "written": one.written}


def _size(one: Listed) -> int:
    return len(_dump(_entry(one))) + 1


def _dump(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _load(value: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(value)
        if found["version"] > VERSION:
            raise SinkError(
                f"the register has version {found['version']}, this oncelog knows {VERSION}: update oncelog"
            )
        _ = found["epoch"], found["run"], found["state"], found.get("part"), found.get("listed")
    except (ValueError, TypeError, KeyError) as error:
        raise _unreadable(value, error) from None
    return found


def _register(found: dict[str, Any], listed: list[dict[str, Any]]) -> Register:
    try:
        return Register(
            int(found["epoch"]),
            str(found["run"]),
            State(found["state"]),
            tuple(_listed(one) for one in listed),
            tuple(map(str, found["superseded"])),
            int(found.get("rows", UNKNOWN)),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise _unreadable(str(found).encode(), error) from None


def _listed(found: dict[str, Any]) -> Listed:
    written = tuple(Written(str(one[0]), *map(int, one[1:])) for one in found["written"])
    return Listed(StoredTransaction.parse(found["transaction"]), int(found["rows"]), written)


def _unreadable(value: bytes, error: Exception) -> SinkError:
    return SinkError(f"a record of the sink's topic cannot be read ({error}): {value[:80]!r}")
