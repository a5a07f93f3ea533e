"""The command line: parses arguments and prints results. The work is in ``admin``, ``client`` and ``spark``."""
