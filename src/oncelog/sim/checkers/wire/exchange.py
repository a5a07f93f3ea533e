"""One request and its answer as the rules see them, the incarnations of topics, and values that may only rise.

The rule of time: what one client is told binds only what is asked after it was sent. A response is decided between the
reception of its request and its sending, so two that overlap may be sent in either order; :class:`Rising` compares an
answer only with those that were sent before its request came.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from oncelog.base.ids import NO_TOPIC_ID, TopicId, TopicName

Report = Callable[[str, str], None]
"""(rule, instance)."""
PartitionKey = tuple[bytes | str, int]
"""(name of a topic's first incarnation, id of a later one; index)."""


ALONE: Final = 1
"""Id of the broker where there is only one."""


class Exchange(NamedTuple):
    """A request that came. ``came`` counts what crossed the wire before it, requests and responses alike."""

    came: int
    version: int
    request: Any
    """The class alone where no rule looks at the message."""
    at_ms: int
    broker_id: int = ALONE


def name_of(request: object) -> str:
    """The name of a request's class; the class alone will do."""
    return request.__name__ if isinstance(request, type) else type(request).__name__


class Topics:
    """Topics as messages mean them, by incarnation. A name alone means none once its topic was deleted.

    The first incarnation goes by its name, so that what was said before its id was known is said of it, too.
    """

    def __init__(self) -> None:
        self._first_id: dict[str, bytes] = {}
        self._name_of: dict[bytes, str] = {}
        self._ambiguous: set[str] = set()
        self._deleted: set[bytes] = set()

    def learn(self, name: str | None, topic_id: bytes) -> None:
        """A response says that ``name`` is ``topic_id``."""
        if not name or topic_id == NO_TOPIC_ID:
            return
        self._name_of[topic_id] = name
        if topic_id in self._deleted:
            self._ambiguous.add(name)
        if name not in self._ambiguous and self._first_id.setdefault(name, topic_id) != topic_id:
            self._ambiguous.add(name)

    def deleting(self, name: str | None, topic_id: bytes) -> None:
        """Somebody asks for the topic to be deleted: from now on its name may mean another."""
        self._deleted.add(topic_id)
        name = name or self._name_of.get(topic_id)
        if name:
            self._ambiguous.add(name)

    def key(self, name: str | None, topic_id: bytes, partition: int) -> PartitionKey | None:
        """The partition of that incarnation; None when a name does not tell which."""
        if topic_id != NO_TOPIC_ID:
            known = self._name_of.get(topic_id)
            return (known if known and self._first_id.get(known) == topic_id else topic_id), partition
        return None if not name or name in self._ambiguous else (name, partition)

    def place(self, key: PartitionKey, name: str | None) -> tuple[TopicName, TopicId]:
        """Name and id (zero where it was never said) of a partition's topic."""
        if isinstance(key[0], str):
            return TopicName(key[0]), TopicId(self._first_id.get(key[0], NO_TOPIC_ID))
        return TopicName(self._name_of.get(key[0], name or "")), TopicId(key[0])

    def show(self, key: PartitionKey) -> str:
        topic = key[0] if isinstance(key[0], str) else self._name_of.get(key[0], key[0].hex())
        return f"{topic}-{key[1]}"


class Rising:
    """A value that is told to many and may not fall: the maxima, and when each was first sent."""

    __slots__ = ("_sent", "_values")

    def __init__(self) -> None:
        self._sent: list[int] = []
        self._values: list[int] = []

    def before(self, index: int) -> int | None:
        """The highest value sent before the wire's event ``index``."""
        position = bisect_left(self._sent, index)
        return self._values[position - 1] if position else None

    def sent(self, index: int, value: int) -> None:
        """The value was sent as the wire's event ``index``."""
        if not self._values or value > self._values[-1]:
            self._sent.append(index)
            self._values.append(value)
