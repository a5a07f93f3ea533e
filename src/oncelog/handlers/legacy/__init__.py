"""The versions of requests that Apache Kafka 4 no longer has (KIP-896), for clients of 0.8 to 1.0.

Nothing here is loaded unless ``oncelog.legacy.protocol`` is true. ``registry`` says which versions these are; each
handler does what the old version does otherwise, and has the rest done by the handler of today.
"""
