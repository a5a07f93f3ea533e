"""Retention, compaction and index rebuilds of a log, as jobs over sealed segments."""
