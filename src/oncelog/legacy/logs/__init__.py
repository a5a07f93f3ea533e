"""Logs of Kafka 0.7: reading their files, and importing them into a topic exactly once."""
