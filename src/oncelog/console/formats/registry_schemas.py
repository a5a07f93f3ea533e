"""Schemas of a registry for the decoding process, which does not reach the network: the console fetches them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from oncelog.base.bounded_cache import text_bytes
from oncelog.base.units import MIB
from oncelog.schemas.client.caches import Cache
from oncelog.schemas.client.errors import RegistryError
from oncelog.schemas.client.registry import Registry, SubjectVersion
from oncelog.schemas.client.settings import RegistrySettings
from oncelog.schemas.formats.references import dependencies_of
from oncelog.schemas.schema import Schema

TIMEOUT_S: Final = 2.0  # Pages wait for the registry.
PLACES_S: Final = 60.0  # Age at which subjects and versions of a schema are asked for again.
_CACHE_BYTES: Final = 32 * MIB


@dataclass(frozen=True, slots=True)
class FetchedSchema:
    """A schema, those that it uses by name, and the places where it is registered. ``key`` is unique in a console."""

    key: str
    schema_id: str
    schema: Schema
    dependencies: dict[str, Schema]

    @property
    def kind(self) -> str:
        """The format's name on pages."""
        return self.schema.type.value.lower()

    def document(self) -> dict[str, Any]:
        """The schema and its dependencies for the decoding process."""
        return _document(self.schema) | {
            "dependencies": {name: _document(used) for name, used in self.dependencies.items()}
        }


class RegistrySchemas:
    """The schemas of one registry, for the threads that read pages."""

    def __init__(self, settings: RegistrySettings, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises RegistryConfigError."""
        self._registry = Registry(replace(settings, timeout_s=min(settings.timeout_s, TIMEOUT_S), retries=0))
        self._clock = clock
        self._fetched: Cache[str, FetchedSchema] = Cache(_CACHE_BYTES)
        self._places: Cache[str, tuple[list[SubjectVersion], float]] = Cache(MIB)

    def fetch(self, schema_id: str) -> FetchedSchema:
        """Raises RegistryError, SchemaError."""
        fetched = self._fetched.get(schema_id)
        if fetched is None:
            schema = self._registry.schema(schema_id)
            dependencies = dependencies_of(schema, self._registry.resolver())
            key = f"{self._registry.settings.urls[0]} {schema_id}"
            fetched = FetchedSchema(key, schema_id, schema, dependencies)
            size = sum(text_bytes(used.text) for used in (schema, *dependencies.values()))
            self._fetched.put(schema_id, fetched, size)
        return fetched

    def places(self, schema_id: str) -> list[SubjectVersion]:
        """The subjects and versions that have a schema; empty for a GUID, and if the registry does not tell."""
        if not schema_id.isdigit():
            return []
        places, until = self._places.get(schema_id) or ([], 0.0)
        if self._clock() >= until:
            try:
                places = self._registry.subject_versions(int(schema_id))
            except RegistryError:
                places = []
            size = sum(text_bytes(place.subject) for place in places)
            self._places.put(schema_id, (places, self._clock() + PLACES_S), 100 + size)
        return places

    def place(self, schema_id: str, subject: str) -> SubjectVersion | None:
        """The version in ``subject``, or the first place of all."""
        places = self.places(schema_id)
        return next((place for place in places if place.subject == subject), next(iter(places), None))

    def close(self) -> None:
        self._registry.close()


def _document(schema: Schema) -> dict[str, Any]:
    references = [[used.name, used.subject, used.version] for used in schema.references]
    return {"type": schema.type.value, "text": schema.text, "references": references}
