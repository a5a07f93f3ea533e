"""``oncelog cluster``: commands about several brokers.

The rule: ``status`` and ``decommission`` use the public protocol alone, so they work on Apache Kafka too; ``up`` runs
brokers as child processes on this machine.
"""
