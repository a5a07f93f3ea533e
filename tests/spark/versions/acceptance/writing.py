"""Steps that write topics: batches and streams in both modes, and transactions of several writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.documented_loop import run_documented_loop
from tests.spark.sink.queries import committed_values
from tests.spark.versions.acceptance.reading import produce
from tests.spark.versions.acceptance.snippets import run, snippet
from tests.spark.versions.acceptance.user import User, once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PAGE = "docs/spark-sink.md"


def _example(user: User, part: int, topic: str, mode: str, options: str = "") -> str:
    """The first example of the page about the sink: its batch, or its stream."""
    text = f'.option("topic", "{topic}").option("exactlyOnce", "{mode}"){options}'
    changes = {"localhost:9092": user.bootstrap_servers, '.option("topic", "out")': text}
    code = snippet(_PAGE, "query = (", {**changes, "/data/checkpoints/out": str(user.directory / topic)})
    return code.split("\n\n")[part]


def _batch(user: User, mode: str) -> None:
    """Two writes, and one that is run again under the name it had."""
    topic = user.topic(f"batch-{mode}-in", 40)
    to = f"batch-{mode}-out"
    frame = topic.read(user.spark)
    run(_example(user, 0, to, mode), frame=frame)
    once(committed_values(user.bootstrap_servers, to), topic.values(), "after one write")
    run(_example(user, 0, to, mode), frame=frame)
    once(committed_values(user.bootstrap_servers, to), topic.values() * 2, "after two writes")
    for _ in range(2):
        run(_example(user, 0, to, mode, f'.option("jobId", "daily-{mode}")'), frame=frame)
    once(committed_values(user.bootstrap_servers, to), topic.values() * 3, "after a job that was run twice")


def batch_two_phase(user: User) -> None:
    """The batch sink in two phases."""
    _batch(user, "2pc")


def batch_ledger(user: User) -> None:
    """The batch sink with a ledger."""
    _batch(user, "ledger")


def _stream(user: User, mode: str) -> None:
    """A query that is stopped and started again on its checkpoint."""
    topic = user.topic(f"stream-{mode}-in", 40)
    to = f"stream-{mode}-out"
    frame = user.spark.readStream.format("oncelog").options(**user.options).option("subscribe", topic.name)
    rows = frame.option("startingOffsets", "earliest").load()
    for _ in range(2):
        query = run(_example(user, 1, to, mode), frame=rows)["query"]
        query.processAllAvailable()
        topic.produce(10)
        query.processAllAvailable()
        query.stop()
        sent = topic.values()
        topic.produce(10)
        once(committed_values(user.bootstrap_servers, to), sent, "values")


def stream_two_phase(user: User) -> None:
    """The stream sink in two phases."""
    _stream(user, "2pc")


def stream_ledger(user: User) -> None:
    """The stream sink with a ledger."""
    _stream(user, "ledger")


_FAILS_ONCE = """
def once_more(batch, epoch):
    import pathlib

    write(batch, epoch)
    if epoch == 1 and not pathlib.Path(DIED).exists():
        pathlib.Path(DIED).touch()
        raise RuntimeError("after the transaction, before Spark's note of it")
"""


def transactions(user: User) -> None:
    """``foreachBatch`` into two topics, an epoch of which Spark gives twice."""
    topic, place = user.topic("transactions", partitions=1), user.place("transactions")
    names = {"all": "transactions-all", "large": "transactions-large"}
    changes = {"localhost:9092": user.bootstrap_servers, **{f'topic="{n}"': f'topic="{to}"' for n, to in names.items()}}
    code = "import oncelog.spark\n" + snippet(_PAGE, "def write(batch, epoch)", changes) + _FAILS_ONCE
    write = run(code, DIED=str(place / "died"))["once_more"]
    values = [b'{"number": %d, "amount": %d}' % (number, number * 10) for number in range(40)]

    def writer() -> object:
        rows = user.spark.readStream.format("oncelog").options(**user.options).option("subscribe", topic.name)
        return (
            _amounts(rows.option("startingOffsets", "earliest").load())
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(place / "checkpoint"))
        )

    produce(topic, values[:20])
    run_documented_loop(writer())
    produce(topic, values[20:])
    with pytest.raises(Exception, match="after the transaction"):
        run_documented_loop(writer())
    run_documented_loop(writer())
    once(committed_values(user.bootstrap_servers, names["all"]), values, "all")
    large = [value for number, value in enumerate(values) if number * 10 > 100]
    once(committed_values(user.bootstrap_servers, names["large"]), large, "large")
    assert Path(place / "died").exists()


def _amounts(rows: DataFrame) -> DataFrame:
    return rows.selectExpr(
        "CAST(value AS STRING) AS value", "CAST(get_json_object(CAST(value AS STRING), '$.amount') AS INT) AS amount"
    )
