"""Looking into the files of a data directory, offline: oncelog's and Apache Kafka's are the same.

The rule: nothing is written, nothing is locked, and nothing is believed. Damage becomes a row that says so, and the
dump goes on with the next file.
"""
