"""The decoding of JSON values as an option of the sources, and the columns it adds. Needs no pyarrow."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

BAD: Final = "_bad"
"""The column with the reason why a row is bad, null for others."""
TIME: Final = "_time"
"""The column of the time that a path leads to."""
OTHER_FIELDS: Final = "other_fields"
OPTION: Final = "decodeJson"


@dataclass(frozen=True)
class JsonDecoding:
    """``columns`` from the fields of values after ``skip_bytes`` (None: only the value as it is), and a time from
    ``time_path``."""

    columns: StructType | None
    skip_bytes: int = 0
    time_path: str | None = None

    @property
    def fields(self) -> list[StructField]:
        """The fields that become columns."""
        return [] if self.columns is None else list(self.columns.fields)

    def option(self) -> str:
        """The value of the sources' option."""
        columns = None if self.columns is None else self.columns.jsonValue()
        return json.dumps([columns, self.skip_bytes, self.time_path])

    @classmethod
    def parse(cls, text: str) -> JsonDecoding:
        """The decoding that ``option`` wrote."""
        from pyspark.sql.types import StructType

        columns, skip_bytes, time_path = json.loads(text)
        return cls(None if columns is None else StructType.fromJson(columns), skip_bytes, time_path)

    def added_columns(self) -> list[StructField]:
        """The columns that rows have behind the source's."""
        from pyspark.sql.types import StringType, StructField, TimestampType

        added = [StructField(field.name, field.dataType) for field in self.fields]
        if self.columns is not None:
            added.append(StructField(OTHER_FIELDS, StringType()))
        if self.time_path is not None:
            added.append(StructField(TIME, TimestampType()))
        return [*added, StructField(BAD, StringType())]
