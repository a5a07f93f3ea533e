"""Tables that loads and streams write: directories of Parquet files, Delta Lake and Apache Iceberg.

``parquet_table`` commits by renames; ``format_table`` is for formats with their own commits (the port ``table_target``:
``delta``, ``iceberg``). Both implement ``jobs.load_table``.
"""
