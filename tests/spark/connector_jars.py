"""Spark's own Kafka connector, from Maven: a peer to compare with. Never in CI."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.peers.jars import WORK

ARTIFACTS: Final = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"


def connector_jars() -> tuple[list[Path], str]:
    """The jars, fetched once; or none and why not."""
    directory = WORK / "jars"
    jars = [directory / "{1}-{2}.jar".format(*artifact.split(":")) for artifact in ARTIFACTS]
    if not all(jar.exists() for jar in jars):
        if os.environ.get("CI"):
            return [], "left out in CI: Spark's Kafka connector comes from Maven"
        if shutil.which("mvn") is None:
            return [], "Maven is needed for Spark's Kafka connector"
        for artifact in ARTIFACTS:
            options = [f"-Dartifact={artifact}", f"-DoutputDirectory={directory}"]
            fetched = subprocess.run(
                ["mvn", "-q", "-B", _PLUGIN, *options], capture_output=True, text=True, check=False
            )
            if fetched.returncode:
                return [], f"Maven could not fetch {artifact}: {fetched.stdout.strip()[-300:]}"
    return jars, ""
