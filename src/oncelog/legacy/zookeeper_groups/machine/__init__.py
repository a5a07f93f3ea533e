"""The state machine of a consumer that balances and may keep its offsets in ZooKeeper, as in Kafka 0.8 to 1.1; no I/O.

``member`` is the machine, ``steps`` its requests, ``assignment`` the range algorithm, ``subscription`` and ``nodes``
the node formats, ``starting_offsets`` the offsets to begin at, ``settings`` the keys. Source: the specification of 1.0,
"Distribution", and Apache Kafka 0.8.2.2 and 1.0.2, whose consumers share groups with ours.
"""
