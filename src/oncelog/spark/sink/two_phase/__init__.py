"""Mode ``2pc``: a query's epoch is one decision over the transactions that its tasks left open (KIP-939).

``protocol`` is the pure machine with rules P1–P7; ``register`` is the value it decides on, with rules R1–R4.
"""
