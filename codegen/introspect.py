"""Reads kio's dataclasses of all versions of an API and merges them into one :class:`Api`."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import pkgutil
import types
import typing
import uuid
from collections.abc import Iterator
from dataclasses import MISSING
from typing import Any

from codegen.model import Api, Field, Struct, VersionRange
from codegen.newer_versions import add_newer_versions
from codegen.old_versions import add_old_versions
from codegen.primitives import KIO_TYPES
from codegen.tables import EXTENSIONS, RESPONSE_NAMES, TIME_SUFFIX

KioClass = type[Any]


def read_api(module: str) -> Api:
    """The API of kio's package ``kio.schema.<module>``."""
    package = importlib.import_module(f"kio.schema.{module}")
    versions = sorted(int(found.name[1:]) for found in pkgutil.iter_modules(package.__path__))
    roots = {
        direction: {version: _root(module, version, direction) for version in versions}
        for direction in ("response", "request")
    }
    newest = {direction: classes[versions[-1]] for direction, classes in roots.items()}
    flexible = [version for version in versions if roots["request"][version].__flexible__]
    if flexible and flexible != list(range(flexible[0], versions[-1] + 1)):
        raise ValueError(f"{module} is flexible in {flexible}")
    api = Api(
        key=int(newest["request"].__api_key__),
        module=module,
        request=newest["request"].__name__,
        response=newest["response"].__name__,
        versions=VersionRange.of(versions),
        first_flexible=flexible[0] if flexible else None,
    )
    for direction, classes in roots.items():
        for name, by_version in _by_name(classes).items():
            struct = _merge(name, by_version)
            if direction == "response":
                name = _rename(module, struct)
            struct.fields.extend(EXTENSIONS.get((module, name), ()))
            if api.structs.setdefault(name, struct) != struct:
                raise ValueError(
                    f"{module}: request and response each have a {name} of their own; "
                    "name the response's in RESPONSE_NAMES (codegen/tables.py)"
                )
    add_old_versions(api)
    add_newer_versions(api)
    return api


def _rename(module: str, struct: Struct) -> str:
    """Give the struct of a response, and those in it, the names that do not clash with the request's."""
    for field in struct.fields:
        if field.is_struct:
            field.type = RESPONSE_NAMES.get((module, field.type), field.type)
    struct.name = RESPONSE_NAMES.get((module, struct.name), struct.name)
    return struct.name


def _root(module: str, version: int, direction: str) -> KioClass:
    namespace = importlib.import_module(f"kio.schema.{module}.v{version}.{direction}")
    (root,) = (
        value
        for value in vars(namespace).values()
        if dataclasses.is_dataclass(value)
        and value.__module__ == namespace.__name__
        and getattr(value, "__type__").name == direction  # noqa: B009 - unknown to the type checker
    )
    return typing.cast("KioClass", root)


def _by_name(roots: dict[int, KioClass]) -> dict[str, dict[int, KioClass]]:
    """Every class under the roots, those before that others need."""
    found: dict[str, dict[int, KioClass]] = {}
    for version, root in sorted(roots.items(), reverse=True):
        for cls in _nested_first(root):
            found.setdefault(cls.__name__, {})[version] = cls
    return found


def _nested_first(cls: KioClass) -> Iterator[KioClass]:
    for item in dataclasses.fields(cls):
        inner = _Shape.of(item.type).inner
        if dataclasses.is_dataclass(inner):
            yield from _nested_first(inner)
    yield cls


class _Shape(typing.NamedTuple):
    """The parts of a kio annotation: ``tuple[X, ...] | None``."""

    inner: KioClass
    is_array: bool
    nullable: bool

    @classmethod
    def of(cls, annotation: Any) -> _Shape:
        nullable = False
        if isinstance(annotation, types.UnionType):
            (annotation,) = (part for part in typing.get_args(annotation) if part is not types.NoneType)
            nullable = True
        is_array = typing.get_origin(annotation) is tuple
        if is_array:
            annotation = typing.get_args(annotation)[0]
            if isinstance(annotation, types.UnionType):  # ids: kio's None is the zero id
                (annotation,) = (part for part in typing.get_args(annotation) if part is not types.NoneType)
        return cls(annotation, is_array, nullable)


def _merge(name: str, by_version: dict[int, KioClass]) -> Struct:
    """Merge the classes of all versions that have a struct into one."""
    order: list[str] = []
    fields: dict[str, dict[int, dataclasses.Field[Any]]] = {}
    for version, cls in sorted(by_version.items(), reverse=True):
        previous = -1
        for item in dataclasses.fields(cls):
            if item.name not in order:
                order.insert(previous + 1, item.name)
            position = order.index(item.name)
            if position <= previous:
                raise ValueError(f"{name} v{version} has its fields in another order")
            previous = position
            fields.setdefault(item.name, {})[version] = item
    return Struct(name, VersionRange.of(by_version), [_merge_field(name, fields[item]) for item in order])


def _merge_field(struct: str, by_version: dict[int, dataclasses.Field[Any]]) -> Field:
    newest = by_version[max(by_version)]
    shape = _Shape.of(newest.type)
    is_struct = dataclasses.is_dataclass(shape.inner)
    kio_type = shape.inner.__name__ if is_struct else newest.metadata["kafka_type"]
    is_time = kio_type.startswith(("timedelta", "datetime"))
    merged = Field(
        name=newest.name + TIME_SUFFIX if is_time else newest.name,
        type=KIO_TYPES.get(kio_type, kio_type),
        versions=VersionRange.of(by_version),
        is_struct=is_struct,
        is_array=shape.is_array,
        tag=newest.metadata.get("tag"),
    )
    nullable = []
    defaults = set()
    for version, item in by_version.items():
        here = _Shape.of(item.type)
        same = (here.inner.__name__, here.is_array) == (shape.inner.__name__, shape.is_array)
        if not same or item.metadata != newest.metadata:
            raise ValueError(f"{struct}.{newest.name} changes its type at version {version}")
        if here.nullable and not is_time and (here.is_array or merged.type != "uuid"):
            nullable.append(version)
        defaults.add(_default(item, merged))
    if nullable:
        merged.nullable = VersionRange.of(nullable)
    if len(defaults) != 1:
        raise ValueError(f"{struct}.{newest.name} has several defaults: {defaults}")
    (merged.default,) = defaults
    return merged


def _default(item: dataclasses.Field[Any], merged: Field) -> str | None:
    """A field's default as a Python expression; None where it is the type's own."""
    value = item.default
    if value is MISSING or value == () or dataclasses.is_dataclass(value) or isinstance(value, uuid.UUID):
        return None
    if isinstance(value, datetime.timedelta):
        return str(value // datetime.timedelta(milliseconds=1))
    if value is None:
        if merged.type == "int64" and not merged.is_array:
            return "-1"  # a time that kio shows as None
        return None if merged.type == "uuid" and not merged.is_array else "None"
    if isinstance(value, bool | str):
        return repr(value).replace("'", '"')
    return str(int(value))
