"""The Spark source: topics as rows, in batch and streaming queries.

``options`` parses what a query sets. ``readers`` chooses for the installed Spark: ``batch_reader`` or
``filtering_reader``, ``admission_reader`` or ``self_limited_reader``. These run on the driver and use ``plan``, which
resolves the offsets to read as ``offset_ranges`` and ``stream_position``. Tasks use ``read``: a range as Arrow batches.
``value_formats`` decodes values after the source, with Spark's own functions.
"""
