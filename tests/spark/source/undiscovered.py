"""A program whose Spark finds no Python sources by itself: loads, streams and exports all the same.

Spark looks for packages ``pyspark_*`` in a process; here one of them ends that process, as a time-out does.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from oncelog.spark import load, register, stream
from oncelog.spark.export import export
from oncelog.spark.jobs.stream_query import StreamRequest
from oncelog.spark.session.local_session import local_session


def main(servers: str, topic: str, place: Path) -> None:
    """Print the rows that each job has had."""
    deadly = place / "path" / "pyspark_deadly"
    deadly.mkdir(parents=True)
    (deadly / "__init__.py").write_text("import os\nos._exit(3)\n", encoding="ascii")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(deadly.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    once = StreamRequest("available-now")
    with local_session(log=place / "spark.log", master="local[1]") as spark:
        reader = spark.read.format("oncelog").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        try:
            reader.load()
        except Exception as error:  # noqa: BLE001 - Spark's, by which a user knows it
            print("oncelog.DefaultSource" in str(error))
        rows = [load(topic, servers, place / "loaded", spark=spark).rows]
        rows.append(export(place / "loaded", f"{topic}-copy", servers, spark=spark).rows)
        rows.append(stream(topic, servers, place / "streamed", once, spark=spark).rows)
        register(spark)  # known to the user's session, it must be to those of the jobs, too
        rows.append(reader.load().count())
        rows.append(stream(topic, servers, place / "again", once, spark=spark).rows)
        rows.append(export(place / "again", f"{topic}-again", servers, spark=spark).rows)
        print(rows)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
