"""Speed, measured against Apache Kafka 4.3.1 in the same run with the same clients: `python -m bench --help`."""
