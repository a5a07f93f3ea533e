"""Other brokers: connections on demand, and messages as Kafka's own requests."""
