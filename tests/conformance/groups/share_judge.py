"""Apache Kafka's own group coordinator with share groups, in virtual time, as a child process."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.conformance.groups.judge import Judge
from tests.peers.jars import KAFKAS, REFERENCE_VERSION

PROGRAM = Path(__file__).with_name("ShareGroupJudge.java")


def compiled_judge(folder: Path) -> Judge:
    """The judge of the reference release, whose program is compiled into ``folder``."""
    jars = f"{KAFKAS[REFERENCE_VERSION].home()}/*"
    subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", str(folder), str(PROGRAM)], check=True, capture_output=True)
    return Judge(f"{folder}:{jars}", "org.apache.kafka.coordinator.group.ShareGroupJudge")
