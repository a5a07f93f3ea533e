"""Frozen brokers: found in time, and never without need."""
