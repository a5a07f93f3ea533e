"""The command line: argument parsing and printing only. What it prints comes from ``admin`` and ``client``."""
