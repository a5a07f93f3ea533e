"""Audits of log directories: reports written by ``oncelog audit --json``, and audits that this console runs.

A browser selects a directory or report only from those the console was started with, never by a path. An audit runs in
its own process. None of its code is imported here, so the console works without Spark.
"""
