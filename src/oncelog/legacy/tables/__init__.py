"""Old log directories straight into a table, without a broker: Kafka 0.7's files, and formats 0 and 1 of 0.8 to 0.10.

``files`` finds what there is and plans it, a task a file; ``rows`` reads a file in a task; ``load`` publishes the
rows as every load does: rows and offsets by one rename, so it is run again after a crash, or for what was written
since.
"""
