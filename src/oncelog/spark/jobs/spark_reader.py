"""Ranges of topics → rows of a Spark job, a task each, through the ``oncelog`` source; and the errors of such jobs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.spark.format.data_source import register
from oncelog.spark.jobs.load_plan import Piece
from oncelog.spark.json_values.decoding import OPTION, JsonDecoding
from oncelog.spark.session.errors import SparkSourceError
from oncelog.spark.session.sessions import JobSession, known_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OUR_ERROR: Final = re.compile(r"^oncelog\.[\w.]+: (.+)$", re.MULTILINE)
_SETTINGS: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96, Spark's default, is deprecated elsewhere
    "spark.sql.files.maxRecordsPerFile": "0",
    "spark.sql.session.timeZone": "UTC",  # days of a partitioned table are UTC's
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
}


class LoadFailed(SparkSourceError):
    """A Spark job failed; the text is the reason in one line."""


class SparkReader:
    """Reads with the job's settings on the given session's Spark, so that no setting of the caller's changes."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self.job_session = JobSession(spark, _SETTINGS)
        register(self.session)
        self._options = {name: value for name, value in options.items() if name != "subscribe"}
        self.decoding: JsonDecoding | None = None
        """The decoding of JSON values in the tasks that read them."""
        self.parallelism: int = self.job_session.parallelism()

    @property
    def session(self) -> SparkSession:
        """The session that reads, and writes what was read."""
        return self.job_session.spark

    def read(self, pieces: Sequence[Piece]) -> DataFrame:
        """The rows of some ranges, a task each."""
        reader = self.session.read.format("oncelog").options(**self._options, **self.decoding_options())
        return reader.option("ranges", ranges_option(pieces)).load()

    def decoding_options(self) -> dict[str, str]:
        """The options of the source by which values are decoded."""
        return {} if self.decoding is None else {OPTION: self.decoding.option()}


def ranges_option(pieces: Sequence[Piece]) -> str:
    """The source's ``ranges`` option for some pieces, in their order."""
    ranges = (piece.wanted for piece in pieces)
    return json.dumps([[one.topic, one.partition, one.start, one.end, one.topic_id] for one in ranges])


def one_line_error(error: Exception) -> SparkSourceError:
    """The error of a Spark job in one line: a task's own message, without the traceback that Spark wraps it in."""
    if isinstance(error, SparkSourceError):
        return error
    ours = _OUR_ERROR.findall(str(error))
    return (None if ours else known_error(error)) or LoadFailed(
        ours[-1] if ours else "Spark: " + (str(error).strip() or repr(error)).splitlines()[0]
    )
