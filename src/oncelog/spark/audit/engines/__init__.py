"""Engines of the pipeline: in this process, or on Spark."""
