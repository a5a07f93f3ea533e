"""The page that deletes a group, or its offsets of one topic: first the plan, then exactly that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncelog.client.blocking.client import Client
from oncelog.console.admission.gate import Permit
from oncelog.console.changes.audited_changes import Changes
from oncelog.console.changes.group_changes import delete_planned, plan_deletion
from oncelog.console.page import PageRequest
from oncelog.console.rendering import one_page


def read(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    query = page_request.query
    group, topic = query.needed("name"), query.text("topic")
    plan = plan_deletion(client, group, topic)
    rows = [
        {"topic": partition.topic, "partition": partition.partition, "committed": offset}
        for partition, offset in sorted(plan.offsets.items())
    ]
    everything = plan if not topic else plan_deletion(client, group, "")
    return {
        "group": group,
        "topic": topic,
        "topics": sorted({partition.topic for partition in everything.offsets}),
        "state": plan.state,
        "is_share": plan.is_share,
        "refusal": plan.refusal,
        "offsets": one_page(rows, query.number("page", 1, 1)),
        "sent": plan.digest,
    }


def act(client: Client, page_request: PageRequest, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    query = page_request.query
    group, topic, digest = query.needed("name"), query.text("topic"), query.needed("plan")
    plan = delete_planned(client, permit, changes, group, topic, digest, query.text("typed"))
    offsets = [f"{name}-{index}: {offset}" for (name, index), offset in sorted(plan.offsets.items())]
    deleted = f"{len(offsets)} offset{'' if len(offsets) == 1 else 's'} deleted"
    message = f"{deleted} of topic {topic}." if topic else f"The group is deleted, with {len(offsets)} offsets."
    return {"what": group, "error": None, "warning": None, "said": [message, *offsets[:100]]}
