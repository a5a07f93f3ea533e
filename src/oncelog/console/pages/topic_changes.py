"""Changes of topics: a page that shows what would be, and the actions behind its forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog.admin.topics import BROKER_DEFAULT, NewTopic
from oncelog.client.blocking.client import Client
from oncelog.console.admission.gate import Permit
from oncelog.console.changes import topic_changes
from oncelog.console.changes.audited_changes import Changes
from oncelog.console.page import Asked
from oncelog.console.query import Query

INT32_MAX: Final = 2**31 - 1


def read(client: Client, asked: Asked) -> Mapping[str, Any]:
    """The changes that a topic allows; with a key, its value now and as it would be, checked by the broker."""
    query = asked.query
    name, key = query.text("name"), query.text("key").strip()
    shown: dict[str, Any] = {"name": name, "partitions": 0, "key": key, "value": query.text("value"), "diff": None}
    if not name:
        return shown
    shown["partitions"] = len(client.topic(name).partitions)
    if key:
        value = _value(query)
        was = topic_changes.config_text(client, name, key)
        topic_changes.check_config(client, name, key, value)
        shown["diff"] = {"was": was, "would_be": "its default" if value is None else value, "default": value is None}
    return shown


def _value(query: Query) -> str | None:
    """The value that an address names, None for the default."""
    return None if query.flag("default") else query.text("value")


def act_create(client: Client, asked: Asked, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    query = asked.query
    partitions = query.number("partitions", BROKER_DEFAULT, 1, INT32_MAX)
    replicas = query.number("replicas", BROKER_DEFAULT, 1, 32767)
    made = topic_changes.create(client, permit, changes, NewTopic(query.needed("name"), partitions, replicas))
    return _done(made.name, "It is made.")


def act_alter(client: Client, asked: Asked, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    query = asked.query
    name, key, value = query.needed("name"), query.needed("key"), _value(query)
    was = query.long("was", 20_000)
    topic_changes.alter_config(client, permit, changes, name, key, was, value, query.text("typed"))
    return _done(name, f"{key}: {was} → {'its default' if value is None else value}.")


def act_extend(client: Client, asked: Asked, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    query = asked.query
    name, total = query.needed("name"), query.number("total", 0, 1, INT32_MAX)
    topic_changes.extend(client, permit, changes, name, total, query.text("typed"))
    return _done(name, f"It has {total} partitions. Keys go to other partitions than before.")


def act_shorten(client: Client, asked: Asked, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    query = asked.query
    name, partition = query.needed("name"), query.number("partition", 0, 0, INT32_MAX)
    before = query.number("before", 0)
    first = topic_changes.shorten(client, permit, changes, name, partition, before, query.text("typed"))
    return _done(name, f"Partition {partition} begins at offset {first}.")


def act_delete(client: Client, asked: Asked, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    name = asked.query.needed("name")
    topic_changes.delete(client, permit, changes, name, asked.query.text("typed"))
    return _done(name, "It is deleted.")


def _done(what: str, said: str) -> Mapping[str, Any]:
    return {"what": what, "error": None, "warning": None, "said": [said]}
