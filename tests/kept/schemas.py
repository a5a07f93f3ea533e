"""The topic of a schema registry in kept files: every kind of record, written and read by the registry of this tree."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.cli.registry.process import export_lines
from oncelog.client.blocking import Client
from oncelog.registry import changes
from oncelog.registry.library_formats import LibraryFormats
from oncelog.registry.registration import Request, register
from oncelog.registry.serving import Settings, opened
from oncelog.registry.steps import Program
from oncelog.registry.store import Store
from oncelog.registry.topic_records import TOPIC
from oncelog.schemas.schema import Schema, SchemaType

_Change = Callable[[Store], Program[Any]]
_UNCOMPACTED: Final = {"cleanup.policy": "compact", "segment.ms": str(2**63 - 1)}
"""All records stay in the active segment: replicas and readings compare equal."""
_AVRO: Final = Schema('"string"')
_PROTOBUF: Final = Schema('syntax = "proto3"; message Job { int64 id = 1; }', SchemaType.PROTOBUF)
_WEST: Final = ":.west:jobs-value"
_CHANGES: Final[tuple[_Change, ...]] = (
    lambda store: register(store, Request("orders-value", _AVRO)),
    lambda store: register(store, Request(_WEST, _PROTOBUF)),
    lambda store: register(store, Request("gone", _AVRO)),
    lambda store: changes.set_config(store, None, {"compatibilityLevel": "FULL"}),
    lambda store: changes.delete_version(store, _WEST, 1, permanent=False),
    lambda store: changes.delete_subject(store, "gone", permanent=False),
    lambda store: changes.set_mode(store, "orders-value", "READONLY", force=False),
)


def write_schemas(client: Client, replicas: int) -> None:
    create_topic(client, NewTopic(TOPIC, 1, replicas, _UNCOMPACTED))
    _change(client, *_CHANGES)


def register_schema(client: Client, subject: str) -> None:
    _change(client, lambda store: register(store, Request(subject, _AVRO)))


def schemas(client: Client) -> list[str]:
    """The registry's export, in its order."""
    output = io.StringIO()
    export_lines(_settings(client), output)
    return output.getvalue().splitlines()


def _change(client: Client, *programs: _Change) -> None:
    async def run() -> None:
        async with opened(_settings(client), LibraryFormats()) as registry:
            for program in programs:
                await registry.change(partial(program, registry.store))

    asyncio.run(run())


def _settings(client: Client) -> Settings:
    return Settings(",".join(f"{address.host}:{address.port}" for address in client.bootstrap))
