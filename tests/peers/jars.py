"""Where Apache Kafka's jars are: `ONCELOG_KAFKA_JARS`, or fetched once through Maven into `.work/`.

Kafka Streams and Connect (with the seventy megabytes of RocksDB) are apart: `ONCELOG_ECOSYSTEM_JARS`, or fetched too.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

KAFKA_VERSION: Final = "4.3.1"
ROOT: Final = Path(__file__).resolve().parents[2]
WORK: Final = ROOT / ".work"

_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>oncelog.peers</groupId>
  <artifactId>apache-kafka</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY: Final = """\
    <dependency>
      <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
    </dependency>"""
_BROKER: Final = ("kafka_2.13", "kafka-tools")
_ECOSYSTEM: Final = ("kafka-streams", "connect-runtime", "connect-file")
_LOGGING: Final = _DEPENDENCY.format(group="org.slf4j", artifact="slf4j-simple", version="1.7.36")


class PeerMissing(Exception):
    """Something a peer needs is not on this machine; the message says what."""


def kafka_jars() -> Path:
    """The directory with Apache Kafka's broker, tools and everything they need; fetched when it is not there yet."""
    ready = os.environ.get("ONCELOG_KAFKA_JARS")
    if ready:
        return Path(ready)
    return _fetched(WORK / f"kafka-{KAFKA_VERSION}", _BROKER)


def ecosystem_jars() -> Path:
    """The directory with Kafka Streams, Connect and its file connectors; fetched when it is not there yet."""
    ready = os.environ.get("ONCELOG_ECOSYSTEM_JARS")
    return Path(ready) if ready else _fetched(WORK / f"ecosystem-{KAFKA_VERSION}", _ECOSYSTEM, _LOGGING)


def _fetched(home: Path, artifacts: Sequence[str], *others: str) -> Path:
    library = home / "lib"
    complete = home / "complete"
    if not complete.exists():
        _fetch(home, library, artifacts, others)
        complete.touch()
    return library


def _fetch(home: Path, library: Path, artifacts: Sequence[str], others: Sequence[str]) -> None:
    home.mkdir(parents=True, exist_ok=True)
    ours = [
        _DEPENDENCY.format(group="org.apache.kafka", artifact=artifact, version=KAFKA_VERSION) for artifact in artifacts
    ]
    pom = home / "pom.xml"
    pom.write_text(_POM.format(dependencies="\n".join([*ours, *others])), encoding="utf-8")
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={library}"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise PeerMissing("Maven is needed to fetch Apache Kafka: install mvn, or set ONCELOG_KAFKA_JARS") from None
    if run.returncode != 0:
        raise PeerMissing(f"Maven could not fetch Apache Kafka {KAFKA_VERSION}:\n{run.stdout[-2000:]}")


def classpath() -> str:
    """What goes after `java -cp`."""
    return str(kafka_jars() / "*")
