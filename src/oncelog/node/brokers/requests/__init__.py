"""Sends messages to other brokers as Kafka's own requests over links."""
