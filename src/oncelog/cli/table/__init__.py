"""``oncelog load``, ``stream``, ``compact`` and ``export``: the command line of ``oncelog.spark``."""
