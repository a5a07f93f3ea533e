"""Errors of the sink: one line each, for the person who runs the query."""

from __future__ import annotations

import pickle

from oncelog.spark.session.errors import SparkSourceError


class SinkError(SparkSourceError):
    """Anything the sink refuses to do."""


class WriteRefused(SinkError, pickle.PickleError):
    """The refusal of a write whose writer is being pickled to the tasks. It is an error of pickle, too: PySpark passes
    those on, and reports every other as an object that could not be serialized."""
