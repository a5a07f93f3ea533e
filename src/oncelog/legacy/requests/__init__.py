"""Handlers of the request versions that Apache Kafka 4 removed (KIP-896), for clients of 0.8 to 1.0.

Loaded only if ``oncelog.legacy.protocol`` is true. Each implements the differences and leaves the rest to the current
handler.
"""
