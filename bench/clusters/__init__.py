"""Three brokers beside three of Apache Kafka's: throughput, latency, failover, catching up, many partitions."""
