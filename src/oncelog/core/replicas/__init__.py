"""Replicas of a partition: the in-sync set and the high watermark, as pure machines."""
