"""The origin of topics that are copies: the internal topic ``__oncelog_mirror_topics`` of their cluster.

A record's key is ``[topic at this cluster, alias of its source]``, its value the topic's name at the source, the
clusters it has come through (their ids, the first is where it was produced), and the configuration keys that were
copied. A topic must not be copied to a cluster that it has come through: that is how cycles are recognised, whatever
topics and clusters are called.
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
    """Ids of the clusters it has come through, the mirror's source last."""
    configs: tuple[str, ...] = ()

    def record(self) -> tuple[bytes, bytes]:
        """Key and value of its record."""
        value = {"topic": self.source_topic, "path": self.path, "configs": self.configs}
        return json.dumps([self.topic, self.alias]).encode(), json.dumps(value).encode()


def tombstone(topic: str, alias: str) -> bytes:
    """The key of the record to be deleted, for a copy that is no more."""
    return json.dumps([topic, alias]).encode()


def read_copies(records: Iterable[tuple[bytes | None, bytes | None]]) -> dict[tuple[str, str], Copy]:
    """The copies by topic and alias. Records that are not of a mirror are passed over."""
    found: dict[tuple[str, str], Copy] = {}
    for key, value in records:
        try:
            topic, alias = json.loads(key or b"null")
            fields = json.loads(value or b"null")
        except (ValueError, TypeError):
            continue
        if fields is None:
            found.pop((topic, alias), None)
        else:
            path, configs = tuple(fields["path"]), tuple(fields["configs"])
            found[topic, alias] = Copy(topic, alias, fields["topic"], path, configs)
    return found


def paths_of(topic: str, copies: Mapping[tuple[str, str], Copy]) -> list[tuple[str, ...]]:
    """The ways by which records of a topic have come to its cluster; none for a topic that is nobody's copy."""
    return [copy.path for (name, _), copy in copies.items() if name == topic]
