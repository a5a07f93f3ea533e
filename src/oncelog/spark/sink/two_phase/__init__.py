"""Mode ``2pc``: a query's epoch is one decision over the transactions that its tasks left open (KIP-939).

``protocol`` is the pure machine with its rules P1–P7, ``register`` the value it decides on (R1–R4); ``operations`` is
their port to a cluster and ``cluster_operations`` its implementation. ``register_topic`` and ``register_records`` keep
the register in ``__oncelog_sink``.
"""
