"""The state machine of a consumer that balances and may keep its offsets in ZooKeeper, as in Kafka 0.8 to 1.1; no I/O.

Source: the specification of 1.0, "Distribution", and Apache Kafka 0.8.2.2 and 1.0.2.
"""
