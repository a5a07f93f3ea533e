"""Metrics of the last hour, kept in memory while the console runs: sampled, drawn, and forgotten when it ends.

``history`` is a bounded ring; ``cluster_counts`` asks what the protocol of any cluster tells, ``broker_ports`` what
brokers of oncelog tell at their metrics ports; ``sampler`` does both again and again in a thread of its own.
"""
