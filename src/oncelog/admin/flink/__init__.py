"""Reads the checkpoints and savepoints of Flink jobs for the transactions that their Kafka sinks left open.

The layouts are those of Flink 1.11 to 2.3 (metadata versions 3 to 6) and of flink-connector-kafka 1.15 to 5.0.
"""
