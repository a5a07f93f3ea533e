"""How the JVMs of tests start: twenty of them in a run, for seconds each.

Half of what such a JVM does is to load Spark's classes: unpack, parse and verify them. `python -m tests.spark.jvms`
does that once and keeps the result in an archive that JVMs map into memory (application class-data sharing, JEP 310
and 350). An archive is for one JVM, one class path and unchanged jars, all of which the JVM checks itself; where it
does not fit, or is not there, classes are loaded as ever.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from oncelog.spark.session.spark_home import VARIABLE, create_unpacked_home
from tests.peers.supply import WORK
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT_LIVED: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""Compiling for hours is half of what a JVM does that lives for seconds."""
SUBMIT_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_QUIET: Final = "-Xlog:disable"
"""Of the JVM's own words, on standard output, about an archive that does not fit."""
_WHERE_IT_WAS: Final = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
"""The archive is mapped to the addresses it was written for; at others all its pointers are changed."""


@cache
def spark_home() -> Path:
    """The directory Spark is started from: always the same, for archives are bound to their class path."""
    import pyspark

    installed = Path(next(iter(pyspark.__path__)))
    java = _java()
    known = f"{installed} {(installed / 'jars').stat().st_mtime_ns} {java} {java.stat().st_mtime_ns}"
    home = WORK / "spark" / pyspark.__version__ / hashlib.sha256(known.encode()).hexdigest()[:12]
    if not home.is_dir():
        home.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=home.parent))
        if not create_unpacked_home(made):
            return installed
        try:
            made.rename(home)
        except OSError:  # another worker was quicker
            shutil.rmtree(made)
    return home


def java_options() -> tuple[str, ...]:
    """Options of every JVM with Spark in it."""
    archive = _archive()
    if not archive.exists():
        return SHORT_LIVED
    return (*SHORT_LIVED, _QUIET, *_WHERE_IT_WAS, f"-XX:SharedArchiveFile={archive}")


def class_path() -> str:
    """Spark's, as its own scripts write it; the one that an archive is for."""
    jars = spark_home() / "jars"
    return ":".join([str(spark_home() / "conf"), *map(str, jars.glob("slf4j-api-*")), str(jars / "*")])


def prepare() -> None:
    """Have all JVMs that this process and its children start from now on start so."""
    os.environ.setdefault(VARIABLE, str(spark_home()))
    os.environ.setdefault(SUBMIT_OPTIONS, " ".join(java_options()))


def make_archive() -> None:
    """Run what loads the usual classes, and keep them; archives for other JVMs or jars of this version go."""
    for old in spark_home().parent.glob("*.jsa"):
        old.unlink()
    made = _archive().with_suffix(f".{os.getpid()}")
    os.environ[VARIABLE] = str(spark_home())
    os.environ[SUBMIT_OPTIONS] = " ".join((*SHORT_LIVED, _QUIET, f"-XX:ArchiveClassesAtExit={made}"))
    from pyspark import SparkContext

    from oncelog.spark.session.local_session import local_session

    config = {"spark.sql.shuffle.partitions": "1", "spark.log.level": "OFF"}
    with (
        tempfile.TemporaryDirectory() as directory,
        local_session(log=Path(os.devnull), master="local[1]", config=config) as session,
    ):
        _use(session, Path(directory))
    jvm = SparkContext._gateway.proc
    jvm.stdin.close()  # which ends it
    jvm.wait(HANG_S)
    if made.exists():
        made.rename(_archive())


def _use(session: SparkSession, directory: Path) -> None:
    """A batch and a stream, with what most queries of tests have in them."""
    from pyspark.sql import functions as f

    table, copy = str(directory / "table"), str(directory / "copy")
    rows = session.range(100).select("id", (f.col("id") % 7).alias("key"), f.lit('{"a": 1}').alias("text"))
    rows.groupBy("key").count().orderBy("key").collect()
    rows.write.partitionBy("key").parquet(table)
    stream = session.readStream.schema("id bigint, key int, text string").parquet(table)
    stream = stream.select("id", f.from_json("text", "a int").alias("value"))
    options = {"checkpointLocation": str(directory / "checkpoint")}
    stream.writeStream.format("parquet").options(**options).trigger(availableNow=True).start(copy).awaitTermination()
    session.read.parquet(copy).toArrow()


def _archive() -> Path:
    return spark_home().parent / f"{spark_home().name}.jsa"


def _java() -> Path:
    """The one that Spark's scripts take."""
    home = os.environ.get("JAVA_HOME")
    return (Path(home, "bin", "java") if home else Path(shutil.which("java") or sys.executable)).resolve()


if __name__ == "__main__":
    if not _archive().exists():
        make_archive()
