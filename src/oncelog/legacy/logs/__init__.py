"""Logs of Kafka 0.7: its files read as they are, and imported into a topic exactly once.

``entries`` reads the format over bytes, ``resync`` finds the next entry behind damage, ``directories`` knows the
names of files and directories, ``log_reader`` reads one partition's files in order. ``importer`` writes what they
hold to a topic; ``import_positions`` keeps how far it came, in the same transactions. Formats 0 and 1 of Kafka 0.8 to
0.10 are ``legacy.message_set``.
"""
