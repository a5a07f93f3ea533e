"""Names of the files in a data directory, which are Apache Kafka's."""

from __future__ import annotations

import re
from typing import Final

from oncelog.base.ids import TopicPartition

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
SEGMENT_FILES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)
"""The files of one segment; where order matters, the log appears last and goes first."""

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
TEMPORARY: Final = ".tmp"

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"

DELETE_DIRECTORY: Final = "-delete"
STRAY_DIRECTORY: Final = "-stray"

LONGEST_NAME: Final = 255
"""Characters of a file name in all usual file systems; a topic's name has at most 249."""

_OFFSET_NAME: Final = re.compile(r"(\d{20})(\.[a-z]+)((?:\.[a-z]+)?)")
_MARKED_DIRECTORY: Final = re.compile(r"\S+-\d+\.[0-9a-f]{32}-(?:delete|stray)")


def segment_file(base_offset: int, extension: str, suffix: str = "") -> str:
    """``00000000000000000042.log``; snapshots are named alike."""
    return f"{base_offset:020d}{extension}{suffix}"


def parse_segment_file(name: str) -> tuple[int, str, str] | None:
    """Offset, extension and suffix (``.deleted`` …, or empty) of a file named after an offset, or None."""
    match = _OFFSET_NAME.fullmatch(name)
    return None if match is None else (int(match[1]), match[2], match[3])


def marked_directory(partition: TopicPartition, token: str, mark: str) -> str:
    """Name of a partition directory that waits for its deletion: ``topic-0.<32 hex digits>-delete``."""
    rest = f"-{partition.partition}.{token}{mark}"
    # Long topic names are cut, as in Apache Kafka: the digits keep the name unique.
    return f"{partition.topic[: LONGEST_NAME - len(rest)]}{rest}"


def is_marked_directory(name: str) -> bool:
    """True if a deletion renamed the directory, or it was set aside as a stray."""
    return _MARKED_DIRECTORY.fullmatch(name) is not None
