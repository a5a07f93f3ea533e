"""Audits of log directories: reports that ``oncelog audit --json`` wrote, and audits that this console runs.

The rule: a browser names a directory or a report only by what the console was started with, never by a path of its own.
An audit is a process of its own, one at a time; nothing of it is imported here, so that a console works without Spark.
"""
