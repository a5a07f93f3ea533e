"""Apache Kafka's own cluster tests, unchanged, against processes of oncelog."""
