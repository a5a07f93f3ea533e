"""The Spark source: topics as rows, in batch and streaming queries.

``data_source`` is the class that PySpark calls, ``options`` what a query may set, ``readers`` chooses for this version
of Spark: ``batch_reader`` or ``filtering_reader``, ``admission_reader`` or ``self_limited_reader``. They run on the
driver and use ``plan``: which offsets a query reads. Tasks use ``read``: a range of offsets as Arrow batches.
``value_formats`` decodes values behind the source, by Spark's own functions.
"""
