"""Loading old log directories into a table without a broker: files of Kafka 0.7, and formats 0 and 1 of 0.8 to 0.10.

``files`` finds and plans the files, one task each; ``rows`` reads a file in a task; ``load`` publishes the rows like
every load: rows and offsets by one rename, so that it can be repeated after a crash or for new data.
"""
