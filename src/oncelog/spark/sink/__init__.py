"""The Spark sink: writes rows of a batch or streaming query to topics, each exactly once.

PySpark calls ``data_writer``. ``task_writer`` is a task, ``epoch_commit`` the driver. In mode ``2pc`` both run
``two_phase``: tasks leave open transactions, the driver writes one decision and then ends exactly those (KIP-939). Mode
``ledger`` is for brokers without two-phase commit; ``modes`` chooses. ``row_router`` and ``body_producer`` turn Arrow
batches into record batches.
"""
