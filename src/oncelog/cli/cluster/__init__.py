"""``oncelog cluster``: commands about several brokers.

``status`` and ``decommission`` use the public protocol alone, so they work on Apache Kafka too.
"""
