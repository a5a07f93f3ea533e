"""Handlers of the request versions that Apache Kafka 4 removed (KIP-896), for clients of 0.8 to 1.0.

They are loaded only if ``oncelog.legacy.protocol`` is true. A module implements the differences of the old version and
leaves the rest to the current handler.
"""
