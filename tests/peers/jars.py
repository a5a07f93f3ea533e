"""The jars that come through Maven: Apache Kafka of today and of old, Streams and Connect, Spark's connector and Avro.

Apache Kafka 4.4.0 is the reference. `ONCELOG_KAFKA_VERSION=4.3.1` runs brokers, tools and Java clients of that release
instead. `ONCELOG_KAFKA_JARS` and `ONCELOG_ECOSYSTEM_JARS` name directories that have the jars already. Streams and
Connect are apart for the seventy megabytes of RocksDB that come with them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from tests.peers.supply import Run, Supply

KAFKA_VERSIONS: Final = ("4.4.0", "4.3.1")
"""Releases of today: the reference, and the newest one whose own tests are on Maven."""
REFERENCE_VERSION: Final = KAFKA_VERSIONS[0]
KAFKA_VERSION: Final = os.environ.get("ONCELOG_KAFKA_VERSION", REFERENCE_VERSION)
"""The release of brokers, tools and Java clients where a test names none."""
TESTED_VERSION: Final = KAFKA_VERSIONS[1]
"""The release of Streams, Connect, MirrorMaker and the judge of groups."""

FLINK_VERSION: Final = "2.2.1"

_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>oncelog.peers</groupId>
  <artifactId>peers</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY: Final = """\
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
    </dependency>"""
_CLASSIFIED: Final = """\
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version><classifier>{}</classifier>
    </dependency>"""
_MAVEN: Final = ("mvn", "-B", "-Dstyle.color=never")
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"


def _with_all_they_need(pom: str, place: Path, run: Run) -> None:
    (place / "pom.xml").write_text(pom, encoding="utf-8")
    run([*_MAVEN, "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=."], place)


def _as_they_are(artifacts: Sequence[str], place: Path, run: Run) -> None:
    for artifact in artifacts:
        run([*_MAVEN, _COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={place}"], place)


def _project(title: str, folder: str, variable: str, *artifacts: str) -> Supply:
    """Artifacts with everything they depend on at run time."""
    pom = _POM.format(dependencies="\n".join(_DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts))
    recipe = partial(_with_all_they_need, pom)
    return Supply(title, "mvn", "Maven", folder, pom.encode, recipe, variable)


def _artifacts(title: str, folder: str, *artifacts: str) -> Supply:
    """These artifacts and nothing else."""
    return Supply(title, "mvn", "Maven", folder, "\n".join(artifacts).encode, partial(_as_they_are, artifacts))


def _group_judge() -> Supply:
    """The classes of Apache Kafka's own tests around its group coordinator, and a program that drives them."""
    program = Path(__file__).parents[1] / "conformance" / "groups" / "GroupJudge.java"
    tests = ("group-coordinator", "coordinator-common", "clients", "server-common", "metadata")
    dependencies = [
        *(_CLASSIFIED.format("org.apache.kafka", f"kafka-{name}", TESTED_VERSION, "test") for name in tests),
        *(
            _DEPENDENCY.format(*artifact.split(":"))
            for artifact in (
                f"org.apache.kafka:kafka-group-coordinator:{TESTED_VERSION}",
                "org.junit.jupiter:junit-jupiter:5.13.1",
                "org.mockito:mockito-core:5.20.0",
                "org.slf4j:slf4j-nop:1.7.36",
            )
        ),
    ]
    pom = _POM.format(dependencies="\n".join(dependencies))

    def make(place: Path, run: Run) -> None:
        _with_all_they_need(pom, place, run)
        run(["javac", "-nowarn", "-cp", f"{place}/*", "-d", str(place), str(program)], place)

    return Supply(
        f"Apache Kafka's group coordinator {TESTED_VERSION}",
        "mvn",
        "Maven",
        f"group-judge-{TESTED_VERSION}",
        lambda: pom.encode() + program.read_bytes(),
        make,
    )


def _share_judge() -> Supply:
    """A program that drives the share partition of the reference's broker."""
    program = Path(__file__).parents[1] / "conformance" / "share" / "ShareJudge.java"

    def make(place: Path, run: Run) -> None:
        jars = KAFKAS[REFERENCE_VERSION].home()
        run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(place), str(program)], place)

    return Supply(
        f"A judge of share partitions over Apache Kafka {REFERENCE_VERSION}",
        "javac",
        "the jars of Apache Kafka",
        f"share-judge-{REFERENCE_VERSION}",
        lambda: REFERENCE_VERSION.encode() + program.read_bytes(),
        make,
    )


def _kafka_tests() -> Supply:
    """Apache Kafka's own cluster tests, before them the classes that start oncelog where theirs start Kafka."""
    programs = sorted((Path(__file__).parents[1] / "conformance" / "kafka_tests").glob("*.java"))
    modules = "clients clients-integration-tests group-coordinator metadata server server-common storage tools"
    tests = ("kafka_2.13", *(f"kafka-{name}" for name in modules.split()))
    kit = ("test-common-runtime", "test-common-internal-api", "test-common-util", "tools")
    dependencies = [
        *(_CLASSIFIED.format("org.apache.kafka", name, TESTED_VERSION, "test") for name in tests),
        *(_DEPENDENCY.format("org.apache.kafka", f"kafka-{name}", TESTED_VERSION) for name in kit),
        _DEPENDENCY.format("org.apache.kafka", "kafka_2.13", TESTED_VERSION),
        _DEPENDENCY.format("org.junit.platform", "junit-platform-console", "1.13.1"),
        _DEPENDENCY.format("org.junit.jupiter", "junit-jupiter", "5.13.1"),
        _DEPENDENCY.format("org.mockito", "mockito-core", "5.20.0"),
        _DEPENDENCY.format("org.slf4j", "slf4j-nop", "1.7.36"),
    ]
    pom = _POM.format(dependencies="\n".join(dependencies))

    def make(place: Path, run: Run) -> None:
        _with_all_they_need(pom, place, run)
        run(["javac", "-nowarn", "-cp", f"{place}/*", "-d", str(place), *map(str, programs)], place)

    return Supply(
        f"Apache Kafka's own tests {TESTED_VERSION}",
        "mvn",
        "Maven",
        f"kafka-tests-{TESTED_VERSION}",
        lambda: pom.encode() + b"".join(program.read_bytes() for program in programs),
        make,
        "ONCELOG_KAFKA_TESTS",
    )


def _flink() -> Supply:
    """Flink with its Kafka sink, and a job that is halted between a checkpoint and its commit."""
    program = Path(__file__).parent / "clients" / "flink" / "SavedJob.java"
    artifacts = (
        f"org.apache.flink:flink-clients:{FLINK_VERSION}",
        f"org.apache.flink:flink-connector-base:{FLINK_VERSION}",
        f"org.apache.flink:flink-connector-datagen:{FLINK_VERSION}",
        "org.apache.flink:flink-connector-kafka:5.0.0-2.2",
        "org.slf4j:slf4j-simple:1.7.36",
    )
    pom = _POM.format(dependencies="\n".join(_DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts))

    def make(place: Path, run: Run) -> None:
        _with_all_they_need(pom, place, run)
        run(["javac", "-nowarn", "-cp", f"{place}/*", "-d", str(place), str(program)], place)

    return Supply(
        f"Apache Flink {FLINK_VERSION}",
        "mvn",
        "Maven",
        f"flink-{FLINK_VERSION}",
        lambda: pom.encode() + program.read_bytes(),
        make,
    )


def _spark_version() -> str:
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return "4.1.1"


KAFKAS: Final = {
    version: _project(
        f"Apache Kafka {version}",
        f"kafka-{version}",
        "ONCELOG_KAFKA_JARS" if version == KAFKA_VERSION else "",
        f"org.apache.kafka:kafka_2.13:{version}",
        f"org.apache.kafka:kafka-tools:{version}",
    )
    for version in KAFKA_VERSIONS
}
"""Brokers, clients and tools of today, by release."""
KAFKA: Final = KAFKAS[KAFKA_VERSION]
OLD_KAFKA: Final = {
    version: _project(f"Apache Kafka {version}", f"kafka-{version}", "", f"org.apache.kafka:kafka_{scala}:{version}")
    for version, scala in (
        ("0.8.2.2", "2.11"),
        ("0.9.0.1", "2.11"),
        ("0.10.2.2", "2.11"),
        ("1.0.2", "2.11"),
        ("3.9.1", "2.13"),
    )
}
"""Brokers, clients and tools of the releases that worked with ZooKeeper, by release. They run on Java 17."""
ECOSYSTEM: Final = _project(
    f"Kafka Streams and Connect {TESTED_VERSION}",
    f"ecosystem-{TESTED_VERSION}",
    "ONCELOG_ECOSYSTEM_JARS",
    f"org.apache.kafka:kafka-streams:{TESTED_VERSION}",
    f"org.apache.kafka:connect-runtime:{TESTED_VERSION}",
    f"org.apache.kafka:connect-file:{TESTED_VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)
MIRROR_MAKER: Final = _project(
    f"MirrorMaker {TESTED_VERSION}",
    f"mirror-maker-{TESTED_VERSION}",
    "",
    f"org.apache.kafka:connect-mirror:{TESTED_VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)
ICEBERG_SINK_VERSION: Final = "1.11.0"
ICEBERG_SINK: Final = _project(
    f"Apache Iceberg's sink for Connect {ICEBERG_SINK_VERSION}",
    f"iceberg-sink-{ICEBERG_SINK_VERSION}",
    "",
    f"org.apache.kafka:connect-runtime:{TESTED_VERSION}",
    f"org.apache.kafka:connect-json:{TESTED_VERSION}",
    f"org.apache.iceberg:iceberg-kafka-connect:{ICEBERG_SINK_VERSION}",
    f"org.apache.iceberg:iceberg-kafka-connect-transforms:{ICEBERG_SINK_VERSION}",
    f"org.apache.iceberg:iceberg-parquet:{ICEBERG_SINK_VERSION}",
    f"org.apache.iceberg:iceberg-orc:{ICEBERG_SINK_VERSION}",
    "org.apache.hadoop:hadoop-client-api:3.4.1",
    "org.apache.hadoop:hadoop-client-runtime:3.4.1",
    "org.xerial:sqlite-jdbc:3.50.3.0",
    "org.slf4j:slf4j-simple:1.7.36",
)
"""The sink with what it needs to write Parquet files into a directory, through a catalog in SQLite."""
GROUP_JUDGE: Final = _group_judge()
SHARE_JUDGE: Final = _share_judge()
"""Made after the reference's jars, which it is compiled against."""
KAFKA_TESTS: Final = _kafka_tests()
FLINK: Final = _flink()
SPARK_CONNECTOR: Final = _artifacts(
    "Spark's Kafka connector",
    "spark-connector",
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{_spark_version()}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
SPARK_AVRO: Final = _artifacts("Spark's Avro package", "spark-avro", "org.apache.spark:spark-avro_2.13:4.1.1")

APICURIO_VERSION: Final = "2.6.13.Final"


def _apicurio() -> Supply:
    """Apicurio Registry with schemas in memory, whose compatible API is that of Confluent's registry, version 7."""
    artifact = f"io.apicurio:apicurio-registry-app:{APICURIO_VERSION}:tar.gz:all"
    archive = f"apicurio-registry-app-{APICURIO_VERSION}-all.tar.gz"

    def make(place: Path, run: Run) -> None:
        _as_they_are([artifact], place, run)
        run(["tar", "-xzf", archive], place)
        (place / archive).unlink()

    return Supply(f"Apicurio Registry {APICURIO_VERSION}", "mvn", "Maven", "apicurio", artifact.encode, make)


APICURIO: Final = _apicurio()


def classpath(supply: Supply = KAFKA) -> str:
    """The argument of `java -cp` for everything of a supply; raises PeerMissing when it is not there."""
    return str(supply.home() / "*")


def jars_of(supply: Supply) -> list[Path]:
    """The jars of a supply in path order; none when it is not there."""
    return [] if supply.missing() else sorted(supply.home().glob("*.jar"))
