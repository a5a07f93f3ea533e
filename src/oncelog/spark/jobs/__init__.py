"""Jobs that move topics into a table directory: ``load_job`` up to the log's end, ``stream_job`` continuously.

Both write through one ``publication``; ``stream_query`` has what all streams share. ``load_plan`` is pure: what is
missing in the table, in which steps. ``cluster_log`` asks for the log's offsets, ``spark_writer`` runs the Spark jobs,
``shape`` decodes values and finds bad rows, ``quarantine_topic`` sends those to a topic; ``load_report`` has the values
that a job takes and gives.
"""
