"""The web console: pages about a Kafka cluster's transactions and about the records that consumers can really read.

A page is a function from a client and a query to rows (``pages``). ``application`` serves the rows as HTML, and as JSON
under the same path with ``.json``. All data comes from ``admin`` and ``client``.

Every request that could change anything passes ``admission.gate``, the only place that creates a ``Permit``. Only
``changes`` calls functions that change a cluster, with a permit and between two lines of the audit log.
"""
