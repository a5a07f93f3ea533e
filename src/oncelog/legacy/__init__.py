"""The old world, Kafka 0.7 to 1.1: its files, its message formats, its requests, and its groups in ZooKeeper.

Each room here stands on its own level of the house and has a row of its own in ``.importlinter``. Apart from the
command line, other rooms come in through one door: ``message_set`` through the package itself, ``requests`` through
``handlers.legacy_registry``, ``zookeeper_groups`` through ``client.zookeeper`` and ``admin.zookeeper_groups``.
"""
