"""Produce: the API in ``handler``, one partition of it in ``partition_append``, transactions in ``verification``."""
