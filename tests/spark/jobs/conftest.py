"""The object store and the catalog of the tests of targets, for those that have a Spark session."""

from tests.unit.spark.targets.conftest import lake, rest, store

__all__ = ["lake", "rest", "store"]
