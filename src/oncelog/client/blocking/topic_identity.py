"""Whether the topics that are read are still those that reading began with, by their ids (KIP-516).

Rules: a name is not enough, a topic that was deleted and created anew has other records at the same offsets. Nothing is
asked while all is well: fetches go by id where the broker has ids (3.1 and later), it refuses an id it does not know,
and what metadata says then is looked at here. A topic that is not there gets ``unknown_topic_grace_ms``, when reading
begins one with another id too: a broker may be behind for a moment. Without ids only a deletion can be told.
"""

from __future__ import annotations

from typing import NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, TopicId, uuid_text
from oncelog.client.blocking.cluster import ClusterClient
from oncelog.client.errors import UnknownTopic


class ReplacedTopic(NamedTuple):
    """A topic that is not the one that was read; ``topic_id`` is what has its name now, None: it was deleted."""

    topic: str
    topic_id: TopicId | None

    @property
    def what(self) -> str:
        """For messages."""
        if self.topic_id is None:
            return "the topic was deleted"
        return f"the topic was deleted and created anew (its id is now {uuid_text(self.topic_id)})"


class TopicWatch:
    """The topics being read through one client. Look after every poll, before what it brought is used."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._ids: dict[str, TopicId] = {}
        self._missing_since_ms: dict[str, int] = {}

    def begin(self, topic: str, wanted: TopicId | None = None) -> ReplacedTopic | None:
        """Remember the topic as it is now; what is wrong when that is not the one that is ``wanted``."""
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
        """It is not read any more."""
        self._ids.pop(topic, None)
        self._missing_since_ms.pop(topic, None)

    def look(self) -> list[ReplacedTopic]:
        """The topics that are not what they were, from what is known by now."""
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
