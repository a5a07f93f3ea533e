"""The Spark source: topics as rows, in batch and streaming queries.

``readers`` chooses the reader for the installed Spark. Readers run on the driver and ``plan`` offsets; tasks ``read`` a
range as Arrow batches.
"""
