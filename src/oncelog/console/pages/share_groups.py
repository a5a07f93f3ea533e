"""The page of a share group (KIP-932), as part of the page of groups: start offsets, records in flight, members."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from oncelog.admin.configs import ResourceType, describe_configs
from oncelog.admin.groups import GroupDescription, share_offsets
from oncelog.admin.share_deliveries import LOG, as_led, share_deliveries
from oncelog.client.blocking.client import Client
from oncelog.client.errors import BrokerRefused, UnsupportedRequest
from oncelog.console.page import PageRequest
from oncelog.console.rendering import one_page

MAX_MEMBERS: Final = 100
MAX_ASSIGNED: Final = 20  # Partitions named per member; the others are counted.
SETTINGS: Final = ("share.", "errors.deadletterqueue.")


def read(client: Client, page_request: PageRequest, description: GroupDescription) -> dict[str, Any]:
    """``partitions`` has the start offset of each, ``records`` those in flight; ``held_by`` is None for a member that
    is gone. Without the help of a leader, ``in_flight`` and ``acquired`` are None and ``from_log`` is true."""
    query = page_request.query
    # A cluster whose share groups are off refuses the rest.
    offsets = share_offsets(client, description.group) if description.has_members_shown else []
    deliveries, unanswered = share_deliveries(client, description.group, [row.topic_partition for row in offsets])
    offsets = as_led(description, offsets, deliveries)
    windows = {row.topic_partition: row for row in deliveries}
    partitions = []
    for offset in offsets:
        window = windows.get(offset.topic_partition)
        partitions.append(
            {name: getattr(offset, name) for name in offset.__slots__ if name != "group"}
            | {
                "in_flight": None if window is None else window.in_flight_records,
                "most_in_flight": None if window is None else window.most_in_flight,
                "acquired": None if window is None else window.acquired,
                "most_deliveries": None if window is None else window.most_deliveries,
            }
        )
    clients = {member.member_id: member.client_id for member in description.members}
    records = [
        {"topic": window.topic, "partition": window.partition, "held_by": clients.get(batch.member_id or "")}
        | {name: getattr(batch, name) for name in batch.__slots__}
        for window in deliveries
        for batch in window.batches
    ]
    lags = [offset.lag for offset in offsets]
    members = description.members[:MAX_MEMBERS]
    return {
        "group": replace(
            description,
            members=[replace(member, partitions=member.partitions[:MAX_ASSIGNED]) for member in members],
        ),
        "shows_members": description.has_members_shown,
        "members": len(description.members),
        "assigned": [len(member.partitions) for member in members],
        "partitions": one_page(partitions, query.number("page", 1, 1)),
        "records": one_page(records, query.number("records_page", 1, 1)),
        "left_off": sum(window.batches_left_off for window in deliveries),
        "from_log": any(window.source == LOG and window.batches for window in deliveries),
        "lag": sum(lag for lag in lags if lag is not None)
        if any(lag is not None for lag in lags) or not lags
        else None,
        "unknown": lags.count(None),
        "acquired": _total([row["acquired"] for row in partitions]),
        "in_flight": _total([row["in_flight"] for row in partitions]),
        "settings": _settings(client, description.group),
        "unanswered": [str(item) for item in unanswered],
        "now_ms": int(time.time() * 1000),
    }


def _total(counts: list[int | None]) -> int | None:
    answered = [count for count in counts if count is not None]
    return sum(answered) if answered else None


def _settings(client: Client, group: str) -> list[Mapping[str, Any]]:
    """The settings that take effect in the group; none if they may not be described."""
    try:
        rows = describe_configs(client, ResourceType.GROUP, group)
    except (BrokerRefused, UnsupportedRequest):
        return []
    return [
        {"name": row.name, "value": row.value, "source": row.source} for row in rows if row.name.startswith(SETTINGS)
    ]
