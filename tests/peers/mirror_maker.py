"""MirrorMaker 2 as a process of its own, in its dedicated mode with exactly once (KIP-618, KIP-710)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.peers.jars import MIRROR_MAKER, classpath
from tests.peers.process import Process, free_ports

_JVM: Final = (
    *("-Xms256M", "-Xmx2G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
"""Options that its start script gives it."""
_SETTINGS: Final = {
    "exactly.once.source.support": "enabled",
    "dedicated.mode.enable.internal.rest": "true",
    "replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "tasks.max": "4",
    "refresh.topics.interval.seconds": "1",
    "emit.heartbeats.enabled": "false",
    "plugin.discovery": "service_load",
}


class MirrorMaker:
    """Copies ``topics`` of ``source`` (as the cluster ``alias``) to ``target``, until killed."""

    def __init__(
        self,
        alias: str,
        source: str,
        target: str,
        topics: str,
        directory: Path,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        values = {
            **_SETTINGS,
            "clusters": f"{alias},to",
            f"{alias}->to.enabled": "true",
            f"to->{alias}.enabled": "false",
            f"{alias}.bootstrap.servers": source,
            f"{alias}.consumer.isolation.level": "read_committed",
            "to.bootstrap.servers": target,
            f"{alias}->to.topics": topics,
            **(settings or {}),
            "listeners": f"http://127.0.0.1:{free_ports(1)[0]}",
        }
        properties = directory / "mm2.properties"
        properties.write_text("".join(f"{key} = {value}\n" for key, value in values.items()), encoding="utf-8")
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        command = ["java", *_JVM, "-cp", classpath(MIRROR_MAKER), main, str(properties)]
        self.process = Process(command, directory / "mirror-maker.log")

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        self.process.kill()
