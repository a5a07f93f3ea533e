"""Tables that loads and streams write: directories of Parquet files, Delta Lake and Apache Iceberg.

The port of jobs (``jobs.load_table``) has two implementations: ``parquet_table``, which commits by renames, and
``format_table`` for formats with their own commits (the port ``table_target``: ``delta``, ``iceberg``).
"""
