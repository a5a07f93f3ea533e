"""Fetch: the API in ``handler``; ``reads`` reads partitions within the request's limits."""
