"""The web console: pages of a Kafka cluster about its transactions, and about what can really be read.

A page is a function from a client and a query to rows (``pages``), which ``application`` serves as HTML or, under the
same path with ``.json``, as JSON. Everything shown comes from ``admin`` and ``client``; a page only shapes it.

The rule: a request that could change anything passes ``admission.gate``, the one place that gives a ``Permit``; only
``changes`` calls what changes a cluster, never without one, between two lines of the audit.
"""
