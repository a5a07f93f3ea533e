"""Support for Kafka 0.7 to 1.1: old log files, message formats, request versions, and consumer groups in ZooKeeper.

Apart from the command line, other rooms use each room through one entry: ``message_set`` through the package itself,
``requests`` through ``handlers.legacy_registry``, ``zookeeper_groups`` through ``client.zookeeper`` and
``admin.zookeeper_groups``.
"""
