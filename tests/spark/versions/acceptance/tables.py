"""Steps of the commands: topics into Parquet, Delta and Iceberg, by loads and by streams that are killed; and back."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.spark.sink.queries import committed_values
from tests.spark.starting import NOT_IN_TIME
from tests.spark.versions.acceptance.reading import produce
from tests.spark.versions.acceptance.user import User, once
from tests.spark.versions.restarts import kill_group
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET: Final = "parquet"
_PACKAGES: Final = {"delta": "deltalake", "iceberg": "pyiceberg"}


def why_not(kind: str) -> str | None:
    """Why there are no tables of a kind here."""
    package = _PACKAGES.get(kind)
    return None if package is None or importlib.util.find_spec(package) else f"{package} is not installed"


def address(kind: str, place: Path) -> str:
    """The address of a table, as ``--to`` takes it."""
    return str(place) if kind == PARQUET else f"{kind}:{place}"


def table_at(kind: str, place: Path) -> pa.Table | None:
    """A table as its readers read it (``docs/jobs.md``); None before it has rows."""
    if kind == "delta":
        from deltalake import DeltaTable

        return DeltaTable(place).to_pyarrow_table() if (place / "_delta_log").exists() else None
    if kind == "iceberg":
        from pyiceberg.catalog import load_catalog

        if not (place / "catalog.db").exists():
            return None
        catalog = load_catalog("oncelog", uri=f"sqlite:///{place / 'catalog.db'}")
        try:
            name = f"oncelog.{place.name}"
            return catalog.load_table(name).scan().to_arrow() if catalog.table_exists(name) else None
        finally:
            catalog.close()
    import pyarrow.dataset

    if not [*place.glob("rows-*"), *place.glob("offsets=*")]:
        return None
    return pyarrow.dataset.dataset(place, format="parquet", partitioning="hive").to_table()


def column_of(kind: str, place: Path, name: str) -> list[object]:
    """All values of a column, as far as there is a table."""
    table = table_at(kind, place)
    return [] if table is None else table[name].to_pylist()


def load(kind: str) -> Callable[[User], None]:
    """Loads of decoded values, with a bad row, by the command and by the library."""

    def step(user: User) -> None:
        import oncelog.spark

        topic, place = user.topic(f"load-{kind}", partitions=1), user.place(f"load-{kind}")
        table = place / "table"
        values = [b'{"number": %d}' % number for number in range(60)]
        shaped = ("--value-format", "json", "--schema", "number INT", "--partition-by", "day")
        produce(topic, [*values[:30], b"bad"])
        result = user.run("load", topic.name, "--to", address(kind, table), *shaped)
        assert (result["rows"], result["quarantined"]) == (30, 1), result
        produce(topic, values[30:])
        shape = oncelog.spark.Shape("json", "number INT", partition_by="day")
        for rows in (30, 0):
            report = oncelog.spark.load(
                topic.name, user.bootstrap_servers, address(kind, table), spark=user.spark, shape=shape
            )
            assert report.rows == rows, report
        once(column_of(kind, table, "number"), range(60), "numbers")
        once(column_of(kind, table, "offset"), [n for n in range(61) if n != 30], "offsets")

    return step


def stream(kind: str) -> Callable[[User], None]:
    """A stream that is killed twice, and ended by SIGTERM."""

    def step(user: User) -> None:
        topic, place = user.topic(f"stream-{kind}", 30), user.place(f"stream-{kind}")
        table = place / "table"
        command = user.command("stream", topic.name, "--to", address(kind, table), "--trigger", "100 milliseconds")
        for rows, more in ((30, 30), (60, 30), (90, 0)):
            process = _running(command, rows, lambda: column_of(kind, table, "value"), place / "stream.log")
            try:
                topic.produce(more)
                if not more:
                    process.send_signal(signal.SIGTERM)
                    assert process.wait(HANG_S) == 0, (place / "stream.log").read_text()[-2000:]
            finally:
                kill_group(process)
        once(column_of(kind, table, "value"), topic.values(), "values")

    return step


def _running(command: list[str], rows: int, result: Callable[[], list[object]], log: Path) -> subprocess.Popen[bytes]:
    """The command, when so many rows are there; started again where Spark did not wait for its own processes."""
    while True:
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True, env={**os.environ}
            )
        try:
            wait_until(
                lambda it=process: it.poll() is not None or len(result()) >= rows,  # type: ignore[misc]
                lambda: f"{rows} rows: {len(result())} are there; {log.read_text()[-2000:]}",
                poll_s=0.2,
            )
        except BaseException:
            kill_group(process)
            raise
        if process.poll() is None:
            return process
        assert NOT_IN_TIME in log.read_text(), log.read_text()[-2000:]


def export(user: User) -> None:
    """A table into a topic, run again and again, with rows that come between."""
    import oncelog.spark
    from oncelog.spark.export import export as exported

    topic, place = user.topic("export", 30), user.place("export")
    table, to = place / "table", "export-out"
    oncelog.spark.load(topic.name, user.bootstrap_servers, table, spark=user.spark)
    for rows in (30, 0):
        assert user.run("export", str(table), to)["rows"] == rows
        once(committed_values(user.bootstrap_servers, to), topic.values(), "values")
    topic.produce(20)
    oncelog.spark.load(topic.name, user.bootstrap_servers, table, spark=user.spark)
    for rows in (20, 0):
        assert exported(table, to, user.bootstrap_servers, spark=user.spark).rows == rows
        once(committed_values(user.bootstrap_servers, to), topic.values(), "values")
