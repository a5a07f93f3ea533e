"""Message sets: Kafka's formats 0 (0.8 and 0.9) and 1 (0.10), which record batches replaced in 0.11 (KIP-98).

A message set is a sequence of entries: ``entry`` reads and writes one of them. The value of a compressed entry, the
wrapper, is a message set again: ``deep`` reads what is in it, ``writing`` makes it. ``lz4`` has the one codec that is
framed otherwise in format 0.
"""
