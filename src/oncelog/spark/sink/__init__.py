"""The Spark sink: writes rows of a batch or streaming query to topics, each exactly once.

1. PySpark calls ``data_writer``; ``options`` validates; ``modes`` finds how a cluster can be written to exactly once.
   ``format.foreach_batch`` makes several writes one transaction.
2. ``task_writer`` is a task, ``epoch_commit`` the driver. In mode ``2pc`` both run ``two_phase``: tasks leave open
   transactions, the driver writes one decision and then ends exactly those (KIP-939). The protocol is pure; tests run
   it against a model in which every process dies at every step. Mode ``ledger``, with ``row_digest``, is for brokers
   without two-phase commit.
3. ``row_router`` and ``body_producer`` turn Arrow batches into record batches (``oncelog.records.columns.encode``).
"""
