"""The page of changes to a topic, with a preview, and the actions behind its forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog.admin.topics import BROKER_DEFAULT, NewTopic
from oncelog.client.blocking.client import Client
from oncelog.client.errors import BrokerRefused
from oncelog.console.admission.gate import Permit
from oncelog.console.changes import topic_changes
from oncelog.console.changes.audited_changes import Changes
from oncelog.console.cluster.statuses import status_of
from oncelog.console.page import PageRequest
from oncelog.console.query import NotConfirmed, Query

INT32_MAX: Final = 2**31 - 1


def read(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """The possible changes of a topic; with a key, its current value and the new one, validated by the broker."""
    query = page_request.query
    name, key = query.text("name"), query.text("key").strip()
    shown: dict[str, Any] = {
        "name": name,
        "partitions": 0,
        "key": key,
        "value": query.text("value"),
        "diff": None,
        "wrong": None,
    }
    if not name:
        return shown
    shown["partitions"] = len(client.topic(name).partitions)
    if key:
        value = _value(query)
        try:
            was = topic_changes.config_text(client, name, key)
            topic_changes.check_config(client, name, key, value)
        except (BrokerRefused, NotConfirmed) as error:
            return shown | {"wrong": str(error), "refused_with": status_of(error)}
        shown["diff"] = {"was": was, "would_be": "its default" if value is None else value, "default": value is None}
    return shown


def _value(query: Query) -> str | None:
    return None if query.flag("default") else query.text("value")


def act_create(client: Client, page_request: PageRequest, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    query = page_request.query
    partitions = query.number("partitions", BROKER_DEFAULT, 1, INT32_MAX)
    replicas = query.number("replicas", BROKER_DEFAULT, 1, 32767)
    topic = topic_changes.create(client, permit, changes, NewTopic(query.needed("name"), partitions, replicas))
    return {**_done(topic.name, "Created."), "links": [("/topics/one", topic.name, f"Topic {topic.name}")]}


def act_alter(client: Client, page_request: PageRequest, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    query = page_request.query
    name, key, value = query.needed("name"), query.needed("key"), _value(query)
    was = query.long("was", 20_000)
    topic_changes.alter_config(client, permit, changes, name, key, was, value, query.text("typed"))
    return _done(name, f"{key}: {was} → {'its default' if value is None else value}.")


def act_extend(client: Client, page_request: PageRequest, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    query = page_request.query
    name, total = query.needed("name"), query.number("total", 0, 1, INT32_MAX)
    topic_changes.extend(client, permit, changes, name, total, query.text("typed"))
    return _done(name, f"It now has {total} partitions. Keys map to other partitions than before.")


def act_shorten(client: Client, page_request: PageRequest, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    query = page_request.query
    name, partition = query.needed("name"), query.number("partition", 0, 0, INT32_MAX)
    before = query.number("before", 0)
    first = topic_changes.shorten(client, permit, changes, name, partition, before, query.text("typed"))
    return _done(name, f"Partition {partition} now begins at offset {first}.")


def act_delete(client: Client, page_request: PageRequest, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    name = page_request.query.needed("name")
    topic_changes.delete(client, permit, changes, name, page_request.query.text("typed"))
    return _done(name, "Deleted.")


def _done(name: str, message: str) -> Mapping[str, Any]:
    return {"what": name, "error": None, "warning": None, "said": [message]}
