"""The Spark source: topics as rows, in batch and streaming queries.

``options`` are what a query may set. ``readers`` chooses for this version of Spark: ``batch_reader`` or
``filtering_reader``, ``admission_reader`` or ``self_limited_reader``. They run on the driver and use ``plan``: the
offsets that a query reads, as ``offset_ranges`` and ``stream_position``. Tasks use ``read``: a range as Arrow batches.
``value_formats`` decodes values behind the source, by Spark's own functions.
"""
