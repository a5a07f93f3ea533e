"""A parsed JSON schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Final
from urllib.parse import urldefrag, urljoin

from oncelog.schemas.formats import json_text
from oncelog.schemas.formats.json_schema.documents import Documents, Draft
from oncelog.schemas.formats.json_schema.keywords import check_schema
from oncelog.schemas.formats.limits import Budget
from oncelog.schemas.schema import Reference, Schema, SchemaError, SchemaType

# Steps that a regular expression of a schema may take on a value before the value counts as invalid.
_BACKTRACK_LIMIT: Final = 100_000
_VALIDATORS: Final = {
    Draft.DRAFT_4: "Draft4Validator",
    Draft.DRAFT_6: "Draft6Validator",
    Draft.DRAFT_7: "Draft7Validator",
    Draft.DRAFT_2019_09: "Draft201909Validator",
    Draft.DRAFT_2020_12: "Draft202012Validator",
}


@dataclass(frozen=True)
class JsonSchema:
    """``document`` is the schema as Python's values; ``documents`` resolves its references."""

    type: ClassVar = SchemaType.JSON
    text: str = field(repr=False)
    document: Any = field(repr=False, hash=False)
    references: tuple[Reference, ...]
    referenced: Mapping[str, Any] = field(repr=False, hash=False)
    documents: Documents = field(repr=False, hash=False)

    @property
    def name(self) -> str | None:
        title = self.document.get("title") if isinstance(self.document, dict) else None
        return title if isinstance(title, str) else None

    @cached_property
    def canonical(self) -> str:
        return json_text.write(json_text.read(self.text, exact=True))

    @cached_property
    def normalized(self) -> str:
        return json_text.write(json_text.read(self.text, exact=True), sort=True)

    @cached_property
    def validator(self) -> Any:
        """A validator of the library jsonschema-rs: ``is_valid(value)``, ``validate(value)``. It fetches nothing, and
        its regular expressions are bounded."""
        import jsonschema_rs

        root = self.documents.root
        resources = {
            address: document
            for name, document in self.referenced.items()
            for address in (name, urldefrag(urljoin(root.base, name)).url)
        }
        document = self.document
        if isinstance(document, dict):
            document = {keyword: value for keyword, value in document.items() if keyword != "$schema"}
        try:
            return getattr(jsonschema_rs, _VALIDATORS[root.draft])(
                document,
                registry=_registry(resources, root.draft),
                offline=True,
                pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACK_LIMIT),
            )
        except (ValueError, jsonschema_rs.ReferencingError) as error:
            raise SchemaError(f"the JSON schema is not valid: {error}") from None


def _registry(resources: Mapping[str, Any], draft: Draft) -> Any:
    if not resources:
        return None
    import jsonschema_rs

    number = getattr(jsonschema_rs, _VALIDATORS[draft].removesuffix("Validator"))
    return jsonschema_rs.Registry(list(resources.items()), draft=number, retriever=_refuse)


def _refuse(address: str) -> Any:
    raise SchemaError(f'the reference "{address}" is not among the references of the schema')


def parse_json_schema(schema: Schema, dependencies: Mapping[str, Schema]) -> JsonSchema:
    """``dependencies``: what the schema references, by name. Raises SchemaError."""
    budget = Budget()
    document = json_text.read(schema.text)
    check_schema(document, budget)
    referenced = {}
    for name, dependency in dependencies.items():
        referenced[name] = json_text.read(dependency.text)
        check_schema(referenced[name], budget, name)
    documents = Documents(document, referenced)
    documents.check_references()
    return JsonSchema(schema.text, document, schema.references, referenced, documents)
