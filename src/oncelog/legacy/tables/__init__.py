"""Loading old log directories into a table without a broker: files of Kafka 0.7, and formats 0 and 1 of 0.8 to 0.10."""
