"""The step with a Declarative Pipeline: that of ``docs/spark-pipelines.md``, by ``spark-pipelines run``."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.spark.sink.queries import committed_values
from tests.spark.starting import NOT_IN_TIME
from tests.spark.versions.acceptance.reading import produce
from tests.spark.versions.acceptance.snippets import snippet
from tests.spark.versions.acceptance.user import User, once
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RUNS: Final = 3
_NEW: Final = 20
"""Rows that come before each run."""
_SPEC: Final = """
name: flights
storage: file://{directory}/storage
libraries:
  - glob:
      include: transformations/**
"""
_METASTORE: Final = "spark.sql.catalogImplementation=hive"


def why_not(user: User) -> str | None:
    """Why there are no pipelines here."""
    return None if user.version >= (4, 1) else "Spark 4.0 has no Declarative Pipelines"


def three_runs(user: User) -> None:
    """Three runs with rows that come between, then one that makes everything anew."""
    place = user.place("pipeline")
    topic = user.topic("flights", partitions=1)
    (place / "transformations").mkdir()
    definitions = snippet(
        "docs/spark-pipelines.md", "@dp.materialized_view", {"localhost:9092": user.bootstrap_servers}
    )
    (place / "transformations" / "flights.py").write_text(definitions)
    (place / "spark-pipeline.yml").write_text(_SPEC.format(directory=place))
    values: list[bytes] = []
    for _ in range(RUNS):
        new = range(len(values), len(values) + _NEW)
        values += [b'{"carrier": "C%d", "origin": "JFK", "delay": %d}' % (number, number * 5) for number in new]
        produce(topic, values[-_NEW:])
        _run(user, place)
        _check(user, place, values)
        once(_late(user), _more_than_an_hour(values), "late flights")
    _run(user, place, "--full-refresh-all")
    _check(user, place, values)
    again = Counter(_late(user)) - Counter(_more_than_an_hour(values))
    once(sorted(again.elements()), _more_than_an_hour(values), "late flights, written by a new query")


def _more_than_an_hour(values: list[bytes]) -> list[bytes]:
    return sorted(value for number, value in enumerate(values) if number * 5 > 60)


def _late(user: User) -> list[bytes]:
    return committed_values(user.bootstrap_servers, "late-flights")


def _check(user: User, place: Path, values: list[bytes]) -> None:
    """The streaming table has each row once, the view all that is in the topic."""
    carriers = [row.carrier for row in _table(user, place, "flights").select("value.carrier").collect()]
    once(carriers, [f"C{number}" for number in range(len(values))], "flights")
    assert [row["count"] for row in _table(user, place, "by_partition").collect()] == [len(values)]


def _table(user: User, place: Path, name: str) -> DataFrame:
    """A table of the pipeline: of the server that ran it, or where the warehouse of its metastore is."""
    if user.remote is None:
        return user.spark.read.parquet(str(place / "spark-warehouse" / name))
    user.spark.catalog.refreshTable(name)  # another session wrote it
    return user.spark.read.table(name)


def _run(user: User, place: Path, *arguments: str) -> None:
    """``spark-pipelines run``, by itself or on the server; again where Spark did not wait for its own processes."""
    command = [str(user.python.with_name("spark-pipelines")), "run", "--spec", str(place / "spark-pipeline.yml")]
    command += ["--conf", _METASTORE] if user.remote is None else ["--remote", user.remote]
    while True:
        done = subprocess.run(
            [*command, *arguments],
            cwd=place,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        if done.returncode == 0:
            return
        message = done.stdout + done.stderr
        assert NOT_IN_TIME in message, message[-4000:]
