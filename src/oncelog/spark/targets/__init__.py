"""Tables that loads and streams write, as the port ``jobs.load_table``.

``parquet_table`` commits by renames; ``format_table`` is for formats with their own commits (the port ``table_target``:
``delta``, ``iceberg``).
"""
