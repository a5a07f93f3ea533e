"""``oncelog cluster``: what a user sees of several brokers.

The rule: ``status`` and ``decommission`` use the public protocol alone, so they work on Apache Kafka too; ``up`` runs
brokers as processes of this machine, and ends them.
"""
