"""The sources' option that decodes JSON values, and the columns it adds. Works without pyarrow."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType

# The column with the reason why a row is bad; null for good rows.
BAD: Final = "_bad"
# The column with the time at the configured path.
TIME: Final = "_time"
OTHER_FIELDS: Final = "other_fields"
EVENT_TIME: Final = "event_time"
# The column with a row's bytes while it is shaped.
RAW: Final = "_value"
RECORD: Final = ("key", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
# The table's own columns.
RESERVED: Final = frozenset(
    name.lower() for name in (*RECORD, "value", OTHER_FIELDS, EVENT_TIME, BAD, TIME, RAW, "day", "hour", "offsets")
)
OPTION: Final = "decodeJson"


@dataclass(frozen=True)
class JsonDecoding:
    """``columns`` are decoded from values after ``skip_bytes`` (None: the value stays as it is); ``time_path`` leads to
    the event time."""

    columns: StructType | None
    skip_bytes: int = 0
    time_path: str | None = None

    option_name = OPTION

    @property
    def fields(self) -> list[StructField]:
        return [] if self.columns is None else list(self.columns.fields)

    def option(self) -> str:
        columns = None if self.columns is None else self.columns.jsonValue()
        return json.dumps([columns, self.skip_bytes, self.time_path])

    @classmethod
    def parse(cls, text: str) -> JsonDecoding:
        from pyspark.sql.types import StructType

        columns, skip_bytes, time_path = json.loads(text)
        return cls(None if columns is None else StructType.fromJson(columns), skip_bytes, time_path)

    def added_columns(self) -> list[StructField]:
        from pyspark.sql.types import StringType, StructField, TimestampType

        added = [StructField(field.name, field.dataType) for field in self.fields]
        if self.columns is not None:
            added.append(StructField(OTHER_FIELDS, StringType()))
        if self.time_path is not None:
            added.append(StructField(TIME, TimestampType()))
        return [*added, StructField(BAD, StringType())]
