"""Consumer groups that balance or keep their offsets in ZooKeeper, as in Kafka 0.8 to 1.1.

``machine`` makes the decisions; ``consumer`` runs it over a ZooKeeper session and a client of the brokers;
``administration`` lists and resets groups and moves their offsets. Other rooms import them as ``client.zookeeper`` and
``admin.zookeeper_groups``.
"""
