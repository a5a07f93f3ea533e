"""oncelog: a commit log that speaks the Kafka protocol, with exactly-once that can be inspected."""

__version__ = "0.1.0"
