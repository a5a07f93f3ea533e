"""Consumer groups that balance, or keep their offsets, in ZooKeeper, as Kafka's did from 0.8 to 1.1.

``machine`` decides; ``consumer`` runs it over a session with the tree and a client of the brokers, ``administration``
lists and resets groups and moves their offsets. Others import them as ``client.zookeeper`` and
``admin.zookeeper_groups``.
"""
