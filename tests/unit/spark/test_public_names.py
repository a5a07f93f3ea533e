"""The names that the README and the guides promise, importable where they say, whatever was imported before."""

from __future__ import annotations

from pathlib import Path

import oncelog.spark
import oncelog.spark.format.data_source
import oncelog.spark.format.foreach_batch
import oncelog.spark.jobs.load_job
import oncelog.spark.jobs.stream_query
import oncelog.spark.table.compact
import oncelog.spark.targets.entry
import pyspark_oncelog
from oncelog.spark.export import export

ROOMS = {path.stem for path in Path(oncelog.spark.__file__).parent.iterdir()}


def test_every_public_name_is_there_and_is_no_module() -> None:
    for name in oncelog.spark.__all__:
        assert callable(getattr(oncelog.spark, name)), name
    assert callable(export)
    assert pyspark_oncelog.DefaultSource is oncelog.spark.OncelogSource


def test_no_room_has_a_public_names_place() -> None:
    """An imported submodule becomes an attribute of its package: ``oncelog.spark.load`` would be a module then."""
    assert ROOMS.isdisjoint(oncelog.spark.__all__)
