"""Fetch: the API in ``handler``, reading partitions within its limits in ``reads``."""
