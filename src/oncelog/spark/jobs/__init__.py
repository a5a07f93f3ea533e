"""Jobs that load topics into tables: ``load_job`` up to the logs' ends, ``stream_query`` continuously."""
