"""The identity of topics being read: by their ids (KIP-516), a topic deleted and created anew is told from the first.

Rules: a name is not enough, a topic that was deleted and created anew has other records at the same offsets. While all
is well no request is made: fetches go by id where the broker has ids (3.1 and later), it refuses an id it does not
know, and the metadata fetched then is compared here. A topic that is missing gets ``unknown_topic_grace_ms`` to appear,
and so does one with another id when reading begins: a broker may be behind for a moment. Without ids only a deletion
is noticed.
"""

from __future__ import annotations

from typing import NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, TopicId, uuid_text
from oncelog.client.blocking.client import Client
from oncelog.client.errors import UnknownTopic


class ReplacedTopic(NamedTuple):
    """A topic that is not the one that was read; ``topic_id`` is the id its name has now, None after a deletion."""

    topic: str
    topic_id: TopicId | None

    @property
    def description(self) -> str:
        """The replacement in words, for messages."""
        if self.topic_id is None:
            return "the topic was deleted"
        return f"the topic was deleted and created anew (its id is now {uuid_text(self.topic_id)})"


class TopicWatch:
    """The topics being read through one client. Call ``replaced`` after every poll, before its records are used."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._ids: dict[str, TopicId] = {}
        self._missing_since_ms: dict[str, int] = {}

    def begin(self, topic: str, wanted: TopicId | None = None) -> ReplacedTopic | None:
        """Watch the topic as it is now. Returns the replacement if it is not the one ``wanted``, else None."""
        client = self._client
        deadline = client.system.now_ms() + client.config.unknown_topic_grace_ms
        for attempt in range(1 << 30):
            try:
                found = client.topic(topic).topic_id
            except UnknownTopic:  # the grace is over
                return ReplacedTopic(topic, None)
            if wanted is None or NO_TOPIC_ID in (wanted, found) or found == wanted:
                self._ids[topic] = found
                self._missing_since_ms.pop(topic, None)
                return None
            if client.system.now_ms() >= deadline:
                return ReplacedTopic(topic, found)
            client.view.forget(topic)
            client.pause(attempt)
        raise AssertionError("unreachable")

    def id_of(self, topic: str) -> TopicId:
        """The id of a topic that is watched; zero where the cluster has none."""
        return self._ids[topic]

    def end(self, topic: str) -> None:
        """Stop watching the topic."""
        self._ids.pop(topic, None)
        self._missing_since_ms.pop(topic, None)

    def replaced(self) -> list[ReplacedTopic]:
        """The watched topics that were deleted or replaced, by the metadata at hand."""
        view, now = self._client.view, self._client.system.now_ms()
        changed = []
        for topic, topic_id in self._ids.items():
            info = view.topics.get(topic)
            if info is None or info.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                since = self._missing_since_ms.setdefault(topic, now)
                if now - since >= self._client.config.unknown_topic_grace_ms:
                    changed.append(ReplacedTopic(topic, None))
                continue
            self._missing_since_ms.pop(topic, None)
            if info.exists and NO_TOPIC_ID not in (topic_id, info.topic_id) and info.topic_id != topic_id:
                changed.append(ReplacedTopic(topic, info.topic_id))
        return changed
