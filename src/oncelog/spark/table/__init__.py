"""A table directory: Parquet files whose names are the offsets they hold (ADR 0001, ADR 0005).

Needs neither Spark nor a cluster.
"""
