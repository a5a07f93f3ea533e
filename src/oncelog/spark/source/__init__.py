"""The Spark source: topics as rows, in batch and streaming queries.

``data_source`` is the class that PySpark calls, ``options`` what a query may set. ``batch_reader`` and
``stream_reader`` run on the driver and use ``plan``: which offsets a query reads. Tasks use ``read``: a range of
offsets as Arrow batches. ``value_formats`` decodes values behind the source, by Spark's own functions.
"""
