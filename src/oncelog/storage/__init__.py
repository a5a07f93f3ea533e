"""Logs on disk, in Apache Kafka's own files: segments, indexes, snapshots, recovery, retention, compaction."""
