"""Watches the other brokers for frozen processes."""
