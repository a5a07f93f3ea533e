"""A consumer that balances and may keep its offsets in ZooKeeper, as Kafka's did from 0.8 to 1.1: the decisions alone.

``member`` is the machine, ``steps`` what it asks for, ``assignment`` the range algorithm, ``subscription`` and
``nodes`` the nodes of the tree, ``starts`` the offsets to begin at, ``settings`` the keys. Source: the specification of
1.0, "Distribution", and Apache Kafka 0.8.2.2 and 1.0.2, whose consumers share groups with ours.
"""
