"""One Spark process under measurement: `python -m bench.spark_side [--alone] [KEY=VALUE…]`, told what to read a line at
a time. ``--alone``: without the JVM connector, for a PySpark that there are no jars for.

Each side of a comparison has a process of its own, so that its memory is its own. A request is a JSON object: the
``format`` to read with, the ``options``, and ``to``, a directory for Parquet or nothing for the noop sink. The answer
is the seconds that the write took.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from tests.peers.jars import SPARK_CONNECTOR, jars_of

from bench.spark_ceiling import Ceiling
from bench.spark_watched import Watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAP: str = "1g"
"""Spark's own default for an executor."""
ALONE: Final = "--alone"
_COLUMNS = ("key", "value", "partition", "offset", "timestamp")


def write(spark: SparkSession, options: dict[str, Any]) -> float:
    """Read a topic into its sink."""
    frame = spark.read.format(options["format"]).options(**options["options"]).load()
    place = options.get("to")
    started = time.perf_counter()
    if place is None:
        frame.write.format("noop").mode("overwrite").save()
    else:
        frame.select(*_COLUMNS).write.mode("overwrite").parquet(place)
    took = time.perf_counter() - started
    if place is not None:
        shutil.rmtree(place)
    return took


def main() -> int:
    """Serve requests until the input ends."""
    from oncelog.spark.session.local_session import local_session

    settings = [argument for argument in sys.argv[1:] if argument != ALONE]
    config = {"spark.driver.memory": HEAP, "spark.sql.session.timeZone": "UTC"}
    if ALONE not in sys.argv:
        missing = SPARK_CONNECTOR.missing()
        if missing:
            print(json.dumps({"error": missing}), flush=True)
            return 1
        config["spark.jars"] = ",".join(map(str, jars_of(SPARK_CONNECTOR)))
    config |= dict(setting.split("=", 1) for setting in settings)
    with local_session(master="local[2]", config=config) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        spark.dataSource.register(Ceiling)
        spark.dataSource.register(Watched)
        print(json.dumps({"ready": spark.version}), flush=True)
        for line in sys.stdin:
            print(json.dumps({"seconds": write(spark, json.loads(line))}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
