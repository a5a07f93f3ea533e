"""``oncelog log``: data directories, offline. ``dump`` reads their files; ``importing`` brings in logs of Kafka 0.7."""
