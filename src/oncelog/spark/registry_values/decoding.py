"""The schema that a query or load reads its values by: resolved once, where the query starts, and sent to its tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Self

from oncelog.schemas.client.errors import RegistryError
from oncelog.schemas.client.registry import LATEST, Registry
from oncelog.schemas.client.settings import parse_settings
from oncelog.schemas.schema import Reference, Schema, SchemaError, SchemaType
from oncelog.schemas.wire_format import VALUE
from oncelog.spark.json_values.decoding import BAD, RESERVED
from oncelog.spark.session.errors import OptionError, SparkSourceError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructField, StructType

    from oncelog.schemas.columns.registered import RegisteredColumns

OPTION: Final = "decodeRegistrySecret"
"""Spark hides options by their names, in plans, pages and logs: this one may hold a password."""
_MISSING: Final = {
    "fastavro", "google", "jsonschema_rs", "numpy", "pyarrow",
}  # fmt: skip


@dataclass(frozen=True)
class RegistryDecoding:
    """``schema`` is the version of ``subject`` that all values are read by. With ``columns``, its fields become the
    table's; without, the key or value itself is decoded. ``fails``: a bad record ends the query. ``follows``: the
    subject's latest version was chosen, whichever that is."""

    url: str = field(repr=False)  # may hold a password, as the settings do
    settings: Mapping[str, str] = field(repr=False)
    subject: str
    version: int
    schema: Schema
    context: str = ""
    part: str = VALUE
    message: str | None = None
    columns: StructType | None = None
    fails: bool = False
    follows: bool = False

    option_name = OPTION

    @classmethod
    def resolve(
        cls,
        url: str,
        settings: Mapping[str, str] | None = None,
        *,
        subject: str,
        version: int | str = LATEST,
        part: str = VALUE,
        message: str | None = None,
        fails: bool = False,
    ) -> Self:
        """Ask the registry. Raises OptionError, which names the subject and the reason."""
        try:
            from oncelog.schemas.columns.registered import reader_schema

            with Registry(url, settings) as registry:
                schema, context, number = reader_schema(registry, subject, version)
        except RegistryError as error:
            raise OptionError(f"the schema of subject {subject!r}, version {version}: {error}") from None
        except ModuleNotFoundError as error:
            raise _lacking(error) from None
        follows = version == LATEST
        return cls(url, dict(settings or {}), subject, number, schema, context, part, message, None, fails, follows)

    def current(self) -> Self:
        """The same by the latest version, if that was chosen. Raises OptionError."""
        if not self.follows:
            return self
        return self.resolve(
            self.url, self.settings, subject=self.subject, part=self.part, message=self.message, fails=self.fails
        )

    def is_outdated(self) -> bool:
        """True if the latest version was chosen, and is another one by now. Raises SparkSourceError."""
        if not self.follows:
            return False
        try:
            return self._client().version(self.subject).version != self.version
        except RegistryError as error:
            raise SparkSourceError(f"the registry at {self.shown_url}: {error}") from error

    def with_columns(self, columns: StructType | None) -> Self:
        return replace(self, columns=columns)

    def option(self) -> str:
        columns = None if self.columns is None else self.columns.jsonValue()
        schema = self.schema
        references = [[used.name, used.subject, used.version] for used in schema.references]
        document = {
            "place": [self.url, dict(self.settings), self.subject, self.version, self.context],
            "schema": [schema.text, schema.type.value, references],
            "reading": [self.part, self.message, columns, self.fails],
        }
        return json.dumps(document)

    @classmethod
    def parse(cls, text: str) -> Self:
        document = json.loads(text)
        schema_text, kind, references = document["schema"]
        url, settings, subject, version, context = document["place"]
        part, message, columns, fails = document["reading"]
        schema = Schema(schema_text, SchemaType(kind), tuple(Reference(*reference) for reference in references))
        if columns is not None:
            from pyspark.sql.types import StructType

            columns = StructType.fromJson(columns)
        return cls(url, settings, subject, version, schema, context, part, message, columns, fails)

    @property
    def shown_url(self) -> str:
        """The registry's URLs without credentials."""
        return ",".join(parse_settings(self.url, self.settings).urls)

    def registered(self) -> RegisteredColumns:
        """The decoder; its client is kept by the process. Raises OptionError for a schema that cannot be columns."""
        try:
            from oncelog.schemas.columns.registered import RegisteredColumns

            return RegisteredColumns(
                self._client(),
                self.schema,
                self.part,
                message=self.message,
                context=self.context,
                subject=self.subject,
            )
        except (SchemaError, RegistryError) as error:
            raise OptionError(f"subject {self.subject!r}, version {self.version}, as columns: {error}") from None
        except ModuleNotFoundError as error:
            raise _lacking(error) from None

    def _client(self) -> Registry:
        return _registry(self.url, tuple(sorted(self.settings.items())))

    def arrow_type(self) -> pa.DataType:
        """The type of the decoded part in Spark."""
        from oncelog.spark.registry_values.arrow_types import storable

        return storable(self.registered().type)

    def field_type(self) -> Any:
        """The same as Spark's type."""
        from pyspark.sql.pandas.types import from_arrow_type

        return from_arrow_type(self.arrow_type(), prefer_timestamp_ntz=True)

    def added_columns(self) -> list[StructField]:
        """The columns that follow the source's own."""
        from pyspark.sql.types import BinaryType, StringType, StructField

        if self.columns is not None:
            return [
                *(StructField(field.name, field.dataType) for field in self.columns),
                StructField(BAD, StringType()),
            ]
        if self.fails:
            return []
        return [StructField(f"{self.part}_error", StringType()), StructField(f"{self.part}_bytes", BinaryType())]


def column_name(field: str) -> str:
    # Beside the table's own ``timestamp``, a value's is ``value_timestamp``.
    return f"value_{field}" if field.lower() in RESERVED else field


@lru_cache(maxsize=8)
def _registry(url: str, settings: tuple[tuple[str, str], ...]) -> Registry:
    # One client for the tasks of a process: it keeps the schemas by id.
    return Registry(parse_settings(url, dict(settings)))


def _lacking(error: ModuleNotFoundError) -> Exception:
    if (error.name or "").partition(".")[0] not in _MISSING:
        return error
    return OptionError(
        f"values of a registry need the package {error.name!r}: pip install 'oncelog[spark,registry]' where Spark's "
        "Python is"
    )
