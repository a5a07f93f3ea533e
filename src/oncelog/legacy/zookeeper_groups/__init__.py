"""Consumer groups that balance or keep their offsets in ZooKeeper, as in Kafka 0.8 to 1.1.

Other rooms import them as ``client.zookeeper`` and ``admin.zookeeper_groups``.
"""
