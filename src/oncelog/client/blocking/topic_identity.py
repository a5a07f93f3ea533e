"""Detects topics that are deleted and created again while they are read, by their ids (KIP-516).

In normal operation no extra request is made: fetches use ids if the broker has them (3.1 and later), brokers refuse
unknown ids, and the metadata fetched then is compared here. A missing topic gets ``unknown_topic_grace_ms`` to appear,
and so does one with another id when reading starts: a broker may lag. Without ids only a deletion is detected.
"""

from __future__ import annotations

from typing import NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, TopicId, uuid_text
from oncelog.client.blocking.client import Client
from oncelog.client.errors import UnknownTopic


class ReplacedTopic(NamedTuple):
    """A topic that is not the one being read; ``topic_id`` is the id under its name now, None after a deletion."""

    topic: str
    topic_id: TopicId | None

    @property
    def description(self) -> str:
        if self.topic_id is None:
            return "the topic was deleted"
        return f"the topic was deleted and created anew (its id is now {uuid_text(self.topic_id)})"


class TopicWatch:
    """The topics being read through one client. Call ``replaced`` after every poll, before using its records."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._ids: dict[str, TopicId] = {}
        self._missing_since_ms: dict[str, int] = {}

    def begin(self, topic: str, expected: TopicId | None = None) -> ReplacedTopic | None:
        """Watch the topic as it is now. Returns the replacement if its id is not ``expected``, else None."""
        client = self._client
        deadline = client.system.now_ms() + client.config.unknown_topic_grace_ms
        for attempt in range(1 << 30):
            try:
                topic_id = client.topic(topic).topic_id
            except UnknownTopic:  # the grace is over
                return ReplacedTopic(topic, None)
            if expected is None or NO_TOPIC_ID in (expected, topic_id) or topic_id == expected:
                self._ids[topic] = topic_id
                self._missing_since_ms.pop(topic, None)
                return None
            if client.system.now_ms() >= deadline:
                return ReplacedTopic(topic, topic_id)
            client.view.forget(topic)
            client.pause(attempt)
        raise AssertionError("unreachable")

    def id_of(self, topic: str) -> TopicId:
        """The id of a watched topic; zero if the cluster has none."""
        return self._ids[topic]

    def end(self, topic: str) -> None:
        self._ids.pop(topic, None)
        self._missing_since_ms.pop(topic, None)

    def replaced(self) -> list[ReplacedTopic]:
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
