"""Export and import of a registry: its records as JSON lines, with ids, contexts, configs and modes.

A line is `{"key": …, "value": …}`, both as in the topic `_schemas`. An import keeps every id. It is refused as a whole
if an id or a version is in use for another schema.

An import of more than ``MAX_RECORD_BYTES`` takes several batches. One that ends in between leaves the first of them,
and is completed by a repetition: references come before what refers to them, and the last ids before everything, so
that no registration in between gets an id of the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from oncelog.client.errors import ClientError
from oncelog.registry.steps import Append, Current, Program
from oncelog.registry.store import LAST_IDS, Store
from oncelog.registry.subjects import context_of
from oncelog.registry.topic_records import (
    Key,
    KeyType,
    TopicRecord,
    UnreadableRecord,
    Version,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)


class ImportRefused(ClientError):
    """Lines that are no export, or that contradict the registry."""


def exported(store: Store) -> Iterator[TopicRecord]:
    """Everything that the registry holds, in an order in which references follow what they refer to."""
    for context in sorted(store.contexts):
        yield TopicRecord(Key(KeyType.CONTEXT, context), {"tenant": "default", "context": context})
    versions = (version for name in store.subjects for version in store.versions(name, deleted=True))
    for version in sorted(versions, key=lambda version: (context_of(version.subject), version.id, version.version)):
        yield TopicRecord(Key(KeyType.SCHEMA, version.subject, version.version), version)
    for subject, config in store.configs.items():
        yield TopicRecord(Key(KeyType.CONFIG, subject), config)
    for subject, mode in store.modes.items():
        yield TopicRecord(Key(KeyType.MODE, subject), {"subject": subject, "mode": mode} if subject else {"mode": mode})
    yield store.marker()


def to_line(record: TopicRecord) -> str:
    key = encode_key(record.key).decode()
    value = "null" if record.value is None else encode_value(record.key, record.value).decode()
    return f'{{"key":{key},"value":{value}}}'


def read_lines(lines: Iterable[str]) -> Iterator[TopicRecord]:
    """Raises ImportRefused."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
            key = decode_key(json.dumps(document["key"]).encode())
            yield TopicRecord(key, decode_value(key, json.dumps(document["value"]).encode()))
        except (UnreadableRecord, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ImportRefused(f"line {number} is not one of an export: {error}") from None


def import_records(store: Store, records: list[TopicRecord]) -> Program[int]:
    """The number of records that were not there yet. Raises ImportRefused."""
    yield Current()
    new = [record for record in records if not _is_held(store, record)]
    _check_ids(store, [record.value for record in new if isinstance(record.value, Version)])
    for record in records:
        if record.key == LAST_IDS and record.value is not None:
            # Its own record stands for the ids given here and there.
            marker = store.marker(record.value)
            new[:0] = [marker] if marker != store.marker() else []
    if new:
        yield Append(tuple(new))
    return len(new)


def _is_held(store: Store, record: TopicRecord) -> bool:
    """Raises ImportRefused for a version that has another schema here."""
    key, value = record
    if isinstance(value, Version):
        present = store.version(value.subject, value.version, deleted=True)
        if present is not None and (present.guid, present.id) != (value.guid, value.id):
            raise ImportRefused(
                f"version {value.version} of {value.subject} is here another schema (id {present.id}, not {value.id}); "
                "import into an empty registry, or delete the subject first"
            )
        return present is not None and present.deleted == value.deleted
    if key.type is KeyType.CONTEXT:
        return key.subject in store.contexts
    if key.type is KeyType.MODE:
        return store.modes.get(key.subject) == (value or {}).get("mode")
    if key == LAST_IDS:
        return True
    if key.type is KeyType.CONFIG:
        return store.configs.get(key.subject) == value
    return False


def _check_ids(store: Store, versions: list[Version]) -> None:
    texts: dict[tuple[str, int], str] = {}
    for version in versions:
        context = context_of(version.subject)
        holder = store.by_id(version.id, context)
        text = texts.setdefault((context, version.id), version.schema.text if holder is None else holder.schema.text)
        if text != version.schema.text:
            raise ImportRefused(
                f"the id {version.id} of {version.subject} belongs to another schema here; import into an empty "
                "registry or into another context"
            )
