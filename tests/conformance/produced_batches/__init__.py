"""Batches that a producer may send, whole or broken, and Apache Kafka's answer to each.

``python -m tests.conformance.produced_batches.record`` asks Apache Kafka 4.4.0 and writes ``answers.json``.
"""
