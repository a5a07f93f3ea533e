"""Tables with commits of their own, which loads and streams write into: Delta Lake and Apache Iceberg.

``table_target`` is the port; ``delta`` (with ``delta_files``) and ``iceberg`` (with ``iceberg_commit`` and
``iceberg_compact``) implement it. ``address`` reads ``--to``, ``opening`` opens what it names, ``file_stores`` are the
places of files. ``task_files`` writes files in tasks, ``step_writer`` runs the Spark jobs; ``target_step`` commits a
step with its bad rows (``quarantine``), ``target_load`` and ``target_stream`` make the steps (``target_plan``).
``entry`` is where ``oncelog.spark.load``, ``stream`` and ``compact`` begin.
"""
