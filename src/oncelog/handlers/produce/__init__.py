"""Produce: the API in ``handler``, one partition in ``partition_append``, transactions in ``verification``."""
