"""Record schemas of the internal topics, byte for byte Apache Kafka's."""
