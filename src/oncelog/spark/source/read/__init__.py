"""Reading on executors: one range of offsets of one partition → Arrow record batches, fetched ahead by a thread."""
