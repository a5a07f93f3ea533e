"""The page of a registry's schema: its text, where it is registered, and the schemas that it uses."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

from oncelog.base.notation import json_text
from oncelog.client.errors import ClientError
from oncelog.console.page import PageRequest
from oncelog.console.query import BadQuery
from oncelog.schemas.client.errors import RegistryError
from oncelog.schemas.schema import SchemaError, SchemaType


def read(page_request: PageRequest) -> Mapping[str, Any]:
    """A schema by its id or GUID in the registry of the cluster."""
    schema_id = _valid(page_request.query.text("id"))
    registry = page_request.registry
    if registry is None:
        raise BadQuery("this console has no schema registry; start it with --registry URL")
    try:
        fetched = registry.fetch(schema_id)
        places = registry.places(schema_id)
    except (RegistryError, SchemaError) as error:
        raise ClientError(str(error)) from None
    schema = fetched.schema
    text = schema.text
    if schema.type is not SchemaType.PROTOBUF:
        with suppress(ValueError, RecursionError):
            text = json_text.indented(text)
    return {
        "id": schema_id,
        "type": schema.type.value,
        "text": text,
        "places": [place._asdict() for place in places],
        "references": [
            {"name": used.name, "subject": used.subject, "version": used.version} for used in schema.references
        ],
    }


def _valid(text: str) -> str:
    """An id or GUID of a schema. Raises BadQuery."""
    if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < 2**32:
        return str(int(text))
    try:
        return str(UUID(text))
    except ValueError:
        raise BadQuery(f"{text!r:.60} is not a schema id: a number or a GUID") from None
