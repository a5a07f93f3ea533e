"""The memory of a Python worker that reads, stage by stage: how much of it is Spark's, imports, Arrow's, and data.

A worker's resident memory is looked at in the task itself (`bench.spark_stages`): when Spark has handed it the range to
read, when the modules that read are imported, when Arrow's functions are there and have been called once, and after
each batch. Beside it stands the most of a worker that reads nothing (`bench.spark_ceiling`), in a Spark of its own.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from pyspark.sql.datasource import DataSource

from bench.options import Options, progress
from bench.peers import Broker, running
from bench.report import Comparison
from bench.spark_ceiling import Ceiling
from bench.spark_processes import peak_memory
from bench.spark_source import chosen, fill_topic
from bench.spark_stages import LOG, STAGES, Staged


def spark_memory(options: Options) -> Comparison:
    """Memory of a reading worker by stage, beside one that reads nothing (--only)."""
    cases, _ = chosen([*(options.only or ("none", "lz4")), "1p"])
    goals = {f"{case.label}: {STAGES[-1]}, MB": "≤ 100 MB" for case in cases}
    comparison = Comparison("Memory of a worker", "oncelog", "doing nothing", goals)
    with (
        tempfile.TemporaryDirectory(prefix="oncelog-bench-") as name,
        running(options.ours.broker(Path(name))) as broker,
    ):
        os.environ[LOG] = str(Path(name) / "stages.json")
        topics = [(case, *fill_topic(broker, case, options.scale)) for case in cases]
        for number in range(options.repeat):
            progress(f"{comparison.title}: {number + 1} of {options.repeat}")
            mine: dict[str, float] = {}
            other: dict[str, float] = {}
            for case, topic, count in topics:
                nothing = _run(Ceiling, {"rows": str(count), "partitions": "1", "bytes": str(case.record_bytes)})
                for stage, size in _read(broker, topic).items():
                    mine[f"{case.label}: {stage}, MB"] = size / 1e6
                    other[f"{case.label}: {stage}, MB"] = nothing / 1e6
            comparison.add(mine, other)
    return comparison


def _read(broker: Broker, topic: str) -> dict[str, int]:
    """The bytes of a worker that reads a topic, by stage."""
    _run(Staged, {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic})
    stages: dict[str, int] = json.loads(Path(os.environ[LOG]).read_text("ascii"))
    return stages


def _run(source: type[DataSource], options: dict[str, str]) -> int:
    """Read to noop, in a Spark whose workers have done nothing yet; the most bytes that a worker had."""
    from oncelog.spark.session.local_session import local_session
    from oncelog.spark.source.read.range_reader import BATCH_BYTES

    given = options | ({"batch": str(BATCH_BYTES)} if source is Ceiling else {})
    with local_session(master="local[2]") as spark, peak_memory(os.getpid()) as peak:
        spark.dataSource.register(source)
        spark.read.format(source.name()).options(**given).load().write.format("noop").mode("overwrite").save()
    return peak.worker_bytes
