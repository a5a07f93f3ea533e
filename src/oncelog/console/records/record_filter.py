"""Conditions on records, which all have to hold: the filter of a list, a search, a tail and a download."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple, Protocol

from oncelog.base.notation import json_text
from oncelog.base.units import KIB, MIB
from oncelog.records.record import Record
from oncelog.schemas.wire_format import VALUE, framed

# Conditions compare bytes, without regard to case unless asked to. A filter also knows bytes that lie in every record
# it matches (`Needle`): a batch without them is passed over as one block, without a step per record.

PLACES: Final = ("anywhere", "key", "value", "header")
EQUALS: Final = "="
DIFFERS: Final = "!="
CONTAINS: Final = "~"
_PIECE: Final = 256 * KIB
MAX_JSON_BYTES: Final = MIB  # A larger value is not parsed, and has no fields.
_ASCII: Final = re.compile(rb"[\x00-\x7f]+")
_NUMBER: Final = re.compile(r"-?[0-9.]+(?:[eE][+-]?[0-9]+)?")
_PLAIN_IN_JSON: Final = re.compile(rb'[^"\\/\x00-\x1f\x7f-\xff]+')
_STEP: Final = re.compile(r"""\['([^']*)'\]|\["([^"]*)"\]|\[(\d+)\]|\.?([^.\[\]]+)""")


class Needle(NamedTuple):
    """Bytes within every matching record. ``part`` is the number of varints between a record's offset delta and the
    length of the part that has them (0: key, 2: value); None for any part. ``in_json``: text that JSON may escape."""

    data: bytes = b""
    part: int | None = None
    ignores_case: bool = False
    in_json: bool = False

    def search_text(self, records: bytes) -> tuple[bytes, bytes] | None:
        """The records of a batch as they are searched, and the bytes to search for; None if no record can match."""
        if not self.data or (self.in_json and b"\\u" in records):
            return records, b""
        searched = records.lower() if self.ignores_case else records
        return (searched, self.data) if self.data in searched else None


class Condition(Protocol):
    @property
    def needle(self) -> Needle: ...

    def holds(self, record: Record) -> bool: ...


@dataclass(frozen=True, slots=True)
class TextIn:
    """Bytes in a key, a value, a header's name or its value, or anywhere."""

    content: bytes
    place: str = "anywhere"
    ignores_case: bool = False

    @property
    def needle(self) -> Needle:
        part = {"key": 0, "value": 2}.get(self.place)
        if not self.ignores_case:
            return Needle(self.content, part)
        # Other letters change their bytes with their case.
        pieces = _ASCII.findall(self.content)
        longest = max(pieces, key=len, default=b"").lower()
        return Needle(longest, part if longest else None, ignores_case=True)

    def holds(self, record: Record) -> bool:
        key, value = self.place in ("anywhere", "key"), self.place in ("anywhere", "value")
        return (
            (key and self._is_in(record.key))
            or (value and self._is_in(record.value))
            or (
                self.place in ("anywhere", "header")
                and any(self._is_in(name.encode()) or self._is_in(value_) for name, value_ in record.headers)
            )
        )

    def _is_in(self, data: bytes | None) -> bool:
        if data is None:
            return False
        if not self.ignores_case:
            return self.content in data
        if self.content.isascii():
            return self.content.lower() in data.lower()
        folded_text = _folded(self.content)
        # In pieces: text may take many times the memory of its bytes. A letter has at most four of them.
        overlap = 4 * len(folded_text) + 8
        return any(folded_text in _folded(data[at : at + _PIECE + overlap]) for at in range(0, len(data), _PIECE))


@dataclass(frozen=True, slots=True)
class Comparison:
    """A value compared with text: equal to it, different, or containing it. Numbers are equal by their value."""

    operator: str = EQUALS
    text: str = ""
    ignores_case: bool = False

    def holds(self, value: str) -> bool:
        mine, other = (text.casefold() if self.ignores_case else text for text in (self.text, value))
        if self.operator == CONTAINS:
            return mine in other
        return (mine == other) is (self.operator == EQUALS)

    def holds_of_json(self, value: Any) -> bool:
        if isinstance(value, json_text.Number) and self.operator != CONTAINS:
            mine, other = _decimal(self.text), _decimal(value)
            if mine is not None and other is not None:
                return (mine == other) is (self.operator == EQUALS)
        if isinstance(value, (dict, list)):
            return False
        return self.holds(value if isinstance(value, str) else {None: "null", True: "true", False: "false"}[value])

    @property
    def needle(self) -> bytes:
        """Bytes of the text that a matching value has, in lower case; empty if it may be written differently."""
        if self.operator == DIFFERS or self.text in ("null", "true", "false") or _NUMBER.fullmatch(self.text):
            return b""
        return _unescaped(self.text).lower()


@dataclass(frozen=True, slots=True)
class HeaderIs:
    """A header with this name, and with a value if ``comparison`` is given."""

    name: str
    comparison: Comparison | None
    ignores_case: bool = False

    @property
    def needle(self) -> Needle:
        return TextIn(self.name.encode(errors="surrogateescape"), ignores_case=True).needle

    def holds(self, record: Record) -> bool:
        return any(self._is_name(name) and self._has_value(value) for name, value in record.headers)

    def _is_name(self, name: str) -> bool:
        return name.casefold() == self.name.casefold() if self.ignores_case else name == self.name

    def _has_value(self, value: bytes | None) -> bool:
        if self.comparison is None:
            return True
        return self.comparison.holds("null" if value is None else value.decode(errors="surrogateescape"))


@dataclass(frozen=True, slots=True)
class FieldIs:
    """A field of a JSON value, by its path. A list on the way, without an index, means any of its elements."""

    path: tuple[str, ...]
    comparison: Comparison | None

    @property
    def needle(self) -> Needle:
        text = b"" if self.comparison is None else self.comparison.needle
        if text:
            return Needle(text, ignores_case=True, in_json=True)
        # A number may be an index, which no record has as text.
        names = (_unescaped(step) for step in self.path if not step.isdecimal())
        return Needle(max(names, key=len, default=b""), in_json=True)

    def holds(self, record: Record) -> bool:
        value = record.value
        if value is None or len(value) > MAX_JSON_BYTES:
            return False
        payload = framed(value, VALUE, record.headers).payload
        if payload.lstrip()[:1] not in (b"{", b"["):
            return False
        try:
            items = _at(json_text.check(payload.decode()), self.path)
            return any(self.comparison is None or self.comparison.holds_of_json(item) for item in items)
        except (ValueError, RecursionError):
            return False


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """``states`` are the outcomes that match; empty for all."""

    conditions: tuple[Condition, ...] = ()
    states: frozenset[str] = frozenset()
    needle: Needle = field(init=False, default=Needle())

    def __post_init__(self) -> None:
        needles = [condition.needle for condition in self.conditions]
        object.__setattr__(self, "needle", max(needles, key=lambda needle: len(needle.data), default=Needle()))

    def __bool__(self) -> bool:
        return bool(self.conditions or self.states)

    def matches(self, record: Record) -> bool:
        return all(condition.holds(record) for condition in self.conditions)

    def allows(self, state: str) -> bool:
        return not self.states or state in self.states


def path_of(text: str) -> tuple[str, ...]:
    """The steps of ``$.a.b[0]['c d']``, with or without ``$.``; empty if it is not a path."""
    rest, steps = text.strip().removeprefix("$"), []
    while rest:
        match = _STEP.match(rest)
        if match is None:
            return ()
        steps.append(next(group for group in match.groups() if group is not None))
        rest = rest[match.end() :]
    return tuple(steps)


def _at(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    if not path:
        yield value
    elif isinstance(value, dict):
        if path[0] in value:
            yield from _at(value[path[0]], path[1:])
    elif isinstance(value, list):
        if path[0].isdecimal():
            yield from (item for element in value[int(path[0]) :][:1] for item in _at(element, path[1:]))
        else:
            yield from (item for element in value for item in _at(element, path))


def _unescaped(text: str) -> bytes:
    # The longest part that JSON has as it is, unless it spells letters by their codes.
    return max(_PLAIN_IN_JSON.findall(text.encode(errors="surrogateescape")), key=len, default=b"")


def _folded(data: bytes) -> str:
    return data.decode(errors="surrogateescape").casefold()


def _decimal(text: str) -> Decimal | None:
    if not _NUMBER.fullmatch(text):
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        return None
