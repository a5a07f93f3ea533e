"""Tables that loads and streams write into: directories of Parquet files, Delta Lake and Apache Iceberg.

``entry`` is where ``oncelog.spark.load``, ``stream`` and ``compact`` begin; ``address`` reads ``--to``. The port of
jobs (``jobs.load_table``) has two implementations: ``parquet_table`` (with ``parquet_writer``), which commits by
renames, and ``format_table`` for formats with commits of their own. The port to those commits is ``table_target``;
``delta`` (with ``delta_files``) and ``iceberg`` (with ``iceberg_commit``) implement it.
``file_stores`` are the places of files, ``task_files`` writes them in tasks, ``step_writer`` runs the Spark jobs,
``quarantine`` has the bad rows.
"""
