"""Ranges → Parquet files, by one Spark job: the ``oncelog`` source in, Spark's Parquet writer out.

The rule: a task reads one range and writes one file; the file's number is the task's, which is the range's index.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from oncelog.spark import register
from oncelog.spark.errors import SparkSourceError
from oncelog.spark.loading import ranges_option
from oncelog.spark.table import TableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oncelog.spark.load_plan import Piece

_PART: Final = re.compile(r"part-(\d+)-.*\.parquet")
_OUR_ERROR: Final = re.compile(r"^oncelog\.[\w.]+: (.+)$", re.MULTILINE)
_SETTINGS: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96, Spark's default, is deprecated elsewhere
    "spark.sql.files.maxRecordsPerFile": "0",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
}


class LoadFailed(SparkSourceError):
    """A Spark job failed; the text is the reason in one line."""


class SparkWriter:
    """Writes with a session of its own on the given session's Spark, so that no setting of the caller's changes."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self._spark = spark.newSession()
        for name, value in _SETTINGS.items():
            self._spark.conf.set(name, value)
        register(self._spark)
        self._options = {name: value for name, value in options.items() if name != "subscribe"}
        self.parallelism: int = spark.sparkContext.defaultParallelism

    def write(self, pieces: Sequence[Piece], directory: Path) -> dict[int, Path]:
        """Run the job. Raises LoadFailed."""
        reader = self._spark.read.format("oncelog").options(**self._options).option("ranges", ranges_option(pieces))
        try:
            reader.load().write.parquet(str(directory.absolute()))
        except Exception as error:
            raise one_line(error) from error
        files: dict[int, Path] = {}
        for path in sorted(directory.iterdir()):
            match = _PART.fullmatch(path.name)
            if match is None:
                continue
            if int(match[1]) in files or int(match[1]) >= len(pieces):
                raise TableError(f"Spark wrote {path.name}, but a task was to write one file")
            files[int(match[1])] = path
        return files


def one_line(error: Exception) -> LoadFailed:
    """Spark wraps a task's exception in pages of traceback; ours says in one line what is wrong."""
    ours = _OUR_ERROR.findall(str(error))
    return LoadFailed(ours[-1] if ours else "Spark: " + (str(error).strip() or repr(error)).splitlines()[0])
