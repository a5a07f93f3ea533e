"""Jobs that load topics into tables: ``load_job`` up to the logs' ends, ``stream_query`` continuously.

``load_table`` is the port to a table of any kind (``targets``). ``load_plan`` is pure: which offsets the table lacks,
in which steps. ``spark_reader`` reads ranges; ``planned_batches`` makes batches over Spark Connect. ``shape`` decodes
values and finds bad rows, which ``quarantine_topic`` sends to a topic. ``load_report`` has requests and reports.
"""
