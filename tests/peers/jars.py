"""Where Apache Kafka's jars are: `ONCELOG_KAFKA_JARS`, or fetched once through Maven into `.work/`."""

from __future__ import annotations

import os
import subprocess
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
      <groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
    </dependency>"""


class PeerMissing(Exception):
    """Something a peer needs is not on this machine; the message says what."""


def kafka_jars() -> Path:
    """The directory with Apache Kafka's broker, tools and everything they need; fetched when it is not there yet."""
    ready = os.environ.get("ONCELOG_KAFKA_JARS")
    if ready:
        return Path(ready)
    home = WORK / f"kafka-{KAFKA_VERSION}"
    library = home / "lib"
    complete = home / "complete"
    if not complete.exists():
        _fetch(home, library)
        complete.touch()
    return library


def _fetch(home: Path, library: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    dependencies = "\n".join(
        _DEPENDENCY.format(artifact=artifact, version=KAFKA_VERSION) for artifact in ("kafka_2.13", "kafka-tools")
    )
    pom = home / "pom.xml"
    pom.write_text(_POM.format(dependencies=dependencies), encoding="utf-8")
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
