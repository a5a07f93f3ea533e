"""Dumps of the files of a data directory, offline: oncelog's and Apache Kafka's are the same.

The rule: nothing is written, nothing is locked, and no content is trusted. Damage becomes a row of type ``error``, and
the dump goes on with the next file.
"""
