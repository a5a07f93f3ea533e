"""Reading on executors: one range of one partition as Arrow record batches, fetched ahead by a thread."""
