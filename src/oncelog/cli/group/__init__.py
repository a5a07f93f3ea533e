"""``oncelog group``: consumer groups of brokers, and with ``--zookeeper`` those that balance through ZooKeeper."""
