"""The topic configuration that storage needs, as typed values with Apache Kafka 4.3's defaults."""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog.base.units import DAY_MS, GIB, HOUR_MS, INT32_MAX, INT64_MAX, KIB, MIB, MINUTE_MS

INLINE_VALIDATION_BYTES: Final = 128 * KIB
"""Bytes of uncompressed records that are validated, or rebuilt, at once."""
UNLIMITED: Final = -1
UNLIMITED_RECORD: Final = INT32_MAX - 8  # Apache Kafka's default; no record is longer.
COMPACT: Final = "compact"
DELETE: Final = "delete"
LOG_APPEND_TIME: Final = "LogAppendTime"
PRODUCER: Final = "producer"


class LogConfig(NamedTuple):
    """One field per topic config: dots become underscores. Units (milliseconds, bytes) as named."""

    segment_bytes: int = GIB
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * MIB
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = UNLIMITED
    file_delete_delay_ms: int = MINUTE_MS
    cleanup_policy: tuple[str, ...] = (DELETE,)
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    delete_retention_ms: int = DAY_MS
    max_decompressed_message_bytes: int = UNLIMITED_RECORD
    max_message_bytes: int = MIB + 12
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = HOUR_MS
    compression_type: str = PRODUCER
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    min_insync_replicas: int = 1

    @property
    def largest_batch_bytes(self) -> int:
        """The largest batch that recovery takes for sound, and a follower accepts."""
        return max(self.max_message_bytes, self.segment_bytes, MIB)

    @property
    def compact(self) -> bool:
        """True if the log is compacted; records may be deleted by retention, too."""
        return COMPACT in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """True if retention deletes old segments."""
        return DELETE in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == LOG_APPEND_TIME

    @property
    def bounds_unflushed(self) -> bool:
        """True if ``flush.messages`` or ``flush.ms`` bounds the unsynced records, whatever the policy."""
        return self.flush_messages < INT64_MAX or self.flush_ms < INT64_MAX


class StorageConfig(NamedTuple):
    producer_id_expiration_ms: int = DAY_MS
    cleaner_dedupe_buffer_bytes: int = 128 * MIB
    cleaner_enable: bool = True
    max_decompressed_bytes: int = 512 * MIB
    """Bound on the decompressed size of a validated batch."""
    validates_records: bool = True
    """False: records are inspected only if a topic or a batch's header demands it."""
    jitter_seed: int = 0
