"""Field by field: two decoded answers to the same request, Apache Kafka's and ours."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from oncelog.records.batch import iter_headers
from oncelog.records.errors import CorruptBatch
from tests.conformance.golden.fields import IDENTITY, LEARNED, MAY_DIFFER
from tests.wire_structs import is_struct

NO_UUID: Final = bytes(16)
LEADER_EPOCH: Final = slice(12, 16)
CHECKSUM: Final = slice(17, 21)
MARKER_TIME: Final = (CHECKSUM, slice(27, 43))
"""The checksum and the time of the broker's clock."""
PRODUCER_ID: Final = struct.Struct(">q")
PRODUCER_ID_POSITION: Final = 43
_SAME_AS: Final = {"leader": "member_id", "v3_and_below_producer_id": "producer_id"}
"""Fields with ids that others have under another name."""


class Translation:
    """Our ids for the recorded ones, by the name of the field."""

    def __init__(self) -> None:
        self._ours: dict[tuple[str, Any], Any] = {}

    @staticmethod
    def _kind(field: str) -> str:
        return _SAME_AS.get(field, field)

    @staticmethod
    def _is_nothing(value: Any) -> bool:
        return value in (None, "", NO_UUID, 0, -1)

    def learn(self, field: str, recorded: Any, ours: Any) -> bool:
        """Remember a pair; False when the recorded id already stands for another."""
        if self._is_nothing(recorded) or self._is_nothing(ours):
            return bool(recorded == ours)
        return bool(self._ours.setdefault((self._kind(field), recorded), ours) == ours)

    def ours(self, field: str, recorded: Any) -> Any:
        """Our id for a recorded one; the recorded one itself when it was never answered."""
        return self._ours.get((self._kind(field), recorded), recorded)

    def rewrite(self, message: Any) -> None:
        """Put our ids into a request, in place."""
        for name in message.__slots__:
            value = getattr(message, name)
            if name in LEARNED:
                setattr(message, name, self.ours(name, value))
            elif isinstance(value, list):
                for element in value:
                    if is_struct(element):
                        self.rewrite(element)
            elif is_struct(value):
                self.rewrite(value)


def differences(api: str, recorded: Any, ours: Any, translation: Translation, path: str = "") -> Iterator[str]:
    """One line for every field that differs and may not."""
    for name in recorded.__slots__:
        here = f"{path}.{name}".lstrip(".")
        theirs, mine = getattr(recorded, name), getattr(ours, name)
        if name in LEARNED:
            if not translation.learn(name, theirs, mine):
                yield f"{here}: {mine!r}, Apache Kafka {theirs!r} (known as {translation.ours(name, theirs)!r})"
        elif name == "records":
            yield from _record_differences(here, theirs, mine, translation)
        elif _may_differ(api, name, here):
            if _is_absent(theirs) != _is_absent(mine):
                yield f"{here}: {mine!r}, Apache Kafka {theirs!r}"
        elif isinstance(theirs, list) and isinstance(mine, list):
            yield from _list_differences(api, theirs, mine, translation, here)
        elif is_struct(theirs) and is_struct(mine):
            yield from differences(api, theirs, mine, translation, here)
        elif theirs != mine:
            yield f"{here}: {mine!r}, Apache Kafka {theirs!r}"


def _may_differ(api: str, name: str, path: str) -> bool:
    return any((scope, which) in MAY_DIFFER for scope in ("*", api) for which in (name, path))


def _is_absent(value: Any) -> bool:
    return value in (None, "", -1)


def _list_differences(
    api: str, theirs: list[Any], mine: list[Any], translation: Translation, path: str
) -> Iterator[str]:
    if not theirs or not mine or not is_struct(theirs[0]):
        if theirs != mine:
            yield f"{path}: {mine!r}, Apache Kafka {theirs!r}"
        return
    if len(theirs) != len(mine):
        yield f"{path}: {len(mine)} elements, Apache Kafka {len(theirs)}"
    left = dict(_keyed(mine, None))
    unmatched = []
    for key, element in _keyed(theirs, translation):
        if key in left:
            yield from differences(api, element, left.pop(key), translation, f"{path}[{_shown(key)}]")
        else:
            unmatched.append((key, element))
    if len(unmatched) == len(left):  # ids that are seen here for the first time
        for (key, element), ours in zip(unmatched, left.values(), strict=True):
            yield from differences(api, element, ours, translation, f"{path}[{_shown(key)}]")
        return
    yield from (f"{path}[{_shown(key)}]: missing" for key, _ in unmatched)
    yield from (f"{path}[{_shown(key)}]: not in Apache Kafka's answer" for key in left)


def _keyed(elements: list[Any], translation: Translation | None) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Each element under its identity and how many of that identity came before it."""
    seen: Counter[tuple[Any, ...]] = Counter()
    for element in elements:
        identity = _identity(element, translation)
        yield (*identity, seen[identity]), element
        seen[identity] += 1


def _identity(element: Any, translation: Translation | None) -> tuple[Any, ...]:
    present = {name: getattr(element, name) for name in IDENTITY if hasattr(element, name)}
    named = any(name not in LEARNED and value for name, value in present.items())
    return tuple(
        translation.ours(name, value) if translation and name in LEARNED else _hashable(value)
        for name, value in present.items()
        if not (named and name in LEARNED)
    )


def _hashable(value: Any) -> Any:
    """An identity that is made of parts (the entity of a quota) as text."""
    return str(value) if isinstance(value, list) else value


def _shown(key: tuple[Any, ...]) -> str:
    return ",".join(
        value.hex()[:8] if isinstance(value, bytes) else str(value) for value in key[:-1] if value != NO_UUID
    )


def comparable_batches(records: Any, translation: Translation | None = None) -> list[bytes]:
    """The whole batches, without what the leader writes into them and without the time of its markers; the producer
    ids in recorded ones are translated to ours."""
    buffer = bytes(records or b"")
    results = []
    try:
        for position, header in iter_headers(buffer):
            batch = bytearray(buffer[position : position + header.size_bytes])
            batch[LEADER_EPOCH] = bytes(4)
            if header.is_control:
                for part in MARKER_TIME:
                    batch[part] = bytes(part.stop - part.start)
            if header.producer_id >= 0:
                batch[CHECKSUM] = bytes(4)
                if translation is not None:
                    ours = translation.ours("producer_id", header.producer_id)
                    PRODUCER_ID.pack_into(batch, PRODUCER_ID_POSITION, ours)
            results.append(bytes(batch))
    except CorruptBatch:
        pass  # the end of a batch that did not fit
    return results


def _record_differences(path: str, theirs: Any, mine: Any, translation: Translation) -> Iterator[str]:
    if (theirs is None) != (mine is None):
        yield f"{path}: {mine!r}, Apache Kafka {theirs!r}"
        return
    recorded, ours = comparable_batches(theirs, translation), comparable_batches(mine)
    if recorded != ours:
        sizes = [len(batch) for batch in recorded], [len(batch) for batch in ours]
        yield f"{path}: {len(ours)} batches of {sizes[1]} bytes, Apache Kafka {len(recorded)} of {sizes[0]}"
