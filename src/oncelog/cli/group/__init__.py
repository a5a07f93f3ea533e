"""``oncelog group``: consumer groups of brokers and, with ``--zookeeper``, groups that balance through ZooKeeper."""
