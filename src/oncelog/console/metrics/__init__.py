"""Metrics of the last hour, sampled while the console runs and kept in memory.

``history`` is a bounded ring buffer; ``cluster_counts`` samples any cluster through the protocol, ``broker_ports``
reads the metrics ports of oncelog's brokers; ``sampler`` runs both periodically in a thread.
"""
