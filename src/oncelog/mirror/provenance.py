"""Records the origin of copied topics, in the internal topic ``__oncelog_mirror_topics`` of their cluster.

A record's key is ``[topic in this cluster, alias of its source]``; its value is the topic's name at the source, the ids
of the clusters that it passed through (starting where it was produced), and the copied configuration keys. A topic is
not copied to a cluster that it passed through, whatever the names: this detects cycles.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from oncelog.base.ids import TopicName

PROVENANCE_TOPIC: Final = TopicName("__oncelog_mirror_topics")


@dataclass(frozen=True, slots=True)
class Copy:
    """A topic of this cluster that a mirror writes."""

    topic: str
    alias: str
    source_topic: str
    path: tuple[str, ...]
    """Ids of the clusters it passed through, the mirror's source last."""
    configs: tuple[str, ...] = ()

    def record(self) -> tuple[bytes, bytes]:
        value = {"topic": self.source_topic, "path": self.path, "configs": self.configs}
        return json.dumps([self.topic, self.alias]).encode(), json.dumps(value).encode()


def tombstone(topic: str, alias: str) -> bytes:
    """The key to delete when a copy no longer exists."""
    return json.dumps([topic, alias]).encode()


def read_copies(records: Iterable[tuple[bytes | None, bytes | None]]) -> dict[tuple[str, str], Copy]:
    """The copies by topic and alias; records that no mirror wrote are ignored."""
    copies: dict[tuple[str, str], Copy] = {}
    for key, value in records:
        try:
            topic, alias = json.loads(key or b"null")
            fields = json.loads(value or b"null")
        except (ValueError, TypeError):
            continue
        if fields is None:
            copies.pop((topic, alias), None)
        else:
            path, configs = tuple(fields["path"]), tuple(fields["configs"])
            copies[topic, alias] = Copy(topic, alias, fields["topic"], path, configs)
    return copies


def paths_of(topic: str, copies: Mapping[tuple[str, str], Copy]) -> list[tuple[str, ...]]:
    """The paths by which a topic's records came; empty for a topic that is not a copy."""
    return [copy.path for (name, _), copy in copies.items() if name == topic]
