"""Mode ``2pc``: a query's epoch is one decision over the transactions that its tasks left open (KIP-939).

``protocol`` is the pure machine with rules P1–P7; ``register`` is the value it decides on, with rules R1–R4.
``operations`` is their port to a cluster, implemented by ``cluster_operations``. ``register_topic`` and
``register_records`` store the register in ``__oncelog_sink``.
"""
