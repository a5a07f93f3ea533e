"""Replicas of partitions: elections of leaders, in-sync sets, reassignments, placement."""
