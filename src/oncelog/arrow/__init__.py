"""Topics as Arrow record batches, without Spark: ``oncelog.read_arrow``. For notebooks, pandas, Polars, DuckDB.

The same decoder as the Spark source's (``records.columns``), over the blocking client. ``offset_ranges`` says where to
begin, end and go on, ``topic_reader`` reads. Needs the ``spark`` extra's numpy and pyarrow, and no Java.
"""

from oncelog.arrow.offset_ranges import Place, Positions, RecordsGone
from oncelog.arrow.topic_reader import ArrowReader, read_arrow

__all__ = ["ArrowReader", "Place", "Positions", "RecordsGone", "read_arrow"]
