"""Spark's own Kafka connector, a peer to compare with, and its Avro package: from Maven, never in CI."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import pyspark

from tests.peers.jars import WORK

ARTIFACTS: Final = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
AVRO: Final = ("org.apache.spark:spark-avro_2.13:4.1.1",)
_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"


def connector_jars() -> tuple[list[Path], str]:
    """The jars of the connector, fetched once; or none and why not."""
    return _jars(ARTIFACTS)


def avro_jars() -> tuple[list[Path], str]:
    """As ``connector_jars``: Spark's Avro package."""
    return _jars(AVRO)


@cache
def _jars(artifacts: tuple[str, ...]) -> tuple[list[Path], str]:
    directory = WORK / "jars"
    jars = [directory / "{1}-{2}.jar".format(*artifact.split(":")) for artifact in artifacts]
    if not all(jar.exists() for jar in jars):
        if os.environ.get("CI"):
            return [], "left out in CI: Spark's Kafka connector and Avro package come from Maven"
        if shutil.which("mvn") is None:
            return [], "Maven is needed for Spark's Kafka connector and Avro package"
        for artifact in artifacts:
            options = [f"-Dartifact={artifact}", f"-DoutputDirectory={directory}"]
            fetched = subprocess.run(
                ["mvn", "-q", "-B", _PLUGIN, *options], capture_output=True, text=True, check=False
            )
            if fetched.returncode:
                return [], f"Maven could not fetch {artifact}: {fetched.stdout.strip()[-300:]}"
    return jars, ""
