"""Logs on disk in Apache Kafka's file formats: segments, indexes, snapshots, recovery, retention, compaction."""
