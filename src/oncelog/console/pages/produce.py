"""The pages that produce one record: a form, a preview, and the action that writes exactly that record."""

from __future__ import annotations

import json
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
from oncelog.console.pages.messages import one_record
from oncelog.console.query import BadQuery, Query
from oncelog.console.records.decoding import FULL_BYTES, decoded
from oncelog.console.records.record_states import MARKER, UNREADABLE, StoredRecord
from oncelog.records.record import Headers

INPUT_FORMATS: Final = ("text", "json", "hex", "null")
MAX_FIELD_LENGTH: Final = 64 * 1024  # Characters of a key, a value, or all headers.
MAX_HEADERS: Final = 50
LINES: Final = "lines"
JSON_HEADERS: Final = "json"
HEADER_FORMATS: Final = (LINES, JSON_HEADERS)
_FIELDS: Final = ("key", "key_as", "value", "value_as", "headers", "headers_as")
_EMPTY: Final = {"key": "", "key_as": "null", "value": "", "value_as": "text", "headers": "", "headers_as": LINES}


def read(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """The form; filled with the record at ``of_partition`` and ``of_offset`` of the topic if they are given."""
    query = page_request.query
    topic, offset = query.text("topic"), query.optional_number("of_offset")
    partition = query.optional_number("partition", 0, 2**31 - 1)
    fields, copied = _EMPTY, None
    if topic and offset is not None:
        copied = TopicPartition(TopicName(topic), query.number("of_partition", 0, 0, 2**31 - 1))
        fields = one_record(client, copied, offset, lambda _, record: fields_of(record)).shown
        partition = copied.partition if partition is None else partition
    return {
        "topic": topic,
        "partition": partition,
        "partitions": len(client.topic(topic).partitions) if topic else 0,
        "copied": None if copied is None else {"partition": copied.partition, "offset": offset},
        "fields": fields,
        "input_formats": INPUT_FORMATS,
        "header_formats": HEADER_FORMATS,
        "longest": MAX_FIELD_LENGTH,
    }


def fields_of(record: StoredRecord) -> dict[str, str]:
    """The fields of the form that produce exactly this record's content. Raises BadQuery if they cannot hold it."""
    if record.state in (MARKER, UNREADABLE):
        raise BadQuery(f"offset {record.offset} has no record to produce again: {record.state} {record.note}")
    fields: dict[str, str] = {}
    for part, data in (("key", record.key), ("value", record.value)):
        fields[part], fields[f"{part}_as"] = _field_of(part, data)
    fields["headers"], fields["headers_as"] = _headers_field(record.headers)
    return fields


def _field_of(name: str, data: bytes | None) -> tuple[str, str]:
    """The text of a field and its format. Hexadecimal digits for bytes that a browser would not send back as they
    are."""
    if data is None:
        return "", "null"
    text = _typed_text(data)
    field, form = (data.hex(), "hex") if text is None else (text, "text")
    if len(field) > MAX_FIELD_LENGTH:
        raise BadQuery(
            f"the record's {name} has {len(data)} bytes, {len(field)} characters as {form}; "
            f"the form takes at most {MAX_FIELD_LENGTH}"
        )
    return field, form


def _typed_text(data: bytes) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if all(char.isprintable() or char in "\n\t" for char in text) else None


def _headers_field(headers: Headers) -> tuple[str, str]:
    if len(headers) > MAX_HEADERS:
        raise BadQuery(f"the record has {len(headers)} headers; the form takes at most {MAX_HEADERS}")
    lines = [_header_line(name, value) for name, value in headers]
    if None not in lines:
        field, form = "\n".join(filter(None, lines)), LINES
    else:
        texts = [(name, None if value is None else _typed_text(value), value) for name, value in headers]
        rows = [
            [name, {"hex": value.hex()} if text is None and value is not None else text] for name, text, value in texts
        ]
        field, form = json.dumps(rows), JSON_HEADERS
    if len(field) > MAX_FIELD_LENGTH:
        raise BadQuery(f"the record's headers take {len(field)} characters; the form takes at most {MAX_FIELD_LENGTH}")
    return field, form


def _header_line(name: str, value: bytes | None) -> str | None:
    """A header as a line of the form; None if a line cannot have it."""
    text = "" if value is None else _typed_text(value)
    if text is None or "\n" in text or not name or ":" in name or name != name.strip() or not name.isprintable():
        return None
    return name if value is None else f"{name}: {text}"


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
    return NewRecord(destination, key, _bytes_of(query, "value"), _headers_in(query))


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


def _headers_in(query: Query) -> Headers:
    text = query.long("headers", MAX_FIELD_LENGTH)
    headers = _headers_of_json(text) if query.choice("headers_as", HEADER_FORMATS) == JSON_HEADERS else _of_lines(text)
    if len(headers) > MAX_HEADERS:
        raise BadQuery(f"{len(headers)} headers; the maximum is {MAX_HEADERS}")
    return headers


def _of_lines(text: str) -> Headers:
    """Headers, one per line: ``name: value``, or ``name`` alone for a null value."""
    lines = [part for part in text.replace("\r\n", "\n").split("\n") if part.strip()]
    headers: list[tuple[str, bytes | None]] = []
    for number, line in enumerate(lines, 1):
        name, colon, value = line.partition(":")
        if not name.strip():
            raise BadQuery(f"header {number} is not NAME: VALUE")  # Its content must not enter the audit log.
        headers.append((name.strip(), value.removeprefix(" ").encode() if colon else None))
    return tuple(headers)


def _headers_of_json(text: str) -> Headers:
    """Headers as a list of ``[name, value]``, with a value of text, null, or ``{"hex": digits}``."""
    try:
        return tuple(_header_of(row) for row in json.loads(text or "[]"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise BadQuery(
            'the headers must be a JSON list of [name, value], with text, null or {"hex": …} as value'
        ) from None


def _header_of(row: object) -> tuple[str, bytes | None]:
    if not isinstance(row, list):
        raise TypeError
    name, value = row
    return name.encode().decode(), _header_value(value)


def _header_value(value: object) -> bytes | None:
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"])
    if value is not None and not isinstance(value, str):
        raise ValueError
    return None if value is None else value.encode()
