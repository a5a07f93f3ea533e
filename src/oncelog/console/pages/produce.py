"""Producing one record: a form, the record as it would be written, and then exactly that record."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.notation import json_text
from oncelog.client.blocking.client import Client
from oncelog.client.machine.partitioner import partition_of_key
from oncelog.console.admission.gate import Permit
from oncelog.console.changes.audited_changes import Changes
from oncelog.console.changes.message_changes import NewRecord, produce_one
from oncelog.console.page import Asked
from oncelog.console.query import BadQuery, Query
from oncelog.console.records.decoding import FULL_BYTES, decoded
from oncelog.records.record import Headers

INPUT_FORMATS: Final = ("text", "json", "hex", "null")
LONGEST: Final = 64 * 1024
"""Characters of a key, a value, or all headers."""
MOST_HEADERS: Final = 50
_FIELDS: Final = ("key", "key_as", "value", "value_as", "headers")


def read(client: Client, asked: Asked) -> Mapping[str, Any]:
    query = asked.query
    topic = query.text("topic")
    return {
        "topic": topic,
        "partition": query.optional_number("partition", 0, 2**31 - 1),
        "partitions": len(client.topic(topic).partitions) if topic else 0,
        "input_formats": INPUT_FORMATS,
        "longest": LONGEST,
    }


def act_show(client: Client, asked: Asked, _permit: Permit, _changes: Changes) -> Mapping[str, Any]:
    """The record as it would be written; nothing is changed."""
    query = asked.query
    new = _record_of(client, query)
    return {
        "where": {"topic": new.where.topic, "partition": new.where.partition},
        "by_key": query.optional_number("partition") is None and new.key is not None,
        "key": decoded(new.key, most=FULL_BYTES),
        "value": decoded(new.value, most=FULL_BYTES),
        "headers": [[name, decoded(value, most=FULL_BYTES)] for name, value in new.headers],
        "sent": {"topic": new.where.topic, "partition": str(new.where.partition)}
        | {name: query.long(name, LONGEST) for name in _FIELDS},
    }


def act_send(client: Client, asked: Asked, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    query = asked.query
    if query.optional_number("partition") is None:
        raise BadQuery("the form has no partition; look at the record first")
    new = _record_of(client, query)
    offset = produce_one(client, permit, changes, new, query.text("typed"))
    topic, partition = new.where
    place = f"{topic}-{partition}"
    return {
        "what": place,
        "error": None,
        "warning": None,
        "said": [f"The record is written at offset {offset}." if offset >= 0 else "The record is written."],
        "record": {"topic": topic, "partition": partition, "offset": offset} if offset >= 0 else None,
    }


def _record_of(client: Client, query: Query) -> NewRecord:
    """The record of a form. Raises BadQuery and UnknownTopic."""
    topic = query.needed("topic")
    if topic.startswith("__"):
        raise BadQuery(f"topic {topic!r} is the brokers' own: nobody else writes to it")
    count = len(client.topic(topic).partitions)
    key = _bytes_of(query, "key")
    partition = query.optional_number("partition", 0, 2**31 - 1)
    if partition is None:
        partition = random.randrange(count) if key is None else partition_of_key(key, count)
    if partition >= count:
        raise BadQuery(f"topic {topic!r} has {count} partitions, and no partition {partition}")
    where = TopicPartition(TopicName(topic), partition)
    return NewRecord(where, key, _bytes_of(query, "value"), _headers_of(query.long("headers", LONGEST)))


def _bytes_of(query: Query, name: str) -> bytes | None:
    """The bytes that a field means; browsers send ends of lines as two characters, which are one here."""
    form, text = query.choice(f"{name}_as", INPUT_FORMATS), query.long(name, LONGEST).replace("\r\n", "\n")
    if form == "null":
        return None
    if form == "hex":
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise BadQuery(f"the {name} is not hexadecimal digits, two for each byte") from None
    if form == "json":
        try:
            json_text.check(text)
        except (ValueError, RecursionError) as error:
            raise BadQuery(f"the {name} is not JSON: {error}") from None
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadQuery(f"the {name} has half a character, which UTF-8 cannot have") from None


def _headers_of(text: str) -> Headers:
    """Headers, a line each: ``name: value``, or ``name`` alone for one without a value."""
    lines = [part for part in text.replace("\r\n", "\n").split("\n") if part.strip()]
    if len(lines) > MOST_HEADERS:
        raise BadQuery(f"{len(lines)} headers; {MOST_HEADERS} are the most")
    headers: list[tuple[str, bytes | None]] = []
    for number, line in enumerate(lines, 1):
        name, colon, value = line.partition(":")
        if not name.strip():
            raise BadQuery(f"header {number} is not NAME: VALUE")  # What it is stays out of the audit.
        headers.append((name.strip(), value.removeprefix(" ").encode() if colon else None))
    return tuple(headers)
