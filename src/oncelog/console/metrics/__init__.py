"""Metrics of the last hour, sampled while the console runs and kept in memory."""
