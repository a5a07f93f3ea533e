"""Retention, compaction and rebuilt indexes of a log, as jobs over sealed segments."""
