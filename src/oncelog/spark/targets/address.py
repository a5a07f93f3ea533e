"""Parses table addresses: ``DIR``, ``delta:PLACE``, ``iceberg:DIR``, or in a catalog ``iceberg:NAMESPACE.TABLE``.

Names with dots and no slash belong to a catalog. Storage options may be secrets, so nothing here or below prints them:
errors name keys, never values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from oncelog.spark.session.errors import OptionError
from oncelog.spark.table.directory import OBJECT_STORE

Format = Literal["delta", "iceberg"]
_FORMATS: Final[Mapping[str, Format]] = {"delta": "delta", "iceberg": "iceberg"}
_ENDPOINTS: Final = ("aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint")
_IDENTIFIER: Final = re.compile(r"[^./:\s]+(\.[^./:\s]+)+")


@dataclass(frozen=True, slots=True)
class TableAddress:
    """``place`` is a directory, a URI, or with ``catalog`` an identifier there."""

    kind: Format
    place: str
    catalog: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def quarantine(self) -> TableAddress:
        suffix = "_quarantine" if self.catalog is not None else "-quarantine"
        return TableAddress(self.kind, self.place + suffix, self.catalog, self.options)

    @property
    def is_directory(self) -> bool:
        return self.catalog is None and OBJECT_STORE.match(self.place) is None

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}"


def parse_address(to: str, catalog: str | None, options: Mapping[str, str]) -> TableAddress | None:
    """Parse the address of a Delta or Iceberg table; None for a directory of Parquet files. Raises OptionError."""
    name, separator, place = to.partition(":")
    kind = _FORMATS.get(name) if separator else None
    if kind is None:
        if catalog is not None or options:
            raise OptionError("a catalog and storage options are only for tables at delta:… and iceberg:…")
        return None
    if not place:
        raise OptionError(f"{to!r} names no table: write {kind}:DIR, or {_other_example(kind)}")
    if kind == "delta":
        if catalog is not None:
            raise OptionError("a catalog is only for tables at iceberg:NAMESPACE.TABLE; a Delta table needs none")
        return TableAddress(kind, place.rstrip("/"), None, _delta_options(place, options))
    if catalog is not None and not _IDENTIFIER.fullmatch(place):
        raise OptionError(f"a table of catalog {catalog!r} must be written iceberg:NAMESPACE.TABLE, got {to!r}")
    if catalog is None and OBJECT_STORE.match(place):
        raise OptionError(
            f"an Iceberg table on an object store needs a catalog: name it with --catalog and write the table as "
            f"iceberg:NAMESPACE.TABLE instead of {to!r}"
        )
    # A forgotten catalog must not create a directory of that name.
    if kind == "iceberg" and catalog is None and _IDENTIFIER.fullmatch(place):
        raise OptionError(
            f"{to!r} is a table of a catalog: name the catalog with --catalog (catalog= in Python); for a directory, "
            f"write iceberg:./{place}"
        )
    return TableAddress(kind, place.rstrip("/"), catalog, dict(options))


def _other_example(kind: Format) -> str:
    return "delta:s3://BUCKET/PATH" if kind == "delta" else "iceberg:NAMESPACE.TABLE with a catalog"


def _delta_options(place: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options, with plain HTTP allowed if the configured endpoint uses it."""
    lowered = {name.lower(): value for name, value in options.items()}
    endpoints = [lowered[name] for name in _ENDPOINTS if name in lowered] or [os.environ.get("AWS_ENDPOINT_URL", "")]
    is_http = place.startswith(("s3:", "s3a:")) and endpoints[0].startswith("http://")
    is_set = any(name in ("allow_http", "aws_allow_http") for name in lowered)
    return {**options, "aws_allow_http": "true"} if is_http and not is_set else dict(options)
