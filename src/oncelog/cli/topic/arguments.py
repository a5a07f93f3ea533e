"""Arguments that name partitions (``topic`` or ``topic:0,2-4``) and topic configs, with hints for mistyped names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import typer

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.suggestions import did_you_mean
from oncelog.client.errors import BrokerRefused, ClientError, UnknownTopic

if TYPE_CHECKING:
    from oncelog.client.blocking.client import Client


def partitions_named(client: Client, topics: list[str] | None, *, led: bool = True) -> list[TopicPartition] | None:
    """The named partitions; None if none are named. Raises UnknownTopic, BadParameter, and with ``led`` BrokerRefused
    for one without a leader."""
    if not topics:
        return None
    chosen = []
    for text in topics:
        name, _, indexes = text.partition(":")
        existing = client.topic(name).partitions
        for index in _indexes(indexes, text) if indexes else existing:
            partition = TopicPartition(TopicName(name), index)
            if index not in existing:
                raise UnknownTopic(f"partition {index} of topic {name!r} ({len(existing)} partitions)")
            if led:
                client.leader(partition)
            chosen.append(partition)
    return chosen


def _indexes(text: str, whole: str) -> list[int]:
    indexes: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", part.strip())
        if match is None:
            raise typer.BadParameter(f"{whole!r} is not TOPIC:PARTITIONS, such as flights:0,2-4")
        indexes += range(int(match[1]), int(match[2] or match[1]) + 1)
    return indexes


_ALIKE: Final = 0.8


def require_settings(client: Client, topic: str, names: Sequence[str]) -> None:
    """Raises ClientError for an unknown topic config: brokers accept its deletion, and nothing happens."""
    from oncelog.admin.configs import ResourceType, describe_configs

    names_known = [row.name for row in describe_configs(client, ResourceType.TOPIC, topic)] if names else []
    for name in names:
        if name not in names_known:
            raise ClientError(
                f"topic {topic!r}: no setting is called {name!r}{did_you_mean(name, names_known, _ALIKE)}"
            )


@contextlib.contextmanager
def names_suggested(names: Iterable[str], *, of_group: bool = False) -> Iterator[None]:
    """Adds a suggestion to a BrokerRefused that rejects one of these names of topic configs, or of a group's."""
    try:
        yield
    except BrokerRefused as refused:
        if refused.code != ErrorCode.INVALID_CONFIG or refused.detail is None:
            raise
        from oncelog.core.configs.keys import GROUP_KEYS, TOPIC_KEYS

        keys = GROUP_KEYS if of_group else TOPIC_KEYS
        mistyped = (name for name in names if name not in keys and refused.detail.endswith(name))
        hint = next((did_you_mean(name, keys, _ALIKE) for name in mistyped), "")
        if not hint:
            raise
        raise BrokerRefused(refused.code, refused.subject, refused.detail + hint) from None
