"""Stores the register as records: one with the query id as key, and before it, parts of a long list (ADR 0006).

All records of a register are written in one transaction to one partition, the head last, so a reader of the head has
read its parts. Parts that the next register lacks are deleted with it. A record is never larger than a batch of the
smallest common ``max.message.bytes`` (``PART_BYTES`` plus overhead).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from oncelog.base.units import KIB
from oncelog.client.machine.transaction_values import StoredTransaction
from oncelog.spark.session.errors import SinkError
from oncelog.spark.sink.two_phase.register import UNKNOWN, Listed, Register, RegisterState, Written

# Version of a head with parts. A head without parts has version 1 and the whole list.
VERSION: Final = 2
PART_BYTES: Final = 256 * KIB
# A longer list is written with few places of rows, because every task reads it.
MAX_PLACES_BYTES: Final = PART_BYTES // 2
# 32 MiB hold about 250,000 transactions in one epoch.
MAX_PARTS: Final = 128


class RegisterRecord(NamedTuple):
    """A record of the register. A value of None deletes a part of an earlier register."""

    key: bytes
    value: bytes | None


def to_records(query: str, register: Register, parts_before: int = 0) -> list[RegisterRecord]:
    """The records of a register in writing order, after one of ``parts_before`` parts. Raises SinkError if the list is
    too long."""
    key = query.encode()
    # Places of rows only improve error messages, so most of them are dropped first.
    register = replace(register, listed=_limit_places(register.listed))
    lists = [] if sum(map(_size, register.listed)) <= PART_BYTES else [*_parts(register)]
    records = [
        RegisterRecord(part_key(key, number), _dump({**_head(register, VERSION), "part": number, "listed": entries}))
        for number, entries in enumerate(lists)
    ]
    # Parts that the new register lacks must not be taken for its own.
    records += [RegisterRecord(part_key(key, number), None) for number in range(len(lists), parts_before)]
    if lists:
        value = _dump({**_head(register, VERSION), "superseded": register.superseded, "parts": len(lists)})
    else:
        value = encode(register)
    # The head comes last: a reader that has it has all parts.
    return [*records, RegisterRecord(key, value)]


def part_key(key: bytes, number: int) -> bytes:
    """The query id, a NUL, which no query id contains, and the part's number."""
    return b"%b\x00%d" % (key, number)


class RegisterReader:
    """Assembles a query's register from records in log order; records of other queries are skipped."""

    def __init__(self, query: str) -> None:
        self._key = query.encode()
        self._prefix = self._key + b"\x00"
        self._head: bytes | None = None
        self._values: dict[bytes, bytes] = {}
        self._register: Register | None = None
        self._is_read = True

    @property
    def parts(self) -> int:
        """Number of parts read so far, including undeleted ones of an earlier register."""
        return len(self._values)

    def add(self, key: bytes | None, value: bytes | None) -> None:
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
        """The register from the records so far. Raises SinkError for an invalid record, or one of a later version."""
        if not self._is_read:
            self._register = None if self._head is None else self._read(self._head)
            self._is_read = True
        return self._register

    def _read(self, value: bytes) -> Register:
        head = _load(value)
        count = head.get("parts", 0)
        if not count:
            return _parse_register(head, head["listed"])
        listed: list[dict[str, Any]] = []
        for number in range(count):
            part = _load(self._values.get(part_key(self._key, number), b"null"))
            if (part["epoch"], part["run"], part["part"]) != (head["epoch"], head["run"], number):
                raise SinkError(
                    f"part {number} of the decision about epoch {head['epoch']} belongs to another decision"
                )
            listed += part["listed"]
        return _parse_register(head, listed)


def encode(register: Register) -> bytes:
    listed = [_entry(transaction) for transaction in register.listed]
    return _dump({**_head(register, 1), "superseded": register.superseded, "listed": listed})


def decode(value: bytes) -> Register:
    """Reverse ``encode``. Raises SinkError."""
    fields = _load(value)
    return _parse_register(fields, fields["listed"])


def _head(register: Register, version: int) -> dict[str, Any]:
    return {
        "version": version,
        "epoch": register.epoch,
        "run": register.run,
        "state": register.state.value,
        "rows": register.rows,
    }


def _limit_places(listed: tuple[Listed, ...]) -> tuple[Listed, ...]:
    """Reduce a long list's places to one per transaction and the first per partition: enough to detect abort or
    retention."""
    if sum(map(_size, listed)) <= MAX_PLACES_BYTES:
        return listed
    first: dict[tuple[str, int], int] = {}
    for place in (place for transaction in listed for place in transaction.written if place.first_offset >= 0):
        first[place[:2]] = min(first.get(place[:2], place.first_offset), place.first_offset)
    return tuple(
        transaction._replace(
            written=(
                *transaction.written[:1],
                *(place for place in transaction.written[1:] if first.get(place[:2]) == place.first_offset),
            )
        )
        for transaction in listed
    )


def _parts(register: Register) -> Iterator[list[Any]]:
    listed = register.listed
    sizes = [*map(_size, listed)]
    if sum(sizes) > (MAX_PARTS - 1) * PART_BYTES:
        raise SinkError(
            f"epoch {register.epoch} has {len(listed)} transactions, more than one decision can hold: nothing was "
            "decided. Write with fewer tasks (coalesce)"
        )
    entries: list[Any] = []
    size_bytes = 0
    for transaction, size in zip(listed, sizes, strict=True):
        if entries and size_bytes + size > PART_BYTES:
            yield entries
            entries, size_bytes = [], 0
        entries.append(_entry(transaction))
        size_bytes += size
    yield entries


def _entry(transaction: Listed) -> dict[str, Any]:
    return {"transaction": str(transaction.stored), "rows": transaction.rows, "written": transaction.written}


def _size(transaction: Listed) -> int:
    return len(_dump(_entry(transaction))) + 1


def _dump(content: dict[str, Any]) -> bytes:
    # JSON, so that an operator can read the topic with any consumer.
    return json.dumps(content, separators=(",", ":")).encode()


def _load(value: bytes) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = json.loads(value)
        if fields["version"] > VERSION:
            raise SinkError(
                f"the register has version {fields['version']}, this oncelog supports {VERSION}: update oncelog"
            )
        _ = fields["epoch"], fields["run"], fields["state"], fields.get("part"), fields.get("listed")
    except (ValueError, TypeError, KeyError) as error:
        raise _unreadable(value, error) from None
    return fields


def _parse_register(fields: dict[str, Any], listed: list[dict[str, Any]]) -> Register:
    try:
        return Register(
            int(fields["epoch"]),
            str(fields["run"]),
            RegisterState(fields["state"]),
            tuple(_parse_listed(entry) for entry in listed),
            tuple(map(str, fields["superseded"])),
            int(fields.get("rows", UNKNOWN)),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise _unreadable(str(fields).encode(), error) from None


def _parse_listed(fields: dict[str, Any]) -> Listed:
    written = tuple(Written(str(place[0]), *map(int, place[1:])) for place in fields["written"])
    return Listed(StoredTransaction.parse(fields["transaction"]), int(fields["rows"]), written)


def _unreadable(value: bytes, error: Exception) -> SinkError:
    return SinkError(f"a record of the sink's topic cannot be read ({error}): {value[:80]!r}")
