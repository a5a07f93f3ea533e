"""Producer state in files, as Apache Kafka writes it."""
