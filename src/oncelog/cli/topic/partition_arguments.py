"""Partitions as people name them: ``topic`` or ``topic:0,2-4``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import typer

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import UnknownTopic

if TYPE_CHECKING:
    from oncelog.client.blocking.client import Client


def partitions_named(client: Client, topics: list[str] | None, *, led: bool = True) -> list[TopicPartition] | None:
    """``topic`` or ``topic:0,2-4`` as partitions; None for none given. Raises UnknownTopic, BadParameter, and with
    ``led`` BrokerRefused for one without a leader."""
    if not topics:
        return None
    found = []
    for text in topics:
        name, _, indexes = text.partition(":")
        there = client.topic(name).partitions
        for index in _indexes(indexes, text) if indexes else there:
            one = TopicPartition(TopicName(name), index)
            if index not in there:
                raise UnknownTopic(f"partition {index} of topic {name!r} ({len(there)} partitions)")
            if led:
                client.leader(one)
            found.append(one)
    return found


def _indexes(text: str, whole: str) -> list[int]:
    indexes: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", part.strip())
        if match is None:
            raise typer.BadParameter(f"{whole!r} is not like topic:0,2-4")
        indexes += range(int(match[1]), int(match[2] or match[1]) + 1)
    return indexes
