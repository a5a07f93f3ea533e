"""The versions of requests that Apache Kafka 4 no longer has (KIP-896), for clients of 0.8 to 1.0.

Nothing here is loaded unless ``oncelog.legacy.protocol`` is true. ``handlers.legacy_registry`` names the
versions and the modules here; each does what the old version does otherwise, and leaves the rest to the handler of
today.
"""
