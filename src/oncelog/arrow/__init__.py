"""Topics as Arrow record batches without Spark, through ``oncelog.read_arrow``: for notebooks, pandas, Polars, DuckDB.

Uses the Spark source's decoder (``records.columns``) over the blocking client. Needs numpy and pyarrow from the
``spark`` extra, and no Java.
"""

from oncelog.arrow.acquired_columns import read_acquired_arrow
from oncelog.arrow.offset_ranges import Place, Positions, RecordsGone
from oncelog.arrow.topic_reader import ArrowReader, read_arrow

__all__ = ["ArrowReader", "Place", "Positions", "RecordsGone", "read_acquired_arrow", "read_arrow"]
