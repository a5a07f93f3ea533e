"""Offline dumps of the files of a data directory, of oncelog or Apache Kafka.

Writes nothing, locks nothing, trusts no content. Damage becomes a row of type ``error``, and the dump continues with
the next file.
"""
