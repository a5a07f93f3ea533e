"""A directory of many logs."""

from __future__ import annotations

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.base.units import KIB
from oncelog.sim.virtual.files import MemoryFiles
from oncelog.storage.log_directory import LogDirectory
from tests.memory import peak_bytes
from tests.unit.storage.support import NOW, SMALL, TOPIC_ID

LOGS = 50


def test_an_empty_log_takes_little_memory() -> None:
    def create() -> None:
        directory = LogDirectory.open(MemoryFiles(now_ms=lambda: NOW), config_of=lambda _: SMALL, now_ms=NOW)
        for index in range(LOGS):
            directory.create(TopicPartition(TopicName("t"), index), TOPIC_ID, SMALL, now_ms=NOW)

    enough = 30 * KIB * LOGS
    assert peak_bytes(create, enough) < enough
