"""The least size of an array's element: what a count is checked against before anything is allocated."""

from __future__ import annotations

from codegen.model import Api, Field, Struct
from codegen.primitives import PRIMITIVES


def element_size(api: Api, item: Field) -> int:
    """Least size in bytes of one element of the array, in any version."""
    if not item.is_struct:
        primitive = PRIMITIVES[item.type]
        return min(primitive.compact_size, primitive.legacy_size)
    struct = api.structs[item.type]
    return min(_struct_size(api, struct, version) for version in range(item.versions.first, item.versions.last + 1))


def _struct_size(api: Api, struct: Struct, version: int) -> int:
    flexible = api.first_flexible is not None and version >= api.first_flexible
    fields = (item for item in struct.plain_fields if item.versions.first <= version <= item.versions.last)
    return sum(_field_size(api, item, version, flexible) for item in fields) + flexible


def _field_size(api: Api, item: Field, version: int, flexible: bool) -> int:
    if item.is_array:
        return 1 if flexible else 4
    if item.is_struct:
        return 1 if item.nullable else _struct_size(api, api.structs[item.type], version)
    primitive = PRIMITIVES[item.type]
    return primitive.compact_size if flexible else primitive.legacy_size
