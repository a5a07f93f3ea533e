"""``oncelog log backup`` and ``restore``: copies of the data of running brokers, of one moment, with checksums."""
