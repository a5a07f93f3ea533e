"""Jobs that move topics into tables: ``load_job`` up to the log's end, ``stream_query`` continuously.

``load_table`` is the port to a table of any kind (``targets``). ``load_plan`` is pure: what is missing in the table,
in which steps. ``spark_reader`` reads ranges, ``planned_batches`` makes batches over Spark Connect. ``shape`` decodes
values and finds bad rows, ``quarantine_topic`` sends those to a topic; ``load_report`` has the values that a job takes
and gives.
"""
