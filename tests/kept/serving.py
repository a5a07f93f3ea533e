"""A broker's answers on kept files, as plain values that compare equal whichever version serves them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oncelog.admin.acls import list_acls
from oncelog.admin.client_quotas import entity_text, list_quotas
from oncelog.admin.configs import ResourceType, describe_configs
from oncelog.admin.group_descriptions import describe_group
from oncelog.admin.groups import share_offsets
from oncelog.admin.scram_users import list_credentials
from oncelog.admin.share_deliveries import share_deliveries
from oncelog.admin.topics import list_topics
from oncelog.admin.transactions import describe_transaction
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client, FetchSettings, read_fetched
from oncelog.client.machine.requests import EARLIEST, LATEST
from oncelog.client.programs.group import committed_offsets
from oncelog.client.programs.log_offsets import offsets_at
from tests.kept.contents import OPEN, WORKERS
from tests.kept.schemas import schemas
from tests.waiting import wait_until

GROUPS: Final = ("classic", "modern", "transactional", WORKERS)
TRANSACTIONS: Final = ("writer-0", "writer-1", "open", "prepared")
_ISOLATIONS: Final = {"read_uncommitted": False, "read_committed": True}


def served(client: Client) -> dict[str, Any]:
    """Everything; the transaction that was open is aborted first, at its time-out, by the broker."""
    wait_until(lambda: describe_transaction(client, OPEN).state == "CompleteAbort", "the end of the open transaction")
    topics = list_topics(client, internal=False)
    return {
        "topics": {topic.name: str(topic.topic_id) for topic in topics},
        "records": {name: [*records(client, topics, name)] for name in _ISOLATIONS},
        "offsets": _offsets(client, topics),
        "groups": {group: _group(client, group) for group in GROUPS},
        "share": _share(client),
        "schemas": schemas(client),
        "transactions": {name: _transaction(client, name) for name in TRANSACTIONS},
        "users": [list(credential) for credential in list_credentials(client)],
        "acls": [
            [
                *(pattern.resource_type.name, pattern.pattern_type.name, pattern.name),
                *(entry.principal, entry.host, entry.operation.name, entry.permission.name),
            ]
            for pattern, entry in list_acls(client)
        ],
        "quotas": [[entity_text(row.entity), dict(row.values)] for row in list_quotas(client)],
        "configs": {
            "topics": {topic.name: _configs(client, ResourceType.TOPIC, topic.name, "topic") for topic in topics},
            "cluster": _configs(client, ResourceType.BROKER, "1", "dynamic default broker"),
            "group": _configs(client, ResourceType.GROUP, "modern", "group"),
            "share group": _configs(client, ResourceType.GROUP, WORKERS, "group"),
        },
    }


def partitions_of(client: Client, topics: list[Any]) -> list[TopicPartition]:
    return [TopicPartition(TopicName(topic.name), number) for topic in topics for number in range(topic.partitions)]


def records(client: Client, topics: list[Any], isolation: str) -> Iterator[str]:
    """A line for each record, up to the last stable offset for read_committed."""
    read_committed = _ISOLATIONS[isolation]
    partitions = partitions_of(client, topics)
    starts = offsets_at(client, dict.fromkeys(partitions, EARLIEST))
    ends = offsets_at(client, dict.fromkeys(partitions, LATEST), read_committed=read_committed)
    lines: dict[TopicPartition, list[str]] = {partition: [] for partition in partitions}
    for fetched in client.fetch(starts, until=ends, settings=FetchSettings(read_committed=read_committed)):
        for record in read_fetched(fetched, read_committed=read_committed):
            if record.offset < ends[fetched.partition]:
                line = f"{record.offset} {record.timestamp} {record.key!r} {record.value!r} {[*record.headers] or ''}"
                lines[fetched.partition].append(f"{fetched.partition} {line}".rstrip())
    for partition in partitions:
        yield from lines[partition]


def _offsets(client: Client, topics: list[Any]) -> dict[str, list[int]]:
    """First, last stable and next offset of each partition."""
    partitions = partitions_of(client, topics)
    earliest = offsets_at(client, dict.fromkeys(partitions, EARLIEST))
    stable = offsets_at(client, dict.fromkeys(partitions, LATEST), read_committed=True)
    latest = offsets_at(client, dict.fromkeys(partitions, LATEST))
    return {str(partition): [earliest[partition], stable[partition], latest[partition]] for partition in partitions}


def _group(client: Client, group: str) -> dict[str, Any]:
    description = describe_group(client, group)
    offsets = committed_offsets(client, group)
    return {
        "type": description.group_type,
        "state": description.state,
        "offsets": {str(partition): [at.offset, at.metadata] for partition, at in sorted(offsets.items())},
    }


def _share(client: Client) -> dict[str, Any]:
    """Start offset and lag of the share group's partitions, and the state and deliveries of each offset in flight."""
    offsets = share_offsets(client, WORKERS)
    rows, unanswered = share_deliveries(client, WORKERS, [row.topic_partition for row in offsets])
    assert unanswered == []
    return {
        "offsets": {str(row.topic_partition): [row.start_offset, row.lag] for row in offsets},
        "in flight": {
            f"{row.topic_partition} {offset}": [batch.state, batch.delivery_count]
            for row in rows
            for batch in row.batches
            for offset in range(batch.first_offset, batch.last_offset + 1)
        },
    }


def _transaction(client: Client, name: str) -> list[Any]:
    row = describe_transaction(client, name)
    return [row.state, row.producer_id, row.producer_epoch]


def _configs(client: Client, kind: ResourceType, name: str, source: str) -> dict[str, str | None]:
    return {row.name: row.value for row in describe_configs(client, kind, name) if row.source == source}
