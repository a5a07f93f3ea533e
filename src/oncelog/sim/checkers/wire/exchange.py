"""A request and its response as the rules see them, the incarnations of topics, and values that may only rise.

A response is computed at any time between its request's arrival and its own sending, so overlapping exchanges may be
answered in either order. :class:`Rising` therefore compares a response only with those sent before its request arrived.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple

from oncelog.base.ids import NO_TOPIC_ID, TopicId, TopicName

# (rule, instance).
Report = Callable[[str, str], None]
# (name of the topic's first incarnation, or id of a later one; partition index).
PartitionKey = tuple[bytes | str, int]


# The broker id in a cluster of one.
ALONE: Final = 1


class Exchange(NamedTuple):
    """A request that arrived. ``received_index``: the number of earlier requests and responses on the wire."""

    received_index: int
    version: int
    # The message, or just its class if no rule reads it.
    request: Any
    at_ms: int
    broker_id: int = ALONE
    connection: Hashable = ""


def name_of(request: object) -> str:
    """The name of a request's class. ``request`` may be the class itself."""
    return request.__name__ if isinstance(request, type) else type(request).__name__


class Topics:
    def __init__(self) -> None:
        # The first incarnation goes by its name, so that messages from before its id was known count for it, too.
        self._first_id: dict[str, bytes] = {}
        self._name_of: dict[bytes, str] = {}
        self._ambiguous: set[str] = set()
        self._deleted: set[bytes] = set()

    def add_name(self, name: str | None, topic_id: bytes) -> None:
        if not name or topic_id == NO_TOPIC_ID:
            return
        self._name_of[topic_id] = name
        if topic_id in self._deleted:
            self._ambiguous.add(name)
        if name not in self._ambiguous and self._first_id.setdefault(name, topic_id) != topic_id:
            self._ambiguous.add(name)

    def deletion_requested(self, name: str | None, topic_id: bytes) -> None:
        """A client requests the topic's deletion: its name may mean a successor from now on."""
        self._deleted.add(topic_id)
        name = name or self._name_of.get(topic_id)
        if name:
            self._ambiguous.add(name)

    def key(self, name: str | None, topic_id: bytes, partition: int) -> PartitionKey | None:
        """The partition of that incarnation, or None for an ambiguous name."""
        if topic_id != NO_TOPIC_ID:
            first_name = self._name_of.get(topic_id)
            return (first_name if first_name and self._first_id.get(first_name) == topic_id else topic_id), partition
        return None if not name or name in self._ambiguous else (name, partition)

    def place(self, key: PartitionKey, name: str | None) -> tuple[TopicName, TopicId]:
        """Name and id of a partition's topic. The id is zero if it is unknown."""
        if isinstance(key[0], str):
            return TopicName(key[0]), TopicId(self._first_id.get(key[0], NO_TOPIC_ID))
        return TopicName(self._name_of.get(key[0], name or "")), TopicId(key[0])

    def describe(self, key: PartitionKey) -> str:
        topic = key[0] if isinstance(key[0], str) else self._name_of.get(key[0], key[0].hex())
        return f"{topic}-{key[1]}"


class Rising:
    """A value shown to many clients that may never fall: its successive maxima, and when each was first sent."""

    __slots__ = ("_sent", "_values")

    def __init__(self) -> None:
        self._sent: list[int] = []
        self._values: list[int] = []

    def before(self, index: int) -> int | None:
        """The highest value sent before the wire event ``index``."""
        position = bisect_left(self._sent, index)
        return self._values[position - 1] if position else None

    def sent(self, index: int, value: int) -> None:
        if not self._values or value > self._values[-1]:
            self._sent.append(index)
            self._values.append(value)
