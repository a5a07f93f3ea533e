"""The command line: argument parsing and printing only. The data come from ``admin`` and ``client``."""
