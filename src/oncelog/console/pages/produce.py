"""The pages that produce one record: a form, a preview, and the action that writes exactly that record."""

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
from oncelog.console.page import PageRequest
from oncelog.console.query import BadQuery, Query
from oncelog.console.records.decoding import FULL_BYTES, decoded
from oncelog.records.record import Headers

INPUT_FORMATS: Final = ("text", "json", "hex", "null")
MAX_FIELD_LENGTH: Final = 64 * 1024  # Characters of a key, a value, or all headers.
MAX_HEADERS: Final = 50
_FIELDS: Final = ("key", "key_as", "value", "value_as", "headers")


def read(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    query = page_request.query
    topic = query.text("topic")
    return {
        "topic": topic,
        "partition": query.optional_number("partition", 0, 2**31 - 1),
        "partitions": len(client.topic(topic).partitions) if topic else 0,
        "input_formats": INPUT_FORMATS,
        "longest": MAX_FIELD_LENGTH,
    }


def act_show(client: Client, page_request: PageRequest, _permit: Permit, _changes: Changes) -> Mapping[str, Any]:
    """A preview of the record; nothing is written."""
    query = page_request.query
    new = _record_of(client, query)
    return {
        "where": {"topic": new.partition.topic, "partition": new.partition.partition},
        "by_key": query.optional_number("partition") is None and new.key is not None,
        "key": decoded(new.key, most=FULL_BYTES),
        "value": decoded(new.value, most=FULL_BYTES),
        "headers": [[name, decoded(value, most=FULL_BYTES)] for name, value in new.headers],
        "sent": {"topic": new.partition.topic, "partition": str(new.partition.partition)}
        | {name: query.long(name, MAX_FIELD_LENGTH) for name in _FIELDS},
    }


def act_send(client: Client, page_request: PageRequest, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    query = page_request.query
    if query.optional_number("partition") is None:
        raise BadQuery("the form has no partition; preview the record first")
    new = _record_of(client, query)
    offset = produce_one(client, permit, changes, new, query.text("typed"))
    topic, partition = new.partition
    place = f"{topic}-{partition}"
    return {
        "what": place,
        "error": None,
        "warning": None,
        "said": [f"The record was written at offset {offset}." if offset >= 0 else "The record was written."],
        "record": {"topic": topic, "partition": partition, "offset": offset} if offset >= 0 else None,
    }


def _record_of(client: Client, query: Query) -> NewRecord:
    """The record of a form. Raises BadQuery and UnknownTopic."""
    topic = query.needed("topic")
    if topic.startswith("__"):
        raise BadQuery(f"topic {topic!r} is internal: only brokers may write to it")
    count = len(client.topic(topic).partitions)
    key = _bytes_of(query, "key")
    partition = query.optional_number("partition", 0, 2**31 - 1)
    if partition is None:
        partition = random.randrange(count) if key is None else partition_of_key(key, count)
    if partition >= count:
        raise BadQuery(f"topic {topic!r} has {count} partitions; partition {partition} does not exist")
    destination = TopicPartition(TopicName(topic), partition)
    return NewRecord(destination, key, _bytes_of(query, "value"), _headers_of(query.long("headers", MAX_FIELD_LENGTH)))


def _bytes_of(query: Query, name: str) -> bytes | None:
    """The bytes of a field. Browsers send line ends as CRLF, which becomes LF."""
    form, text = query.choice(f"{name}_as", INPUT_FORMATS), query.long(name, MAX_FIELD_LENGTH).replace("\r\n", "\n")
    if form == "null":
        return None
    if form == "hex":
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise BadQuery(f"the {name} must be hexadecimal digits, two per byte") from None
    if form == "json":
        try:
            json_text.check(text)
        except (ValueError, RecursionError) as error:
            raise BadQuery(f"the {name} is not JSON: {error}") from None
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadQuery(f"the {name} has a lone surrogate, which UTF-8 cannot encode") from None


def _headers_of(text: str) -> Headers:
    """Headers, one per line: ``name: value``, or ``name`` alone for a null value."""
    lines = [part for part in text.replace("\r\n", "\n").split("\n") if part.strip()]
    if len(lines) > MAX_HEADERS:
        raise BadQuery(f"{len(lines)} headers; the maximum is {MAX_HEADERS}")
    headers: list[tuple[str, bytes | None]] = []
    for number, line in enumerate(lines, 1):
        name, colon, value = line.partition(":")
        if not name.strip():
            raise BadQuery(f"header {number} is not NAME: VALUE")  # Its content must not enter the audit log.
        headers.append((name.strip(), value.removeprefix(" ").encode() if colon else None))
    return tuple(headers)
