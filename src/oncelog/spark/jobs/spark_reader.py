"""Reads ranges of topics as rows of a Spark job, one task each, and turns such a job's errors into one line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.spark.format.data_source import register
from oncelog.spark.jobs.load_plan import Piece
from oncelog.spark.json_values.decoding import JsonDecoding
from oncelog.spark.registry_values.decoding import RegistryDecoding
from oncelog.spark.session.errors import SparkSourceError
from oncelog.spark.session.sessions import JobSession, known_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OUR_ERROR: Final = re.compile(r"^oncelog\.[\w.]+: (.+)$", re.MULTILINE)
_SETTINGS: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # Spark's default, INT96, is deprecated
    "spark.sql.files.maxRecordsPerFile": "0",
    "spark.sql.session.timeZone": "UTC",  # a partitioned table has UTC days
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
}


class LoadFailed(SparkSourceError):
    """A Spark job failed; the text is the reason in one line."""


class SparkReader:
    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self.job_session = JobSession(spark, _SETTINGS)
        register(self.session)
        self._options = {name: value for name, value in options.items() if name != "subscribe"}
        # How the reading tasks decode values.
        self.decoding: JsonDecoding | RegistryDecoding | None = None
        self.parallelism: int = self.job_session.parallelism()

    @property
    def session(self) -> SparkSession:
        return self.job_session.spark

    def read(self, pieces: Sequence[Piece]) -> DataFrame:
        reader = self.session.read.format("oncelog").options(**self._options, **self.decoding_options())
        return reader.option("ranges", ranges_option(pieces)).load()

    def decoding_options(self) -> dict[str, str]:
        return {} if self.decoding is None else {self.decoding.option_name: self.decoding.option()}

    def is_outdated(self) -> bool:
        """True if the registry has a newer schema than that which values are read by. Raises SparkSourceError."""
        return isinstance(self.decoding, RegistryDecoding) and self.decoding.is_outdated()


def ranges_option(pieces: Sequence[Piece]) -> str:
    ranges = (piece.offset_range for piece in pieces)
    return json.dumps(
        [
            [offset_range.topic, offset_range.partition, offset_range.start, offset_range.end, offset_range.topic_id]
            for offset_range in ranges
        ]
    )


def one_line_error(error: Exception) -> SparkSourceError:
    """A Spark job's error in one line: a task's own message without Spark's traceback."""
    if isinstance(error, SparkSourceError):
        return error
    ours = _OUR_ERROR.findall(str(error))
    return (None if ours else known_error(error)) or LoadFailed(
        ours[-1] if ours else "Spark: " + (str(error).strip() or repr(error)).splitlines()[0]
    )
