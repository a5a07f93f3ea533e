"""Logs of Kafka 0.7: reading their files, and importing them into a topic exactly once.

``entries`` parses the format, ``resync`` finds the next entry after damage, ``directories`` parses the names of files
and directories, and ``log_reader`` reads one partition's files in order. ``importer`` writes the messages to a topic;
``import_positions`` stores its progress in the same transactions. Formats 0 and 1 of Kafka 0.8 to 0.10 are in
``legacy.message_set``.
"""
