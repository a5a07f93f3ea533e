"""Broker pages: all brokers of the last diagnosis, and one with its configuration, directories and partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog.admin.broker_descriptions import describe_broker
from oncelog.client.blocking.client import Client
from oncelog.console.page import PageRequest
from oncelog.console.rendering import one_page

SORTS: Final = ("size", "leads", "follows", "topic")
INT32_MAX: Final = 2**31 - 1


def read_all(page_request: PageRequest) -> Mapping[str, Any]:
    """The brokers as the overview has them. Raises ClientError before the first diagnosis."""
    assert page_request.diagnoses is not None
    diagnosis = page_request.diagnoses.current()
    status = diagnosis.report.status
    return {
        "brokers": one_page(status.brokers, page_request.query.number("page", 1, 1)),
        "controller_id": status.controller_id,
        "cluster_id": status.cluster_id,
        "age_ms": int(diagnosis.age_s * 1000),
        "error": diagnosis.error,
    }


def read_one(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """One broker: keys that are not at their defaults, or all; topics by the size of their copies."""
    query = page_request.query
    query.needed("id")
    broker = describe_broker(client, query.number("id", 0, 0, INT32_MAX))
    sort = query.choice("sort", SORTS)
    topics = [topic for topic in broker.topics if query.text("filter").lower() in topic.topic.lower()]
    if sort == "size":
        topics.sort(key=lambda topic: -(topic.size_bytes or 0))
    elif sort in ("leads", "follows"):
        topics.sort(key=lambda topic: -int(getattr(topic, sort)))
    changed = [config for config in broker.configs if not config.is_default]
    at_default = [config for config in broker.configs if config.is_default]
    return {
        "broker": {
            "broker_id": broker.broker_id,
            "host": None if broker.row is None else broker.row.host,
            "port": None if broker.row is None else broker.row.port,
            "rack": None if broker.row is None else broker.row.rack,
            "is_registered": broker.row is not None,
            "is_fenced": broker.row is not None and broker.row.is_fenced,
            "is_controller": broker.is_controller,
            "quorum_lag": broker.quorum_lag,
            "leads": broker.leads,
            "follows": broker.follows,
        },
        "features": broker.features,
        "directories": broker.directories,
        "topics": one_page(topics, query.number("page", 1, 1)),
        "filter": {"filter": query.text("filter"), "sort": sort},
        "configs": [*changed, *at_default] if query.flag("all_configs") else changed,
        "all_configs": query.flag("all_configs"),
        "keys": len(broker.configs),
        "unanswered": broker.unanswered,
    }
