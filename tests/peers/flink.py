"""A Flink job in a JVM of its own that is halted between a checkpoint and the commit of its transactions."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from tests.peers.jars import FLINK, classpath
from tests.waiting import HANG_S

HALTED: Final = 9
"""The exit code of a JVM that its committer has halted."""
_OPEN: Final = ("lang", "net", "nio", "time", "util", "util.concurrent")
"""Packages of Java that Flink's serializers look into."""


def run_saved_job(
    bootstrap: str,
    topic: str,
    checkpoints: Path,
    *,
    records: int,
    halt_at: int = 0,
    inline_bytes: int = 20_480,
    strategy: str = "INCREMENTING",
    restored: Path | None = None,
) -> tuple[int, str]:
    """Run the job to its end. Returns its exit code and its log."""
    restore = "-" if restored is None else f"file://{restored}"
    command = [
        *("java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPEN),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        *("-cp", f"{FLINK.home()}:{classpath(FLINK)}", "org.apache.flink.connector.kafka.sink.SavedJob"),
        *(bootstrap, topic, str(checkpoints), str(records), str(halt_at), str(inline_bytes), strategy, restore),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * HANG_S)
    return done.returncode, done.stdout + done.stderr
