"""Tables that loads and streams write: directories of Parquet files, Delta Lake and Apache Iceberg.

``entry`` implements ``oncelog.spark.load``, ``stream`` and ``compact``; ``address`` parses ``--to``. The port of jobs
(``jobs.load_table``) has two implementations: ``parquet_table`` (with ``parquet_writer``), which commits by renames,
and ``format_table`` for formats with their own commits. ``table_target`` is the port to those commits, implemented by
``delta`` (with ``delta_files``) and ``iceberg`` (with ``iceberg_commit``). ``file_stores`` are places of files;
``task_files`` writes them in tasks; ``step_writer`` runs the Spark jobs; ``quarantine`` stores bad rows.
"""
