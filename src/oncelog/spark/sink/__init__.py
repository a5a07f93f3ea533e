"""The Spark sink: rows of a batch or of a streaming query become records of topics, each exactly once.

1. ``data_writer`` is what PySpark calls, ``options`` what it refuses, ``modes`` how a cluster can be
   written to exactly once. ``format.foreach_batch`` makes several writes one transaction.
2. ``task_writer`` is a task, ``epoch_commit`` the driver. In mode ``2pc`` both run ``two_phase``: tasks leave open
   transactions behind, the driver writes one decision, then ends exactly those (KIP-939). The protocol is pure and runs
   against a model in the tests, with every process dying at every step. Mode ``ledger``, with ``row_digest``, is for
   brokers without two-phase commit.
3. ``row_router`` and ``body_producer``: Arrow batches in, record batches out (``oncelog.records.columns.encode``).
"""
