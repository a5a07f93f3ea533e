"""A table directory: Parquet files whose names are the offsets they hold (ADR 0001, ADR 0005).

``directory`` has the layout, the lock and the commit. ``rename_journal`` makes several renames one commit;
``atomic_swap`` exchanges two directories. ``parquet_files`` checks footers and merges files; ``compact`` replaces small
files in one swap. Needs neither Spark nor a cluster.
"""
