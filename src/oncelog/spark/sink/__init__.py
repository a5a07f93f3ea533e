"""The Spark sink: rows of a batch or of a streaming query become records of topics, each exactly once.

Three ideas, one or two modules each:

1. ``register``, ``protocol``: who may write, what counts, when it becomes visible. A pure machine (KIP-939): tasks
   leave open transactions behind, the driver writes one decision, then ends exactly those. It runs against a model in
   the tests, with every process dying at every step.
2. ``cluster``, ``decisions``, ``producing``: the same over our blocking client. ``ledger`` is the way for brokers
   without two-phase commit.
3. ``rows``, ``writer``, ``options``: Arrow batches in, record batches out (``oncelog.records.columns.encode``).
"""
